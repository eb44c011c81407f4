// Values without elements, and what is computed from none.
// run: verify | compare
graph "empty" inference {
  input %x: f32[4, 3]
  %e: f32[0, 3] = prim.slice(%x, dim=0, start=4, end=4, step=1)
  %s: f32[0, 3] = prim.sin(%e)
  %c: f32[4, 3] = prim.concat(%s, %x, dim=0)
  %sum: f32[3] = prim.sum(%s, dims=[0])
  %prod: f32[3] = prim.prod(%s, dims=[0])
  %p: f32[2, 3] = prim.pad(%s, low=[1, 0], high=[1, 0])
  output %s
  output %c
  output %sum
  output %prod
  output %p
}
// expect:
// 24 elements agree
