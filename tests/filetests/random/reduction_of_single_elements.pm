// Folding dims of size 1, or none, copies; the position of the extreme is 0.
// run: verify | compare
graph "ones" inference {
  input %x: f32[3, 1, 1] strides=[2, 1, 1]
  %a: f32[3, 1] = prim.amax(%x, dims=[1])
  %b: f32[3, 1, 1] = prim.sum(%x, dims=[])
  %c: i64[3, 1] = prim.argmin(%x, dims=[2])
  output %a
  output %b
  output %c
}
// expect:
// 9 elements agree
