// The sum's gradient spreads over a size that no tensor of the backward tells: the size itself is saved.
// run: verify | partition
graph "sum" joint(forward_outputs=1) {
  symbol s0 hint=8 range=[2, 1000]
  input %x: f32[s0, 4] strides=[4, 1]
  input %t: f32[4] role=tangent
  %y: f32[4] = prim.sum(%x, dims=[0])
  %r: f32[1, 4] = prim.reshape(%t, shape=[1, 4])
  %g: f32[s0, 4] = prim.expand(%r, shape=[s0, 4])
  output %y
  output %g
}
// expect:
// saved s0
// 0 bytes saved beside the inputs
// graph "sum_forward" forward {
//   symbol s0 hint=8 range=[2, 1000]
//   input %x: f32[s0, 4] strides=[4, 1]
//   %y: f32[4] = prim.sum(%x, dims=[0])
//   output %y
//   output s0
// }
// graph "sum_backward" backward {
//   symbol s0 hint=8 range=[2, 1000]
//   input s0
//   input %t: f32[4] role=tangent
//   %r: f32[1, 4] = prim.reshape(%t, shape=[1, 4])
//   %g: f32[s0, 4] = prim.expand(%r, shape=[s0, 4])
//   output %g
// }
