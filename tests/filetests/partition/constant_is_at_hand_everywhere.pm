// The factor of both products is one constant, read on either side of a product of matrices. It lies in no memory: %e is
// made once more from the 16 bits of %q, and not saved in 32.
// run: verify | route | simplify | partition
// target: cuda
graph "constant" joint(forward_outputs=1) {
  input %x: bf16[1024, 512] strides=[512, 1] @cuda:0
  input %w: bf16[512, 512] strides=[512, 1] @cuda:0
  input %g: f32[1024, 512] strides=[512, 1] @cuda:0 role=tangent
  %a: f32[1024, 512] @cuda:0 = aten._to_copy.default(%x, dtype=f32)
  %b: f32[1024, 512] @cuda:0 = aten.mul.Scalar(%a, 0.5)
  %c: bf16[1024, 512] @cuda:0 = aten._to_copy.default(%b, dtype=bf16)
  %q: bf16[1024, 512] @cuda:0 = aten.mm.default(%c, %w)
  %d: f32[1024, 512] @cuda:0 = aten._to_copy.default(%q, dtype=f32)
  %e: f32[1024, 512] @cuda:0 = aten.mul.Scalar(%d, 0.5)
  %y: f32[1024, 512] @cuda:0 = aten.sin.default(%e)
  %k: f32[1024, 512] @cuda:0 = aten.cos.default(%e)
  %dx: f32[1024, 512] @cuda:0 = aten.mul.Tensor(%g, %k)
  output %y
  output %dx
}
// expect:
// saved %q: bf16[1024, 512] @cuda:0
// 1048576 bytes saved beside the inputs
// graph "constant_forward" forward {
//   input %x: bf16[1024, 512] strides=[512, 1] @cuda:0
//   input %w: bf16[512, 512] strides=[512, 1] @cuda:0
//   %a: f32[1024, 512] @cuda:0 = prim.cast(%x, dtype=f32)
//   %v4: f32[1024, 512] @cuda:0 = prim.full(value=0.5, shape=[1024, 512], dtype=f32)
//   %b: f32[1024, 512] @cuda:0 = prim.mul(%a, %v4)
//   %c: bf16[1024, 512] @cuda:0 = prim.cast(%b, dtype=bf16)
//   %q: bf16[1024, 512] @cuda:0 = aten.mm.default(%c, %w)
//   %d: f32[1024, 512] @cuda:0 = prim.cast(%q, dtype=f32)
//   %e: f32[1024, 512] @cuda:0 = prim.mul(%d, %v4)
//   %y: f32[1024, 512] @cuda:0 = prim.sin(%e)
//   output %y
//   output %q
// }
// graph "constant_backward" backward {
//   input %q: bf16[1024, 512] @cuda:0
//   input %g: f32[1024, 512] strides=[512, 1] @cuda:0 role=tangent
//   %v4: f32[1024, 512] @cuda:0 = prim.full(value=0.5, shape=[1024, 512], dtype=f32)
//   %d: f32[1024, 512] @cuda:0 = prim.cast(%q, dtype=f32)
//   %e: f32[1024, 512] @cuda:0 = prim.mul(%d, %v4)
//   %k: f32[1024, 512] @cuda:0 = prim.cos(%e)
//   %dx: f32[1024, 512] @cuda:0 = prim.mul(%g, %k)
//   output %dx
// }
