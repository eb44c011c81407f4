// The mask of a relu is a comparison of what is saved anyway.
// run: verify | route | simplify | partition
graph "relu" joint(forward_outputs=1) {
  input %x: f32[8, 16] strides=[16, 1]
  input %w: f32[16, 16] strides=[16, 1]
  input %t: f32[8, 16] strides=[16, 1] role=tangent
  %h: f32[8, 16] strides=[16, 1] = aten.mm.default(%x, %w)
  %y: f32[8, 16] strides=[16, 1] = aten.relu.default(%h)
  %g: f32[8, 16] = aten.threshold_backward.default(%t, %y, 0)
  %wt: f32[16, 16] = prim.permute(%w, perm=[1, 0])
  %dx: f32[8, 16] strides=[16, 1] = aten.mm.default(%g, %wt)
  output %y
  output %dx
}
