// Three inputs are overwritten by the one kernel that computes them, though its group has grown out of several.
// run: verify | route | algebra | simplify | lower
graph "adamw" inference {
  input %arg0_1: f32[64, 128] strides=[128, 1]
  input %arg1_1: f32[64, 128] strides=[128, 1]
  input %arg2_1: f32[64, 128] strides=[128, 1]
  input %arg3_1: f32[64, 128] strides=[128, 1]
  %mul: f32[64, 128] = aten.mul.Tensor(%arg0_1, 0.99999)
  %lerp: f32[64, 128] = aten.lerp.Scalar(%arg1_1, %arg2_1, 0.09999999999999998)
  %mul_1: f32[64, 128] = aten.mul.Tensor(%arg3_1, 0.999)
  %mul_2: f32[64, 128] = aten.mul.Tensor(%arg2_1, %arg2_1)
  %mul_3: f32[64, 128] = aten.mul.Tensor(%mul_2, 0.0010000000000000009)
  %add: f32[64, 128] = aten.add.Tensor(%mul_1, %mul_3)
  %sqrt: f32[64, 128] = aten.sqrt.default(%add)
  %div: f32[64, 128] = aten.div.Tensor(%sqrt, 0.09977534660552057)
  %add_1: f32[64, 128] = aten.add.Tensor(%div, 1e-08)
  %div_1: f32[64, 128] = aten.div.Tensor(%lerp, %add_1)
  %mul_4: f32[64, 128] = aten.mul.Tensor(%div_1, -0.0015353399327876296)
  %add_2: f32[64, 128] = aten.add.Tensor(%mul, %mul_4)
  %copy_: f32[64, 128] = aten.copy_.default(%arg0_1, %add_2)
  %copy__1: f32[64, 128] = aten.copy_.default(%arg1_1, %lerp)
  %copy__2: f32[64, 128] = aten.copy_.default(%arg3_1, %add)
}
// expect:
// program "adamw" inference {
//   b0: f32[64, 128] input %arg0_1
//   b1: f32[64, 128] input %arg1_1
//   b2: f32[64, 128] input %arg2_1
//   b3: f32[64, 128] input %arg3_1
//   input b0
//   input b1
//   input b2
//   input b3
//   kernel k0_mul_sub_add_sqrt_div(i0: batch 64, i1: batch 128) {
//     %0: f32 = load b0[0 + i0*(128) + i1]
//     %1: f32 = const Float(0.99999)
//     %2: f32 = mul %0, %1
//     %3: f32 = load b2[0 + i0*(128) + i1]
//     %4: f32 = load b1[0 + i0*(128) + i1]
//     %5: f32 = sub %3, %4
//     %6: f32 = const Float(0.09999999999999998)
//     %7: f32 = mul %6, %5
//     %8: f32 = add %4, %7
//     %9: f32 = mul %3, %3
//     %10: f32 = const Float(0.0010000000000000009)
//     %11: f32 = mul %9, %10
//     %12: f32 = load b3[0 + i0*(128) + i1]
//     %13: f32 = const Float(0.999)
//     %14: f32 = mul %12, %13
//     %15: f32 = add %14, %11
//     %16: f32 = sqrt %15
//     %17: f32 = const Float(0.09977534660552057)
//     %18: f32 = div %16, %17
//     %19: f32 = const Float(1e-8)
//     %20: f32 = add %18, %19
//     %21: f32 = div %8, %20
//     %22: f32 = const Float(-0.0015353399327876296)
//     %23: f32 = mul %21, %22
//     %24: f32 = add %2, %23
//     store b0[0 + i0*(128) + i1], %24: f32
//     store b1[0 + i0*(128) + i1], %8: f32
//     store b3[0 + i0*(128) + i1], %15: f32
//   }
// }
