// _safe_softmax gives 0 for a query without keys, and so does the kernel.
// run: verify | rewrite
graph "safe" inference {
  input %q: f32[2, 5, 8] strides=[40, 8, 1]
  input %k: f32[2, 7, 8] strides=[56, 8, 1]
  input %v: f32[2, 7, 8] strides=[56, 8, 1]
  input %hidden: bool[5, 7] strides=[7, 1]
  %kt: f32[2, 8, 7] strides=[56, 1, 8] = aten.transpose.int(%k, 1, 2)
  %qk: f32[2, 5, 7] = aten.bmm.default(%q, %kt)
  %s: f32[2, 5, 7] = aten.mul.Tensor(%qk, 0.5)
  %m: f32[2, 5, 7] = aten.masked_fill.Scalar(%s, %hidden, -inf)
  %p: f32[2, 5, 7] = aten._safe_softmax.default(%m, -1)
  %o: f32[2, 5, 8] = aten.bmm.default(%p, %v)
  output %o
}
// expect:
// graph "safe" inference {
//   input %q: f32[2, 5, 8] strides=[40, 8, 1]
//   input %k: f32[2, 7, 8] strides=[56, 8, 1]
//   input %v: f32[2, 7, 8] strides=[56, 8, 1]
//   input %hidden: bool[5, 7] strides=[7, 1]
//   %v13: bool[1, 1, 5, 7] = prim.reshape(%hidden, shape=[1, 1, 5, 7])
//   %v14: f32[1, 1, 5, 7] = prim.full(value=-inf, shape=[1, 1, 5, 7], dtype=f32)
//   %v15: f32[1, 1, 5, 7] = prim.full(value=0.0, shape=[1, 1, 5, 7], dtype=f32)
//   %v16: f32[1, 1, 5, 7] = prim.where(%v13, %v14, %v15)
//   %v17: f32[1, 2, 5, 8] = prim.reshape(%q, shape=[1, 2, 5, 8])
//   %v18: f32[1, 2, 7, 8] = prim.reshape(%k, shape=[1, 2, 7, 8])
//   %v19: f32[1, 2, 7, 8] = prim.reshape(%v, shape=[1, 2, 7, 8])
//   %o.heads: f32[1, 2, 5, 8] strides=[80, 8, 16, 1], %o.logsumexp: f32[1, 2, 5] strides=[10, 1, 2] = aten._scaled_dot_product_flash_attention_for_cpu.default(%v17, %v18, %v19, 0.0, false, attn_mask=%v16, scale=0.5)
//   %o: f32[2, 5, 8] = prim.reshape(%o.heads, shape=[2, 5, 8])
//   output %o
// }
// attention rewrite:attention: forward by aten._scaled_dot_product_flash_attention_for_cpu.default: additive mask, scale 0.5, [batch, heads, queries, keys, width] = [1, 2, 5, 7, 8]
