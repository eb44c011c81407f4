// The kernel gives no gradient of an added mask.
// run: verify | rewrite
graph "bias" joint(forward_outputs=1) {
  input %q: f32[2, 5, 8] strides=[40, 8, 1]
  input %k: f32[2, 7, 8] strides=[56, 8, 1]
  input %v: f32[2, 7, 8] strides=[56, 8, 1]
  input %b: f32[5, 7] strides=[7, 1]
  input %do: f32[2, 5, 8] strides=[40, 8, 1] role=tangent
  %kt: f32[2, 8, 7] strides=[56, 1, 8] = aten.transpose.int(%k, 1, 2)
  %qk: f32[2, 5, 7] = aten.bmm.default(%q, %kt)
  %s: f32[2, 5, 7] = aten.mul.Tensor(%qk, 0.5)
  %t: f32[5, 7] = aten.tanh.default(%b)
  %m: f32[2, 5, 7] = aten.add.Tensor(%s, %t)
  %p: f32[2, 5, 7] = aten._softmax.default(%m, -1, false)
  %o: f32[2, 5, 8] = aten.bmm.default(%p, %v)
  %pt: f32[2, 7, 5] strides=[35, 1, 7] = aten.transpose.int(%p, 1, 2)
  %dv: f32[2, 7, 8] = aten.bmm.default(%pt, %do)
  %vt: f32[2, 8, 7] strides=[56, 1, 8] = aten.transpose.int(%v, 1, 2)
  %dp: f32[2, 5, 7] = aten.bmm.default(%do, %vt)
  %dm: f32[2, 5, 7] = aten._softmax_backward_data.default(%dp, %p, -1, f32)
  %db: f32[5, 7] = aten.sum.dim_IntList(%dm, [0])
  %dqk: f32[2, 5, 7] = aten.mul.Tensor(%dm, 0.5)
  %dq: f32[2, 5, 8] = aten.bmm.default(%dqk, %k)
  output %o
  output %dq
  output none
  output %dv
  output %db
}
// expect:
// graph "bias" joint(forward_outputs=1) {
//   input %q: f32[2, 5, 8] strides=[40, 8, 1]
//   input %k: f32[2, 7, 8] strides=[56, 8, 1]
//   input %v: f32[2, 7, 8] strides=[56, 8, 1]
//   input %b: f32[5, 7] strides=[7, 1]
//   input %do: f32[2, 5, 8] strides=[40, 8, 1] role=tangent
//   %kt: f32[2, 8, 7] = prim.permute(%k, perm=[0, 2, 1])
//   %qk: f32[2, 5, 7] = aten.bmm.default(%q, %kt)
//   %v7: f32[2, 5, 7] = prim.full(value=0.5, shape=[2, 5, 7], dtype=f32)
//   %s: f32[2, 5, 7] = prim.mul(%qk, %v7)
//   %t: f32[5, 7] = prim.tanh(%b)
//   %v10: f32[1, 5, 7] = prim.reshape(%t, shape=[1, 5, 7])
//   %v11: f32[2, 5, 7] = prim.expand(%v10, shape=[2, 5, 7])
//   %m: f32[2, 5, 7] = prim.add(%s, %v11)
//   %p: f32[2, 5, 7] = aten._softmax.default(%m, -1, false)
//   %o: f32[2, 5, 8] = aten.bmm.default(%p, %v)
//   %pt: f32[2, 7, 5] = prim.permute(%p, perm=[0, 2, 1])
//   %dv: f32[2, 7, 8] = aten.bmm.default(%pt, %do)
//   %vt: f32[2, 8, 7] = prim.permute(%v, perm=[0, 2, 1])
//   %dp: f32[2, 5, 7] = aten.bmm.default(%do, %vt)
//   %dm: f32[2, 5, 7] = aten._softmax_backward_data.default(%dp, %p, -1, f32)
//   %db: f32[5, 7] = prim.sum(%dm, dims=[0])
//   %dqk: f32[2, 5, 7] = prim.mul(%dm, %v7)
//   %dq: f32[2, 5, 8] = aten.bmm.default(%dqk, %k)
//   output %o
//   output %dq
//   output none
//   output %dv
//   output %db
// }
// attention as-written: softmax between two products stays: %dm is also read by prim.sum
