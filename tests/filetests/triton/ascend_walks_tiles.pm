// One program a vector core walks the tiles; indices of a tile are affine.
// run: verify | route | simplify | triton
// target: ascend-a2
graph "softmax" inference {
  input %x: f32[8, 12, 128, 128] strides=[196608, 128, 1536, 1]
  %y: f32[8, 12, 128, 128] = aten._softmax.default(%x, 3, false)
  output %y
}
// expect:
// # k0_amax_sub_exp_sum_div
// #   prim.amax
// #   prim.sub
// #   prim.exp
// #   prim.sum
// #   prim.div
// # o < 96: one a program
// # x < 128: blocks of 16, one a program
// # r < 128: whole, as a block of 128
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def reduce_max_or_nan(x, axis: tl.constexpr):
//     """Maximum over an axis, which stays with one element; NaN if there is one."""
//     nan = tl.max((x != x).to(tl.int32), axis, keep_dims=True) != 0
//     return tl.where(nan, float("nan"), tl.max(x, axis, keep_dims=True))
//
//
// @triton.jit
// def k0_amax_sub_exp_sum_div(x_ptr, y_ptr, X_BLOCK: tl.constexpr, R_BLOCK: tl.constexpr):
//     ir = tl.arange(0, R_BLOCK)[None, :]
//     for tile in range(tl.program_id(0), 768, tl.num_programs(0)):
//         x_tile = tile % 8
//         tiles = tile // 8
//         io = tiles
//         ix = x_tile * X_BLOCK + tl.arange(0, X_BLOCK)[:, None]
//         i1 = io % 12
//         i0 = io // 12
//         x = tl.load(x_ptr + (196608 * i0 + 128 * i1 + 1536 * ix + ir))
//         amax_1 = reduce_max_or_nan(x, 1)
//         sub_2 = x - amax_1
//         exp_3 = tl.exp(sub_2)
//         sum_4 = tl.sum(exp_3, 1, keep_dims=True)
//         div_5 = exp_3 / sum_4
//         tl.store(y_ptr + (16384 * io + 128 * ix + ir), div_5)
// # launch 40 programs, 1 warps: x_ptr=%x, y_ptr=%y aligned, X_BLOCK=16, R_BLOCK=128
//
