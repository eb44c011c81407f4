// One operand has a mask over a dim that another has in parts.
// run: verify | compare
graph "divided" inference {
  input %x: f32[2, 3]
  input %y: f32[4]
  %t: f32[3, 2] = prim.permute(%x, perm=[1, 0])
  %a: f32[6] = prim.reshape(%t, shape=[6])
  %b: f32[6] = prim.pad(%y, low=[1], high=[1])
  %z: f32[6] = prim.add(%a, %b)
  output %z
}
// expect:
// 6 elements agree
