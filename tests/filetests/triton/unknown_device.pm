// run: verify | triton
// target: cuda-sm9
// error: there is no device `cuda-sm9`; did you mean cuda-sm90
graph "g" inference {
  input %x: f32[4]
  output %x
}
