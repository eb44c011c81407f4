// Two tokens share a row: their gradients add.
// run: verify | interp
// input %ids = [[2, 0], [2, 1]]
// input %g = [1, 2, 3, 4]
graph "embedding" backward {
  input %ids: i64[2, 2]
  input %g: f32[2, 2, 1]
  %d: f32[3, 1] = prim.index_sum(%g, %ids, dim=0, size=3)
  output %d
}
// expect:
// output 0: f32[3, 1] [[2.0], [4.0], [4.0]]
