// The classes stand in the middle, the sum runs over the positions too, the target comes first in the comparison, and
// the chosen value is 16-bit and cast: one element a position is left to sum.
// run: verify | algebra | simplify
graph "one_hot" inference {
  symbol s0 hint=6 range=[2, 1000]
  input %g: bf16[4]
  input %t: i64[4, s0]
  input s0
  %j: i64[10] = prim.iota(size=10)
  %j1: i64[1, 10, 1] = prim.reshape(%j, shape=[1, 10, 1])
  %j2: i64[4, 10, s0] = prim.expand(%j1, shape=[4, 10, s0])
  %t1: i64[4, 1, s0] = prim.reshape(%t, shape=[4, 1, s0])
  %t2: i64[4, 10, s0] = prim.expand(%t1, shape=[4, 10, s0])
  %hot: bool[4, 10, s0] = prim.eq(%t2, %j2)
  %g1: bf16[4, 1, 1] = prim.reshape(%g, shape=[4, 1, 1])
  %g2: bf16[4, 10, s0] = prim.expand(%g1, shape=[4, 10, s0])
  %zero: bf16[4, 10, s0] = prim.full(value=0.0, shape=[4, 10, s0], dtype=bf16)
  %dx: bf16[4, 10, s0] = prim.where(%hot, %g2, %zero)
  %wide: f32[4, 10, s0] = prim.cast(%dx, dtype=f32)
  %sum: f32[4] = prim.sum(%wide, dims=[1, 2])
  output %sum
}
// expect:
// graph "one_hot" inference {
//   symbol s0 hint=6 range=[2, 1000]
//   input %g: bf16[4]
//   input %t: i64[4, s0]
//   input s0
//   %t1: i64[4, 1, s0] = prim.reshape(%t, shape=[4, 1, s0])
//   %g1: bf16[4, 1, 1] = prim.reshape(%g, shape=[4, 1, 1])
//   %v13: i64[4, 1, s0] = prim.full(value=0, shape=[4, 1, s0], dtype=i64)
//   %v14: i64[4, 1, s0] = prim.full(value=10, shape=[4, 1, s0], dtype=i64)
//   %v15: bool[4, 1, s0] = prim.ge(%t1, %v13)
//   %v16: bool[4, 1, s0] = prim.lt(%t1, %v14)
//   %v17: bool[4, 1, s0] = prim.and(%v15, %v16)
//   %v18: bf16[4, 1, s0] = prim.expand(%g1, shape=[4, 1, s0])
//   %v19: f32[4, 1, s0] = prim.cast(%v18, dtype=f32)
//   %v20: f32[4, 1, s0] = prim.full(value=0.0, shape=[4, 1, s0], dtype=f32)
//   %v21: f32[4, 1, s0] = prim.where(%v17, %v19, %v20)
//   %v22: f32[4, s0] = prim.reshape(%v21, shape=[4, s0])
//   %sum: f32[4] = prim.sum(%v22, dims=[1])
//   output %sum
// }
