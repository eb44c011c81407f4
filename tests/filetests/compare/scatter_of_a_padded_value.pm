// What is summed into place has a mask.
// run: verify | compare
graph "padded" inference {
  input %x: f32[2, 3]
  %p: f32[4, 3] = prim.pad(%x, low=[1, 0], high=[1, 0])
  %i: i64[4] = prim.iota(size=4)
  %y: f32[5, 3] = prim.index_sum(%p, %i, dim=0, size=5)
  output %y
}
// expect:
// 15 elements agree
