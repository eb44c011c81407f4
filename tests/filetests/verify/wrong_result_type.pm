// The error names the line in the printed graph, the operator and the line of the user's model.
// run: verify
// error: graph line 3, prim.sum at model.py:12 forward: the result is f32[4], not f32[4, 1]
// error: %y: f32[4, 1] = prim.sum(%x, dims=[1])
graph "g" inference {
  input %x: f32[4, 8]
  %y: f32[4, 1] = prim.sum(%x, dims=[1]) loc="model.py:12 forward"
  output %y
}
