// A dense operand read densely is a reshape, its own layout again is nothing; any other window stays native.
// run: verify | decompose
graph "g" inference {
  input %x: f32[4, 6] strides=[6, 1]
  input %t: f32[4, 6] strides=[1, 4]
  %a: f32[3, 8] = aten.as_strided.default(%x, [3, 8], [8, 1])
  %b: f32[4, 6] = aten.as_strided.default(%t, [4, 6], [1, 4], 0)
  %c: f32[2, 6] = aten.as_strided.default(%x, [2, 6], [12, 1], 0)
  output %a
  output %b
  output %c
}
// expect:
// graph "g" inference {
//   input %x: f32[4, 6] strides=[6, 1]
//   input %t: f32[4, 6] strides=[1, 4]
//   %a: f32[3, 8] = prim.reshape(%x, shape=[3, 8])
//   %c: f32[2, 6] = aten.as_strided.default(%x, [2, 6], [12, 1], 0)
//   output %a
//   output %t
//   output %c
// }
