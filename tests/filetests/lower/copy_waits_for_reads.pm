// The write to %x comes after the product has read it; the sum, which reads only the place it writes to, does the write.
// run: verify | lower
graph "copy" inference {
  input %x: f32[8, 8] strides=[8, 1]
  input %g: f32[8, 8] strides=[8, 1]
  %new: f32[8, 8] = prim.add(%x, %g)
  %m: f32[8, 8] strides=[8, 1] = aten.mm.default(%x, %g)
  %w: f32[8, 8] strides=[8, 1] = aten.copy_.default(%x, %new)
  output %m
}
// expect:
// program "copy" inference {
//   b0: f32[8, 8] input %x
//   b1: f32[8, 8] input %g
//   b2: f32[8, 8] native %m
//   input b0
//   input b1
//   b2 = native aten.mm.default(b0[8, 8], b1[8, 8])
//   kernel k0_add(i0: batch 8, i1: batch 8) {
//     %0: f32 = load b0[0 + i0*(8) + i1]
//     %1: f32 = load b1[0 + i0*(8) + i1]
//     %2: f32 = add %0, %1
//     store b0[0 + i0*(8) + i1], %2: f32
//   }
//   output b2[8, 8]
// }
