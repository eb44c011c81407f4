// Batch dims that one operand broadcasts over join the contraction of its gradient; an expanded operand is read unexpanded.
// run: verify | decompose
graph "broadcast" joint(forward_outputs=0) {
  input %dy: f32[2, 3, 4, 5]
  input %x: f32[2, 1, 4, 6]
  input %w: f32[1, 1, 6, 5]
  %e: f32[2, 3, 6, 5] = aten.expand.default(%w, [2, 3, 6, 5])
  %dx: f32[2, 1, 4, 6], %de: f32[2, 3, 6, 5] = aten.matmul_backward.default(%dy, %x, %e, [true, true])
  output %dx
  output %de
}
// expect:
// graph "broadcast" joint(forward_outputs=0) {
//   input %dy: f32[2, 3, 4, 5]
//   input %x: f32[2, 1, 4, 6]
//   input %w: f32[1, 1, 6, 5]
//   %v4: f32[6, 5] = prim.reshape(%w, shape=[6, 5])
//   %v5: f32[2, 4, 5] = prim.sum(%dy, dims=[1])
//   %v6: f32[8, 5] = prim.reshape(%v5, shape=[8, 5])
//   %v7: f32[5, 6] = prim.permute(%v4, perm=[1, 0])
//   %v8: f32[8, 6] strides=[6, 1] = aten.mm.default(%v6, %v7)
//   %v9: f32[2, 4, 6] = prim.reshape(%v8, shape=[2, 4, 6])
//   %dx: f32[2, 1, 4, 6] = prim.reshape(%v9, shape=[2, 1, 4, 6])
//   %v11: f32[2, 4, 6] = prim.reshape(%x, shape=[2, 4, 6])
//   %v12: f32[2, 3, 5, 4] = prim.permute(%dy, perm=[0, 1, 3, 2])
//   %v13: f32[2, 15, 4] = prim.reshape(%v12, shape=[2, 15, 4])
//   %v14: f32[2, 15, 6] strides=[90, 6, 1] = aten.bmm.default(%v13, %v11)
//   %v15: f32[2, 3, 5, 6] = prim.reshape(%v14, shape=[2, 3, 5, 6])
//   %de: f32[2, 3, 6, 5] = prim.permute(%v15, perm=[0, 1, 3, 2])
//   output %dx
//   output %de
// }
