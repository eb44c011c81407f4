// Each piece of the logits is used up before the next is made: no kernel reads two of them, masks that no logits are in
// are not made ahead, and what a piece adds to a gradient is put in its place at once.
// run: verify | route | simplify | algebra | simplify | partition | lower
// options: {"chunked_loss": 16777216}
graph "loss" joint(forward_outputs=1) {
  input %h: f32[128, 8] strides=[8, 1]
  input %w: f32[65536, 8] strides=[8, 1]
  input %y: i64[128] strides=[1]
  input %tangents_1: f32[] role=tangent
  %t: f32[8, 65536] strides=[1, 8] = aten.t.default(%w)
  %mm: f32[128, 65536] = aten.mm.default(%h, %t)
  %p: f32[128, 65536] = aten._log_softmax.default(%mm, 1, false)
  %loss: f32[], %total: f32[] = aten.nll_loss_forward.default(%p, %y, none, 1, -100)
  %dp: f32[128, 65536] = aten.nll_loss_backward.default(%tangents_1, %p, %y, none, 1, -100, %total)
  %dx: f32[128, 65536] = aten._log_softmax_backward_data.default(%dp, %p, 1, f32)
  %dxt: f32[65536, 128] strides=[1, 65536] = aten.t.default(%dx)
  %dw: f32[65536, 8] = aten.mm.default(%dxt, %h)
  %dh: f32[128, 8] = aten.mm.default(%dx, %w)
  output %loss
  output %dh
  output %dw
  output none
}
// expect:
// program "loss_forward" forward {
//   b0: f32[128, 8] input %h
//   b1: f32[65536, 8] input %w
//   b2: i64[128] input %y
//   b3: f32[64, 65536] native %v10_10
//   b4: i64[128] intermediate %v19
//   b5: f32[64, 65536] native %v24_24
//   b6: f32[128] output %v6
//   b7: f32[128] intermediate %v11
//   b8: f32[128] intermediate %v41
//   b9: f32[128] intermediate %v25
//   b10: bool[128] intermediate %v17
//   b11: f32[] output %total
//   b12: f32[] output %loss
//   b13: f32[128, 1] output %v13
//   input b0
//   input b1
//   input b2
//   kernel k0_eq_where_sum(i0: col 128) {
//     %0: i64 = load b2[0 + i0]
//     %1: i64 = const Int(-100)
//     %2: bool = eq %0, %1
//     store b10[0 + i0], %2: bool
//     %4: i64 = const Int(0)
//     %5: i64 = where %2, %4, %0
//     store b4[0 + i0], %5: i64
//     %7: f32 = const Float(0.0)
//     %8: f32 = const Float(1.0)
//     %9: f32 = where %2, %7, %8
//     store b9[0 + i0], %9: f32
//     %11: f32 = sum over cols %9
//     store b11[0], %11: f32
//   }
//   b3 = native aten.mm.default(b0[64, 8], b1[8, 65536] strides=[1, 8])
//   kernel k1_amax_sub_exp_sum(i0: batch 64, i1: col 65536) {
//     %0: f32 = load b3[0 + i0*(65536) + i1]
//     %1: f32 = amax over cols %0
//     %2: f32 = sub %0, %1
//     %3: f32 = exp %2
//     %4: f32 = sum over cols %3
//     store b6[0 + i0], %1: f32
//     store b7[0 + i0], %4: f32
//   }
//   kernel k2_gather(i0: batch 64) {
//     %0: i64 = load b4[0 + i0]
//     %1: f32 = load b3[0 + i0*(65536)] at %0*(1) below 65536
//     store b8[0 + i0], %1: f32
//   }
//   b5 = native aten.mm.default(b0[64, 8] offset=512, b1[8, 65536] strides=[1, 8])
//   kernel k3_amax_sub_exp_sum(i0: batch 64, i1: col 65536) {
//     %0: f32 = load b5[0 + i0*(65536) + i1]
//     %1: f32 = amax over cols %0
//     %2: f32 = sub %0, %1
//     %3: f32 = exp %2
//     %4: f32 = sum over cols %3
//     store b6[64 + i0], %1: f32
//     store b7[64 + i0], %4: f32
//   }
//   kernel k4_gather(i0: batch 64) {
//     %0: i64 = load b4[64 + i0]
//     %1: f32 = load b5[0 + i0*(65536)] at %0*(1) below 65536
//     store b8[64 + i0], %1: f32
//   }
//   kernel k5_log_sub_neg_mul_where(i0: col 128) {
//     %0: f32 = load b7[0 + i0]
//     %1: f32 = log %0
//     store b13[0 + i0], %1: f32
//     %3: f32 = load b8[0 + i0]
//     %4: f32 = load b6[0 + i0]
//     %5: f32 = sub %3, %4
//     %6: f32 = sub %5, %1
//     %7: f32 = neg %6
//     %8: f32 = load b9[0 + i0]
//     %9: f32 = mul %7, %8
//     %10: bool = load b10[0 + i0]
//     %11: f32 = const Float(0.0)
//     %12: f32 = where %10, %11, %9
//     %13: f32 = sum over cols %12
//     %14: f32 = load b11[0]
//     %15: f32 = div %13, %14
//     store b12[0], %15: f32
//   }
//   output b12[]
//   output b0[128, 8]
//   output b1[65536, 8]
//   output b2[128]
//   output b6[128]
//   output b13[128, 1]
//   output b11[]
// }
// program "loss_backward" backward {
//   b0: f32[128, 8] input %h
//   b1: f32[65536, 8] input %w
//   b2: i64[128] input %y
//   b3: f32[128] input %v6
//   b4: f32[128, 1] input %v13
//   b5: f32[] input %total
//   b6: f32[] input %tangents_1
//   b7: f32[] intermediate %v34
//   b8: f32[128, 32768] native %v29
//   b9: f32[128, 1] intermediate %v59
//   b10: bool[128] intermediate %v45
//   b11: f32[128, 32768] intermediate %v56_56
//   b12: f32[32768, 8] native %v58_58
//   b13: f32[65536, 8] output %dw
//   b14: f32[128, 8] native %v60
//   b15: f32[128, 32768] native %v63
//   b16: f32[128, 32768] intermediate %v97
//   b17: f32[32768, 8] native %v99
//   b18: f32[128, 8] native %v101
//   b19: f32[128, 8] output %dh
//   input b0
//   input b1
//   input b2
//   input b3
//   input b4
//   input b5
//   input b6 role=tangent
//   kernel k0_div_neg() {
//     %0: f32 = load b6[0]
//     %1: f32 = load b5[0]
//     %2: f32 = div %0, %1
//     %3: f32 = neg %2
//     store b7[0], %3: f32
//   }
//   kernel k1_eq_not_ge_lt_and(i0: batch 128) {
//     %0: i64 = load b2[0 + i0]
//     %1: i64 = const Int(-100)
//     %2: bool = eq %0, %1
//     %3: bool = not %2
//     store b10[0 + i0], %3: bool
//     %5: i64 = const Int(0)
//     %6: bool = ge %0, %5
//     %7: i64 = const Int(65536)
//     %8: bool = lt %0, %7
//     %9: bool = and %6, %8
//     %10: bool = and %9, %3
//     %11: f32 = load b7[0]
//     %12: f32 = const Float(0.0)
//     %13: f32 = where %10, %11, %12
//     store b9[0 + i0], %13: f32
//   }
//   b8 = native aten.mm.default(b0[128, 8], b1[8, 32768] strides=[1, 8])
//   kernel k2_sub_exp_mul_eq_and(i0: batch 128, i1: batch 32768) {
//     %0: f32 = load b8[0 + i0*(32768) + i1]
//     %1: f32 = load b3[0 + i0]
//     %2: f32 = sub %0, %1
//     %3: f32 = load b4[0 + i0]
//     %4: f32 = sub %2, %3
//     %5: f32 = exp %4
//     %6: f32 = load b9[0 + i0]
//     %7: f32 = mul %5, %6
//     %8: i64 = index [0 + i1]
//     %9: i64 = load b2[0 + i0]
//     %10: bool = eq %8, %9
//     %11: bool = load b10[0 + i0]
//     %12: bool = and %10, %11
//     %13: f32 = load b7[0]
//     %14: f32 = const Float(0.0)
//     %15: f32 = where %12, %13, %14
//     %16: f32 = sub %15, %7
//     store b11[0 + i0*(32768) + i1], %16: f32
//   }
//   b12 = native aten.mm.default(b11[32768, 128] strides=[1, 32768], b0[128, 8])
//   kernel k3_copy(i0: batch 32768, i1: batch 8) {
//     %0: f32 = load b12[0 + i0*(8) + i1]
//     store b13[0 + i0*(8) + i1], %0: f32
//   }
//   b14 = native aten.mm.default(b11[128, 32768], b1[32768, 8])
//   b15 = native aten.mm.default(b0[128, 8], b1[8, 32768] strides=[1, 8] offset=262144)
//   kernel k4_eq_and_where_sub_exp(i0: batch 128, i1: batch 32768) {
//     %0: i64 = index [32768 + i1]
//     %1: i64 = load b2[0 + i0]
//     %2: bool = eq %0, %1
//     %3: bool = load b10[0 + i0]
//     %4: bool = and %2, %3
//     %5: f32 = load b7[0]
//     %6: f32 = const Float(0.0)
//     %7: f32 = where %4, %5, %6
//     %8: f32 = load b15[0 + i0*(32768) + i1]
//     %9: f32 = load b3[0 + i0]
//     %10: f32 = sub %8, %9
//     %11: f32 = load b4[0 + i0]
//     %12: f32 = sub %10, %11
//     %13: f32 = exp %12
//     %14: f32 = load b9[0 + i0]
//     %15: f32 = mul %13, %14
//     %16: f32 = sub %7, %15
//     store b16[0 + i0*(32768) + i1], %16: f32
//   }
//   b17 = native aten.mm.default(b16[32768, 128] strides=[1, 32768], b0[128, 8])
//   kernel k5_copy(i0: batch 32768, i1: batch 8) {
//     %0: f32 = load b17[0 + i0*(8) + i1]
//     store b13[262144 + i0*(8) + i1], %0: f32
//   }
//   b18 = native aten.mm.default(b16[128, 32768], b1[32768, 8] offset=262144)
//   kernel k6_add(i0: batch 128, i1: batch 8) {
//     %0: f32 = load b14[0 + i0*(8) + i1]
//     %1: f32 = load b18[0 + i0*(8) + i1]
//     %2: f32 = add %0, %1
//     store b19[0 + i0*(8) + i1], %2: f32
//   }
//   output b19[128, 8]
//   output b13[65536, 8]
//   output none
// }
