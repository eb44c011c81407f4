// A value must be defined above its use.
// run: parse
// error: line 6, column 29: expected a value defined above, but %y is not
graph "g" inference {
  input %x: f32[4]
  %z: f32[4] = prim.add(%x, %y)
  %y: f32[4] = prim.exp(%x)
  output %z
}
