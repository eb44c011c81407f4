// Mean and reciprocal deviation are a number a row: they are saved. The normalised rows are computed again from the input.
// run: verify | route | simplify | partition
graph "layer_norm" joint(forward_outputs=1) {
  input %x: f32[64, 32] strides=[32, 1]
  input %w: f32[32] strides=[1]
  input %b: f32[32] strides=[1]
  input %t: f32[64, 32] strides=[32, 1] role=tangent
  %y: f32[64, 32], %mean: f32[64, 1], %rstd: f32[64, 1] = aten.native_layer_norm.default(%x, [32], %w, %b, 1e-05)
  %dx: f32[64, 32], %dw: f32[32], %db: f32[32] = aten.native_layer_norm_backward.default(%t, %x, [32], %mean, %rstd, %w, %b, [true, true, true])
  output %y
  output %dx
  output %dw
  output %db
}
