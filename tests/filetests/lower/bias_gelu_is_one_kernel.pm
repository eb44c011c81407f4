// A bias and the gelu after it are one kernel; the broadcast is a stride of 0.
// run: verify | route | simplify | lower
graph "bias_gelu" inference {
  input %x: f32[64, 32] strides=[32, 1]
  input %b: f32[32] strides=[1]
  %s: f32[64, 32] = aten.add.Tensor(%x, %b)
  %y: f32[64, 32] = aten.gelu.default(%s)
  output %y
}
