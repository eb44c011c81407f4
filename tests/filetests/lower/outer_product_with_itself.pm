// Rows and columns of the product are the same value at two places: one loop cannot be both.
// run: verify | lower
graph "outer" inference {
  input %x: f32[16] strides=[1]
  %e: f32[16] = prim.exp(%x)
  %c: f32[16, 1] = prim.reshape(%e, shape=[16, 1])
  %r: f32[1, 16] = prim.reshape(%e, shape=[1, 16])
  %ce: f32[16, 16] = prim.expand(%c, shape=[16, 16])
  %re: f32[16, 16] = prim.expand(%r, shape=[16, 16])
  %y: f32[16, 16] = prim.mul(%ce, %re)
  output %y
}
