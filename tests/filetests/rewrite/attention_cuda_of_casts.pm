// Queries, keys and values that are wide only for the written-out form, queries and keys scaled one by one: the kernel gets
// what they were cast from, and the product of the factors.
// run: verify | rewrite
// target: cuda
graph "wide" joint(forward_outputs=1) {
  input %q: bf16[2, 3, 5, 8] strides=[120, 40, 8, 1] @cuda:0
  input %k: bf16[2, 3, 7, 8] strides=[168, 56, 8, 1] @cuda:0
  input %v: bf16[2, 3, 7, 8] strides=[168, 56, 8, 1] @cuda:0
  input %do: bf16[2, 3, 5, 8] strides=[120, 40, 8, 1] @cuda:0 role=tangent
  %qf: f32[2, 3, 5, 8] @cuda:0 = aten._to_copy.default(%q, dtype=f32)
  %kf: f32[2, 3, 7, 8] @cuda:0 = aten._to_copy.default(%k, dtype=f32)
  %vf: f32[2, 3, 7, 8] @cuda:0 = aten._to_copy.default(%v, dtype=f32)
  %qs: f32[2, 3, 5, 8] @cuda:0 = aten.mul.Scalar(%qf, 0.5)
  %kt: f32[2, 3, 8, 7] strides=[168, 56, 1, 8] @cuda:0 = aten.transpose.int(%kf, -2, -1)
  %ks: f32[2, 3, 8, 7] strides=[168, 56, 1, 8] @cuda:0 = aten.mul.Scalar(%kt, 0.25)
  %q3: f32[6, 5, 8] @cuda:0 = aten._unsafe_view.default(%qs, [6, 5, 8])
  %kc: f32[2, 3, 8, 7] @cuda:0 = aten.clone.default(%ks, memory_format=memory_format:contiguous_format)
  %k3: f32[6, 8, 7] @cuda:0 = aten._unsafe_view.default(%kc, [6, 8, 7])
  %s3: f32[6, 5, 7] @cuda:0 = aten.bmm.default(%q3, %k3)
  %s: f32[2, 3, 5, 7] @cuda:0 = aten.view.default(%s3, [2, 3, 5, 7])
  %p: f32[2, 3, 5, 7] @cuda:0 = aten._safe_softmax.default(%s, -1)
  %p3: f32[6, 5, 7] @cuda:0 = aten.view.default(%p, [6, 5, 7])
  %v3: f32[6, 7, 8] @cuda:0 = aten.view.default(%vf, [6, 7, 8])
  %o3: f32[6, 5, 8] @cuda:0 = aten.bmm.default(%p3, %v3)
  %of: f32[2, 3, 5, 8] @cuda:0 = aten.view.default(%o3, [2, 3, 5, 8])
  %o: bf16[2, 3, 5, 8] @cuda:0 = aten._to_copy.default(%of, dtype=bf16)
  %dof: f32[2, 3, 5, 8] @cuda:0 = aten._to_copy.default(%do, dtype=f32)
  %do3: f32[6, 5, 8] @cuda:0 = aten.view.default(%dof, [6, 5, 8])
  %pt: f32[6, 7, 5] strides=[35, 1, 7] @cuda:0 = aten.transpose.int(%p3, 1, 2)
  %dv3: f32[6, 7, 8] @cuda:0 = aten.bmm.default(%pt, %do3)
  %vt: f32[6, 8, 7] strides=[56, 1, 8] @cuda:0 = aten.transpose.int(%v3, 1, 2)
  %dp3: f32[6, 5, 7] @cuda:0 = aten.bmm.default(%do3, %vt)
  %dp: f32[2, 3, 5, 7] @cuda:0 = aten.view.default(%dp3, [2, 3, 5, 7])
  %ds: f32[2, 3, 5, 7] @cuda:0 = aten._softmax_backward_data.default(%dp, %p, -1, f32)
  %ds3: f32[6, 5, 7] @cuda:0 = aten.view.default(%ds, [6, 5, 7])
  %qt: f32[6, 8, 5] strides=[40, 1, 8] @cuda:0 = aten.transpose.int(%q3, 1, 2)
  %dk3: f32[6, 8, 7] @cuda:0 = aten.bmm.default(%qt, %ds3)
  %k3t: f32[6, 7, 8] strides=[56, 1, 7] @cuda:0 = aten.transpose.int(%k3, 1, 2)
  %dq3: f32[6, 5, 8] @cuda:0 = aten.bmm.default(%ds3, %k3t)
  %dk4: f32[2, 3, 8, 7] @cuda:0 = aten.view.default(%dk3, [2, 3, 8, 7])
  %dq4: f32[2, 3, 5, 8] @cuda:0 = aten.view.default(%dq3, [2, 3, 5, 8])
  %dks: f32[2, 3, 8, 7] @cuda:0 = aten.mul.Scalar(%dk4, 0.25)
  %dkt: f32[2, 3, 7, 8] strides=[168, 56, 1, 7] @cuda:0 = aten.transpose.int(%dks, -2, -1)
  %dqs: f32[2, 3, 5, 8] @cuda:0 = aten.mul.Scalar(%dq4, 0.5)
  %dv4: f32[2, 3, 7, 8] @cuda:0 = aten.view.default(%dv3, [2, 3, 7, 8])
  %dq: bf16[2, 3, 5, 8] @cuda:0 = aten._to_copy.default(%dqs, dtype=bf16)
  %dk: bf16[2, 3, 7, 8] strides=[168, 56, 1, 7] @cuda:0 = aten._to_copy.default(%dkt, dtype=bf16)
  %dv: bf16[2, 3, 7, 8] @cuda:0 = aten._to_copy.default(%dv4, dtype=bf16)
  output %o
  output %dq
  output %dk
  output %dv
}
// expect:
// graph "wide" joint(forward_outputs=1) {
//   input %q: bf16[2, 3, 5, 8] strides=[120, 40, 8, 1] @cuda:0
//   input %k: bf16[2, 3, 7, 8] strides=[168, 56, 8, 1] @cuda:0
//   input %v: bf16[2, 3, 7, 8] strides=[168, 56, 8, 1] @cuda:0
//   input %do: bf16[2, 3, 5, 8] strides=[120, 40, 8, 1] @cuda:0 role=tangent
//   %v7: f32[2, 3, 5, 8] @cuda:0 = prim.full(value=0.5, shape=[2, 3, 5, 8], dtype=f32)
//   %v10: f32[2, 3, 8, 7] @cuda:0 = prim.full(value=0.25, shape=[2, 3, 8, 7], dtype=f32)
//   %o3.heads: bf16[2, 3, 5, 8] strides=[120, 8, 24, 1] @cuda:0, %o3.logsumexp: f32[2, 3, 5] @cuda:0, _, _, _, _, %o3.seed: u64[2] @cuda:0, %o3.offset: u64[] @cuda:0, _ = aten._scaled_dot_product_flash_attention.default(%q, %k, %v, 0.0, false, false, scale=0.125)
//   %v23: f32[2, 3, 5, 8] @cuda:0 = prim.cast(%o3.heads, dtype=f32)
//   %o: bf16[2, 3, 5, 8] @cuda:0 = prim.cast(%v23, dtype=bf16)
//   %o3.dq: bf16[2, 3, 5, 8] strides=[120, 8, 24, 1] @cuda:0, %o3.dk: bf16[2, 3, 7, 8] strides=[168, 8, 24, 1] @cuda:0, %o3.dv: bf16[2, 3, 7, 8] strides=[168, 8, 24, 1] @cuda:0 = aten._scaled_dot_product_flash_attention_backward.default(%do, %q, %k, %v, %o3.heads, %o3.logsumexp, none, none, 5, 7, 0.0, false, %o3.seed, %o3.offset, scale=0.125)
//   %v33: f32[2, 3, 5, 8] @cuda:0 = prim.cast(%o3.dq, dtype=f32)
//   %v34: f32[2, 3, 5, 8] @cuda:0 = prim.full(value=2.0, shape=[2, 3, 5, 8], dtype=f32)
//   %v35: f32[2, 3, 5, 8] @cuda:0 = prim.mul(%v33, %v34)
//   %v37: f32[2, 3, 7, 8] @cuda:0 = prim.cast(%o3.dk, dtype=f32)
//   %v38: f32[2, 3, 7, 8] @cuda:0 = prim.full(value=4.0, shape=[2, 3, 7, 8], dtype=f32)
//   %v39: f32[2, 3, 7, 8] @cuda:0 = prim.mul(%v37, %v38)
//   %v40: f32[2, 3, 8, 7] @cuda:0 = prim.permute(%v39, perm=[0, 1, 3, 2])
//   %v42: f32[2, 3, 7, 8] @cuda:0 = prim.cast(%o3.dv, dtype=f32)
//   %dks: f32[2, 3, 8, 7] @cuda:0 = prim.mul(%v40, %v10)
//   %dkt: f32[2, 3, 7, 8] @cuda:0 = prim.permute(%dks, perm=[0, 1, 3, 2])
//   %dqs: f32[2, 3, 5, 8] @cuda:0 = prim.mul(%v35, %v7)
//   %dq: bf16[2, 3, 5, 8] @cuda:0 = prim.cast(%dqs, dtype=bf16)
//   %dk: bf16[2, 3, 7, 8] strides=[168, 56, 1, 7] @cuda:0 = prim.cast(%dkt, dtype=bf16)
//   %dv: bf16[2, 3, 7, 8] @cuda:0 = prim.cast(%v42, dtype=bf16)
//   output %o
//   output %dq
//   output %dk
//   output %dv
// }
// attention rewrite:attention: forward and gradients by aten._scaled_dot_product_flash_attention.default: no mask, scale 0.125, [batch, heads, queries, keys, width] = [2, 3, 5, 7, 8]
