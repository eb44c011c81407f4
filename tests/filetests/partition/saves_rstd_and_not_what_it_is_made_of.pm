// Mean and reciprocal deviation are a number a row: they are saved. The normalised rows are computed again from the input.
// run: verify | route | simplify | partition
graph "layer_norm" joint(forward_outputs=1) {
  input %x: f32[64, 32] strides=[32, 1]
  input %w: f32[32] strides=[1]
  input %b: f32[32] strides=[1]
  input %t: f32[64, 32] strides=[32, 1] role=tangent
  %y: f32[64, 32], %mean: f32[64, 1], %rstd: f32[64, 1] = aten.native_layer_norm.default(%x, [32], %w, %b, 1e-05)
  %dx: f32[64, 32], %dw: f32[32], %db: f32[32] = aten.native_layer_norm_backward.default(%t, %x, [32], %mean, %rstd, %w, %b, [true, true, true])
  output %y
  output %dx
  output %dw
  output %db
}
// expect:
// saved %x: f32[64, 32] strides=[32, 1]
// saved %w: f32[32] strides=[1]
// saved %mean: f32[64, 1]
// saved %rstd: f32[64, 1]
// 512 bytes saved beside the inputs
// graph "layer_norm_forward" forward {
//   input %x: f32[64, 32] strides=[32, 1]
//   input %w: f32[32] strides=[1]
//   input %b: f32[32] strides=[1]
//   %v4: f32[1, 32] = prim.reshape(%w, shape=[1, 32])
//   %v5: f32[1, 32] = prim.reshape(%b, shape=[1, 32])
//   %v6: f32[64] = prim.sum(%x, dims=[1])
//   %v7: f32[64, 1] = prim.reshape(%v6, shape=[64, 1])
//   %v8: f32[64, 1] = prim.full(value=32.0, shape=[64, 1], dtype=f32)
//   %mean: f32[64, 1] = prim.div(%v7, %v8)
//   %v10: f32[64, 32] = prim.expand(%mean, shape=[64, 32])
//   %v11: f32[64, 32] = prim.sub(%x, %v10)
//   %v12: f32[64, 32] = prim.mul(%v11, %v11)
//   %v13: f32[64] = prim.sum(%v12, dims=[1])
//   %v14: f32[64, 1] = prim.reshape(%v13, shape=[64, 1])
//   %v16: f32[64, 1] = prim.div(%v14, %v8)
//   %v17: f32[64, 1] = prim.full(value=1e-5, shape=[64, 1], dtype=f32)
//   %v18: f32[64, 1] = prim.add(%v16, %v17)
//   %rstd: f32[64, 1] = prim.rsqrt(%v18)
//   %v22: f32[64, 32] = prim.expand(%rstd, shape=[64, 32])
//   %v23: f32[64, 32] = prim.mul(%v11, %v22)
//   %v24: f32[64, 32] = prim.expand(%v4, shape=[64, 32])
//   %v25: f32[64, 32] = prim.mul(%v23, %v24)
//   %v26: f32[64, 32] = prim.expand(%v5, shape=[64, 32])
//   %y: f32[64, 32] = prim.add(%v25, %v26)
//   output %y
//   output %x
//   output %w
//   output %mean
//   output %rstd
// }
// graph "layer_norm_backward" backward {
//   input %x: f32[64, 32] strides=[32, 1]
//   input %w: f32[32] strides=[1]
//   input %mean: f32[64, 1]
//   input %rstd: f32[64, 1]
//   input %t: f32[64, 32] strides=[32, 1] role=tangent
//   %v4: f32[1, 32] = prim.reshape(%w, shape=[1, 32])
//   %v8: f32[64, 1] = prim.full(value=32.0, shape=[64, 1], dtype=f32)
//   %v10: f32[64, 32] = prim.expand(%mean, shape=[64, 32])
//   %v11: f32[64, 32] = prim.sub(%x, %v10)
//   %v22: f32[64, 32] = prim.expand(%rstd, shape=[64, 32])
//   %v23: f32[64, 32] = prim.mul(%v11, %v22)
//   %v24: f32[64, 32] = prim.expand(%v4, shape=[64, 32])
//   %v34: f32[64, 32] = prim.mul(%t, %v24)
//   %v35: f32[64] = prim.sum(%v34, dims=[1])
//   %v36: f32[64, 1] = prim.reshape(%v35, shape=[64, 1])
//   %v38: f32[64, 1] = prim.div(%v36, %v8)
//   %v39: f32[64, 32] = prim.expand(%v38, shape=[64, 32])
//   %v40: f32[64, 32] = prim.sub(%v34, %v39)
//   %v41: f32[64, 32] = prim.mul(%v34, %v23)
//   %v42: f32[64] = prim.sum(%v41, dims=[1])
//   %v43: f32[64, 1] = prim.reshape(%v42, shape=[64, 1])
//   %v45: f32[64, 1] = prim.div(%v43, %v8)
//   %v46: f32[64, 32] = prim.expand(%v45, shape=[64, 32])
//   %v47: f32[64, 32] = prim.mul(%v23, %v46)
//   %v48: f32[64, 32] = prim.sub(%v40, %v47)
//   %dx: f32[64, 32] = prim.mul(%v22, %v48)
//   %v51: f32[64, 32] = prim.mul(%t, %v23)
//   %dw: f32[32] = prim.sum(%v51, dims=[0])
//   %db: f32[32] = prim.sum(%t, dims=[0])
//   output %dx
//   output %dw
//   output %db
// }
