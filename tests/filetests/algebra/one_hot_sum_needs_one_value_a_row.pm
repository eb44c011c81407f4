// Nothing changes: the chosen value varies along the classes (%a), the mask is not one-hot along the summed dim (%b),
// another condition varies along it (%c), what is not chosen is not zero (%d), and 0 times what is not finite is NaN (%e).
// run: verify | algebra | simplify
graph "not_one_hot" inference {
  input %x: f32[8, 10]
  input %g: f32[8, 1]
  input %t: i64[8, 1]
  input %m: bool[8, 10]
  %j: i64[10] = prim.iota(size=10)
  %j1: i64[1, 10] = prim.reshape(%j, shape=[1, 10])
  %j2: i64[8, 10] = prim.expand(%j1, shape=[8, 10])
  %t2: i64[8, 10] = prim.expand(%t, shape=[8, 10])
  %hot: bool[8, 10] = prim.eq(%j2, %t2)
  %g2: f32[8, 10] = prim.expand(%g, shape=[8, 10])
  %zero: f32[8, 10] = prim.full(value=0.0, shape=[8, 10], dtype=f32)
  %ax: f32[8, 10] = prim.where(%hot, %x, %zero)
  %a: f32[8] = prim.sum(%ax, dims=[1])
  %bx: f32[8, 10] = prim.where(%hot, %g2, %zero)
  %b: f32[10] = prim.sum(%bx, dims=[0])
  %cm: bool[8, 10] = prim.and(%hot, %m)
  %cx: f32[8, 10] = prim.where(%cm, %g2, %zero)
  %c: f32[8] = prim.sum(%cx, dims=[1])
  %dx: f32[8, 10] = prim.where(%hot, %g2, %x)
  %d: f32[8] = prim.sum(%dx, dims=[1])
  %e1: f32[8, 10] = prim.cast(%hot, dtype=f32)
  %ex: f32[8, 10] = prim.mul(%e1, %g2)
  %e: f32[8] = prim.sum(%ex, dims=[1])
  output %a
  output %b
  output %c
  output %d
  output %e
}
// expect:
// graph "not_one_hot" inference {
//   input %x: f32[8, 10]
//   input %g: f32[8, 1]
//   input %t: i64[8, 1]
//   input %m: bool[8, 10]
//   %j: i64[10] = prim.iota(size=10)
//   %j1: i64[1, 10] = prim.reshape(%j, shape=[1, 10])
//   %j2: i64[8, 10] = prim.expand(%j1, shape=[8, 10])
//   %t2: i64[8, 10] = prim.expand(%t, shape=[8, 10])
//   %hot: bool[8, 10] = prim.eq(%j2, %t2)
//   %g2: f32[8, 10] = prim.expand(%g, shape=[8, 10])
//   %zero: f32[8, 10] = prim.full(value=0.0, shape=[8, 10], dtype=f32)
//   %ax: f32[8, 10] = prim.where(%hot, %x, %zero)
//   %a: f32[8] = prim.sum(%ax, dims=[1])
//   %bx: f32[8, 10] = prim.where(%hot, %g2, %zero)
//   %b: f32[10] = prim.sum(%bx, dims=[0])
//   %cm: bool[8, 10] = prim.and(%hot, %m)
//   %cx: f32[8, 10] = prim.where(%cm, %g2, %zero)
//   %c: f32[8] = prim.sum(%cx, dims=[1])
//   %dx: f32[8, 10] = prim.where(%hot, %g2, %x)
//   %d: f32[8] = prim.sum(%dx, dims=[1])
//   %e1: f32[8, 10] = prim.cast(%hot, dtype=f32)
//   %ex: f32[8, 10] = prim.mul(%e1, %g2)
//   %e: f32[8] = prim.sum(%ex, dims=[1])
//   output %a
//   output %b
//   output %c
//   output %d
//   output %e
// }
