// The group that computes the new contents reads the input at another point than the one it would store: a copy behind it.
// run: verify | lower
graph "flip" inference {
  input %x: f32[8] strides=[1]
  input %g: f32[8] strides=[1]
  %a: f32[8] = prim.exp(%x)
  %b: f32[8] = prim.exp(%g)
  %f: f32[8] = prim.flip(%x, dims=[0])
  %ab: f32[8] = prim.add(%a, %b)
  %new: f32[8] = prim.mul(%ab, %f)
  %w: f32[8] = aten.copy_.default(%x, %new)
}
// expect:
// program "flip" inference {
//   b0: f32[8] input %x
//   b1: f32[8] input %g
//   b2: f32[8] intermediate %new
//   input b0
//   input b1
//   kernel k0_exp_add_mul(i0: batch 8) {
//     %0: f32 = load b0[0 + i0]
//     %1: f32 = exp %0
//     %2: f32 = load b1[0 + i0]
//     %3: f32 = exp %2
//     %4: f32 = add %1, %3
//     %5: f32 = load b0[7 + i0*(-1)]
//     %6: f32 = mul %4, %5
//     store b2[0 + i0], %6: f32
//   }
//   kernel k1_copy(i0: batch 8) {
//     %0: f32 = load b2[0 + i0]
//     store b0[0 + i0], %0: f32
//   }
// }
