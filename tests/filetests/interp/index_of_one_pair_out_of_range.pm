// Two indices merged into one linear index: one of them out of range is an error although the sum is in range.
// run: verify | decompose | interp
// input %x = [[1, 2, 3], [4, 5, 6]]
// input %i = [0]
// input %j = [4]
// error: index
graph "g" inference {
  input %x: f32[2, 3]
  input %i: i64[1]
  input %j: i64[1]
  %y: f32[1] = aten.index.Tensor(%x, [%i, %j])
  output %y
}
