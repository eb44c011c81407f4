// One program for every size; a mean divides by the size itself.
// run: verify | lower
graph "mean" inference {
  symbol s0 hint=8 range=[2, 1000]
  symbol s1 hint=16 range=[2, 1000]
  input %x: f32[s0, s1] strides=[s1, 1]
  %t: f32[s0] = prim.sum(%x, dims=[1])
  %n: f32[s0] = prim.full(value=s1, shape=[s0], dtype=f32)
  %m: f32[s0] = prim.div(%t, %n)
  %r: f32[s0, 1] = prim.reshape(%m, shape=[s0, 1])
  %e: f32[s0, s1] = prim.expand(%r, shape=[s0, s1])
  %y: f32[s0, s1] = prim.sub(%x, %e)
  output %y
}
// expect:
// program "mean" inference {
//   symbol s0 hint=8 range=[2, 1000]
//   symbol s1 hint=16 range=[2, 1000]
//   b0: f32[s0, s1] input %x
//   b1: f32[s0, s1] output %y
//   input b0
//   kernel k0_sum_div_sub(i0: batch s0, i1: col s1) {
//     %0: f32 = load b0[0 + i0*(s1) + i1]
//     %1: f32 = sum over cols %0
//     %2: f32 = size s1
//     %3: f32 = div %1, %2
//     %4: f32 = sub %0, %3
//     store b1[0 + i0*(s1) + i1], %4: f32
//   }
//   output b1[s0, s1]
// }
