// Softmax from prims, by hand.
// run: verify | interp
// input %x = [[0.0, 0.0], [0.0, 100.0], [nan, 1.0]]
graph "softmax" inference {
  symbol s0 hint=3 range=[1, 1000]
  input %x: f32[s0, 2]
  %m: f32[s0] = prim.amax(%x, dims=[1])
  %m1: f32[s0, 1] = prim.reshape(%m, shape=[s0, 1])
  %mx: f32[s0, 2] = prim.expand(%m1, shape=[s0, 2])
  %c: f32[s0, 2] = prim.sub(%x, %mx)
  %e: f32[s0, 2] = prim.exp(%c)
  %s: f32[s0] = prim.sum(%e, dims=[1])
  %s1: f32[s0, 1] = prim.reshape(%s, shape=[s0, 1])
  %sx: f32[s0, 2] = prim.expand(%s1, shape=[s0, 2])
  %y: f32[s0, 2] = prim.div(%e, %sx)
  output %y
}
// expect:
// output 0: f32[3, 2] [[0.5, 0.5], [3.720076e-44, 1.0], [nan, nan]]
