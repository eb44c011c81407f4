// A piece made by a kernel is stored where it belongs in the whole; only the piece that is an input is copied.
// run: verify | lower
graph "concat" inference {
  input %x: f32[4, 8] strides=[8, 1]
  %a: f32[4, 8] = prim.neg(%x)
  %b: f32[4, 8] = prim.exp(%x)
  %y: f32[4, 24] = prim.concat(%a, %x, %b, dim=1)
  output %y
}
// expect:
// program "concat" inference {
//   b0: f32[4, 8] input %x
//   b1: f32[4, 24] output %y
//   input b0
//   kernel k0_neg_exp(i0: batch 4, i1: batch 8) {
//     %0: f32 = load b0[0 + i0*(8) + i1]
//     %1: f32 = neg %0
//     %2: f32 = exp %0
//     store b1[0 + i0*(24) + i1], %1: f32
//     store b1[8 + i0*(24) + i1], %0: f32
//     store b1[16 + i0*(24) + i1], %2: f32
//   }
//   output b1[4, 24]
// }
