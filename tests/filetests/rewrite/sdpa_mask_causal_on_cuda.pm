// A boolean mask as PyTorch hands it to cuDNN, forward and backward: with -65504 for what is hidden.
// run: verify | rewrite
// target: cuda
graph "causal" joint(forward_outputs=1) {
  input %q: bf16[2, 2, 16, 8] @cuda:0
  input %k: bf16[2, 2, 16, 8] @cuda:0
  input %v: bf16[2, 2, 16, 8] @cuda:0
  input %g: bf16[2, 2, 16, 8] @cuda:0 role=tangent
  %i: i64[16] @cuda:0 = aten.arange.default(16, device=@cuda:0)
  %row: i64[16, 1] @cuda:0 = aten.unsqueeze.default(%i, 1)
  %see: bool[16, 16] @cuda:0 = aten.le.Tensor(%i, %row)
  %all: bool[2, 1, 16, 16] @cuda:0 = aten.expand.default(%see, [2, 1, 16, 16])
  %low: bf16[] @cuda:0 = aten.scalar_tensor.default(-65504.0, dtype=bf16, device=@cuda:0)
  %zero: bf16[] @cuda:0 = aten.scalar_tensor.default(0.0, dtype=bf16, device=@cuda:0)
  %m: bf16[2, 1, 16, 16] @cuda:0 = aten.where.self(%all, %zero, %low)
  %o: bf16[2, 2, 16, 8] @cuda:0, %l: f32[2, 2, 16, 1] @cuda:0, _, _, _, _, %seed: i64[] @cuda:0, %offset: i64[] @cuda:0, _ = aten._scaled_dot_product_cudnn_attention.default(%q, %k, %v, %m, true, scale=0.5)
  %dq: bf16[2, 2, 16, 8] @cuda:0, %dk: bf16[2, 2, 16, 8] @cuda:0, %dv: bf16[2, 2, 16, 8] @cuda:0 = aten._scaled_dot_product_cudnn_attention_backward.default(%g, %q, %k, %v, %o, %l, %seed, %offset, %m, none, none, 16, 16, 0.0, false, scale=0.5)
  output %o
  output %dq
  output %dk
  output %dv
}
// expect:
// graph "causal" joint(forward_outputs=1) {
//   input %q: bf16[2, 2, 16, 8] @cuda:0
//   input %k: bf16[2, 2, 16, 8] @cuda:0
//   input %v: bf16[2, 2, 16, 8] @cuda:0
//   input %g: bf16[2, 2, 16, 8] @cuda:0 role=tangent
//   %o: bf16[2, 2, 16, 8] @cuda:0, %l: f32[2, 2, 16, 1] @cuda:0, _, _, _, _, %seed: i64[] @cuda:0, %offset: i64[] @cuda:0, _ = aten._scaled_dot_product_cudnn_attention.default(%q, %k, %v, none, true, 0.0, true, scale=0.5)
//   %dq: bf16[2, 2, 16, 8] @cuda:0, %dk: bf16[2, 2, 16, 8] @cuda:0, %dv: bf16[2, 2, 16, 8] @cuda:0 = aten._scaled_dot_product_cudnn_attention_backward.default(%g, %q, %k, %v, %o, %l, %seed, %offset, none, none, none, 16, 16, 0.0, true, scale=0.5)
//   output %o
//   output %dq
//   output %dk
//   output %dv
// }
// aten._scaled_dot_product_cudnn_attention.default rewrite:sdpa_mask: the mask is causal: is_causal=true
// aten._scaled_dot_product_cudnn_attention_backward.default rewrite:sdpa_mask: the mask is causal: is_causal=true
