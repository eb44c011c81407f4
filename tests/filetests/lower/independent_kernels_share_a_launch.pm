// Neither of the first two reads what the other one writes. A kernel with a reduction is a launch of its own.
// run: lower
graph "g" inference {
  input %x: f32[4]
  input %y: f32[3, 5]
  input %z: f32[2, 2]
  %a: f32[4] = prim.exp(%x)
  %c: f32[2, 2] = prim.neg(%z)
  %b: f32[3, 5] = prim.tanh(%y)
  %s: f32[3] = prim.sum(%b, dims=[1])
  output %a
  output %c
  output %s
}
// expect:
// program "g" inference {
//   b0: f32[4] input %x
//   b1: f32[3, 5] input %y
//   b2: f32[2, 2] input %z
//   b3: f32[4] output %a
//   b4: f32[2, 2] output %c
//   b5: f32[3] output %s
//   input b0
//   input b1
//   input b2
//   group k0_exp_x2 {
//     kernel k0_exp(i0: batch 4) {
//       %0: f32 = load b0[0 + i0]
//       %1: f32 = exp %0
//       store b3[0 + i0], %1: f32
//     }
//     kernel k1_neg(i0: batch 2, i1: batch 2) {
//       %0: f32 = load b2[0 + i0*(2) + i1]
//       %1: f32 = neg %0
//       store b4[0 + i0*(2) + i1], %1: f32
//     }
//   }
//   kernel k2_tanh_sum(i0: batch 3, i1: col 5) {
//     %0: f32 = load b1[0 + i0*(5) + i1]
//     %1: f32 = tanh %0
//     %2: f32 = sum over cols %1
//     store b5[0 + i0], %2: f32
//   }
//   output b3[4]
//   output b4[2, 2]
//   output b5[3]
// }
