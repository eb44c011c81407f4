// At best speed %d and %q are saved. Half of these bytes will do when the product %q is computed once more, from %d; what
// was drawn at random is saved whatever the budget.
// run: verify | route | simplify | partition
// options: {"memory_budget": 0.6}
graph "budget" joint(forward_outputs=1) {
  input %x: f32[64, 64] strides=[64, 1]
  input %w: f32[64, 64] strides=[64, 1]
  input %g: f32[64, 64] strides=[64, 1] role=tangent
  %p: f32[64, 64] = aten.mm.default(%x, %w)
  %d: f32[64, 64], %m: bool[64, 64] = aten.native_dropout.default(%p, 0.5, true)
  %s: f32[64, 64] = aten.sin.default(%d)
  %q: f32[64, 64] = aten.mm.default(%s, %w)
  %y: f32[64, 64] = aten.sin.default(%q)
  %c: f32[64, 64] = aten.cos.default(%q)
  %h: f32[64, 64] = aten.mul.Tensor(%g, %c)
  %k: f32[64, 64] = aten.cos.default(%d)
  %dx: f32[64, 64] = aten.mul.Tensor(%h, %k)
  output %y
  output %dx
}
// expect:
// saved %w: f32[64, 64] strides=[64, 1]
// saved %d: f32[64, 64]
// 16384 bytes saved beside the inputs
// graph "budget_forward" forward {
//   input %x: f32[64, 64] strides=[64, 1]
//   input %w: f32[64, 64] strides=[64, 1]
//   %p: f32[64, 64] = aten.mm.default(%x, %w)
//   %d: f32[64, 64], %m: bool[64, 64] = aten.native_dropout.default(%p, 0.5, true)
//   %s: f32[64, 64] = prim.sin(%d)
//   %q: f32[64, 64] = aten.mm.default(%s, %w)
//   %y: f32[64, 64] = prim.sin(%q)
//   output %y
//   output %w
//   output %d
// }
// graph "budget_backward" backward {
//   input %w: f32[64, 64] strides=[64, 1]
//   input %d: f32[64, 64]
//   input %g: f32[64, 64] strides=[64, 1] role=tangent
//   %s: f32[64, 64] = prim.sin(%d)
//   %q: f32[64, 64] = aten.mm.default(%s, %w)
//   %c: f32[64, 64] = prim.cos(%q)
//   %h: f32[64, 64] = prim.mul(%g, %c)
//   %k: f32[64, 64] = prim.cos(%d)
//   %dx: f32[64, 64] = prim.mul(%h, %k)
//   output %dx
// }
