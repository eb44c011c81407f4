// Inputs without a line are random by seed and name; symbols take their value from a line or from the hint.
// run: verify | interp
// seed 1
// symbol s0 = 2
graph "g" inference {
  symbol s0 hint=5 range=[1, 10]
  symbol s1 hint=3 range=[1, 10]
  input %x: f32[s0, s1]
  input %n: i64[s1]
  input %b: bool[s1]
  input s0
  output %x
  output %n
  output %b
  output s0*s1
  output none
}
// expect:
// output 0: f32[2, 3] [[-0.078125, -0.25, 0.421875], [-0.578125, 0.484375, 0.1875]]
// output 1: i64[3] [3, 3, 1]
// output 2: bool[3] [false, false, false]
// output 3: 6
// output 4: none
