// Padding makes nothing: the load is masked where there is no element.
// run: verify | lower
graph "pad" inference {
  input %x: f32[4, 8] strides=[8, 1]
  input %z: f32[5, 11] strides=[11, 1]
  %p: f32[5, 11] = prim.pad(%x, low=[0, 2], high=[1, 1])
  %y: f32[5, 11] = prim.mul(%p, %z)
  output %y
}
