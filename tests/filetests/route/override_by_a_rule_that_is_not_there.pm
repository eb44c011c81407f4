// run: route
// options: {"routes": [["aten.gelu.default", "gelo"]]}
// error: `gelo` is no route of aten.gelu.default; did you mean gelu?
graph "g" inference {
  input %x: f32[4]
  %y: f32[4] = aten.gelu.default(%x) loc="model.py:3 in forward"
  %z: f32[4] = aten.tanh.default(%y) loc="model.py:4 in forward"
  output %z
}
