// Pieces without elements are no pieces, and a concatenation of one piece is that piece; but one that is returned is memory of its own.
// run: verify | simplify | compare
graph "g" inference {
  input %x: f32[2, 3]
  %none: f32[2, 0] = prim.full(value=0.0, shape=[2, 0], dtype=f32)
  %one: f32[2, 3] = prim.concat(%none, %x, dim=1)
  %exp: f32[2, 3] = prim.exp(%one)
  %two: f32[2, 6] = prim.concat(%exp, %none, %x, dim=1)
  %own: f32[2, 3] = prim.concat(%x, %none, dim=1)
  output %two
  output %own
}
// expect:
// 18 elements agree
