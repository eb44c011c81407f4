// No engine makes complex constants: such a fill is PyTorch's.
// run: verify | decompose
graph "fill" inference {
  input %x: c64[2, 3]
  %y: c64[2, 3] = aten.fill.Scalar(%x, 1.0)
  output %y
}
// expect:
// graph "fill" inference {
//   input %x: c64[2, 3]
//   %y: c64[2, 3] = aten.fill.Scalar(%x, 1.0)
//   output %y
// }
