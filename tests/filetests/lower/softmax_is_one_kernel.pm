// Maximum, sum and what uses both: one kernel over rows, read once, written once.
// run: verify | route | simplify | lower
graph "softmax" inference {
  input %x: f32[64, 100] strides=[100, 1]
  %y: f32[64, 100] = aten._softmax.default(%x, 1, false)
  output %y
}
// expect:
// program "softmax" inference {
//   b0: f32[64, 100] input %x
//   b1: f32[64, 100] output %y
//   input b0
//   kernel k0_amax_sub_exp_sum_div(i0: batch 64, i1: col 100) {
//     %0: f32 = load b0[0 + i0*(100) + i1]
//     %1: f32 = amax over cols %0
//     %2: f32 = sub %0, %1
//     %3: f32 = exp %2
//     %4: f32 = sum over cols %3
//     %5: f32 = div %3, %4
//     store b1[0 + i0*(100) + i1], %5: f32
//   }
//   output b1[64, 100]
// }
