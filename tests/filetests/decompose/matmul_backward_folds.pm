// A batched left operand and a weight: one GEMM a gradient, the batch in the rows or in the contraction, nothing summed.
// run: verify | decompose
graph "linear" joint(forward_outputs=0) {
  symbol s0 hint=8 range=[2, inf]
  input %dy: bf16[s0, 3, 5]
  input %x: bf16[s0, 3, 4]
  input %w: bf16[4, 5]
  %dx: bf16[s0, 3, 4], %dw: bf16[4, 5] = aten.matmul_backward.default(%dy, %x, %w, [true, true])
  output %dx
  output %dw
}
// expect:
// graph "linear" joint(forward_outputs=0) {
//   symbol s0 hint=8 range=[2, inf]
//   input %dy: bf16[s0, 3, 5]
//   input %x: bf16[s0, 3, 4]
//   input %w: bf16[4, 5]
//   %v3: bf16[3*s0, 5] = prim.reshape(%dy, shape=[3*s0, 5])
//   %v4: bf16[5, 4] = prim.permute(%w, perm=[1, 0])
//   %v5: bf16[3*s0, 4] strides=[4, 1] = aten.mm.default(%v3, %v4)
//   %dx: bf16[s0, 3, 4] = prim.reshape(%v5, shape=[s0, 3, 4])
//   %v7: bf16[3*s0, 4] = prim.reshape(%x, shape=[3*s0, 4])
//   %v8: bf16[4, 3*s0] = prim.permute(%v7, perm=[1, 0])
//   %v9: bf16[3*s0, 5] = prim.reshape(%dy, shape=[3*s0, 5])
//   %dw: bf16[4, 5] strides=[5, 1] = aten.mm.default(%v8, %v9)
//   output %dx
//   output %dw
// }
