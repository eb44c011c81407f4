// A constant has no address to mask, as a piece of a concatenation neither.
// run: verify | compare
graph "concat" inference {
  %c: i64[3] = prim.full(value=3, shape=[3], dtype=i64)
  %p: i64[7] = prim.pad(%c, low=[2], high=[2])
  %y: i64[14] = prim.concat(%p, %p, dim=0)
  output %y
}
// expect:
// 14 elements agree
