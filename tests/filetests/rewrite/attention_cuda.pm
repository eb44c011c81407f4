// CUDA's flash attention takes 16 bits and a causal mask at most; its gradient wants the generator's state of the forward.
// run: verify | rewrite
// target: cuda
graph "causal" joint(forward_outputs=1) {
  input %q: bf16[2, 5, 8] strides=[40, 8, 1] @cuda:0
  input %k: bf16[2, 7, 8] strides=[56, 8, 1] @cuda:0
  input %v: bf16[2, 7, 8] strides=[56, 8, 1] @cuda:0
  input %do: bf16[2, 5, 8] strides=[40, 8, 1] @cuda:0 role=tangent
  %kt: bf16[2, 8, 7] strides=[56, 1, 8] @cuda:0 = aten.transpose.int(%k, 1, 2)
  %qk: bf16[2, 5, 7] @cuda:0 = aten.bmm.default(%q, %kt)
  %s: bf16[2, 5, 7] @cuda:0 = aten.mul.Tensor(%qk, 0.5)
  %ones: bool[5, 7] @cuda:0 = aten.ones.default([5, 7], dtype=bool, device=@cuda:0)
  %seen: bool[5, 7] @cuda:0 = aten.tril.default(%ones)
  %hidden: bool[5, 7] @cuda:0 = aten.logical_not.default(%seen)
  %m: bf16[2, 5, 7] @cuda:0 = aten.masked_fill.Scalar(%s, %hidden, -inf)
  %mf: f32[2, 5, 7] @cuda:0 = aten._to_copy.default(%m, dtype=f32)
  %pf: f32[2, 5, 7] @cuda:0 = aten._softmax.default(%mf, -1, false)
  %p: bf16[2, 5, 7] @cuda:0 = aten._to_copy.default(%pf, dtype=bf16)
  %o: bf16[2, 5, 8] @cuda:0 = aten.bmm.default(%p, %v)
  %pt: bf16[2, 7, 5] strides=[35, 1, 7] @cuda:0 = aten.transpose.int(%p, 1, 2)
  %dv: bf16[2, 7, 8] @cuda:0 = aten.bmm.default(%pt, %do)
  %vt: bf16[2, 8, 7] strides=[56, 1, 8] @cuda:0 = aten.transpose.int(%v, 1, 2)
  %dp: bf16[2, 5, 7] @cuda:0 = aten.bmm.default(%do, %vt)
  %dpf: f32[2, 5, 7] @cuda:0 = aten._to_copy.default(%dp, dtype=f32)
  %dmf: f32[2, 5, 7] @cuda:0 = aten._softmax_backward_data.default(%dpf, %pf, -1, f32)
  %dm: bf16[2, 5, 7] @cuda:0 = aten._to_copy.default(%dmf, dtype=bf16)
  %ds: bf16[2, 5, 7] @cuda:0 = aten.masked_fill.Scalar(%dm, %hidden, 0)
  %dqk: bf16[2, 5, 7] @cuda:0 = aten.mul.Tensor(%ds, 0.5)
  %qt: bf16[2, 8, 5] strides=[40, 1, 8] @cuda:0 = aten.transpose.int(%q, 1, 2)
  %dkt: bf16[2, 8, 7] @cuda:0 = aten.bmm.default(%qt, %dqk)
  %dq: bf16[2, 5, 8] @cuda:0 = aten.bmm.default(%dqk, %k)
  %dk: bf16[2, 7, 8] strides=[56, 1, 7] @cuda:0 = aten.transpose.int(%dkt, 1, 2)
  output %o
  output %dq
  output %dk
  output %dv
}
// expect:
// graph "causal" joint(forward_outputs=1) {
//   input %q: bf16[2, 5, 8] strides=[40, 8, 1] @cuda:0
//   input %k: bf16[2, 7, 8] strides=[56, 8, 1] @cuda:0
//   input %v: bf16[2, 7, 8] strides=[56, 8, 1] @cuda:0
//   input %do: bf16[2, 5, 8] strides=[40, 8, 1] @cuda:0 role=tangent
//   %v28: bf16[1, 2, 5, 8] @cuda:0 = prim.reshape(%q, shape=[1, 2, 5, 8])
//   %v29: bf16[1, 2, 7, 8] @cuda:0 = prim.reshape(%k, shape=[1, 2, 7, 8])
//   %v30: bf16[1, 2, 7, 8] @cuda:0 = prim.reshape(%v, shape=[1, 2, 7, 8])
//   %o.heads: bf16[1, 2, 5, 8] strides=[80, 8, 16, 1] @cuda:0, %o.logsumexp: f32[1, 2, 5] @cuda:0, _, _, _, _, %o.seed: u64[2] @cuda:0, %o.offset: u64[] @cuda:0, _ = aten._scaled_dot_product_flash_attention.default(%v28, %v29, %v30, 0.0, true, false, scale=0.5)
//   %o: bf16[2, 5, 8] @cuda:0 = prim.reshape(%o.heads, shape=[2, 5, 8])
//   %v37: bf16[1, 2, 5, 8] @cuda:0 = prim.reshape(%do, shape=[1, 2, 5, 8])
//   %o.dq: bf16[1, 2, 5, 8] strides=[80, 8, 16, 1] @cuda:0, %o.dk: bf16[1, 2, 7, 8] strides=[112, 8, 16, 1] @cuda:0, %o.dv: bf16[1, 2, 7, 8] strides=[112, 8, 16, 1] @cuda:0 = aten._scaled_dot_product_flash_attention_backward.default(%v37, %v28, %v29, %v30, %o.heads, %o.logsumexp, none, none, 5, 7, 0.0, true, %o.seed, %o.offset, scale=0.5)
//   %dq: bf16[2, 5, 8] @cuda:0 = prim.reshape(%o.dq, shape=[2, 5, 8])
//   %v42: bf16[1, 2, 8, 7] @cuda:0 = prim.permute(%o.dk, perm=[0, 1, 3, 2])
//   %dkt: bf16[2, 8, 7] @cuda:0 = prim.reshape(%v42, shape=[2, 8, 7])
//   %dv: bf16[2, 7, 8] @cuda:0 = prim.reshape(%o.dv, shape=[2, 7, 8])
//   %dk: bf16[2, 7, 8] strides=[56, 1, 7] @cuda:0 = prim.permute(%dkt, perm=[0, 2, 1])
//   output %o
//   output %dq
//   output %dk
//   output %dv
// }
// attention rewrite:attention: forward and gradients by aten._scaled_dot_product_flash_attention.default: causal, scale 0.5, [batch, heads, queries, keys, width] = [1, 2, 5, 7, 8]
