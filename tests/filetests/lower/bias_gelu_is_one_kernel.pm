// A bias and the gelu after it are one kernel; the broadcast is a stride of 0.
// run: verify | route | simplify | lower
graph "bias_gelu" inference {
  input %x: f32[64, 32] strides=[32, 1]
  input %b: f32[32] strides=[1]
  %s: f32[64, 32] = aten.add.Tensor(%x, %b)
  %y: f32[64, 32] = aten.gelu.default(%s)
  output %y
}
// expect:
// program "bias_gelu" inference {
//   b0: f32[64, 32] input %x
//   b1: f32[32] input %b
//   b2: f32[64, 32] output %y
//   input b0
//   input b1
//   kernel k0_add_mul_erf(i0: batch 64, i1: batch 32) {
//     %0: f32 = load b0[0 + i0*(32) + i1]
//     %1: f32 = load b1[0 + i1]
//     %2: f32 = add %0, %1
//     %3: f32 = const Float(0.7071067811865476)
//     %4: f32 = mul %2, %3
//     %5: f32 = erf %4
//     %6: f32 = const Float(0.5)
//     %7: f32 = mul %2, %6
//     %8: f32 = const Float(1.0)
//     %9: f32 = add %5, %8
//     %10: f32 = mul %7, %9
//     store b2[0 + i0*(32) + i1], %10: f32
//   }
//   output b2[64, 32]
// }
