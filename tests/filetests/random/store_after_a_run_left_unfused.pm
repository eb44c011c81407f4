// A store that waits for the end of a run must not find its register used again when the run stays unfused.
// run: verify | compare
graph "random" inference {
  input %v21: bf16[2, 1, 4]
  input %v19: bf16[2, 1, 4]
  input %v7: bf16[2, 1, 1]
  %v8: bf16[2, 1, 4] = prim.expand(%v7, shape=[2, 1, 4])
  %v20: bf16[2, 1, 4] = prim.mul(%v8, %v19)
  %v22: bf16[2, 1, 4] = prim.max(%v20, %v21)
  %v23: bf16[2, 1, 4] = prim.max(%v20, %v19)
  output %v22
  output %v23
}
// expect:
// 16 elements agree
