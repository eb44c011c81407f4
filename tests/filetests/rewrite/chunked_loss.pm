// The logits are made in pieces of 16 rows in the forward; once more, in pieces of columns, in the backward.
// run: verify | route | simplify | algebra | simplify | partition
// options: {"chunked_loss": 65536}
graph "loss" joint(forward_outputs=1) {
  input %h: f32[32, 8] strides=[8, 1]
  input %w: f32[1024, 8] strides=[8, 1]
  input %y: i64[32] strides=[1]
  input %tangents_1: f32[] role=tangent
  %t: f32[8, 1024] strides=[1, 8] = aten.t.default(%w)
  %mm: f32[32, 1024] = aten.mm.default(%h, %t)
  %p: f32[32, 1024] = aten._log_softmax.default(%mm, 1, false)
  %loss: f32[], %total: f32[] = aten.nll_loss_forward.default(%p, %y, none, 1, -100)
  %dp: f32[32, 1024] = aten.nll_loss_backward.default(%tangents_1, %p, %y, none, 1, -100, %total)
  %dx: f32[32, 1024] = aten._log_softmax_backward_data.default(%dp, %p, 1, f32)
  %dxt: f32[1024, 32] strides=[1, 1024] = aten.t.default(%dx)
  %dw: f32[1024, 8] = aten.mm.default(%dxt, %h)
  %dh: f32[32, 8] = aten.mm.default(%dx, %w)
  output %loss
  output %dh
  output %dw
  output none
}
// expect:
// aten.mm.default rewrite:chunked_loss: the logits [32, 1024] are made in 2 pieces of 16 rows
// aten.mm.default rewrite:chunked_loss: the logits [32, 1024] are made in 2 pieces of 512 columns
// saved %h: f32[32, 8] strides=[8, 1]
// saved %w: f32[1024, 8] strides=[8, 1]
// saved %y: i64[32] strides=[1]
// saved %v6: f32[32]
// saved %v13: f32[32, 1]
// saved %total: f32[]
// 260 bytes saved beside the inputs
// graph "loss_forward" forward {
//   input %h: f32[32, 8] strides=[8, 1]
//   input %w: f32[1024, 8] strides=[8, 1]
//   input %y: i64[32] strides=[1]
//   %t: f32[8, 1024] = prim.permute(%w, perm=[1, 0])
//   %v16: i64[32] = prim.full(value=-100, shape=[32], dtype=i64)
//   %v17: bool[32] = prim.eq(%y, %v16)
//   %v18: i64[32] = prim.full(value=0, shape=[32], dtype=i64)
//   %v19: i64[32] = prim.where(%v17, %v18, %y)
//   %v20: i64[32, 1] = prim.reshape(%v19, shape=[32, 1])
//   %v9_9: f32[16, 8] = prim.slice(%h, dim=0, start=0, end=16, step=1)
//   %v10_10: f32[16, 1024] = aten.mm.default(%v9_9, %t)
//   %v11_11: f32[16] = prim.amax(%v10_10, dims=[1])
//   %v12_12: f32[16, 1] = prim.reshape(%v11_11, shape=[16, 1])
//   %v13_13: f32[16, 1024] = prim.expand(%v12_12, shape=[16, 1024])
//   %v14: f32[16, 1024] = prim.sub(%v10_10, %v13_13)
//   %v15: f32[16, 1024] = prim.exp(%v14)
//   %v16_16: f32[16] = prim.sum(%v15, dims=[1])
//   %v18_18: i64[16] = prim.slice(%v19, dim=0, start=0, end=16, step=1)
//   %v19_19: i64[16, 1] = prim.reshape(%v18_18, shape=[16, 1])
//   %v20_20: f32[16, 1] = prim.gather(%v10_10, %v19_19, dim=1)
//   %v21_22: f32[16] = prim.reshape(%v20_20, shape=[16])
//   %v22_23: f32[32, 8] = prim.after(%h, %v11_11, %v11_11, %v16_16, %v21_22)
//   %v23_23: f32[16, 8] = prim.slice(%v22_23, dim=0, start=16, end=32, step=1)
//   %v24_24: f32[16, 1024] = aten.mm.default(%v23_23, %t)
//   %v25_25: f32[16] = prim.amax(%v24_24, dims=[1])
//   %v26: f32[16, 1] = prim.reshape(%v25_25, shape=[16, 1])
//   %v27_27: f32[16, 1024] = prim.expand(%v26, shape=[16, 1024])
//   %v28_28: f32[16, 1024] = prim.sub(%v24_24, %v27_27)
//   %v29_29: f32[16, 1024] = prim.exp(%v28_28)
//   %v30: f32[16] = prim.sum(%v29_29, dims=[1])
//   %v31_31: i64[32, 1] = prim.after(%v20, %v11_11, %v11_11, %v16_16, %v21_22)
//   %v32: i64[32] = prim.reshape(%v31_31, shape=[32])
//   %v33: i64[16] = prim.slice(%v32, dim=0, start=16, end=32, step=1)
//   %v34: i64[16, 1] = prim.reshape(%v33, shape=[16, 1])
//   %v35: f32[16, 1] = prim.gather(%v24_24, %v34, dim=1)
//   %v36: f32[16] = prim.reshape(%v35, shape=[16])
//   %v6: f32[32] = prim.concat(%v11_11, %v25_25, dim=0)
//   %v7: f32[32, 1] = prim.reshape(%v6, shape=[32, 1])
//   %v11: f32[32] = prim.concat(%v16_16, %v30, dim=0)
//   %v41: f32[32] = prim.concat(%v21_22, %v36, dim=0)
//   %v21_21: f32[32, 1] = prim.reshape(%v41, shape=[32, 1])
//   %v12: f32[32, 1] = prim.reshape(%v11, shape=[32, 1])
//   %v13: f32[32, 1] = prim.log(%v12)
//   %v22_22: f32[32, 1] = prim.sub(%v21_21, %v7)
//   %v21: f32[32, 1] = prim.sub(%v22_22, %v13)
//   %v22: f32[32] = prim.reshape(%v21, shape=[32])
//   %v23: f32[32] = prim.full(value=1.0, shape=[32], dtype=f32)
//   %v24: f32[32] = prim.full(value=0.0, shape=[32], dtype=f32)
//   %v25: f32[32] = prim.where(%v17, %v24, %v23)
//   %v27: f32[32] = prim.neg(%v22)
//   %v28: f32[32] = prim.mul(%v27, %v25)
//   %v29: f32[32] = prim.where(%v17, %v24, %v28)
//   %total: f32[] = prim.sum(%v25, dims=[0])
//   %v31: f32[] = prim.sum(%v29, dims=[0])
//   %loss: f32[] = prim.div(%v31, %total)
//   output %loss
//   output %h
//   output %w
//   output %y
//   output %v6
//   output %v13
//   output %total
// }
// graph "loss_backward" backward {
//   input %h: f32[32, 8] strides=[8, 1]
//   input %w: f32[1024, 8] strides=[8, 1]
//   input %y: i64[32] strides=[1]
//   input %v6: f32[32]
//   input %v13: f32[32, 1]
//   input %total: f32[]
//   input %tangents_1: f32[] role=tangent
//   %t: f32[8, 1024] = prim.permute(%w, perm=[1, 0])
//   %v7: f32[32, 1] = prim.reshape(%v6, shape=[32, 1])
//   %v16: i64[32] = prim.full(value=-100, shape=[32], dtype=i64)
//   %v17: bool[32] = prim.eq(%y, %v16)
//   %v33: f32[] = prim.div(%tangents_1, %total)
//   %v34: f32[] = prim.neg(%v33)
//   %v35: f32[1, 1] = prim.reshape(%v34, shape=[1, 1])
//   %v39: i64[1024] = prim.iota(size=1024)
//   %v40: i64[1, 1024] = prim.reshape(%v39, shape=[1, 1024])
//   %v42: i64[32, 1] = prim.reshape(%y, shape=[32, 1])
//   %v45: bool[32] = prim.not(%v17)
//   %v46: bool[32, 1] = prim.reshape(%v45, shape=[32, 1])
//   %v51_51: i64[32, 1] = prim.full(value=0, shape=[32, 1], dtype=i64)
//   %v52_52: i64[32, 1] = prim.full(value=1024, shape=[32, 1], dtype=i64)
//   %v53_53: bool[32, 1] = prim.ge(%v42, %v51_51)
//   %v54_54: bool[32, 1] = prim.lt(%v42, %v52_52)
//   %v55_55: bool[32, 1] = prim.and(%v53_53, %v54_54)
//   %v56: bool[32, 1] = prim.and(%v55_55, %v46)
//   %v57: f32[32, 1] = prim.expand(%v35, shape=[32, 1])
//   %v58: f32[32, 1] = prim.full(value=0.0, shape=[32, 1], dtype=f32)
//   %v59: f32[32, 1] = prim.where(%v56, %v57, %v58)
//   %v28: f32[8, 512] = prim.slice(%t, dim=1, start=0, end=512, step=1)
//   %v29: f32[32, 512] = aten.mm.default(%h, %v28)
//   %v32: f32[32, 512] = prim.expand(%v7, shape=[32, 512])
//   %v33_33: f32[32, 512] = prim.sub(%v29, %v32)
//   %v36_36: f32[32, 512] = prim.expand(%v13, shape=[32, 512])
//   %v37: f32[32, 512] = prim.sub(%v33_33, %v36_36)
//   %v38: f32[32, 512] = prim.exp(%v37)
//   %v41_41: f32[32, 512] = prim.expand(%v59, shape=[32, 512])
//   %v42_42: f32[32, 512] = prim.mul(%v38, %v41_41)
//   %v43_43: i64[1, 512] = prim.slice(%v40, dim=1, start=0, end=512, step=1)
//   %v44_44: i64[32, 512] = prim.expand(%v43_43, shape=[32, 512])
//   %v47_47: i64[32, 512] = prim.expand(%v42, shape=[32, 512])
//   %v48_48: bool[32, 512] = prim.eq(%v44_44, %v47_47)
//   %v51_52: bool[32, 512] = prim.expand(%v46, shape=[32, 512])
//   %v52: bool[32, 512] = prim.and(%v48_48, %v51_52)
//   %v53: f32[32, 512] = prim.expand(%v35, shape=[32, 512])
//   %v54_55: f32[32, 512] = prim.full(value=0.0, shape=[32, 512], dtype=f32)
//   %v55_56: f32[32, 512] = prim.where(%v52, %v53, %v54_55)
//   %v56_56: f32[32, 512] = prim.sub(%v55_56, %v42_42)
//   %v57_57: f32[512, 32] = prim.permute(%v56_56, perm=[1, 0])
//   %v58_58: f32[512, 8] = aten.mm.default(%v57_57, %h)
//   %v59_59: f32[512, 8] = prim.slice(%w, dim=0, start=0, end=512, step=1)
//   %v60: f32[32, 8] = aten.mm.default(%v56_56, %v59_59)
//   %v61: f32[8, 1024] = prim.after(%t, %v58_58, %v60)
//   %v62: f32[8, 512] = prim.slice(%v61, dim=1, start=512, end=1024, step=1)
//   %v63: f32[32, 512] = aten.mm.default(%h, %v62)
//   %v64: f32[32, 1] = prim.after(%v7, %v58_58, %v60)
//   %v67: f32[32, 512] = prim.expand(%v64, shape=[32, 512])
//   %v68: f32[32, 512] = prim.sub(%v63, %v67)
//   %v69: f32[32, 1] = prim.after(%v13, %v58_58, %v60)
//   %v72: f32[32, 512] = prim.expand(%v69, shape=[32, 512])
//   %v73: f32[32, 512] = prim.sub(%v68, %v72)
//   %v74: f32[32, 512] = prim.exp(%v73)
//   %v75: f32[32, 1] = prim.after(%v59, %v58_58, %v60)
//   %v78: f32[32, 512] = prim.expand(%v75, shape=[32, 512])
//   %v79: f32[32, 512] = prim.mul(%v74, %v78)
//   %v80: i64[1, 1024] = prim.after(%v40, %v58_58, %v60)
//   %v81: i64[1, 512] = prim.slice(%v80, dim=1, start=512, end=1024, step=1)
//   %v82: i64[32, 512] = prim.expand(%v81, shape=[32, 512])
//   %v83: i64[32, 1] = prim.after(%v42, %v58_58, %v60)
//   %v86: i64[32, 512] = prim.expand(%v83, shape=[32, 512])
//   %v87: bool[32, 512] = prim.eq(%v82, %v86)
//   %v88: bool[32, 1] = prim.after(%v46, %v58_58, %v60)
//   %v91: bool[32, 512] = prim.expand(%v88, shape=[32, 512])
//   %v92: bool[32, 512] = prim.and(%v87, %v91)
//   %v93: f32[1, 1] = prim.after(%v35, %v58_58, %v60)
//   %v94: f32[32, 512] = prim.expand(%v93, shape=[32, 512])
//   %v96: f32[32, 512] = prim.where(%v92, %v94, %v54_55)
//   %v97: f32[32, 512] = prim.sub(%v96, %v79)
//   %v98: f32[512, 32] = prim.permute(%v97, perm=[1, 0])
//   %v99: f32[512, 8] = aten.mm.default(%v98, %h)
//   %v100: f32[512, 8] = prim.slice(%w, dim=0, start=512, end=1024, step=1)
//   %v101: f32[32, 8] = aten.mm.default(%v97, %v100)
//   %dh: f32[32, 8] = prim.add(%v60, %v101)
//   %dw: f32[1024, 8] = prim.concat(%v58_58, %v99, dim=0)
//   output %dh
//   output %dw
//   output none
// }
