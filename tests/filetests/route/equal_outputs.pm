// Equal nodes become one, but not two outputs: the caller may write to either.
// run: verify | route | simplify
graph "equal" inference {
  input %x: f32[4]
  %a: f32[4] = aten.sin.default(%x)
  %b: f32[4] = aten.sin.default(%x)
  %c: f32[4] = aten.sin.default(%x)
  %d: f32[4] = aten.exp.default(%c)
  output %a
  output %b
  output %d
  output %a
}
// expect:
// graph "equal" inference {
//   input %x: f32[4]
//   %a: f32[4] = prim.sin(%x)
//   %b: f32[4] = prim.sin(%x)
//   %d: f32[4] = prim.exp(%a)
//   output %a
//   output %b
//   output %d
//   output %a
// }
