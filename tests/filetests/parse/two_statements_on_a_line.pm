// One statement a line.
// run: parse
// error: expected the end of the line, found `%`
graph "g" inference {
  input %x: f32[4] %y: f32[4] = prim.exp(%x)
  output %y
}
