// The dense copy of a constant that a native operator asked for is not what earlier readers of the constant read.
// run: verify | compare
graph "constant" inference {
  input %x: i64[4, 2]
  input %y: f32[4, 2]
  input %z: f32[2, 4]
  %n: i64[4, 2] = prim.neg(%x)
  %a: f32[4, 2] = prim.abs(%y)
  %c: f32[4, 2] = prim.full(value=0.5, shape=[4, 2], dtype=f32)
  %s: f32[4, 2] = prim.add(%a, %c)
  %m: f32[4, 4] strides=[4, 1] = aten.mm.default(%c, %z)
  %e: bool[4, 2] = prim.eq(%a, %c)
  %b: bool[4, 2] = prim.cast(%n, dtype=bool)
  %d: bool[4, 2] = prim.ne(%e, %b)
  output %d
  output %m
  output %s
}
// expect:
// 32 elements agree
