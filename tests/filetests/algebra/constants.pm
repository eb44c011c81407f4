// Arithmetic on constants, in the arithmetic of the dtype; a `where` with a constant condition, or with two equal sides.
// What is returned keeps memory of its own (%own), and 16-bit floats are left to the engine (%half).
// run: verify | algebra | simplify
graph "constants" inference {
  input %x: f32[4]
  input %y: f32[4]
  input %c: bool[4]
  %w: f32[] = prim.full(value=0.1, shape=[], dtype=f32)
  %w1: f32[1] = prim.reshape(%w, shape=[1])
  %w4: f32[4] = prim.expand(%w1, shape=[4])
  %abs: f32[4] = prim.abs(%w4)
  %limit: f32[4] = prim.full(value=0.5, shape=[4], dtype=f32)
  %small: bool[4] = prim.lt(%abs, %limit)
  %one: f32[4] = prim.full(value=1, shape=[4], dtype=f32)
  %rest: f32[4] = prim.sub(%one, %w4)
  %a: f32[4] = prim.mul(%x, %w4)
  %b: f32[4] = prim.mul(%y, %rest)
  %choice: f32[4] = prim.where(%small, %a, %b)
  %same: f32[4] = prim.where(%c, %b, %b)
  %sum: f32[4] = prim.add(%choice, %same)
  %own: f32[4] = prim.where(%small, %x, %y)
  %h: bf16[4] = prim.full(value=0.1, shape=[4], dtype=bf16)
  %half: bf16[4] = prim.mul(%h, %h)
  output %sum
  output %own
  output %half
}
// expect:
// graph "constants" inference {
//   input %x: f32[4]
//   input %y: f32[4]
//   input %c: bool[4]
//   %w4: f32[4] = prim.full(value=0.1, shape=[4], dtype=f32)
//   %small: bool[4] = prim.full(value=true, shape=[4], dtype=bool)
//   %rest: f32[4] = prim.full(value=0.8999999761581421, shape=[4], dtype=f32)
//   %a: f32[4] = prim.mul(%x, %w4)
//   %b: f32[4] = prim.mul(%y, %rest)
//   %sum: f32[4] = prim.add(%a, %b)
//   %own: f32[4] = prim.where(%small, %x, %y)
//   %h: bf16[4] = prim.full(value=0.1, shape=[4], dtype=bf16)
//   %half: bf16[4] = prim.mul(%h, %h)
//   output %sum
//   output %own
//   output %half
// }
