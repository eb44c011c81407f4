// The index of take_along_dim has no declared range, so that no arguments can be made up.
// run: estimate
graph "g" inference {
  input %x: f32[7, 5]
  input %i: i64[7, 5]
  %a: f32[7, 5] = aten.take_along_dim.default(%x, %i, 1)
  %b: f32[7, 5] = aten.gather.default(%x, 1, %i)
  output %a
  output %b
}
