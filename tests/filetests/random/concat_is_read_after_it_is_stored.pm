// Groups are not merged when one stores a piece that the other reads from memory.
// run: verify | compare
graph "concat" inference {
  input %x: f32[3]
  input %y: f32[3]
  input %e: f32[0]
  %a: f32[3] = prim.mul(%x, %x)
  %c: f32[3] = prim.concat(%e, %x, dim=0)
  %d: f32[3] = prim.add(%c, %y)
  %m: bool[3] = prim.le(%a, %d)
  output %d
  output %m
}
// expect:
// 6 elements agree
