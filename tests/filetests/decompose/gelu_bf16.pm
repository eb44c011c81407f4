// 16-bit floats are computed in f32 and rounded once at the end; the result keeps its name and the prims the location.
// run: verify | decompose
graph "g" inference {
  symbol s0 hint=8 range=[2, 1000]
  input %x: bf16[s0, 4]
  %y: bf16[s0, 4] = aten.gelu.default(%x) loc="model.py:3 forward"
  %z: bf16[s0, 4] = aten.no_rule_for_this.default(%y)
  output %z
}
// expect:
// graph "g" inference {
//   symbol s0 hint=8 range=[2, 1000]
//   input %x: bf16[s0, 4]
//   %v1: f32[s0, 4] = prim.cast(%x, dtype=f32) loc="model.py:3 forward"
//   %v2: f32[s0, 4] = prim.full(value=0.7071067811865476, shape=[s0, 4], dtype=f32) loc="model.py:3 forward"
//   %v3: f32[s0, 4] = prim.mul(%v1, %v2) loc="model.py:3 forward"
//   %v4: f32[s0, 4] = prim.erf(%v3) loc="model.py:3 forward"
//   %v5: f32[s0, 4] = prim.full(value=0.5, shape=[s0, 4], dtype=f32) loc="model.py:3 forward"
//   %v6: f32[s0, 4] = prim.mul(%v1, %v5) loc="model.py:3 forward"
//   %v7: f32[s0, 4] = prim.full(value=1.0, shape=[s0, 4], dtype=f32) loc="model.py:3 forward"
//   %v8: f32[s0, 4] = prim.add(%v4, %v7) loc="model.py:3 forward"
//   %v9: f32[s0, 4] = prim.mul(%v6, %v8) loc="model.py:3 forward"
//   %y: bf16[s0, 4] = prim.cast(%v9, dtype=bf16) loc="model.py:3 forward"
//   %z: bf16[s0, 4] = aten.no_rule_for_this.default(%y)
//   output %z
// }
