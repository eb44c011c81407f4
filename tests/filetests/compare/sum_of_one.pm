// A sum over a dim of one element, of a value of one element.
// run: verify | compare
graph "one" inference {
  input %x: f32[8]
  %s: f32[1] = prim.slice(%x, dim=0, start=1, end=2, step=1)
  %y: f32[] = prim.sum(%s, dims=[0])
  output %y
}
// expect:
// 1 elements agree
