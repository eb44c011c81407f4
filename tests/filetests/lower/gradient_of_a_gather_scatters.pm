// An embedding is read at its index inside of the kernel; its gradient is a scatter, whose source the kernel makes.
// run: verify | lower
graph "embedding" inference {
  input %w: f32[100, 16] strides=[16, 1]
  input %i: i64[32] strides=[1]
  input %g: f32[32, 16] strides=[16, 1]
  %e: f32[32, 16] = prim.take(%w, %i, dim=0)
  %y: f32[32, 16] = prim.mul(%e, %g)
  %dw: f32[100, 16] = prim.index_sum(%y, %i, dim=0, size=100)
  output %dw
}
