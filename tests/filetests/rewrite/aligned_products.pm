// An odd vocabulary on CUDA: the weight gets rows of zeros, the logits are a view of the larger product; the gradient of the
// logits is written with columns of zeros once, for both products that read it.
// run: verify | rewrite
// target: cuda
graph "vocabulary" joint(forward_outputs=1) {
  input %x: bf16[8192, 768] strides=[768, 1] @cuda:0
  input %w: f32[50257, 768] strides=[768, 1] @cuda:0
  input %g: f32[8192, 1] strides=[1, 1] @cuda:0 role=tangent
  %wb: bf16[50257, 768] @cuda:0 = aten._to_copy.default(%w, dtype=bf16)
  %wt: bf16[768, 50257] strides=[1, 768] @cuda:0 = aten.t.default(%wb)
  %logits: bf16[8192, 50257] @cuda:0 = aten.mm.default(%x, %wt)
  %e: bf16[8192, 50257] @cuda:0 = aten.exp.default(%logits)
  %y: f32[8192, 1] @cuda:0 = aten.sum.dim_IntList(%e, [1], true, dtype=f32)
  %gb: bf16[8192, 1] @cuda:0 = aten._to_copy.default(%g, dtype=bf16)
  %d: bf16[8192, 50257] @cuda:0 = aten.mul.Tensor(%e, %gb)
  %dt: bf16[50257, 8192] strides=[1, 50257] @cuda:0 = aten.t.default(%d)
  %dwb: bf16[50257, 768] @cuda:0 = aten.mm.default(%dt, %x)
  %dx: bf16[8192, 768] @cuda:0 = aten.mm.default(%d, %wb)
  %dw: f32[50257, 768] @cuda:0 = aten._to_copy.default(%dwb, dtype=f32)
  output %y
  output %dx
  output %dw
}
// expect:
// graph "vocabulary" joint(forward_outputs=1) {
//   input %x: bf16[8192, 768] strides=[768, 1] @cuda:0
//   input %w: f32[50257, 768] strides=[768, 1] @cuda:0
//   input %g: f32[8192, 1] strides=[1, 1] @cuda:0 role=tangent
//   %wb: bf16[50257, 768] @cuda:0 = prim.cast(%w, dtype=bf16)
//   %v5: bf16[7, 768] @cuda:0 = prim.full(value=0.0, shape=[7, 768], dtype=bf16)
//   %v6: bf16[50264, 768] @cuda:0 = prim.concat(%wb, %v5, dim=0)
//   %v7_7: bf16[768, 50264] @cuda:0 = prim.permute(%v6, perm=[1, 0])
//   %v8_8: bf16[8192, 50264] @cuda:0 = aten.mm.default(%x, %v7_7)
//   %logits: bf16[8192, 50257] @cuda:0 = prim.slice(%v8_8, dim=1, start=0, end=50257, step=1)
//   %e: bf16[8192, 50257] @cuda:0 = prim.exp(%logits)
//   %v7: f32[8192, 50257] @cuda:0 = prim.cast(%e, dtype=f32)
//   %v8: f32[8192] @cuda:0 = prim.sum(%v7, dims=[1])
//   %y: f32[8192, 1] @cuda:0 = prim.reshape(%v8, shape=[8192, 1])
//   %gb: bf16[8192, 1] @cuda:0 = prim.cast(%g, dtype=bf16)
//   %v11: bf16[8192, 50257] @cuda:0 = prim.expand(%gb, shape=[8192, 50257])
//   %d: bf16[8192, 50257] @cuda:0 = prim.mul(%e, %v11)
//   %v18: bf16[8192, 7] @cuda:0 = prim.full(value=0.0, shape=[8192, 7], dtype=bf16)
//   %v19: bf16[8192, 50264] @cuda:0 = prim.concat(%d, %v18, dim=1)
//   %v20: bf16[50264, 8192] @cuda:0 = prim.permute(%v19, perm=[1, 0])
//   %v21: bf16[50264, 768] @cuda:0 = aten.mm.default(%v20, %x)
//   %dwb: bf16[50257, 768] @cuda:0 = prim.slice(%v21, dim=0, start=0, end=50257, step=1)
//   %dx: bf16[8192, 768] @cuda:0 = aten.mm.default(%v19, %v6)
//   %dw: f32[50257, 768] @cuda:0 = prim.cast(%dwb, dtype=f32)
//   output %y
//   output %dx
//   output %dw
// }
// aten.mm.default rewrite:aligned_products: [8192, 768, 50257] is computed as [8192, 768, 50264]: rows begin on 16 bytes
// aten.mm.default rewrite:aligned_products: [50257, 8192, 768] is computed as [50264, 8192, 768]: rows begin on 16 bytes
// aten.mm.default rewrite:aligned_products: [8192, 50257, 768] is computed as [8192, 50264, 768]: rows begin on 16 bytes
