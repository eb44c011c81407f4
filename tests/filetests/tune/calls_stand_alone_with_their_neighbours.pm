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
// expect:
// graph "call" inference {
//   input %a0: f32[100, 32]
//   input %a1: i64[64]
//   %r0: f32[64, 32] = aten.embedding.default(%a0, %a1)
//   %s: f32[64, 32] = prim.abs(%r0)
//   output %s
// }
// native: 37888 bytes, 7360 operations, 0 of products, 1 kernels, 1 natives
// decompose:embedding: 16896 bytes, 18432 operations, 0 of products, 1 kernels, 0 natives
// graph "call" inference {
//   input %a0: f32[64, 32]
//   %p: f32[64, 32] = prim.abs(%a0)
//   %r0: f32[64, 32] = aten._softmax.default(%p, 1, false)
//   output %r0
// }
// native: 40960 bytes, 10240 operations, 0 of products, 1 kernels, 1 natives
// decompose:_softmax: 16384 bytes, 26624 operations, 0 of products, 1 kernels, 0 natives
// graph "call" inference {
//   input %a0: f32[16]
//   input %a1: f32[64, 32]
//   input %a2: f32[32, 16]
//   %r0: f32[64, 16] = aten.addmm.default(%a0, %a1, %a2)
//   %s: f32[64, 16] = prim.abs(%r0)
//   output %s
// }
// native: 22592 bytes, 4624 operations, 65536 of products, 1 kernels, 1 natives
// decompose:addmm::mm_add: 22592 bytes, 5632 operations, 65536 of products, 1 kernels, 1 natives
// graph "call" inference {
//   input %a0: f32[64, 32]
//   input %a1: f32[32]
//   input %a2: f32[32]
//   %r0: f32[64, 32], %r1: f32[64, 1], %r2: f32[64, 1] = aten.native_layer_norm.default(%a0, [32], %a1, %a2, 1e-5)
//   %s: f32[64, 32] = prim.abs(%r0)
//   output %s
//   output %r1
// }
// native: 41984 bytes, 10496 operations, 0 of products, 1 kernels, 1 natives
// decompose:native_layer_norm: 16896 bytes, 38912 operations, 0 of products, 1 kernels, 0 natives
