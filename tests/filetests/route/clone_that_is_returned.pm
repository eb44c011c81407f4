// A clone that is returned is neither its operand nor another output; one that is not costs nothing.
// run: verify | route | simplify
graph "clones" inference {
  input %x: f32[4]
  %y: f32[4] = aten.clone.default(%x)
  %z: f32[4] = aten.sin.default(%x)
  %c: f32[4] = aten.clone.default(%z)
  %v: f32[2, 2] = aten.view.default(%c, [2, 2])
  %d: f32[4] = aten.clone.default(%z)
  %e: f32[4] = aten.exp.default(%d)
  output %y
  output %z
  output %v
  output %e
}
// expect:
// graph "clones" inference {
//   input %x: f32[4]
//   %y: f32[4] = aten.clone.default(%x)
//   %z: f32[4] = prim.sin(%x)
//   %c: f32[4] = aten.clone.default(%z)
//   %v: f32[2, 2] = prim.reshape(%c, shape=[2, 2])
//   %e: f32[4] = prim.exp(%z)
//   output %y
//   output %z
//   output %v
//   output %e
// }
