// Activation and mask of a relu are both made again from the input: nothing else is saved.
// run: verify | route | simplify | partition
graph "relu" joint(forward_outputs=1) {
  input %x: f32[8, 16] strides=[16, 1]
  input %w: f32[16, 4] strides=[4, 1]
  input %t: f32[8, 4] strides=[4, 1] role=tangent
  %y: f32[8, 16] strides=[16, 1] = aten.relu.default(%x)
  %z: f32[8, 4] strides=[4, 1] = aten.mm.default(%y, %w)
  %yt: f32[16, 8] = prim.permute(%y, perm=[1, 0])
  %dw: f32[16, 4] strides=[4, 1] = aten.mm.default(%yt, %t)
  %wt: f32[4, 16] = prim.permute(%w, perm=[1, 0])
  %g: f32[8, 16] strides=[16, 1] = aten.mm.default(%t, %wt)
  %dx: f32[8, 16] = aten.threshold_backward.default(%g, %y, 0)
  output %z
  output %dx
  output %dw
}
// expect:
// saved %x: f32[8, 16] strides=[16, 1]
// saved %w: f32[16, 4] strides=[4, 1]
// 0 bytes saved beside the inputs
// graph "relu_forward" forward {
//   input %x: f32[8, 16] strides=[16, 1]
//   input %w: f32[16, 4] strides=[4, 1]
//   %v3: f32[8, 16] = prim.full(value=0.0, shape=[8, 16], dtype=f32)
//   %y: f32[8, 16] = prim.max(%x, %v3)
//   %z: f32[8, 4] strides=[4, 1] = aten.mm.default(%y, %w)
//   output %z
//   output %x
//   output %w
// }
// graph "relu_backward" backward {
//   input %x: f32[8, 16] strides=[16, 1]
//   input %w: f32[16, 4] strides=[4, 1]
//   input %t: f32[8, 4] strides=[4, 1] role=tangent
//   %v3: f32[8, 16] = prim.full(value=0.0, shape=[8, 16], dtype=f32)
//   %y: f32[8, 16] = prim.max(%x, %v3)
//   %yt: f32[16, 8] = prim.permute(%y, perm=[1, 0])
//   %dw: f32[16, 4] strides=[4, 1] = aten.mm.default(%yt, %t)
//   %wt: f32[4, 16] = prim.permute(%w, perm=[1, 0])
//   %g: f32[8, 16] strides=[16, 1] = aten.mm.default(%t, %wt)
//   %v11: bool[8, 16] = prim.le(%y, %v3)
//   %dx: f32[8, 16] = prim.where(%v11, %v3, %g)
//   output %dx
//   output %dw
// }
