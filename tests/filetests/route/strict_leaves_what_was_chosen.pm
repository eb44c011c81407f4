// The user asked for one kernel; random numbers are PyTorch's by nature.
// run: verify | route
// options: {"strict": true, "routes": [["aten.gelu.*", "native"]]}
graph "g" inference {
  input %x: f32[4]
  %y: f32[4] = aten.gelu.default(%x) loc="model.py:3 in forward"
  %z: f32[4] = aten.rand_like.default(%y) loc="model.py:4 in forward"
  output %z
}
// expect:
// graph "g" inference {
//   input %x: f32[4]
//   %y: f32[4] = aten.gelu.default(%x) loc="model.py:3 in forward"
//   %z: f32[4] = aten.rand_like.default(%y) loc="model.py:4 in forward"
//   output %z
// }
