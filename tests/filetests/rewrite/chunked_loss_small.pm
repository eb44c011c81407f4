// As large as one piece may be: nothing is cut.
// run: verify | route | simplify | algebra | simplify | chunk
// options: {"chunked_loss": 131072}
graph "loss" inference {
  input %h: f32[32, 8] strides=[8, 1]
  input %w: f32[1024, 8] strides=[8, 1]
  input %y: i64[32] strides=[1]
  %t: f32[8, 1024] strides=[1, 8] = aten.t.default(%w)
  %mm: f32[32, 1024] = aten.mm.default(%h, %t)
  %p: f32[32, 1024] = aten._log_softmax.default(%mm, 1, false)
  %loss: f32[], %total: f32[] = aten.nll_loss_forward.default(%p, %y, none, 1, -100)
  output %loss
}
// expect:
// graph "loss" inference {
//   input %h: f32[32, 8] strides=[8, 1]
//   input %w: f32[1024, 8] strides=[8, 1]
//   input %y: i64[32] strides=[1]
//   %t: f32[8, 1024] = prim.permute(%w, perm=[1, 0])
//   %mm: f32[32, 1024] = aten.mm.default(%h, %t)
//   %v5: f32[32] = prim.amax(%mm, dims=[1])
//   %v6: f32[32, 1] = prim.reshape(%v5, shape=[32, 1])
//   %v7: f32[32, 1024] = prim.expand(%v6, shape=[32, 1024])
//   %v8: f32[32, 1024] = prim.sub(%mm, %v7)
//   %v9: f32[32, 1024] = prim.exp(%v8)
//   %v10: f32[32] = prim.sum(%v9, dims=[1])
//   %v11: f32[32, 1] = prim.reshape(%v10, shape=[32, 1])
//   %v12: f32[32, 1] = prim.log(%v11)
//   %v15: i64[32] = prim.full(value=-100, shape=[32], dtype=i64)
//   %v16: bool[32] = prim.eq(%y, %v15)
//   %v17: i64[32] = prim.full(value=0, shape=[32], dtype=i64)
//   %v18: i64[32] = prim.where(%v16, %v17, %y)
//   %v19: i64[32, 1] = prim.reshape(%v18, shape=[32, 1])
//   %v20_20: f32[32, 1] = prim.gather(%mm, %v19, dim=1)
//   %v21_21: f32[32, 1] = prim.sub(%v20_20, %v6)
//   %v20: f32[32, 1] = prim.sub(%v21_21, %v12)
//   %v21: f32[32] = prim.reshape(%v20, shape=[32])
//   %v22: f32[32] = prim.full(value=1.0, shape=[32], dtype=f32)
//   %v23: f32[32] = prim.full(value=0.0, shape=[32], dtype=f32)
//   %v24: f32[32] = prim.where(%v16, %v23, %v22)
//   %v26: f32[32] = prim.neg(%v21)
//   %v27: f32[32] = prim.mul(%v26, %v24)
//   %v28: f32[32] = prim.where(%v16, %v23, %v27)
//   %total: f32[] = prim.sum(%v24, dims=[0])
//   %v30: f32[] = prim.sum(%v28, dims=[0])
//   %loss: f32[] = prim.div(%v30, %total)
//   output %loss
// }
