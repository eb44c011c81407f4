// Names are unique, across inputs and results.
// run: parse
// error: expected a new name, but %x is already defined
graph "g" inference {
  input %x: f32[4]
  %x: f32[4] = prim.exp(%x)
  output %x
}
