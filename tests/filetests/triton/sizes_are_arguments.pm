// One source for every size; what 32-bit addresses assume of the sizes stands beside it.
// run: verify | triton
// target: cuda-sm90
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
// # k0_sum_div_sub
// #   prim.sum
// #   prim.div
// #   prim.sub
// # x < s0: blocks of 1, one a program
// # r < s1: blocks of 16, in a loop
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_sum_div_sub(x_ptr, y_ptr, s0, s1, X_BLOCK: tl.constexpr, R_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     ix = tile * X_BLOCK + tl.arange(0, X_BLOCK)[:, None]
//     ix_in = ix < s0
//     sum_1_parts = tl.full([X_BLOCK, R_BLOCK], 0.0, tl.float32)
//     for r_start in range(0, s1, R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[None, :]
//         ir_in = ir < s1
//         x = tl.load(x_ptr + (s1 * ix + ir), mask=ix_in & ir_in, other=0.0)
//         sum_1_parts = sum_1_parts + tl.where(ir_in, x, 0.0)
//     sum_1 = tl.sum(sum_1_parts, 1, keep_dims=True)
//     value_2 = s1.to(tl.float32)
//     div_3 = tl.div_rn(sum_1, value_2)
//     for r_start in range(0, s1, R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[None, :]
//         ir_in = ir < s1
//         x_2 = tl.load(x_ptr + (s1 * ix + ir), mask=ix_in & ir_in, other=0.0)
//         sub_4 = x_2 - div_3
//         tl.store(y_ptr + (s1 * ix + ir), sub_4, mask=ix_in & ir_in)
// # launch s0 programs, 16 warps: x_ptr=%x, y_ptr=%y aligned, s0=s0, s1=s1, X_BLOCK=1, R_BLOCK=16
// # requires s0*s1 <= 2146435071
//
