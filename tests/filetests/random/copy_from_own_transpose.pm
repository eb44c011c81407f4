// An input overwritten by a view of itself is read as a whole first.
// run: verify | compare
graph "transpose" inference {
  input %x: f32[5, 5]
  %t: f32[5, 5] = prim.permute(%x, perm=[1, 0])
  %w: f32[5, 5] = aten.copy_.default(%x, %t)
}
// expect:
// 25 elements agree
