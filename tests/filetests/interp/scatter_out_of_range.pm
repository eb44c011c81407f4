// One index a row is a comparison with the position, and still an error when it is out of range.
// run: verify | decompose | interp
// input %i = [[1], [3]]
// error: index
graph "g" inference {
  input %i: i64[2, 1]
  %z: f32[2, 3] = aten.zeros.default([2, 3])
  %y: f32[2, 3] = aten.scatter.value(%z, 1, %i, 1.0)
  output %y
}
