// The gradient of x[i, j]: one sum over a linear index, with nothing added to the zeros.
// run: verify | decompose
graph "loss" joint(forward_outputs=0) {
  input %i: i64[4]
  input %j: i64[4]
  input %dy: f32[4]
  %z: f32[4, 7] = aten.new_zeros.default(%dy, [4, 7])
  %dx: f32[4, 7] = aten.index_put.default(%z, [%i, %j], %dy, true)
  output %dx
}
// expect:
// graph "loss" joint(forward_outputs=0) {
//   input %i: i64[4]
//   input %j: i64[4]
//   input %dy: f32[4]
//   %v5: i64[4] = prim.full(value=0, shape=[4], dtype=i64)
//   %v6: bool[4] = prim.lt(%i, %v5)
//   %v8: i64[4] = prim.full(value=4, shape=[4], dtype=i64)
//   %v9: i64[4] = prim.add(%i, %v8)
//   %v10: i64[4] = prim.where(%v6, %v9, %i)
//   %v12: i64[4] = prim.full(value=0, shape=[4], dtype=i64)
//   %v13: bool[4] = prim.ge(%v10, %v12)
//   %v15: i64[4] = prim.full(value=4, shape=[4], dtype=i64)
//   %v16: bool[4] = prim.lt(%v10, %v15)
//   %v17: bool[4] = prim.and(%v13, %v16)
//   %v19: i64[4] = prim.full(value=0, shape=[4], dtype=i64)
//   %v20: bool[4] = prim.lt(%j, %v19)
//   %v22: i64[4] = prim.full(value=7, shape=[4], dtype=i64)
//   %v23: i64[4] = prim.add(%j, %v22)
//   %v24: i64[4] = prim.where(%v20, %v23, %j)
//   %v26: i64[4] = prim.full(value=0, shape=[4], dtype=i64)
//   %v27: bool[4] = prim.ge(%v24, %v26)
//   %v29: i64[4] = prim.full(value=7, shape=[4], dtype=i64)
//   %v30: bool[4] = prim.lt(%v24, %v29)
//   %v31: bool[4] = prim.and(%v27, %v30)
//   %v32: bool[4] = prim.and(%v17, %v31)
//   %v34: i64[4] = prim.full(value=7, shape=[4], dtype=i64)
//   %v35: i64[4] = prim.mul(%v10, %v34)
//   %v36: i64[4] = prim.add(%v35, %v24)
//   %v38: i64[4] = prim.full(value=-1, shape=[4], dtype=i64)
//   %v39: i64[4] = prim.where(%v32, %v36, %v38)
//   %v40: f32[28] = prim.index_sum(%dy, %v39, dim=0, size=28)
//   %dx: f32[4, 7] = prim.reshape(%v40, shape=[4, 7])
//   output %dx
// }
