// A given mask may hide every key of a query: eager gives NaN there, the kernel 0.
// run: verify | rewrite
graph "given" inference {
  input %q: f32[2, 5, 8] strides=[40, 8, 1]
  input %k: f32[2, 7, 8] strides=[56, 8, 1]
  input %v: f32[2, 7, 8] strides=[56, 8, 1]
  input %hidden: bool[5, 7] strides=[7, 1]
  %kt: f32[2, 8, 7] strides=[56, 1, 8] = aten.transpose.int(%k, 1, 2)
  %qk: f32[2, 5, 7] = aten.bmm.default(%q, %kt)
  %s: f32[2, 5, 7] = aten.mul.Tensor(%qk, 0.5)
  %m: f32[2, 5, 7] = aten.masked_fill.Scalar(%s, %hidden, -inf)
  %p: f32[2, 5, 7] = aten._softmax.default(%m, -1, false)
  %o: f32[2, 5, 8] = aten.bmm.default(%p, %v)
  output %o
}
// expect:
// graph "given" inference {
//   input %q: f32[2, 5, 8] strides=[40, 8, 1]
//   input %k: f32[2, 7, 8] strides=[56, 8, 1]
//   input %v: f32[2, 7, 8] strides=[56, 8, 1]
//   input %hidden: bool[5, 7] strides=[7, 1]
//   %kt: f32[2, 8, 7] = prim.permute(%k, perm=[0, 2, 1])
//   %qk: f32[2, 5, 7] = aten.bmm.default(%q, %kt)
//   %v6: f32[2, 5, 7] = prim.full(value=0.5, shape=[2, 5, 7], dtype=f32)
//   %s: f32[2, 5, 7] = prim.mul(%qk, %v6)
//   %v8: bool[1, 5, 7] = prim.reshape(%hidden, shape=[1, 5, 7])
//   %v9: bool[2, 5, 7] = prim.expand(%v8, shape=[2, 5, 7])
//   %v10: f32[2, 5, 7] = prim.full(value=-inf, shape=[2, 5, 7], dtype=f32)
//   %m: f32[2, 5, 7] = prim.where(%v9, %v10, %s)
//   %p: f32[2, 5, 7] = aten._softmax.default(%m, -1, false)
//   %o: f32[2, 5, 8] = aten.bmm.default(%p, %v)
//   output %o
// }
// attention as-written: softmax between two products stays: a row of the mask may hide every key
