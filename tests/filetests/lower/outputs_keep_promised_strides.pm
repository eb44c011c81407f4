// A result is stored in the layout that was promised; a view of an input is returned as that view.
// run: verify | lower
graph "strides" inference {
  input %x: f32[4, 8] strides=[8, 1]
  %y: f32[4, 8] strides=[1, 4] = prim.exp(%x)
  %t: f32[8, 4] = prim.permute(%x, perm=[1, 0])
  output %y
  output %t
}
// expect:
// program "strides" inference {
//   b0: f32[4, 8] input %x
//   b1: f32[4, 8] strides=[1, 4] output %y
//   input b0
//   kernel k0_exp(i0: batch 4, i1: batch 8) {
//     %0: f32 = load b0[0 + i0*(8) + i1]
//     %1: f32 = exp %0
//     store b1[0 + i0 + i1*(4)], %1: f32
//   }
//   output b1[4, 8] strides=[1, 4]
//   output b0[8, 4] strides=[1, 8]
// }
