// An index outside of the operand is an error of the run, with its place.
// run: verify | interp
// error: interp: prim.take at model.py:5 forward: index 3 at [1] is outside of 0..3
// input %i = [0, 3]
graph "g" inference {
  input %x: f32[3, 2]
  input %i: i64[2]
  %y: f32[2, 2] = prim.take(%x, %i, dim=0) loc="model.py:5 forward"
  output %y
}
