// An exponent that f32 rounds costs ulps, which eager's scalar loop does not have; one that f32 holds is one power.
// run: verify | decompose
graph "g" inference {
  input %x: f32[4]
  %a: f32[4] = aten.pow.Tensor_Scalar(%x, 1.7)
  %b: f32[4] = aten.pow.Tensor_Scalar(%x, 1.25)
  output %a
  output %b
}
// expect:
// graph "g" inference {
//   input %x: f32[4]
//   %v1: f32[4] = prim.full(value=1.7000000476837158, shape=[4], dtype=f32)
//   %v2: f32[4] = prim.pow(%x, %v1)
//   %v3: f32[4] = prim.log(%x)
//   %v4: f32[4] = prim.full(value=-4.768371586472142e-8, shape=[4], dtype=f32)
//   %v5: f32[4] = prim.mul(%v3, %v4)
//   %v6: f32[4] = prim.mul(%v2, %v5)
//   %v7: f32[4] = prim.abs(%v6)
//   %v8: f32[4] = prim.full(value=inf, shape=[4], dtype=f32)
//   %v9: bool[4] = prim.lt(%v7, %v8)
//   %v10: f32[4] = prim.full(value=0.0, shape=[4], dtype=f32)
//   %v11: f32[4] = prim.where(%v9, %v6, %v10)
//   %a: f32[4] = prim.add(%v2, %v11)
//   %v13: f32[4] = prim.full(value=1.25, shape=[4], dtype=f32)
//   %b: f32[4] = prim.pow(%x, %v13)
//   output %a
//   output %b
// }
