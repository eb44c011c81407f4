// The first element of a flip lies at the end of each dim, whatever the sizes.
// run: verify | compare
// symbol s0 = 7
// symbol s1 = 3
graph "flip" inference {
  symbol s0 hint=6 range=[2, 64]
  symbol s1 hint=5 range=[2, 64]
  input %x: f32[s0, s1, s0] strides=[1, s0*s0, s0]
  %f: f32[s0, s1, s0] = prim.flip(%x, dims=[0, 1, 2])
  %y: f32[s0, s1, s0] = prim.exp(%f)
  output %f
  output %y
}
// expect:
// 294 elements agree
