// The stride of the indexed dim is that of the memory, not of the row-major order.
// run: verify | compare
graph "take" inference {
  input %x: f32[4, 4] strides=[1, 4]
  input %i: i64[2]
  input %j: i64[2, 4]
  %y: f32[2, 4] = prim.take(%x, %i, dim=0)
  %z: f32[2, 4] = prim.gather(%x, %j, dim=0)
  output %y
  output %z
}
// expect:
// 16 elements agree
