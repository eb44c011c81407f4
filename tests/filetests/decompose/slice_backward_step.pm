// A step is undone by padding a new dim behind the sliced one; no scatter and no tensor of zeros.
// run: verify | decompose
graph "rope" joint(forward_outputs=0) {
  symbol s0 hint=8 range=[2, inf]
  input %even: f32[s0, 4]
  input %head: f32[s0 - 1, 8]
  %a: f32[s0, 8] = aten.slice_backward.default(%even, [s0, 8], 1, 0, 9223372036854775807, 2)
  %b: f32[s0, 8] = aten.slice_backward.default(%head, [s0, 8], 0, 1, 9223372036854775807, 1)
  output %a
  output %b
}
// expect:
// graph "rope" joint(forward_outputs=0) {
//   symbol s0 hint=8 range=[2, inf]
//   input %even: f32[s0, 4]
//   input %head: f32[-1 + s0, 8]
//   %v2: f32[s0, 4, 1] = prim.reshape(%even, shape=[s0, 4, 1])
//   %v3: f32[s0, 4, 2] = prim.pad(%v2, low=[0, 0, 0], high=[0, 0, 1])
//   %v4: f32[s0, 8] = prim.reshape(%v3, shape=[s0, 8])
//   %v5: f32[s0, 7] = prim.slice(%v4, dim=1, start=0, end=7, step=1)
//   %a: f32[s0, 8] = prim.pad(%v5, low=[0, 0], high=[0, 1])
//   %b: f32[s0, 8] = prim.pad(%head, low=[1, 0], high=[0, 0])
//   output %a
//   output %b
// }
