// The row sum of a one-hot gradient is the gradient where the target is a class; the mask is not walked for it.
// run: verify | algebra | simplify
graph "one_hot" inference {
  input %g: f32[8]
  input %t: i64[8]
  input %ok: bool[8]
  %j: i64[100] = prim.iota(size=100)
  %j1: i64[1, 100] = prim.reshape(%j, shape=[1, 100])
  %j2: i64[8, 100] = prim.expand(%j1, shape=[8, 100])
  %t1: i64[8, 1] = prim.reshape(%t, shape=[8, 1])
  %t2: i64[8, 100] = prim.expand(%t1, shape=[8, 100])
  %hot: bool[8, 100] = prim.eq(%j2, %t2)
  %ok1: bool[8, 1] = prim.reshape(%ok, shape=[8, 1])
  %ok2: bool[8, 100] = prim.expand(%ok1, shape=[8, 100])
  %mask: bool[8, 100] = prim.and(%hot, %ok2)
  %g1: f32[8, 1] = prim.reshape(%g, shape=[8, 1])
  %g2: f32[8, 100] = prim.expand(%g1, shape=[8, 100])
  %zero: f32[8, 100] = prim.full(value=0.0, shape=[8, 100], dtype=f32)
  %dx: f32[8, 100] = prim.where(%mask, %g2, %zero)
  %row: f32[8] = prim.sum(%dx, dims=[1])
  output %row
}
// expect:
// graph "one_hot" inference {
//   input %g: f32[8]
//   input %t: i64[8]
//   input %ok: bool[8]
//   %t1: i64[8, 1] = prim.reshape(%t, shape=[8, 1])
//   %ok1: bool[8, 1] = prim.reshape(%ok, shape=[8, 1])
//   %g1: f32[8, 1] = prim.reshape(%g, shape=[8, 1])
//   %v16: i64[8, 1] = prim.full(value=0, shape=[8, 1], dtype=i64)
//   %v17: i64[8, 1] = prim.full(value=100, shape=[8, 1], dtype=i64)
//   %v18: bool[8, 1] = prim.ge(%t1, %v16)
//   %v19: bool[8, 1] = prim.lt(%t1, %v17)
//   %v20: bool[8, 1] = prim.and(%v18, %v19)
//   %v21: bool[8, 1] = prim.and(%v20, %ok1)
//   %v22: f32[8, 1] = prim.full(value=0.0, shape=[8, 1], dtype=f32)
//   %v23: f32[8, 1] = prim.where(%v21, %g1, %v22)
//   %row: f32[8] = prim.reshape(%v23, shape=[8])
//   output %row
// }
