// The sum reads what the product made of the exponential: fusing it with the exponential would close a cycle.
// run: verify | lower
graph "cycle" inference {
  input %x: f32[8, 8] strides=[8, 1]
  %e: f32[8, 8] = prim.exp(%x)
  %m: f32[8, 8] strides=[8, 1] = aten.mm.default(%e, %e)
  %y: f32[8, 8] = prim.add(%e, %m)
  output %y
}
// expect:
// program "cycle" inference {
//   b0: f32[8, 8] input %x
//   b1: f32[8, 8] intermediate %e
//   b2: f32[8, 8] native %m
//   b3: f32[8, 8] output %y
//   input b0
//   kernel k0_exp(i0: batch 8, i1: batch 8) {
//     %0: f32 = load b0[0 + i0*(8) + i1]
//     %1: f32 = exp %0
//     store b1[0 + i0*(8) + i1], %1: f32
//   }
//   b2 = native aten.mm.default(b1[8, 8], b1[8, 8])
//   kernel k1_add(i0: batch 8, i1: batch 8) {
//     %0: f32 = load b1[0 + i0*(8) + i1]
//     %1: f32 = load b2[0 + i0*(8) + i1]
//     %2: f32 = add %0, %1
//     store b3[0 + i0*(8) + i1], %2: f32
//   }
//   output b3[8, 8]
// }
