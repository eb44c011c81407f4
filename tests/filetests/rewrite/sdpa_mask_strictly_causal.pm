// The first query sees no key, which is_causal does not say: the mask stays.
// run: verify | rewrite
graph "strict" inference {
  symbol s0 hint=16 range=[2, inf]
  input s0
  input %q: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
  input %k: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
  input %v: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
  %i: i64[s0] = aten.arange.default(s0, device=@cpu)
  %row: i64[s0, 1] = aten.unsqueeze.default(%i, 1)
  %see: bool[s0, s0] = aten.gt.Tensor(%row, %i)
  %all: bool[2, 1, s0, s0] = aten.expand.default(%see, [2, 1, s0, s0])
  %low: f32[] = aten.scalar_tensor.default(-inf, dtype=f32, device=@cpu)
  %zero: f32[] = aten.scalar_tensor.default(0.0, dtype=f32, device=@cpu)
  %m: f32[2, 1, s0, s0] = aten.where.self(%all, %zero, %low)
  %o: f32[2, 2, s0, 8] strides=[16*s0, 8, 16, 1], %l: f32[2, 2, s0] strides=[2*s0, 1, 2] = aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %k, %v, attn_mask=%m, scale=0.5)
  output %o
}
// expect:
// graph "strict" inference {
//   symbol s0 hint=16 range=[2, inf]
//   input s0
//   input %q: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
//   input %k: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
//   input %v: f32[2, 2, s0, 8] strides=[16*s0, 8*s0, 8, 1]
//   %i: i64[s0] = prim.iota(size=s0)
//   %row: i64[s0, 1] = prim.reshape(%i, shape=[s0, 1])
//   %v5: i64[s0, s0] = prim.expand(%row, shape=[s0, s0])
//   %v6: i64[1, s0] = prim.reshape(%i, shape=[1, s0])
//   %v7: i64[s0, s0] = prim.expand(%v6, shape=[s0, s0])
//   %see: bool[s0, s0] = prim.gt(%v5, %v7)
//   %v9: bool[1, 1, s0, s0] = prim.reshape(%see, shape=[1, 1, s0, s0])
//   %all: bool[2, 1, s0, s0] = prim.expand(%v9, shape=[2, 1, s0, s0])
//   %low: f32[] = prim.full(value=-inf, shape=[], dtype=f32)
//   %zero: f32[] = prim.full(value=0.0, shape=[], dtype=f32)
//   %v13: f32[1, 1, 1, 1] = prim.reshape(%zero, shape=[1, 1, 1, 1])
//   %v14: f32[2, 1, s0, s0] = prim.expand(%v13, shape=[2, 1, s0, s0])
//   %v15: f32[1, 1, 1, 1] = prim.reshape(%low, shape=[1, 1, 1, 1])
//   %v16: f32[2, 1, s0, s0] = prim.expand(%v15, shape=[2, 1, s0, s0])
//   %m: f32[2, 1, s0, s0] = prim.where(%all, %v14, %v16)
//   %o: f32[2, 2, s0, 8] strides=[16*s0, 8, 16, 1], %l: f32[2, 2, s0] strides=[2*s0, 1, 2] = aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %k, %v, attn_mask=%m, scale=0.5)
//   output %o
// }
