// Overlapping windows are views, of views too.
// run: verify | compare
graph "windows" inference {
  input %x: f32[6, 5]
  %w: f32[3, 5, 3] = prim.window(%x, dim=0, count=3, size=3, step=1)
  %v: f32[3, 2, 3, 2] = prim.window(%w, dim=1, count=2, size=2, step=3)
  %f: f32[3, 2, 3, 2] = prim.flip(%v, dims=[0, 3])
  %y: f32[3, 2, 3, 2] = prim.mul(%f, %v)
  %s: f32[3, 2] = prim.sum(%y, dims=[2, 3])
  output %y
  output %s
}
// expect:
// 42 elements agree
