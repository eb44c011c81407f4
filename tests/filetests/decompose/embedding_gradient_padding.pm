// The row padding_idx is masked out of the gradient; indices stay as they are, so that one out of range is an error.
// run: verify | decompose
graph "table" joint(forward_outputs=0) {
  symbol s0 hint=8 range=[2, inf]
  input %dy: bf16[s0, 3]
  input %i: i32[s0]
  %dw: bf16[10, 3] = aten.embedding_dense_backward.default(%dy, %i, 10, 2, false)
  output %dw
}
// expect:
// graph "table" joint(forward_outputs=0) {
//   symbol s0 hint=8 range=[2, inf]
//   input %dy: bf16[s0, 3]
//   input %i: i32[s0]
//   %v3: i32[s0] = prim.full(value=2, shape=[s0], dtype=i32)
//   %v4: bool[s0] = prim.eq(%i, %v3)
//   %v5: bool[s0, 1] = prim.reshape(%v4, shape=[s0, 1])
//   %v7: bool[s0, 3] = prim.expand(%v5, shape=[s0, 3])
//   %v8: bf16[s0, 3] = prim.full(value=0.0, shape=[s0, 3], dtype=bf16)
//   %v9: bf16[s0, 3] = prim.where(%v7, %v8, %dy)
//   %dw: bf16[10, 3] = prim.index_sum(%v9, %i, dim=0, size=10)
//   output %dw
// }
