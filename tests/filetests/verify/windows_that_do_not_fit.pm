// The last window would end at 7.
// run: verify
// error: 3 windows of 3 every 2 do not fit into 5
graph "windows" inference {
  input %x: f32[5]
  %w: f32[3, 3] = prim.window(%x, dim=0, count=3, size=3, step=2)
  output %w
}
