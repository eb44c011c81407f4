// A result may take the place of what the same kernel reads later only if the store waits.
// run: verify | compare
graph "scalar" inference {
  input %x: f32[1, 1, 1]
  input %c: bool[1, 1, 1]
  %a: f32[1, 1, 1] strides=[1, 1, 1] = aten.bmm.default(%x, %x)
  %b: f32[1, 1, 1] = prim.cast(%c, dtype=f32)
  %d: f32[1, 1, 1] = prim.max(%a, %b)
  %e: f32[1, 1, 1] strides=[1, 1, 1] = aten.bmm.default(%b, %x)
  %y: f32[1, 1, 1] = prim.max(%e, %d)
  output %y
}
// expect:
// 1 elements agree
