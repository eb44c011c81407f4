// A prim has the attributes of its signature.
// run: verify
// error: prim.concat needs attribute dim: (x0, x1, …, dim=) -> joined along dim
graph "g" inference {
  input %x: f32[4]
  %y: f32[8] = prim.concat(%x, %x)
  output %y
}
