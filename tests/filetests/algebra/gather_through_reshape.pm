// The gathered dim survives the reshape: the index takes the operand's shape. A take puts its index dims in the middle.
// run: verify | algebra | simplify
graph "gathers" inference {
  input %x: f32[2, 3, 64]
  input %c: f32[64]
  input %i: i64[6, 2]
  input %k: i64[2, 2]
  %c1: f32[1, 1, 64] = prim.reshape(%c, shape=[1, 1, 64])
  %c2: f32[2, 3, 64] = prim.expand(%c1, shape=[2, 3, 64])
  %y: f32[2, 3, 64] = prim.mul(%x, %c2)
  %flat: f32[6, 64] = prim.reshape(%y, shape=[6, 64])
  %a: f32[6, 2] = prim.gather(%flat, %i, dim=1)
  %w: f32[2, 3, 64] = prim.exp(%y)
  %b: f32[2, 3, 2, 2] = prim.take(%w, %k, dim=2)
  output %a
  output %b
}
// expect:
// graph "gathers" inference {
//   input %x: f32[2, 3, 64]
//   input %c: f32[64]
//   input %i: i64[6, 2]
//   input %k: i64[2, 2]
//   %c1: f32[1, 1, 64] = prim.reshape(%c, shape=[1, 1, 64])
//   %c2: f32[2, 3, 64] = prim.expand(%c1, shape=[2, 3, 64])
//   %v8: i64[2, 3, 2] = prim.reshape(%i, shape=[2, 3, 2])
//   %v9: f32[2, 3, 2] = prim.gather(%x, %v8, dim=2)
//   %v10: f32[2, 3, 2] = prim.gather(%c2, %v8, dim=2)
//   %v11: f32[2, 3, 2] = prim.mul(%v9, %v10)
//   %a: f32[6, 2] = prim.reshape(%v11, shape=[6, 2])
//   %v14: f32[2, 3, 2, 2] = prim.take(%x, %k, dim=2)
//   %v15: f32[2, 3, 2, 2] = prim.take(%c2, %k, dim=2)
//   %v16: f32[2, 3, 2, 2] = prim.mul(%v14, %v15)
//   %b: f32[2, 3, 2, 2] = prim.exp(%v16)
//   output %a
//   output %b
// }
