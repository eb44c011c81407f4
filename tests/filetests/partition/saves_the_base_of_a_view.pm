// The backward reads a transposed product: the product is saved, the view is made again.
// run: verify | partition
graph "view" joint(forward_outputs=1) {
  input %x: f32[8, 4] strides=[4, 1]
  input %w: f32[4, 8] strides=[8, 1]
  input %t: f32[8, 8] role=tangent
  %m: f32[8, 8] strides=[8, 1] = aten.mm.default(%x, %w)
  %p: f32[8, 8] = prim.permute(%m, perm=[1, 0])
  %y: f32[8, 8] = prim.exp(%p)
  %g: f32[8, 8] = prim.mul(%t, %y)
  %gm: f32[8, 8] = prim.permute(%g, perm=[1, 0])
  %u: f32[8, 8] = prim.mul(%gm, %m)
  output %y
  output %u
}
// expect:
// saved %m: f32[8, 8] strides=[8, 1]
// 256 bytes saved beside the inputs
// graph "view_forward" forward {
//   input %x: f32[8, 4] strides=[4, 1]
//   input %w: f32[4, 8] strides=[8, 1]
//   %m: f32[8, 8] strides=[8, 1] = aten.mm.default(%x, %w)
//   %p: f32[8, 8] = prim.permute(%m, perm=[1, 0])
//   %y: f32[8, 8] = prim.exp(%p)
//   output %y
//   output %m
// }
// graph "view_backward" backward {
//   input %m: f32[8, 8] strides=[8, 1]
//   input %t: f32[8, 8] role=tangent
//   %p: f32[8, 8] = prim.permute(%m, perm=[1, 0])
//   %y: f32[8, 8] = prim.exp(%p)
//   %g: f32[8, 8] = prim.mul(%t, %y)
//   %gm: f32[8, 8] = prim.permute(%g, perm=[1, 0])
//   %u: f32[8, 8] = prim.mul(%gm, %m)
//   output %u
// }
