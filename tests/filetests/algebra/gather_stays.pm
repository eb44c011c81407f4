// Nothing changes: most of the source is gathered (%a), it is not elementwise (%b), nothing would be left to say that an
// index is out of range (%c), and what would be gathered instead is not in memory (%d).
// run: verify | algebra | simplify
graph "gathers" inference {
  input %x: f32[8, 64]
  input %r: f32[8, 1]
  input %many: i64[8, 32]
  input %few: i64[8, 1]
  input %y: f32[8, 64, 4]
  %ax: f32[8, 64] = prim.exp(%x)
  %a: f32[8, 32] = prim.gather(%ax, %many, dim=1)
  %bx: f32[8, 64] = prim.sum(%y, dims=[2])
  %b: f32[8, 1] = prim.gather(%bx, %few, dim=1)
  %r1: f32[8, 1] = prim.exp(%r)
  %r2: f32[8, 64] = prim.expand(%r1, shape=[8, 64])
  %c: f32[8, 1] = prim.gather(%r2, %few, dim=1)
  %dx: f32[8, 64] = prim.log(%bx)
  %d: f32[8, 1] = prim.gather(%dx, %few, dim=1)
  output %a
  output %b
  output %c
  output %d
}
// expect:
// graph "gathers" inference {
//   input %x: f32[8, 64]
//   input %r: f32[8, 1]
//   input %many: i64[8, 32]
//   input %few: i64[8, 1]
//   input %y: f32[8, 64, 4]
//   %ax: f32[8, 64] = prim.exp(%x)
//   %a: f32[8, 32] = prim.gather(%ax, %many, dim=1)
//   %bx: f32[8, 64] = prim.sum(%y, dims=[2])
//   %b: f32[8, 1] = prim.gather(%bx, %few, dim=1)
//   %r1: f32[8, 1] = prim.exp(%r)
//   %r2: f32[8, 64] = prim.expand(%r1, shape=[8, 64])
//   %c: f32[8, 1] = prim.gather(%r2, %few, dim=1)
//   %dx: f32[8, 64] = prim.log(%bx)
//   %d: f32[8, 1] = prim.gather(%dx, %few, dim=1)
//   output %a
//   output %b
//   output %c
//   output %d
// }
