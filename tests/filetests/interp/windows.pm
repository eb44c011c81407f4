// Windows overlap when they are longer than their step.
// run: verify | decompose | interp
// input %x = [1, 2, 3, 4, 5]
graph "windows" inference {
  input %x: f32[5]
  %w: f32[2, 3] = aten.unfold.default(%x, 0, 3, 2)
  output %w
}
// expect:
// output 0: f32[2, 3] [[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]
