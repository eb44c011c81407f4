// Forward, then backward on what the forward saved, gives what the joint graph means.
// run: verify | compare
graph "mlp" joint(forward_outputs=1) {
  input %x: f32[8, 4] strides=[4, 1]
  input %w: f32[4, 8] strides=[1, 4]
  input %t: f32[8, 8] role=tangent
  %h: f32[8, 8] strides=[8, 1] = aten.mm.default(%x, %w)
  %y: f32[8, 8] = aten.gelu.default(%h)
  %g: f32[8, 8] = aten.gelu_backward.default(%t, %h)
  %xt: f32[4, 8] = prim.permute(%x, perm=[1, 0])
  %dw: f32[4, 8] strides=[8, 1] = aten.mm.default(%xt, %g)
  output %y
  output %dw
}
// expect:
// 96 elements agree
