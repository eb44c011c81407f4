// Padding makes a dim longer than the memory's, but no index leaves it.
// run: verify | compare
graph "pad" inference {
  input %x: f32[3, 3, 33] strides=[0, 33, 1]
  %r: f32[3, 3, 3, 11] = prim.reshape(%x, shape=[3, 3, 3, 11])
  %s: f32[3, 3, 3, 2] = prim.slice(%r, dim=3, start=9, end=11, step=1)
  %p: f32[3, 4, 4, 2] = prim.pad(%s, low=[0, 0, 1, 0], high=[0, 1, 0, 0])
  %c: f32[3, 4, 4, 6] = prim.concat(%p, %p, %p, dim=3)
  %y: f32[4, 4] = prim.sum(%c, dims=[0, 3])
  output %y
}
// expect:
// 16 elements agree
