// The norm over a single number is its magnitude: its power might overflow, and the root of that would be rounded.
// run: verify | decompose
graph "g" inference {
  input %x: f32[4, 1]
  %two: f32[4] = aten.linalg_vector_norm.default(%x, 2, [1])
  %six: f32[4] = aten.linalg_vector_norm.default(%x, 6, [1])
  output %two
  output %six
}
// expect:
// graph "g" inference {
//   input %x: f32[4, 1]
//   %v1: f32[4, 1] = prim.abs(%x)
//   %two: f32[4] = prim.sum(%v1, dims=[1])
//   %v3: f32[4, 1] = prim.abs(%x)
//   %six: f32[4] = prim.sum(%v3, dims=[1])
//   output %two
//   output %six
// }
