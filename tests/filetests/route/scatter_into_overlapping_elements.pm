// The copy that PyTorch writes into has the operand's strides: by them three elements are two.
// run: verify | route
graph "overlap" inference {
  input %x: f32[3] strides=[1]
  input %s: f32[2] strides=[1]
  %w: f32[2, 2] strides=[1, 1] = aten.unfold.default(%x, 0, 2, 1)
  %y: f32[2, 2] strides=[1, 1] = aten.select_scatter.default(%w, %s, 0, 1)
  output %y
}
// expect:
// graph "overlap" inference {
//   input %x: f32[3] strides=[1]
//   input %s: f32[2] strides=[1]
//   %w: f32[2, 2] = prim.window(%x, dim=0, count=2, size=2, step=1)
//   %y: f32[2, 2] strides=[1, 1] = aten.select_scatter.default(%w, %s, 0, 1)
//   output %y
// }
