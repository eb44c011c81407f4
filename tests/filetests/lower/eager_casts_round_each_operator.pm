// run: lower
// options: {"emulate_eager_casts": true}
graph "g" inference {
  input %x: bf16[4]
  input %w: f32[4]
  %a: bf16[4] = prim.exp(%x)
  %b: bf16[4] = prim.neg(%a)
  %c: bf16[4] = prim.mul(%b, %x)
  %d: f32[4] = prim.cast(%c, dtype=f32)
  %e: f32[4] = prim.mul(%d, %w)
  output %e
}
// expect:
// program "g" inference {
//   b0: bf16[4] input %x
//   b1: f32[4] input %w
//   b2: f32[4] output %e
//   input b0
//   input b1
//   kernel k0_exp_neg_mul(i0: batch 4) {
//     %0: bf16 = load b0[0 + i0]
//     %1: bf16 = exp %0
//     %2: bf16 = cast %1
//     %3: bf16 = neg %2
//     %4: bf16 = mul %3, %0
//     %5: bf16 = cast %4
//     %6: f32 = cast %5
//     %7: f32 = load b1[0 + i0]
//     %8: f32 = mul %6, %7
//     store b2[0 + i0], %8: f32
//   }
//   output b2[4]
// }
