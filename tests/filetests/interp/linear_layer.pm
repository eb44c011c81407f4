// A linear layer with GELU: a native product, and an operator that runs by its rule.
// run: verify | interp
// input %x = [[1, 2], [3, 4]]
// input %w = [[1, 0, -1], [0, 1, 1]]
// input %b = [-1, 0, 0]
graph "linear" forward {
  input %x: f32[2, 2]
  input %w: f32[2, 3]
  input %b: f32[3]
  %h: f32[2, 3] = aten.addmm.default(%b, %x, %w)
  %y: f32[2, 3] = aten.gelu.default(%h)
  output %h
  output %y
}
// expect:
// output 0: f32[2, 3] [[0.0, 2.0, 1.0], [2.0, 4.0, 1.0]]
// output 1: f32[2, 3] [[0.0, 1.9545, 0.8413447], [1.9545, 3.999873, 0.8413447]]
