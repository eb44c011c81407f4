// The source of a scatter is memory without masks.
// run: verify | compare
graph "scatter" inference {
  input %x: f16[1, 1, 1]
  input %i: i64[1, 5, 2]
  %p: f16[1, 5, 2] = prim.pad(%x, low=[0, 2, 1], high=[0, 2, 0])
  %y: f16[4, 5, 2] = prim.scatter_sum(%p, %i, dim=0, size=4)
  output %y
}
// expect:
// 40 elements agree
