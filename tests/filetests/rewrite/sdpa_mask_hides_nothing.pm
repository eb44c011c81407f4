// Every index is >= 0: the mask is 0 throughout, and dropped.
// run: verify | rewrite
graph "nothing" inference {
  symbol s0 hint=16 range=[2, inf]
  input s0
  input %q: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
  input %k: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
  input %v: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
  %i: i64[s0] = aten.arange.default(s0, device=@cpu)
  %row: i64[s0, 1] = aten.unsqueeze.default(%i, 1)
  %see: bool[s0, 1] = aten.ge.Scalar(%row, 0)
  %all: bool[2, 1, s0, s0] = aten.expand.default(%see, [2, 1, s0, s0])
  %low: f32[] = aten.scalar_tensor.default(-inf, dtype=f32, device=@cpu)
  %zero: f32[] = aten.scalar_tensor.default(0.0, dtype=f32, device=@cpu)
  %m: f32[2, 1, s0, s0] = aten.where.self(%all, %zero, %low)
  %o: f32[2, 2, s0, 8] strides=[16*s0, 8, 16, 1], %l: f32[2, 2, s0] strides=[2*s0, 1, 2] = aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %k, %v, attn_mask=%m, scale=0.5)
  output %o
}
// expect:
// graph "nothing" inference {
//   symbol s0 hint=16 range=[2, inf]
//   input s0
//   input %q: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
//   input %k: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
//   input %v: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
//   %o: f32[2, 2, s0, 8] strides=[16*s0, 8, 16, 1], %l: f32[2, 2, s0] strides=[2*s0, 1, 2] = aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %k, %v, scale=0.5)
//   output %o
// }
// aten._scaled_dot_product_flash_attention_for_cpu.default rewrite:sdpa_mask: the mask hides nothing: dropped
