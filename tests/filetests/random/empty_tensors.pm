// Nothing runs over no elements: results are empty, sums are zero, padding is all there is.
// run: verify | compare
graph "empty" inference {
  input %x: f32[0]
  input %m: f32[4, 0, 2]
  input %i: i64[0]
  %s: f32[0] = prim.add(%x, %x)
  %t: f32[] = prim.sum(%s, dims=[0])
  %a: f32[4, 2] = prim.amax(%m, dims=[1])
  %p: f32[4, 1, 2] = prim.pad(%m, low=[0, 1, 0], high=[0, 0, 0])
  %q: f32[4, 1, 2] = prim.exp(%p)
  %d: f32[3] = prim.index_sum(%s, %i, dim=0, size=3)
  %c: f32[3] = prim.concat(%d, %s, dim=0)
  output %s
  output %t
  output %a
  output %q
  output %d
  output %c
}
// expect:
// 23 elements agree
