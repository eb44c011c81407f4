// Prims do not broadcast: that is an explicit expand.
// run: verify
// error: prim.add: operand shapes differ: [4, 8] and [8]
graph "g" inference {
  input %x: f32[4, 8]
  input %b: f32[8]
  %y: f32[4, 8] = prim.add(%x, %b)
  output %y
}
