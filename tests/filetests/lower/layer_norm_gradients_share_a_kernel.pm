// The row sums that the input's gradient needs and the column sums of weight and bias come from one pass over the data.
// run: verify | lower
graph "layer_norm_backward" backward {
  input %dy: f32[64, 32] strides=[32, 1] role=tangent
  input %xhat: f32[64, 32] strides=[32, 1]
  input %rstd: f32[64, 1] strides=[1, 1]
  input %w: f32[32] strides=[1]
  %w2: f32[1, 32] = prim.reshape(%w, shape=[1, 32])
  %we: f32[64, 32] = prim.expand(%w2, shape=[64, 32])
  %g: f32[64, 32] = prim.mul(%dy, %we)
  %s1: f32[64] = prim.sum(%g, dims=[1])
  %gx: f32[64, 32] = prim.mul(%g, %xhat)
  %s2: f32[64] = prim.sum(%gx, dims=[1])
  %n: f32[64] = prim.full(value=32.0, shape=[64], dtype=f32)
  %m1: f32[64] = prim.div(%s1, %n)
  %m2: f32[64] = prim.div(%s2, %n)
  %m1r: f32[64, 1] = prim.reshape(%m1, shape=[64, 1])
  %m2r: f32[64, 1] = prim.reshape(%m2, shape=[64, 1])
  %m1e: f32[64, 32] = prim.expand(%m1r, shape=[64, 32])
  %m2e: f32[64, 32] = prim.expand(%m2r, shape=[64, 32])
  %t: f32[64, 32] = prim.mul(%xhat, %m2e)
  %c: f32[64, 32] = prim.sub(%g, %m1e)
  %d: f32[64, 32] = prim.sub(%c, %t)
  %re: f32[64, 32] = prim.expand(%rstd, shape=[64, 32])
  %dx: f32[64, 32] = prim.mul(%d, %re)
  %p: f32[64, 32] = prim.mul(%dy, %xhat)
  %dw: f32[32] = prim.sum(%p, dims=[0])
  %db: f32[32] = prim.sum(%dy, dims=[0])
  output %dx
  output %dw
  output %db
}
// expect:
// program "layer_norm_backward" backward {
//   b0: f32[64, 32] input %dy
//   b1: f32[64, 32] input %xhat
//   b2: f32[64, 1] input %rstd
//   b3: f32[32] input %w
//   b4: f32[64, 32] output %dx
//   b5: f32[32] output %dw
//   b6: f32[32] output %db
//   input b0 role=tangent
//   input b1
//   input b2
//   input b3
//   kernel k0_mul_sum_div_sub(i0: row 64, i1: col 32) {
//     %0: f32 = load b0[0 + i0*(32) + i1]
//     %1: f32 = load b3[0 + i1]
//     %2: f32 = mul %0, %1
//     %3: f32 = sum over cols %2
//     %4: f32 = load b1[0 + i0*(32) + i1]
//     %5: f32 = mul %2, %4
//     %6: f32 = sum over cols %5
//     %7: f32 = const Float(32.0)
//     %8: f32 = div %3, %7
//     %9: f32 = div %6, %7
//     %10: f32 = mul %4, %9
//     %11: f32 = sub %2, %8
//     %12: f32 = sub %11, %10
//     %13: f32 = load b2[0 + i0]
//     %14: f32 = mul %12, %13
//     store b4[0 + i0*(32) + i1], %14: f32
//     %16: f32 = mul %0, %4
//     %17: f32 = sum over rows %16
//     store b5[0 + i1], %17: f32
//     %19: f32 = sum over rows %0
//     store b6[0 + i1], %19: f32
//   }
//   output b4[64, 32]
//   output b5[32]
//   output b6[32]
// }
