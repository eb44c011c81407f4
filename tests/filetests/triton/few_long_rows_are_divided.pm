// Three channels keep no device busy: each sum over one is divided among programs, and what reads it is another kernel, which
// computes the cast, the product and the difference once more instead of reading them.
// run: verify | route | simplify | triton
// target: cuda-sm90
graph "statistics" inference {
  input %x: bf16[64, 3, 4096] strides=[12288, 4096, 1]
  %f: f32[64, 3, 4096] = aten._to_copy.default(%x, dtype=f32)
  %h: f32[64, 3, 4096] = aten.mul.Tensor(%f, 2.0)
  %m: f32[1, 3, 1] = aten.mean.dim(%h, [0, 2], true)
  %d: f32[64, 3, 4096] = aten.sub.Tensor(%h, %m)
  %s: f32[1, 3, 1] = aten.sum.dim_IntList(%d, [0, 2], true)
  %y: f32[64, 3, 4096] = aten.mul.Tensor(%d, %s)
  output %y
}
// expect:
// # scratch 0: 384 of f32
// # k0_mul_sum
// #   prim.cast
// #   prim.mul
// #   prim.sum
// # x < 3: blocks of 1, one a program
// # r < 262144: blocks of 2048, in a loop over one of 128 runs of 2048
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_mul_sum(x_ptr, sum_4_slots_ptr, X_BLOCK: tl.constexpr, R_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     r_tile = tile % 128
//     tiles = tile // 128
//     ix = tiles * X_BLOCK + tl.arange(0, X_BLOCK)[:, None]
//     sum_4 = tl.full([X_BLOCK, R_BLOCK], 0.0, tl.float32)
//     r_first = r_tile * 2048
//     for r_start in range(r_first, tl.minimum(r_first + 2048, 262144), R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[None, :]
//         i2 = ir % 4096
//         i1 = ir // 4096
//         x = tl.load(x_ptr + (4096 * ix + 12288 * i1 + i2)).to(tl.float32)
//         mul_3 = x * 2.0
//         sum_4 = sum_4 + mul_3
//     sum_4_2 = tl.sum(sum_4, 1, keep_dims=True)
//     tl.store(sum_4_slots_ptr + (ix + r_tile * 3), sum_4_2)
// # launch 384 programs, 8 warps: x_ptr=%x, sum_4_slots_ptr=scratch 0 aligned, X_BLOCK=1, R_BLOCK=2048
//
// # k0_mul_sum_total
// #   sum of the parts of the programs before
// # r < 128: blocks of 128, in a loop
// # x < 3: blocks of 4, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_mul_sum_total(sum_4_slots_ptr, v4_ptr, R_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     ix = tl.arange(0, X_BLOCK)[None, :]
//     ix_in = ix < 3
//     sum_1 = tl.full([R_BLOCK, X_BLOCK], 0.0, tl.float32)
//     for r_start in range(0, 128, R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[:, None]
//         sum_4_slots = tl.load(sum_4_slots_ptr + (3 * ir + ix), mask=ix_in, other=0.0)
//         sum_1 = sum_1 + sum_4_slots
//     sum_1_2 = tl.sum(sum_1, 0, keep_dims=True)
//     tl.store(v4_ptr + ix, sum_1_2, mask=ix_in)
// # launch 1 programs, 2 warps: sum_4_slots_ptr=scratch 0 aligned, v4_ptr=%v4 aligned, R_BLOCK=128, X_BLOCK=4
//
// # k1_div
// #   prim.div
// # x < 3: blocks of 4, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k1_div(v4_ptr, v7_ptr, X_BLOCK: tl.constexpr):
//     ix = tl.arange(0, X_BLOCK)
//     ix_in = ix < 3
//     v4 = tl.load(v4_ptr + ix, mask=ix_in, other=0.0)
//     constant = tl.full([1], 262144.0, tl.float32)
//     div_2 = tl.div_rn(v4, constant)
//     tl.store(v7_ptr + ix, div_2, mask=ix_in)
// # launch 1 programs, 1 warps: v4_ptr=%v4 aligned, v7_ptr=%v7 aligned, X_BLOCK=4
//
// # scratch 0: 384 of f32
// # k2_mul_sub_sum
// #   prim.cast
// #   prim.mul
// #   prim.sub
// #   prim.sum
// # x < 3: blocks of 1, one a program
// # r < 262144: blocks of 2048, in a loop over one of 128 runs of 2048
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k2_mul_sub_sum(x_ptr, v7_ptr, sum_6_slots_ptr, X_BLOCK: tl.constexpr, R_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     r_tile = tile % 128
//     tiles = tile // 128
//     ix = tiles * X_BLOCK + tl.arange(0, X_BLOCK)[:, None]
//     sum_6 = tl.full([X_BLOCK, R_BLOCK], 0.0, tl.float32)
//     r_first = r_tile * 2048
//     v7 = tl.load(v7_ptr + ix)
//     for r_start in range(r_first, tl.minimum(r_first + 2048, 262144), R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[None, :]
//         i2 = ir % 4096
//         i1 = ir // 4096
//         x = tl.load(x_ptr + (4096 * ix + 12288 * i1 + i2)).to(tl.float32)
//         mul_3 = x * 2.0
//         sub_5 = mul_3 - v7
//         sum_6 = sum_6 + sub_5
//     sum_6_2 = tl.sum(sum_6, 1, keep_dims=True)
//     tl.store(sum_6_slots_ptr + (ix + r_tile * 3), sum_6_2)
// # launch 384 programs, 8 warps: x_ptr=%x, v7_ptr=%v7 aligned, sum_6_slots_ptr=scratch 0 aligned, X_BLOCK=1, R_BLOCK=2048
//
// # k2_mul_sub_sum_total
// #   sum of the parts of the programs before
// # r < 128: blocks of 128, in a loop
// # x < 3: blocks of 4, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k2_mul_sub_sum_total(sum_6_slots_ptr, v11_ptr, R_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     ix = tl.arange(0, X_BLOCK)[None, :]
//     ix_in = ix < 3
//     sum_1 = tl.full([R_BLOCK, X_BLOCK], 0.0, tl.float32)
//     for r_start in range(0, 128, R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[:, None]
//         sum_6_slots = tl.load(sum_6_slots_ptr + (3 * ir + ix), mask=ix_in, other=0.0)
//         sum_1 = sum_1 + sum_6_slots
//     sum_1_2 = tl.sum(sum_1, 0, keep_dims=True)
//     tl.store(v11_ptr + ix, sum_1_2, mask=ix_in)
// # launch 1 programs, 2 warps: sum_6_slots_ptr=scratch 0 aligned, v11_ptr=%v11 aligned, R_BLOCK=128, X_BLOCK=4
//
// # k3_mul_sub
// #   prim.cast
// #   prim.mul (2 times)
// #   prim.sub
// # z < 192: one a program
// # x < 4096: blocks of 1024, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k3_mul_sub(x_ptr, v7_ptr, v11_ptr, y_ptr, X_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     x_tile = tile % 4
//     tiles = tile // 4
//     iz = tiles
//     ix = x_tile * X_BLOCK + tl.arange(0, X_BLOCK)
//     x = tl.load(x_ptr + (4096 * iz + ix)).to(tl.float32)
//     mul_3 = x * 2.0
//     i1 = iz % 3
//     v7 = tl.load(v7_ptr + i1)
//     sub_5 = mul_3 - v7
//     v11 = tl.load(v11_ptr + i1)
//     mul_7 = sub_5 * v11
//     tl.store(y_ptr + (4096 * iz + ix), mul_7)
// # launch 768 programs, 2 warps: x_ptr=%x, v7_ptr=%v7 aligned, v11_ptr=%v11 aligned, y_ptr=%y aligned, X_BLOCK=1024
//
