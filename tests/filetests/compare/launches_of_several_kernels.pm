// run: verify | route | compare
graph "g" inference {
  input %x: f32[4, 700]
  input %y: f32[3, 5]
  input %z: f32[]
  input %w: f64[9]
  %a: f32[4, 700] = prim.exp(%x)
  %b: f32[3, 5] = prim.tanh(%y)
  %c: f32[] = prim.sin(%z)
  %d: f64[9] = prim.neg(%w)
  %u: f32[] = aten.copy_.default(%z, %c)
  %t: f32[3, 5] = aten.copy_.default(%y, %b)
  output %a
  output %d
}
// expect:
// 2825 elements agree
