// The row sums that the input's gradient needs and the column sums of weight and bias come from one pass over the data.
// run: verify | lower
graph "layer_norm_backward" backward {
  input %dy: f32[64, 32] strides=[32, 1] role=tangent
  input %xhat: f32[64, 32] strides=[32, 1]
  input %rstd: f32[64, 1] strides=[1, 1]
  input %w: f32[32] strides=[1]
  %w2: f32[1, 32] = prim.reshape(%w, shape=[1, 32])
  %we: f32[64, 32] = prim.expand(%w2, shape=[64, 32])
  %g: f32[64, 32] = prim.mul(%dy, %we)
  %s1: f32[64] = prim.sum(%g, dims=[1])
  %gx: f32[64, 32] = prim.mul(%g, %xhat)
  %s2: f32[64] = prim.sum(%gx, dims=[1])
  %n: f32[64] = prim.full(value=32.0, shape=[64], dtype=f32)
  %m1: f32[64] = prim.div(%s1, %n)
  %m2: f32[64] = prim.div(%s2, %n)
  %m1r: f32[64, 1] = prim.reshape(%m1, shape=[64, 1])
  %m2r: f32[64, 1] = prim.reshape(%m2, shape=[64, 1])
  %m1e: f32[64, 32] = prim.expand(%m1r, shape=[64, 32])
  %m2e: f32[64, 32] = prim.expand(%m2r, shape=[64, 32])
  %t: f32[64, 32] = prim.mul(%xhat, %m2e)
  %c: f32[64, 32] = prim.sub(%g, %m1e)
  %d: f32[64, 32] = prim.sub(%c, %t)
  %re: f32[64, 32] = prim.expand(%rstd, shape=[64, 32])
  %dx: f32[64, 32] = prim.mul(%d, %re)
  %p: f32[64, 32] = prim.mul(%dy, %xhat)
  %dw: f32[32] = prim.sum(%p, dims=[0])
  %db: f32[32] = prim.sum(%dy, dims=[0])
  output %dx
  output %dw
  output %db
}
