// With `round`, each operator's result is one of its dtype: 1 + 2^-9 is not a bf16.
// run: verify | interp
// round
// input %x = [1.0, 0.001953125]
graph "g" inference {
  input %x: bf16[2]
  %w: f32[2] = prim.cast(%x, dtype=f32)
  %s: f32[] = prim.sum(%w, dims=[0])
  %t: bf16[] = prim.sum(%x, dims=[0])
  output %s
  output %t
}
// expect:
// output 0: f32[] 1.001953
// output 1: bf16[] 1.0
