// What is made for the first dropout shares a kernel with a reader of the product, and so comes late: the generator's
// state is read after the first dropout all the same, and the second one draws after both.
// run: verify | lower
graph "random" inference {
  input %x: f32[4, 4]
  input %w: f32[4, 4]
  input %state: u8[5056]
  %e: f32[4, 4] = prim.exp(%x)
  permalloy.set_rng_state.default(%state)
  %y: f32[4, 4], %m: bool[4, 4] = aten.native_dropout.default(%e, 0.5, true)
  %now: u8[5056] = permalloy.rng_state.default()
  %v: f32[4, 4], %n: bool[4, 4] = aten.native_dropout.default(%w, 0.5, true)
  %p: f32[4, 4] = aten.mm.default(%w, %w)
  %z: f32[4, 4] = prim.add(%e, %p)
  output %y
  output %z
  output %v
  output %now
}
// expect:
// program "random" inference {
//   b0: f32[4, 4] input %x
//   b1: f32[4, 4] input %w
//   b2: u8[5056] input %state
//   b3: f32[4, 4] intermediate %e
//   b4: f32[4, 4] native %y
//   b5: bool[4, 4] native %m
//   b6: u8[5056] native %now
//   b7: f32[4, 4] native %v
//   b8: bool[4, 4] native %n
//   b9: f32[4, 4] native %p
//   b10: f32[4, 4] output %z
//   input b0
//   input b1
//   input b2
//   native permalloy.set_rng_state.default(b2[5056])
//   b9 = native aten.mm.default(b1[4, 4], b1[4, 4])
//   kernel k0_exp_add(i0: batch 4, i1: batch 4) {
//     %0: f32 = load b0[0 + i0*(4) + i1]
//     %1: f32 = exp %0
//     store b3[0 + i0*(4) + i1], %1: f32
//     %3: f32 = load b9[0 + i0*(4) + i1]
//     %4: f32 = add %1, %3
//     store b10[0 + i0*(4) + i1], %4: f32
//   }
//   b4, b5 = native aten.native_dropout.default(b3[4, 4], 0.5, true)
//   b6 = native permalloy.rng_state.default()
//   b7, b8 = native aten.native_dropout.default(b1[4, 4], 0.5, true)
//   output b4[4, 4]
//   output b10[4, 4]
//   output b7[4, 4]
//   output b6[5056]
// }
