// No engine computes complex numbers, so their copy is PyTorch's.
// run: verify | route | simplify | lower
graph "clone" inference {
  input %x: c64[2, 3] strides=[3, 1]
  %c: c64[2, 3] = aten.clone.default(%x)
  output %c
}
// expect:
// program "clone" inference {
//   b0: c64[2, 3] input %x
//   b1: c64[2, 3] native %c
//   input b0
//   b1 = native aten.clone.default(b0[2, 3])
//   output b1[2, 3]
// }
