// A gather that has moved up to the input still looks at its index.
// run: verify | run
// input %i = [0, 9, 10]
// error: out of range
graph "gathers" inference {
  input %x: f32[3, 10]
  input %i: i64[3, 1]
  %y: f32[3, 10] = prim.exp(%x)
  %z: f32[3, 1] = prim.gather(%y, %i, dim=1)
  output %z
}
