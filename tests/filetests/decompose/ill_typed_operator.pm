// A rule given operands that it cannot take is an error that shows the operator.
// run: verify | decompose
// error: rule gelu fails: ill-typed prim
// error: %y: i64[4] = aten.gelu.default(%x)
graph "g" inference {
  input %x: i64[4]
  %y: i64[4] = aten.gelu.default(%x)
  output %y
}
