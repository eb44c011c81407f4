// 9 x 4 of 3 x 4 x 3: a boundary falls inside of a dim, and of none once neighbours are merged.
// run: verify | compare
graph "reshape" inference {
  input %x: bool[3, 4, 3]
  %a: bool[36, 1] = prim.reshape(%x, shape=[36, 1])
  %y: bool[9, 4, 1] = prim.reshape(%a, shape=[9, 4, 1])
  output %y
}
// expect:
// 36 elements agree
