// run: verify | rewrite
graph "returned" inference {
  input %q: f32[2, 5, 8] strides=[40, 8, 1]
  input %k: f32[2, 7, 8] strides=[56, 8, 1]
  input %v: f32[2, 7, 8] strides=[56, 8, 1]
  %kt: f32[2, 8, 7] strides=[56, 1, 8] = aten.transpose.int(%k, 1, 2)
  %qk: f32[2, 5, 7] = aten.bmm.default(%q, %kt)
  %s: f32[2, 5, 7] = aten.mul.Tensor(%qk, 0.5)
  %p: f32[2, 5, 7] = aten._softmax.default(%s, -1, false)
  %o: f32[2, 5, 8] = aten.bmm.default(%p, %v)
  output %o
  output %p
}
// expect:
// graph "returned" inference {
//   input %q: f32[2, 5, 8] strides=[40, 8, 1]
//   input %k: f32[2, 7, 8] strides=[56, 8, 1]
//   input %v: f32[2, 7, 8] strides=[56, 8, 1]
//   %kt: f32[2, 8, 7] = prim.permute(%k, perm=[0, 2, 1])
//   %qk: f32[2, 5, 7] = aten.bmm.default(%q, %kt)
//   %v5: f32[2, 5, 7] = prim.full(value=0.5, shape=[2, 5, 7], dtype=f32)
//   %s: f32[2, 5, 7] = prim.mul(%qk, %v5)
//   %p: f32[2, 5, 7] = aten._softmax.default(%s, -1, false)
//   %o: f32[2, 5, 8] = aten.bmm.default(%p, %v)
//   output %o
//   output %p
// }
// attention as-written: softmax between two products stays: %p is returned or saved
