// Without a rule an operator runs as PyTorch's kernel; strict makes that an error.
// run: verify | route
// options: {"strict": true}
// error: runs as PyTorch's own kernel: no-rule
// error: [aten.cumsum.default] at model.py:4 in forward
graph "g" inference {
  input %x: f32[4]
  %y: f32[4] = aten.gelu.default(%x) loc="model.py:3 in forward"
  %z: f32[4] = aten.cumsum.default(%y, 0) loc="model.py:4 in forward"
  output %z
}
