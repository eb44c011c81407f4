// A gradient nobody wants emits nothing.
// run: verify | decompose
graph "masked" joint(forward_outputs=0) {
  input %dy: f32[2, 3, 5]
  input %x: f32[2, 3, 4]
  input %w: f32[2, 4, 5]
  _, %dw: f32[2, 4, 5] = aten.matmul_backward.default(%dy, %x, %w, [false, true])
  output %dw
}
// expect:
// graph "masked" joint(forward_outputs=0) {
//   input %dy: f32[2, 3, 5]
//   input %x: f32[2, 3, 4]
//   input %w: f32[2, 4, 5]
//   %v3: f32[2, 4, 3] = prim.permute(%x, perm=[0, 2, 1])
//   %dw: f32[2, 4, 5] strides=[20, 5, 1] = aten.bmm.default(%v3, %dy)
//   output %dw
// }
