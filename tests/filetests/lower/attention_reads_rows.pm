// The kernel reads its operands row by row: a transposed one is copied, a strided one with dense rows is not.
// run: verify | lower
graph "rows" inference {
  input %x: f32[1, 2, 8, 5] strides=[80, 40, 5, 1]
  input %y: f32[1, 5, 2, 8] strides=[80, 16, 8, 1]
  %q: f32[1, 2, 5, 8] = prim.permute(%x, perm=[0, 1, 3, 2])
  %k: f32[1, 2, 5, 8] = prim.permute(%y, perm=[0, 2, 1, 3])
  %o: f32[1, 2, 5, 8] strides=[80, 8, 16, 1], %l: f32[1, 2, 5] strides=[10, 1, 2] = aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %k, %k)
  output %o
}
// expect:
// program "rows" inference {
//   b0: f32[1, 2, 8, 5] input %x
//   b1: f32[1, 5, 2, 8] input %y
//   b2: f32[1, 2, 5, 8] intermediate %q.copy
//   b3: f32[1, 2, 5, 8] strides=[80, 8, 16, 1] native %o
//   b4: f32[1, 2, 5] strides=[10, 1, 2] native %l
//   input b0
//   input b1
//   kernel k0_copy(i0: batch 2, i1: batch 5, i2: batch 8) {
//     %0: f32 = load b0[0 + i0*(40) + i1 + i2*(5)]
//     store b2[0 + i0*(40) + i1*(8) + i2], %0: f32
//   }
//   b3, b4 = native aten._scaled_dot_product_flash_attention_for_cpu.default(b2[1, 2, 5, 8], b1[1, 2, 5, 8] strides=[16, 8, 16, 1], b1[1, 2, 5, 8] strides=[16, 8, 16, 1])
//   output b3[1, 2, 5, 8] strides=[80, 8, 16, 1]
// }
