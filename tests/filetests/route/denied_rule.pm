// A decision by this rule is an error, for any operator.
// run: verify | route
// options: {"deny": ["decompose:gelu:aten.*"]}
// error: config.deny has decompose:gelu:aten.*
// error: [aten.gelu.default] at model.py:3 in forward
graph "g" inference {
  input %x: f32[4]
  %y: f32[4] = aten.gelu.default(%x) loc="model.py:3 in forward"
  %z: f32[4] = aten.tanh.default(%y) loc="model.py:4 in forward"
  output %z
}
