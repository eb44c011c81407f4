// The sum after the first product is read by the backward. Half the bytes would do to make it once more, from %x and the
// product; but that would store it once more as well. On CUDA it is saved, since the sum reads %x again beyond a product.
// run: verify | route | simplify | partition
// target: cuda
graph "residual" joint(forward_outputs=1) {
  input %x: f32[1024, 512] strides=[512, 1] @cuda:0
  input %w: bf16[512, 512] strides=[512, 1] @cuda:0
  input %g: f32[1024, 512] strides=[512, 1] @cuda:0 role=tangent
  %a: f32[1024, 512] @cuda:0 = aten.sin.default(%x)
  %ab: bf16[1024, 512] @cuda:0 = aten._to_copy.default(%a, dtype=bf16)
  %p: bf16[1024, 512] @cuda:0 = aten.mm.default(%ab, %w)
  %s: f32[1024, 512] @cuda:0 = aten.add.Tensor(%x, %p)
  %b: f32[1024, 512] @cuda:0 = aten.sin.default(%s)
  %bb: bf16[1024, 512] @cuda:0 = aten._to_copy.default(%b, dtype=bf16)
  %q: bf16[1024, 512] @cuda:0 = aten.mm.default(%bb, %w)
  %y: f32[1024, 512] @cuda:0 = aten.add.Tensor(%s, %q)
  %c: f32[1024, 512] @cuda:0 = aten.cos.default(%s)
  %d: f32[1024, 512] @cuda:0 = aten.mul.Tensor(%g, %c)
  output %y
  output %d
}
// expect:
// saved %s: f32[1024, 512] @cuda:0
// 2097152 bytes saved beside the inputs
// graph "residual_forward" forward {
//   input %x: f32[1024, 512] strides=[512, 1] @cuda:0
//   input %w: bf16[512, 512] strides=[512, 1] @cuda:0
//   %a: f32[1024, 512] @cuda:0 = prim.sin(%x)
//   %ab: bf16[1024, 512] @cuda:0 = prim.cast(%a, dtype=bf16)
//   %p: bf16[1024, 512] @cuda:0 = aten.mm.default(%ab, %w)
//   %v6: f32[1024, 512] @cuda:0 = prim.cast(%p, dtype=f32)
//   %s: f32[1024, 512] @cuda:0 = prim.add(%x, %v6)
//   %b: f32[1024, 512] @cuda:0 = prim.sin(%s)
//   %bb: bf16[1024, 512] @cuda:0 = prim.cast(%b, dtype=bf16)
//   %q: bf16[1024, 512] @cuda:0 = aten.mm.default(%bb, %w)
//   %v11: f32[1024, 512] @cuda:0 = prim.cast(%q, dtype=f32)
//   %y: f32[1024, 512] @cuda:0 = prim.add(%s, %v11)
//   output %y
//   output %s
// }
// graph "residual_backward" backward {
//   input %s: f32[1024, 512] @cuda:0
//   input %g: f32[1024, 512] strides=[512, 1] @cuda:0 role=tangent
//   %c: f32[1024, 512] @cuda:0 = prim.cos(%s)
//   %d: f32[1024, 512] @cuda:0 = prim.mul(%g, %c)
//   output %d
// }
