// run: route
// options: {"routes": [["aten.gelo.default", "native"]]}
// error: `aten.gelo.default` matches no operator
// error: did you mean aten.gelu.default
graph "g" inference {
  input %x: f32[4]
  %y: f32[4] = aten.gelu.default(%x) loc="model.py:3 in forward"
  %z: f32[4] = aten.tanh.default(%y) loc="model.py:4 in forward"
  output %z
}
