// Rows and columns of the product are the same value at two places: one loop cannot be both.
// run: verify | lower
graph "outer" inference {
  input %x: f32[16] strides=[1]
  %e: f32[16] = prim.exp(%x)
  %c: f32[16, 1] = prim.reshape(%e, shape=[16, 1])
  %r: f32[1, 16] = prim.reshape(%e, shape=[1, 16])
  %ce: f32[16, 16] = prim.expand(%c, shape=[16, 16])
  %re: f32[16, 16] = prim.expand(%r, shape=[16, 16])
  %y: f32[16, 16] = prim.mul(%ce, %re)
  output %y
}
// expect:
// program "outer" inference {
//   b0: f32[16] input %x
//   b1: f32[16] intermediate %e
//   b2: f32[16, 16] output %y
//   input b0
//   kernel k0_exp(i0: batch 16) {
//     %0: f32 = load b0[0 + i0]
//     %1: f32 = exp %0
//     store b1[0 + i0], %1: f32
//   }
//   kernel k1_mul(i0: batch 16, i1: batch 16) {
//     %0: f32 = load b1[0 + i0]
//     %1: f32 = load b1[0 + i1]
//     %2: f32 = mul %0, %1
//     store b2[0 + i0*(16) + i1], %2: f32
//   }
//   output b2[16, 16]
// }
