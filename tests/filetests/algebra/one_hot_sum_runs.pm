// Targets inside, at both ends and outside of the classes, and one that is masked.
// run: verify | compare
// input %g = [1.5, 2.5, -3.5, 4.5, 5.5, 6.5]
// input %t = [0, 4, 2, 5, -1, 3]
// input %ok = [true, true, true, true, true, false]
graph "one_hot" inference {
  input %g: f32[6]
  input %t: i64[6]
  input %ok: bool[6]
  %j: i64[5] = prim.iota(size=5)
  %j1: i64[1, 5] = prim.reshape(%j, shape=[1, 5])
  %j2: i64[6, 5] = prim.expand(%j1, shape=[6, 5])
  %t1: i64[6, 1] = prim.reshape(%t, shape=[6, 1])
  %t2: i64[6, 5] = prim.expand(%t1, shape=[6, 5])
  %hot: bool[6, 5] = prim.eq(%j2, %t2)
  %ok1: bool[6, 1] = prim.reshape(%ok, shape=[6, 1])
  %ok2: bool[6, 5] = prim.expand(%ok1, shape=[6, 5])
  %mask: bool[6, 5] = prim.and(%hot, %ok2)
  %g1: f32[6, 1] = prim.reshape(%g, shape=[6, 1])
  %g2: f32[6, 5] = prim.expand(%g1, shape=[6, 5])
  %zero: f32[6, 5] = prim.full(value=0.0, shape=[6, 5], dtype=f32)
  %dx: f32[6, 5] = prim.where(%mask, %g2, %zero)
  %row: f32[6] = prim.sum(%dx, dims=[1])
  %all: f32[] = prim.sum(%dx, dims=[0, 1])
  output %row
  output %all
}
// expect:
// 7 elements agree
