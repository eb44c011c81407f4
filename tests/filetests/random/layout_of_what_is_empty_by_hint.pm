// The sizes of the trace say nothing of whether a promised layout overlaps when there are no elements.
// run: verify | compare
// symbol s0 = 7
graph "hint" inference {
  symbol s0 hint=2 range=[2, 64]
  input %x: f64[-2 + s0, s0]
  %y: f64[-2 + s0, s0] strides=[1, -2 + s0] = prim.neg(%x)
  output %y
}
// expect:
// 35 elements agree
