// A row read at an index and used after it was folded is kept where later phases look.
// run: verify | compare
// input %i = [0]
graph "gather" inference {
  input %i: i64[]
  input %x: f32[65, 1]
  %r: f32[65] = prim.take(%x, %i, dim=1)
  %m: f32[] = prim.amax(%r, dims=[0])
  %m1: f32[1] = prim.reshape(%m, shape=[1])
  %e: f32[65] = prim.expand(%m1, shape=[65])
  %y: f32[65] = prim.sub(%r, %e)
  output %y
}
// expect:
// 65 elements agree
