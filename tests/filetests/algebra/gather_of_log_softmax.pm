// One element a row is computed from the logits; the log-softmax is never stored.
// run: verify | route | algebra | simplify | lower
graph "nll" inference {
  input %x: f32[4, 100] strides=[100, 1]
  input %t: i64[4, 1] strides=[1, 1]
  %y: f32[4, 100] = aten._log_softmax.default(%x, 1, false)
  %z: f32[4, 1] = aten.gather.default(%y, 1, %t)
  output %z
}
// expect:
// program "nll" inference {
//   b0: f32[4, 100] input %x
//   b1: i64[4, 1] input %t
//   b2: f32[4, 1] output %z
//   input b0
//   input b1
//   kernel k0_amax_sub_exp_sum_log(i0: batch 4, i1: col 100) {
//     %0: f32 = load b0[0 + i0*(100) + i1]
//     %1: f32 = amax over cols %0
//     %2: f32 = sub %0, %1
//     %3: f32 = exp %2
//     %4: f32 = sum over cols %3
//     %5: f32 = log %4
//     %6: i64 = load b1[0 + i0]
//     %7: f32 = load b0[0 + i0*(100)] at %6*(1) below 100
//     %8: f32 = sub %7, %1
//     %9: f32 = sub %8, %5
//     store b2[0 + i0], %9: f32
//   }
//   output b2[4, 1]
// }
