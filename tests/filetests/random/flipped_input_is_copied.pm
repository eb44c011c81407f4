// No tensor runs backwards in memory: the flip of an input is an output of its own.
// run: verify | compare
graph "flip" inference {
  input %x: i64[3, 2]
  %y: i64[3, 2] = prim.flip(%x, dims=[0])
  output %y
}
// expect:
// 6 elements agree
