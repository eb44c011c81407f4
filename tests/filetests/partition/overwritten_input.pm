// The forward overwrites %x and the backward needs it (and a view of it): a copy taken first is saved.
// run: verify | route | simplify | partition
graph "step" joint(forward_outputs=1) {
  input %x: f32[4, 4]
  input %w: f32[4, 4]
  input %g: f32[3, 4] role=tangent
  %v: f32[3, 4] = aten.slice.Tensor(%x, 0, 1, 4)
  %y: f32[3, 4] = aten.mm.default(%v, %w)
  %t: f32[4, 3] = aten.t.default(%v)
  %dw: f32[4, 4] = aten.mm.default(%t, %g)
  %two: f32[4, 4] = aten.mul.Tensor(%x, 2)
  %done: f32[4, 4] = aten.copy_.default(%x, %two)
  output %y
  output none
  output %dw
}
// expect:
// saved %t.before: f32[4, 3]
// 48 bytes saved beside the inputs
// graph "step_forward" forward {
//   input %x: f32[4, 4]
//   input %w: f32[4, 4]
//   %v: f32[3, 4] = prim.slice(%x, dim=0, start=1, end=4, step=1)
//   %t: f32[4, 3] = prim.permute(%v, perm=[1, 0])
//   %t.before: f32[4, 3] = aten.clone.default(%t, memory_format=memory_format:contiguous_format)
//   %y: f32[3, 4] = aten.mm.default(%v, %w)
//   %v7: f32[4, 4] = prim.full(value=2.0, shape=[4, 4], dtype=f32)
//   %two: f32[4, 4] = prim.mul(%x, %v7)
//   %done: f32[4, 4] = aten.copy_.default(%x, %two)
//   output %y
//   output %t.before
// }
// graph "step_backward" backward {
//   input %t.before: f32[4, 3]
//   input %g: f32[3, 4] role=tangent
//   %dw: f32[4, 4] = aten.mm.default(%t.before, %g)
//   output none
//   output %dw
// }
