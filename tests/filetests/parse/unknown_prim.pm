// The set of prims is closed; a typo gets the nearest names.
// run: parse
// error: there is no prim `rsqr`; did you mean rsqrt
graph "g" inference {
  input %x: f32[4]
  %y: f32[4] = prim.rsqr(%x)
  output %y
}
