// The logits are in memory anyway: they are kept with two numbers a row, and the forward never stores the log-softmax.
// run: verify | route | algebra | simplify | partition | lower
graph "loss" joint(forward_outputs=1) {
  input %x: f32[64, 32] strides=[32, 1]
  input %w: f32[32, 1024] strides=[1024, 1]
  input %t: i64[64] strides=[1]
  input %tangents_1: f32[] role=tangent
  %logits: f32[64, 1024] strides=[1024, 1] = aten.mm.default(%x, %w)
  %y: f32[64, 1024] = aten._log_softmax.default(%logits, 1, false)
  %loss: f32[], %total: f32[] = aten.nll_loss_forward.default(%y, %t, none, 1, -100)
  %dy: f32[64, 1024] = aten.nll_loss_backward.default(%tangents_1, %y, %t, none, 1, -100, %total)
  %dlogits: f32[64, 1024] = aten._log_softmax_backward_data.default(%dy, %y, 1, f32)
  output %loss
  output none
  output %dlogits
  output none
}
// expect:
// program "loss_forward" forward {
//   b0: f32[64, 32] input %x
//   b1: f32[32, 1024] input %w
//   b2: i64[64] input %t
//   b3: f32[64, 1024] native %logits
//   b4: f32[64] intermediate %v24
//   b5: f32[64] intermediate %v28
//   b6: f32[] output %loss
//   b7: f32[64] output %v5
//   b8: f32[64, 1] output %v12
//   b9: f32[] output %total
//   input b0
//   input b1
//   input b2
//   b3 = native aten.mm.default(b0[64, 32], b1[32, 1024])
//   kernel k0_amax_sub_exp_sum_log(i0: batch 64, i1: col 1024) {
//     %0: f32 = load b3[0 + i0*(1024) + i1]
//     %1: f32 = amax over cols %0
//     store b7[0 + i0], %1: f32
//     %3: f32 = sub %0, %1
//     %4: f32 = exp %3
//     %5: f32 = sum over cols %4
//     %6: f32 = log %5
//     store b8[0 + i0], %6: f32
//     %8: i64 = load b2[0 + i0]
//     %9: i64 = const Int(-100)
//     %10: bool = eq %8, %9
//     %11: i64 = const Int(0)
//     %12: i64 = where %10, %11, %8
//     %13: f32 = load b3[0 + i0*(1024)] at %12*(1) below 1024
//     %14: f32 = sub %13, %1
//     %15: f32 = sub %14, %6
//     %16: f32 = const Float(0.0)
//     %17: f32 = const Float(1.0)
//     %18: f32 = where %10, %16, %17
//     store b4[0 + i0], %18: f32
//     %20: f32 = neg %15
//     %21: f32 = mul %20, %18
//     %22: f32 = where %10, %16, %21
//     store b5[0 + i0], %22: f32
//   }
//   kernel k1_sum_div(i0: col 64) {
//     %0: f32 = load b4[0 + i0]
//     %1: f32 = sum over cols %0
//     store b9[0], %1: f32
//     %3: f32 = load b5[0 + i0]
//     %4: f32 = sum over cols %3
//     %5: f32 = div %4, %1
//     store b6[0], %5: f32
//   }
//   output b6[]
//   output b2[64]
//   output b3[64, 1024]
//   output b7[64]
//   output b8[64, 1]
//   output b9[]
// }
// program "loss_backward" backward {
//   b0: i64[64] input %t
//   b1: f32[64, 1024] input %logits
//   b2: f32[64] input %v5
//   b3: f32[64, 1] input %v12
//   b4: f32[] input %total
//   b5: f32[] input %tangents_1
//   b6: bool[64] intermediate %v44
//   b7: f32[] intermediate %v33
//   b8: f32[64, 1] intermediate %v61
//   b9: f32[64, 1024] output %dlogits
//   input b0
//   input b1
//   input b2
//   input b3
//   input b4
//   input b5 role=tangent
//   kernel k0_div_neg() {
//     %0: f32 = load b5[0]
//     %1: f32 = load b4[0]
//     %2: f32 = div %0, %1
//     %3: f32 = neg %2
//     store b7[0], %3: f32
//   }
//   kernel k1_eq_not_ge_lt_and(i0: batch 64) {
//     %0: i64 = load b0[0 + i0]
//     %1: i64 = const Int(-100)
//     %2: bool = eq %0, %1
//     %3: bool = not %2
//     store b6[0 + i0], %3: bool
//     %5: i64 = const Int(0)
//     %6: bool = ge %0, %5
//     %7: i64 = const Int(1024)
//     %8: bool = lt %0, %7
//     %9: bool = and %6, %8
//     %10: bool = and %9, %3
//     %11: f32 = load b7[0]
//     %12: f32 = const Float(0.0)
//     %13: f32 = where %10, %11, %12
//     store b8[0 + i0], %13: f32
//   }
//   kernel k2_sub_exp_mul_eq_and(i0: batch 64, i1: batch 1024) {
//     %0: f32 = load b1[0 + i0*(1024) + i1]
//     %1: f32 = load b2[0 + i0]
//     %2: f32 = sub %0, %1
//     %3: f32 = load b3[0 + i0]
//     %4: f32 = sub %2, %3
//     %5: f32 = exp %4
//     %6: f32 = load b8[0 + i0]
//     %7: f32 = mul %5, %6
//     %8: i64 = index [0 + i1]
//     %9: i64 = load b0[0 + i0]
//     %10: bool = eq %8, %9
//     %11: bool = load b6[0 + i0]
//     %12: bool = and %10, %11
//     %13: f32 = load b7[0]
//     %14: f32 = const Float(0.0)
//     %15: f32 = where %12, %13, %14
//     %16: f32 = sub %15, %7
//     store b9[0 + i0*(1024) + i1], %16: f32
//   }
//   output none
//   output b9[64, 1024]
//   output none
// }
