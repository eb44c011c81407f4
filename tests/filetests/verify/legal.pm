// Symbolic sizes flow through the type rules.
// run: parse | verify
graph "g" joint(forward_outputs=1) {
  symbol s0 hint=8 range=[2, 1000]
  input %x: f32[s0, 4]
  input %g: f32[s0] role=tangent
  %e: f32[s0, 4] = prim.exp(%x)
  %t: f32[s0] = prim.sum(%e, dims=[1])
  %r: f32[s0, 1] = prim.reshape(%g, shape=[s0, 1])
  %w: f32[s0, 4] = prim.expand(%r, shape=[s0, 4])
  %d: f32[s0, 4] = prim.mul(%w, %e)
  output %t
  output %d
}
// expect:
// legal: 2 inputs, 5 nodes, 2 outputs
