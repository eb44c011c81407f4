// What is one constant for certain becomes it; a product with 1 and a choice that is no choice go.
// run: verify | rewrite
graph "constants" inference {
  input %x: f32[3, 4] strides=[4, 1]
  input %y: f32[3, 4] strides=[4, 1]
  %i: i64[4] = aten.arange.default(4, device=@cpu)
  %five: bool[4] = aten.lt.Scalar(%i, 5)
  %three: bool[4] = aten.lt.Scalar(%i, 3)
  %both: bool[4] = aten.logical_or.default(%five, %three)
  %a: f32[3, 4] = aten.where.self(%both, %x, %y)
  %b: f32[3, 4] = aten.mul.Tensor(%a, 1.0)
  %c: f32[3, 4] = aten.where.self(%three, %b, %y)
  %z: f32[4] = aten._to_copy.default(%five, dtype=f32)
  %d: f32[3, 4] = aten.add.Tensor(%c, %z)
  output %d
}
// expect:
// graph "constants" inference {
//   input %x: f32[3, 4] strides=[4, 1]
//   input %y: f32[3, 4] strides=[4, 1]
//   %i: i64[4] = prim.iota(size=4)
//   %v5: i64[4] = prim.full(value=3, shape=[4], dtype=i64)
//   %three: bool[4] = prim.lt(%i, %v5)
//   %v13: bool[1, 4] = prim.reshape(%three, shape=[1, 4])
//   %v14: bool[3, 4] = prim.expand(%v13, shape=[3, 4])
//   %c: f32[3, 4] = prim.where(%v14, %x, %y)
//   %z: f32[4] = prim.full(value=1.0, shape=[4], dtype=f32)
//   %v17: f32[1, 4] = prim.reshape(%z, shape=[1, 4])
//   %v18: f32[3, 4] = prim.expand(%v17, shape=[3, 4])
//   %d: f32[3, 4] = prim.add(%c, %v18)
//   output %d
// }
