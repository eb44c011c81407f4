// An input that is read at another point than the one it is written at.
// run: verify | compare
graph "flip" inference {
  input %x: f32[8] strides=[1]
  input %g: f32[8] strides=[1]
  %a: f32[8] = prim.exp(%x)
  %b: f32[8] = prim.exp(%g)
  %f: f32[8] = prim.flip(%x, dims=[0])
  %ab: f32[8] = prim.add(%a, %b)
  %new: f32[8] = prim.mul(%ab, %f)
  %w: f32[8] = aten.copy_.default(%x, %new)
}
// expect:
// 8 elements agree
