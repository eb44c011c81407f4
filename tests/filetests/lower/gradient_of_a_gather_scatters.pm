// An embedding is read at its index inside of the kernel; its gradient is a scatter, whose source the kernel makes.
// run: verify | lower
graph "embedding" inference {
  input %w: f32[100, 16] strides=[16, 1]
  input %i: i64[32] strides=[1]
  input %g: f32[32, 16] strides=[16, 1]
  %e: f32[32, 16] = prim.take(%w, %i, dim=0)
  %y: f32[32, 16] = prim.mul(%e, %g)
  %dw: f32[100, 16] = prim.index_sum(%y, %i, dim=0, size=100)
  output %dw
}
// expect:
// program "embedding" inference {
//   b0: f32[100, 16] input %w
//   b1: i64[32] input %i
//   b2: f32[32, 16] input %g
//   b3: f32[32, 16] intermediate %y
//   b4: f32[100, 16] output %dw
//   input b0
//   input b1
//   input b2
//   kernel k0_gather_mul(i0: batch 32, i1: batch 16) {
//     %0: i64 = load b1[0 + i0]
//     %1: f32 = load b0[0 + i1] at %0*(16) below 100
//     %2: f32 = load b2[0 + i0*(16) + i1]
//     %3: f32 = mul %1, %2
//     store b3[0 + i0*(16) + i1], %3: f32
//   }
//   scatter scatter1(i0: 32, i1: 16) {
//     b4[0 + i1] at b1[0 + i0]*(16) below 100 += b3[0 + i0*(16) + i1]
//   }
//   output b4[100, 16]
// }
