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
// expect:
// graph "call" inference {
//   input %a0: f32[7, 5]
//   input %a1: i64[7, 5]
//   %r0: f32[7, 5] = aten.gather.default(%a0, 1, %a1)
//   output %r0
// }
// native: 560 bytes, 105 operations, 0 of products, 0 kernels, 1 natives
// decompose:gather: 560 bytes, 280 operations, 0 of products, 1 kernels, 0 natives
