// A result is stored in the layout that was promised; a view of an input is returned as that view.
// run: verify | lower
graph "strides" inference {
  input %x: f32[4, 8] strides=[8, 1]
  %y: f32[4, 8] strides=[1, 4] = prim.exp(%x)
  %t: f32[8, 4] = prim.permute(%x, perm=[1, 0])
  output %y
  output %t
}
