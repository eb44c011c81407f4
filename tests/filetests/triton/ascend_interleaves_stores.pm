// Two stores fill each other's gaps, and what one stores is stored elsewhere, too: triton-ascend fails if it sees that.
// run: verify | route | simplify | triton
// target: ascend-a2
graph "stack" inference {
  input %x: f32[64, 48] strides=[48, 1]
  %a: f32[64, 48] = aten.add.Tensor(%x, 1.0)
  %b: f32[64, 48] = aten.mul.Tensor(%x, 2.0)
  %s: f32[64, 48, 2] = aten.stack.default([%a, %b], -1)
  %c: f32[64, 96] = aten.cat.default([%a, %x], 1)
  output %s
  output %c
}
// expect:
// # k0_add_mul
// #   prim.add
// #   prim.mul
// #   prim.concat (3 times)
// # y < 64: blocks of 32, one a program
// # x < 48: blocks of 64, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_add_mul(x_ptr, s_ptr, c_ptr, plus_1, Y_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     for tile in range(tl.program_id(0), 2, tl.num_programs(0)):
//         iy = tile * Y_BLOCK + tl.arange(0, Y_BLOCK)[:, None]
//         ix = tl.arange(0, X_BLOCK)[None, :]
//         ix_in = ix < 48
//         x = tl.load(x_ptr + (48 * iy + ix), mask=ix_in, other=0.0)
//         add_2 = x + 1.0
//         tl.store(s_ptr + (96 * iy + 2 * ix), add_2, mask=ix_in)
//         mul_4 = x * 2.0
//         tl.store(s_ptr + (96 * iy + 2 * ix + plus_1), mul_4, mask=ix_in)
//         tl.store(c_ptr + (96 * iy + ix), add_2, mask=ix_in)
//         tl.store(c_ptr + (48 + 96 * iy + ix), x, mask=ix_in)
// # launch 2 programs, 1 warps: x_ptr=%x, s_ptr=%s aligned, c_ptr=%c aligned, plus_1=1, Y_BLOCK=32, X_BLOCK=64
//
