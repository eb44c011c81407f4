// The scores' gradient is not masked as the scores are: that is no gradient of this attention.
// run: verify | rewrite
graph "unmasked" joint(forward_outputs=1) {
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
  %dqk: f32[2, 5, 7] = aten.mul.Tensor(%dm, 0.5)
  %dq: f32[2, 5, 8] = aten.bmm.default(%dqk, %k)
  output %o
  output %dq
  output none
  output %dv
}
// expect:
// graph "unmasked" joint(forward_outputs=1) {
//   input %q: f32[2, 5, 8] strides=[40, 8, 1]
//   input %k: f32[2, 7, 8] strides=[56, 8, 1]
//   input %v: f32[2, 7, 8] strides=[56, 8, 1]
//   input %do: f32[2, 5, 8] strides=[40, 8, 1] role=tangent
//   %kt: f32[2, 8, 7] = prim.permute(%k, perm=[0, 2, 1])
//   %qk: f32[2, 5, 7] = aten.bmm.default(%q, %kt)
//   %v6: f32[2, 5, 7] = prim.full(value=0.5, shape=[2, 5, 7], dtype=f32)
//   %s: f32[2, 5, 7] = prim.mul(%qk, %v6)
//   %ones: bool[5, 7] = prim.full(value=true, shape=[5, 7], dtype=bool)
//   %v9: i64[5] = prim.iota(size=5)
//   %v10: i64[5, 1] = prim.reshape(%v9, shape=[5, 1])
//   %v11: i64[7] = prim.iota(size=7)
//   %v12: i64[1, 7] = prim.reshape(%v11, shape=[1, 7])
//   %v13: i64[5, 7] = prim.expand(%v12, shape=[5, 7])
//   %v14: i64[5, 7] = prim.expand(%v10, shape=[5, 7])
//   %v15: bool[5, 7] = prim.le(%v13, %v14)
//   %v17: bool[5, 7] = prim.full(value=false, shape=[5, 7], dtype=bool)
//   %seen: bool[5, 7] = prim.where(%v15, %ones, %v17)
//   %hidden: bool[5, 7] = prim.not(%seen)
//   %v20: bool[1, 5, 7] = prim.reshape(%hidden, shape=[1, 5, 7])
//   %v21: bool[2, 5, 7] = prim.expand(%v20, shape=[2, 5, 7])
//   %v22: f32[2, 5, 7] = prim.full(value=-inf, shape=[2, 5, 7], dtype=f32)
//   %m: f32[2, 5, 7] = prim.where(%v21, %v22, %s)
//   %p: f32[2, 5, 7] = aten._softmax.default(%m, -1, false)
//   %o: f32[2, 5, 8] = aten.bmm.default(%p, %v)
//   %pt: f32[2, 7, 5] = prim.permute(%p, perm=[0, 2, 1])
//   %dv: f32[2, 7, 8] = aten.bmm.default(%pt, %do)
//   %vt: f32[2, 8, 7] = prim.permute(%v, perm=[0, 2, 1])
//   %dp: f32[2, 5, 7] = aten.bmm.default(%do, %vt)
//   %dm: f32[2, 5, 7] = aten._softmax_backward_data.default(%dp, %p, -1, f32)
//   %dqk: f32[2, 5, 7] = prim.mul(%dm, %v6)
//   %dq: f32[2, 5, 8] = aten.bmm.default(%dqk, %k)
//   output %o
//   output %dq
//   output none
//   output %dv
// }
// attention as-written: softmax between two products stays: the gradient of the scores is not masked as they are
