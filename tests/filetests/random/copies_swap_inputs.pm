// The second copy reads what the first one's target was.
// run: verify | compare
graph "swap" inference {
  input %a: f32[3]
  input %b: f32[3]
  %t: f32[3] strides=[1] = aten.clone.default(%a)
  %u: f32[3] strides=[1] = aten.copy_.default(%a, %b)
  %v: f32[3] strides=[1] = aten.copy_.default(%b, %t)
}
// expect:
// 6 elements agree
