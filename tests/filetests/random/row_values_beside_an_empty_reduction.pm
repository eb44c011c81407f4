// Where a folded axis has no points, what does not vary over it has its value all the same.
// run: verify | compare
// symbol s0 = 2
graph "empty_axis" inference {
  symbol s0 hint=4 range=[2, 64]
  input %i: i64[s0]
  input %x: f32[4]
  %e: i64[-2 + s0] = prim.slice(%i, dim=0, start=0, end=-2 + s0, step=1)
  %p: i64[] = prim.prod(%e, dims=[0])
  %y: f32[] = prim.take(%x, %p, dim=0)
  output %y
}
// expect:
// 1 elements agree
