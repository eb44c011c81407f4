// The image, the weight and all that is computed from the convolution's result lie channels last; the gradients of both are
// views of such tensors, and what is returned comes in its own layout.
// run: verify | rewrite | algebra | simplify
// options: {"target": "cuda"}
graph "image" joint(forward_outputs=1) {
  input %x: f32[2, 8, 6, 6] strides=[288, 36, 6, 1] @cuda:0
  input %w: f32[16, 8, 3, 3] strides=[72, 9, 3, 1] @cuda:0
  input %g: f32[16] strides=[1] @cuda:0 role=tangent
  %xb: bf16[2, 8, 6, 6] @cuda:0 = aten._to_copy.default(%x, dtype=bf16)
  %wb: bf16[16, 8, 3, 3] @cuda:0 = aten._to_copy.default(%w, dtype=bf16)
  %c: bf16[2, 16, 4, 4] @cuda:0 = aten.convolution.default(%xb, %wb, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
  %r: bf16[2, 16, 4, 4] @cuda:0 = aten.relu.default(%c)
  %f: f32[2, 16, 4, 4] @cuda:0 = aten._to_copy.default(%r, dtype=f32)
  %s: f32[16] @cuda:0 = aten.sum.dim_IntList(%f, [0, 2, 3])
  %g4: f32[1, 16, 1, 1] @cuda:0 = aten.view.default(%g, [1, 16, 1, 1])
  %ge: f32[2, 16, 4, 4] strides=[0, 1, 0, 0] @cuda:0 = aten.expand.default(%g4, [2, 16, 4, 4])
  %gb: bf16[2, 16, 4, 4] @cuda:0 = aten._to_copy.default(%ge, dtype=bf16)
  %gr: bf16[2, 16, 4, 4] @cuda:0 = aten.threshold_backward.default(%gb, %r, 0)
  %dx: bf16[2, 8, 6, 6] @cuda:0, %dw: bf16[16, 8, 3, 3] @cuda:0, _ = aten.convolution_backward.default(%gr, %xb, %wb, [0], [1, 1], [0, 0], [1, 1], false, [0, 0], 1, [true, true, false])
  %dwf: f32[16, 8, 3, 3] @cuda:0 = aten._to_copy.default(%dw, dtype=f32)
  output %s
  output %dx
  output %dwf
}
// expect:
// graph "image" joint(forward_outputs=1) {
//   input %x: f32[2, 8, 6, 6] strides=[288, 36, 6, 1] @cuda:0
//   input %w: f32[16, 8, 3, 3] strides=[72, 9, 3, 1] @cuda:0
//   input %g: f32[16] strides=[1] @cuda:0 role=tangent
//   %v3: f32[2, 6, 6, 8] @cuda:0 = prim.permute(%x, perm=[0, 2, 3, 1])
//   %xb: bf16[2, 6, 6, 8] @cuda:0 = prim.cast(%v3, dtype=bf16)
//   %v5: bf16[2, 8, 6, 6] @cuda:0 = prim.permute(%xb, perm=[0, 3, 1, 2])
//   %v6_6: f32[16, 3, 3, 8] @cuda:0 = prim.permute(%w, perm=[0, 2, 3, 1])
//   %wb: bf16[16, 3, 3, 8] @cuda:0 = prim.cast(%v6_6, dtype=bf16)
//   %v8: bf16[16, 8, 3, 3] @cuda:0 = prim.permute(%wb, perm=[0, 3, 1, 2])
//   %c: bf16[2, 16, 4, 4] strides=[256, 1, 64, 16] @cuda:0 = aten.convolution.default(%v5, %v8, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
//   %v10: bf16[2, 4, 4, 16] @cuda:0 = prim.permute(%c, perm=[0, 2, 3, 1])
//   %v12: bf16[2, 4, 4, 16] @cuda:0 = prim.full(value=0.0, shape=[2, 4, 4, 16], dtype=bf16)
//   %r: bf16[2, 4, 4, 16] @cuda:0 = prim.max(%v10, %v12)
//   %f: f32[2, 4, 4, 16] @cuda:0 = prim.cast(%r, dtype=f32)
//   %s: f32[16] @cuda:0 = prim.sum(%f, dims=[0, 1, 2])
//   %v18: bf16[16] @cuda:0 = prim.cast(%g, dtype=bf16)
//   %v19: bf16[1, 16, 1, 1] @cuda:0 = prim.reshape(%v18, shape=[1, 16, 1, 1])
//   %gb: bf16[2, 16, 4, 4] @cuda:0 = prim.expand(%v19, shape=[2, 16, 4, 4])
//   %v14: bool[2, 4, 4, 16] @cuda:0 = prim.le(%r, %v12)
//   %v25: bf16[2, 4, 4, 16] @cuda:0 = prim.permute(%gb, perm=[0, 2, 3, 1])
//   %gr: bf16[2, 4, 4, 16] @cuda:0 = prim.where(%v14, %v12, %v25)
//   %v27: bf16[2, 16, 4, 4] @cuda:0 = prim.permute(%gr, perm=[0, 3, 1, 2])
//   %dx: bf16[2, 8, 6, 6] strides=[288, 1, 48, 8] @cuda:0, %dw: bf16[16, 8, 3, 3] strides=[72, 1, 24, 8] @cuda:0, _ = aten.convolution_backward.default(%v27, %v5, %v8, [0], [1, 1], [0, 0], [1, 1], false, [0, 0], 1, [true, true, false])
//   %v31: bf16[16, 3, 3, 8] @cuda:0 = prim.permute(%dw, perm=[0, 2, 3, 1])
//   %dwf: f32[16, 3, 3, 8] @cuda:0 = prim.cast(%v31, dtype=f32)
//   %v33: f32[16, 8, 3, 3] @cuda:0 = prim.permute(%dwf, perm=[0, 3, 1, 2])
//   output %s
//   output %dx
//   output %v33
// }
