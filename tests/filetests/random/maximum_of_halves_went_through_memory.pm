// run: run
// The backward computes %y once more, in f32, and compares it with the maximum that the forward stored in bf16: without
// rounding nothing was equal, and the gradient 0.
// input %x = [1.0, 2.0, 3.0, 0.5]
// input %t = [1.0]
graph "g" joint(forward_outputs=1) {
  input %x: bf16[4]
  input %t: bf16[1] role=tangent
  %y: bf16[4] = prim.sqrt(%x)
  %a: bf16[] = prim.amax(%y, dims=[0])
  %m: bf16[1] = prim.reshape(%a, shape=[1])
  %e: bf16[4] = prim.expand(%m, shape=[4])
  %c: bool[4] = prim.eq(%y, %e)
  %s: bf16[4] = prim.expand(%t, shape=[4])
  %z: bf16[4] = prim.full(value=0.0, shape=[4], dtype=bf16)
  %g: bf16[4] = prim.where(%c, %s, %z)
  output %m
  output %g
}
// expect:
// output 0: bf16[1] [1.734375]
// output 1: bf16[4] [0.0, 0.0, 1.0, 0.0]
