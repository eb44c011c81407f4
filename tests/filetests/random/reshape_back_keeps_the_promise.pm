// Reshaped and back is the same value, but not the output: that one is promised row-major.
// run: verify | compare
graph "promise" inference {
  input %x: bool[2]
  %n: bool[2] = prim.not(%x)
  %r: bool[1, 2] = prim.reshape(%n, shape=[1, 2])
  %e: bool[5, 2] strides=[1, 5] = prim.expand(%r, shape=[5, 2])
  %a: bool[5, 1, 2] = prim.reshape(%e, shape=[5, 1, 2])
  %y: bool[5, 2] = prim.reshape(%a, shape=[5, 2])
  output %e
  output %y
}
// expect:
// 20 elements agree
