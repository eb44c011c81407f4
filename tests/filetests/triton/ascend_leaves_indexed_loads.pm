// What a device does not do is named, for the caller to run it natively.
// run: verify | triton
// target: ascend-a2
graph "embedding" inference {
  input %w: f32[1000, 64] strides=[64, 1]
  input %i: i64[512] strides=[1]
  %e: f32[512, 64] = prim.take(%w, %i, dim=0)
  %y: f32[512, 64] = prim.exp(%e)
  output %y
}
// expect:
// # unsupported: kernel k0_gather_exp has no Triton form: ascend-a2 does not fuse loads at a loaded index
