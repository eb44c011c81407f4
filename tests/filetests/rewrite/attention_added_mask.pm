// A mask of finite numbers is added by the kernel, in the shape it had before it was expanded.
// run: verify | rewrite
graph "added" inference {
  input %q: f32[2, 5, 8] strides=[40, 8, 1]
  input %k: f32[2, 7, 8] strides=[56, 8, 1]
  input %v: f32[2, 7, 8] strides=[56, 8, 1]
  input %keep: bool[1, 7] strides=[7, 1]
  %kt: f32[2, 8, 7] strides=[56, 1, 8] = aten.transpose.int(%k, 1, 2)
  %qk: f32[2, 5, 7] = aten.bmm.default(%q, %kt)
  %s: f32[2, 5, 7] = aten.mul.Tensor(%qk, 0.5)
  %x: f32[1, 7] = aten._to_copy.default(%keep, dtype=f32)
  %r: f32[1, 7] = aten.rsub.Scalar(%x, 1.0)
  %a: f32[1, 7] = aten.mul.Tensor(%r, -3.4028234663852886e38)
  %m: f32[2, 5, 7] = aten.add.Tensor(%s, %a)
  %p: f32[2, 5, 7] = aten._softmax.default(%m, -1, false)
  %o: f32[2, 5, 8] = aten.bmm.default(%p, %v)
  output %o
}
// expect:
// graph "added" inference {
//   input %q: f32[2, 5, 8] strides=[40, 8, 1]
//   input %k: f32[2, 7, 8] strides=[56, 8, 1]
//   input %v: f32[2, 7, 8] strides=[56, 8, 1]
//   input %keep: bool[1, 7] strides=[7, 1]
//   %x: f32[1, 7] = prim.cast(%keep, dtype=f32)
//   %v9: f32[1, 7] = prim.full(value=1.0, shape=[1, 7], dtype=f32)
//   %r: f32[1, 7] = prim.sub(%v9, %x)
//   %v11: f32[1, 7] = prim.full(value=-3.4028234663852886e38, shape=[1, 7], dtype=f32)
//   %a: f32[1, 7] = prim.mul(%r, %v11)
//   %v17: f32[1, 1, 1, 7] = prim.reshape(%a, shape=[1, 1, 1, 7])
//   %v18: f32[1, 2, 5, 8] = prim.reshape(%q, shape=[1, 2, 5, 8])
//   %v19: f32[1, 2, 7, 8] = prim.reshape(%k, shape=[1, 2, 7, 8])
//   %v20: f32[1, 2, 7, 8] = prim.reshape(%v, shape=[1, 2, 7, 8])
//   %o.heads: f32[1, 2, 5, 8] strides=[80, 8, 16, 1], %o.logsumexp: f32[1, 2, 5] strides=[10, 1, 2] = aten._scaled_dot_product_flash_attention_for_cpu.default(%v18, %v19, %v20, 0.0, false, attn_mask=%v17, scale=0.5)
//   %o: f32[2, 5, 8] = prim.reshape(%o.heads, shape=[2, 5, 8])
//   output %o
// }
// attention rewrite:attention: forward by aten._scaled_dot_product_flash_attention_for_cpu.default: additive mask, scale 0.5, [batch, heads, queries, keys, width] = [1, 2, 5, 7, 8]
