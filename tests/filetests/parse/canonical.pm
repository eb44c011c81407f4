// Everything the text form has, written loosely, comes back in canonical form.
// run: parse
graph "everything" joint(forward_outputs = 1) {   // a comment
  symbol s0 hint=8 range=[2, 1000]
  symbol s1 hint=3
  input %primals_1 : f32[4096,256] strides=[256,1]
  input %idx: i64[s0] @cuda:1
  input %tangents_1: bf16[] role=tangent
  input s0
  input 2*s0*s1 - 3 + s0
  %a: f32[s0, 256] = aten.embedding.default(%primals_1, %idx,) loc="model.py:12 forward"
  %y: f32[s0, 256], %m: f32[s0, 1], _ = aten.native_layer_norm.default(%a, [256], none, none, 1e-05)
  aten._assert_async.msg(%m, "text // no comment \u00e9\n")
  _ = aten.f.default([%a, [%y, none], []], -1,
                     s0*2 + 1, floordiv(4*s0, 2), mod(s0, 3), min(s0, 4), max(s1, s0))
  _ = aten.f.default(1., -0.0, inf, -inf, nan, 1E300, true, false, dtype=bf16, device=@cuda:0,
                     layout = layout:strided, memory_format=memory_format:contiguous_format)
  %e: f32[s0, 256] = prim.exp(%y)
  output %e
  output none
  output 1 + 2*s0
}
// expect:
// graph "everything" joint(forward_outputs=1) {
//   symbol s0 hint=8 range=[2, 1000]
//   symbol s1 hint=3 range=[0, inf]
//   input %primals_1: f32[4096, 256] strides=[256, 1]
//   input %idx: i64[s0] @cuda:1
//   input %tangents_1: bf16[] role=tangent
//   input s0
//   input -3 + s0 + 2*s0*s1
//   %a: f32[s0, 256] = aten.embedding.default(%primals_1, %idx) loc="model.py:12 forward"
//   %y: f32[s0, 256], %m: f32[s0, 1], _ = aten.native_layer_norm.default(%a, [256], none, none, 1e-5)
//   aten._assert_async.msg(%m, "text // no comment é\n")
//   _ = aten.f.default([%a, [%y, none], []], -1, 1 + 2*s0, 2*s0, mod(s0, 3), min(4, s0), max(s0, s1))
//   _ = aten.f.default(1.0, -0.0, inf, -inf, nan, 1e300, true, false, dtype=bf16, device=@cuda:0, layout=layout:strided, memory_format=memory_format:contiguous_format)
//   %e: f32[s0, 256] = prim.exp(%y)
//   output %e
//   output none
//   output 1 + 2*s0
// }
