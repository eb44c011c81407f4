// An output gets the strides it was promised, not those its producer wrote.
// run: verify | compare
graph "native" inference {
  input %x: f32[5, 5, 5]
  %m: f32[5, 5, 5] strides=[25, 5, 1] = aten.bmm.default(%x, %x)
  %y: f32[5, 5, 5] strides=[5, 25, 1] = prim.flip(%m, dims=[])
  output %y
}
// expect:
// 125 elements agree
