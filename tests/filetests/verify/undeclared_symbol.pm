// Every size symbol is declared with its hint and range.
// run: verify
// error: graph line 2: size symbol s0 is not declared
graph "g" inference {
  input %x: f32[s0, 8]
  output %x
}
