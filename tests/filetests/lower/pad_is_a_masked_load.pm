// Padding makes nothing: the load is masked where there is no element.
// run: verify | lower
graph "pad" inference {
  input %x: f32[4, 8] strides=[8, 1]
  input %z: f32[5, 11] strides=[11, 1]
  %p: f32[5, 11] = prim.pad(%x, low=[0, 2], high=[1, 1])
  %y: f32[5, 11] = prim.mul(%p, %z)
  output %y
}
// expect:
// program "pad" inference {
//   b0: f32[4, 8] input %x
//   b1: f32[5, 11] input %z
//   b2: f32[5, 11] output %y
//   input b0
//   input b1
//   kernel k0_mul(i0: batch 5, i1: batch 11) {
//     %0: f32 = load b0[-2 + i0*(8) + i1 if 0 <= i0 < 4 if 2 <= i1 < 10]
//     %1: f32 = load b1[0 + i0*(11) + i1]
//     %2: f32 = mul %0, %1
//     store b2[0 + i0*(11) + i1], %2: f32
//   }
//   output b2[5, 11]
// }
