// What `config.tune` would time: operators with several routes, alone, where neighbours that fuse are one prim each.
// The softmax is made from a pointwise result and read by a product: its operand comes from a prim, its result does not go into one.
// run: estimate
graph "g" inference {
  symbol s0 hint=64 range=[2, 1000]
  input %w: f32[100, 32]
  input %i: i64[s0]
  input %m: f32[32, 16]
  input %b: f32[16]
  input %gamma: f32[32]
  input %beta: f32[32]
  %x: f32[s0, 32] = aten.embedding.default(%w, %i)
  %d: f32[s0, 32] = aten.mul.Tensor(%x, 2.0)
  %p: f32[s0, 32] = aten._softmax.default(%d, 1, false)
  %y: f32[s0, 16] = aten.addmm.default(%b, %p, %m)
  %z: f32[s0, 16] = aten.gelu.default(%y)
  %n: f32[s0, 32], %mean: f32[s0, 1], %rstd: f32[s0, 1] = aten.native_layer_norm.default(%x, [32], %gamma, %beta, 1e-05)
  %e: f32[s0, 32] = aten.relu.default(%n)
  output %z
  output %e
  output %mean
}
