// Queries see earlier keys: the kernel is told, and makes the gradients as well. Nothing of size [queries, keys] is left.
// run: verify | rewrite
graph "causal" joint(forward_outputs=1) {
  input %q: f32[2, 5, 8] strides=[40, 8, 1]
  input %k: f32[2, 7, 8] strides=[56, 8, 1]
  input %v: f32[2, 7, 8] strides=[56, 8, 1]
  input %do: f32[2, 5, 8] strides=[40, 8, 1] role=tangent
  %kt: f32[2, 8, 7] strides=[56, 1, 8] = aten.transpose.int(%k, 1, 2)
  %qk: f32[2, 5, 7] = aten.bmm.default(%q, %kt)
  %s: f32[2, 5, 7] = aten.mul.Tensor(%qk, 0.5)
  %ones: bool[5, 7] = aten.ones.default([5, 7], dtype=bool, device=@cpu)
  %seen: bool[5, 7] = aten.tril.default(%ones)
  %hidden: bool[5, 7] = aten.logical_not.default(%seen)
  %m: f32[2, 5, 7] = aten.masked_fill.Scalar(%s, %hidden, -inf)
  %p: f32[2, 5, 7] = aten._softmax.default(%m, -1, false)
  %o: f32[2, 5, 8] = aten.bmm.default(%p, %v)
  %pt: f32[2, 7, 5] strides=[35, 1, 7] = aten.transpose.int(%p, 1, 2)
  %dv: f32[2, 7, 8] = aten.bmm.default(%pt, %do)
  %vt: f32[2, 8, 7] strides=[56, 1, 8] = aten.transpose.int(%v, 1, 2)
  %dp: f32[2, 5, 7] = aten.bmm.default(%do, %vt)
  %dm: f32[2, 5, 7] = aten._softmax_backward_data.default(%dp, %p, -1, f32)
  %ds: f32[2, 5, 7] = aten.masked_fill.Scalar(%dm, %hidden, 0)
  %dqk: f32[2, 5, 7] = aten.mul.Tensor(%ds, 0.5)
  %qt: f32[2, 8, 5] strides=[40, 1, 8] = aten.transpose.int(%q, 1, 2)
  %dkt: f32[2, 8, 7] = aten.bmm.default(%qt, %dqk)
  %dq: f32[2, 5, 8] = aten.bmm.default(%dqk, %k)
  %dk: f32[2, 7, 8] strides=[56, 1, 7] = aten.transpose.int(%dkt, 1, 2)
  output %o
  output %dq
  output %dk
  output %dv
}
// expect:
// graph "causal" joint(forward_outputs=1) {
//   input %q: f32[2, 5, 8] strides=[40, 8, 1]
//   input %k: f32[2, 7, 8] strides=[56, 8, 1]
//   input %v: f32[2, 7, 8] strides=[56, 8, 1]
//   input %do: f32[2, 5, 8] strides=[40, 8, 1] role=tangent
//   %v24: f32[1, 2, 5, 8] = prim.reshape(%q, shape=[1, 2, 5, 8])
//   %v25: f32[1, 2, 7, 8] = prim.reshape(%k, shape=[1, 2, 7, 8])
//   %v26: f32[1, 2, 7, 8] = prim.reshape(%v, shape=[1, 2, 7, 8])
//   %o.heads: f32[1, 2, 5, 8] strides=[80, 8, 16, 1], %o.logsumexp: f32[1, 2, 5] strides=[10, 1, 2] = aten._scaled_dot_product_flash_attention_for_cpu.default(%v24, %v25, %v26, 0.0, true, scale=0.5)
//   %o: f32[2, 5, 8] = prim.reshape(%o.heads, shape=[2, 5, 8])
//   %v31: f32[1, 2, 5, 8] = prim.reshape(%do, shape=[1, 2, 5, 8])
//   %o.dq: f32[1, 2, 5, 8] strides=[80, 8, 16, 1], %o.dk: f32[1, 2, 7, 8] strides=[112, 8, 16, 1], %o.dv: f32[1, 2, 7, 8] strides=[112, 8, 16, 1] = aten._scaled_dot_product_flash_attention_for_cpu_backward.default(%v31, %v24, %v25, %v26, %o.heads, %o.logsumexp, 0.0, true, scale=0.5)
//   %dq: f32[2, 5, 8] = prim.reshape(%o.dq, shape=[2, 5, 8])
//   %v36: f32[1, 2, 8, 7] = prim.permute(%o.dk, perm=[0, 1, 3, 2])
//   %dkt: f32[2, 8, 7] = prim.reshape(%v36, shape=[2, 8, 7])
//   %dv: f32[2, 7, 8] = prim.reshape(%o.dv, shape=[2, 7, 8])
//   %dk: f32[2, 7, 8] strides=[56, 1, 7] = prim.permute(%dkt, perm=[0, 2, 1])
//   output %o
//   output %dq
//   output %dk
//   output %dv
// }
// attention rewrite:attention: forward and gradients by aten._scaled_dot_product_flash_attention_for_cpu.default: causal, scale 0.5, [batch, heads, queries, keys, width] = [1, 2, 5, 7, 8]
