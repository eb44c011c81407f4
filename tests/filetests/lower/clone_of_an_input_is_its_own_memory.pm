// What eager returns in fresh memory is no view of an input; a view of one is.
// run: verify | route | simplify | lower
graph "clone" inference {
  input %x: f32[2, 3] strides=[3, 1]
  %c: f32[2, 3] strides=[3, 1] = aten.clone.default(%x)
  %t: f32[3, 2] strides=[1, 3] = aten.t.default(%c)
  %v: f32[6] strides=[1] = aten.view.default(%x, [6])
  output %t
  output %v
}
// expect:
// program "clone" inference {
//   b0: f32[2, 3] input %x
//   b1: f32[2, 3] output %c
//   input b0
//   kernel k0_copy(i0: batch 2, i1: batch 3) {
//     %0: f32 = load b0[0 + i0*(3) + i1]
//     store b1[0 + i0*(3) + i1], %0: f32
//   }
//   output b1[3, 2] strides=[1, 3]
//   output b0[6]
// }
