// The row sum of a mask cast to a number counts one where the target is a class, through a reshape of the positions.
// run: verify | algebra | simplify
graph "one_hot" inference {
  input %t: i64[2, 3]
  %j: i64[7] = prim.iota(size=7)
  %j1: i64[1, 1, 7] = prim.reshape(%j, shape=[1, 1, 7])
  %j2: i64[2, 3, 7] = prim.expand(%j1, shape=[2, 3, 7])
  %t1: i64[2, 3, 1] = prim.reshape(%t, shape=[2, 3, 1])
  %t2: i64[2, 3, 7] = prim.expand(%t1, shape=[2, 3, 7])
  %hot: bool[2, 3, 7] = prim.eq(%j2, %t2)
  %one: i64[2, 3, 7] = prim.cast(%hot, dtype=i64)
  %flat: i64[6, 7] = prim.reshape(%one, shape=[6, 7])
  %n: i64[6] = prim.sum(%flat, dims=[1])
  output %n
}
// expect:
// graph "one_hot" inference {
//   input %t: i64[2, 3]
//   %t1: i64[2, 3, 1] = prim.reshape(%t, shape=[2, 3, 1])
//   %v9: i64[2, 3, 1] = prim.full(value=0, shape=[2, 3, 1], dtype=i64)
//   %v10: i64[2, 3, 1] = prim.full(value=7, shape=[2, 3, 1], dtype=i64)
//   %v11: bool[2, 3, 1] = prim.ge(%t1, %v9)
//   %v12: bool[2, 3, 1] = prim.lt(%t1, %v10)
//   %v13: bool[2, 3, 1] = prim.and(%v11, %v12)
//   %v14: i64[2, 3, 1] = prim.full(value=1, shape=[2, 3, 1], dtype=i64)
//   %v16: i64[2, 3, 1] = prim.where(%v13, %v14, %v9)
//   %n: i64[6] = prim.reshape(%v16, shape=[6])
//   output %n
// }
