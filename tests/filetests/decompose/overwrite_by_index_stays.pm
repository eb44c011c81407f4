// Overwriting by index depends on the order of writes and stays native; one value under a mask is a `where`.
// run: verify | decompose
graph "put" inference {
  input %x: f32[4, 3]
  input %i: i64[2]
  input %v: f32[2, 3]
  input %m: bool[4]
  input %one: f32[]
  %a: f32[4, 3] = aten.index_put.default(%x, [%i], %v)
  %b: f32[4, 3] = aten.index_put.default(%x, [%m], %one)
  output %a
  output %b
}
// expect:
// graph "put" inference {
//   input %x: f32[4, 3]
//   input %i: i64[2]
//   input %v: f32[2, 3]
//   input %m: bool[4]
//   input %one: f32[]
//   %a: f32[4, 3] = aten.index_put.default(%x, [%i], %v)
//   %v6: bool[4, 1] = prim.reshape(%m, shape=[4, 1])
//   %v7: bool[4, 3] = prim.expand(%v6, shape=[4, 3])
//   %v8: f32[1, 1] = prim.reshape(%one, shape=[1, 1])
//   %v9: f32[4, 3] = prim.expand(%v8, shape=[4, 3])
//   %b: f32[4, 3] = prim.where(%v7, %v9, %x)
//   output %a
//   output %b
// }
