// All of a matrix becomes one number: A5's compiler fails on a tile of two dims whose last fold leaves one element.
// run: verify | route | simplify | triton
// target: ascend-a5
graph "total" inference {
  input %x: f32[3000, 90] strides=[90, 1]
  %a: f32[] = aten.sum.default(%x)
  %c: f32[90] = aten.sum.dim_IntList(%x, [0])
  output %a
  output %c
}
// expect:
// # scratch 0: 63 of f32
// # scratch 1: 5670 of f32
// # k0_sum
// #   prim.sum (2 times)
// # x < 3000: blocks of 16, in a loop over one of 63 runs of 48
// # r < 90: blocks of 128, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_sum(x_ptr, sum_1_slots_ptr, sum_3_slots_ptr, X_BLOCK: tl.constexpr, R_BLOCK: tl.constexpr):
//     for tile in range(tl.program_id(0), 63, tl.num_programs(0)):
//         ir = tl.arange(0, R_BLOCK)[None, :]
//         ir_in = ir < 90
//         sum_1 = tl.full([X_BLOCK, R_BLOCK], 0.0, tl.float32)
//         sum_3 = tl.full([X_BLOCK, R_BLOCK], 0.0, tl.float32)
//         x_first = tile * 48
//         for x_start in range(x_first, tl.minimum(x_first + 48, 3000), X_BLOCK):
//             ix = x_start + tl.arange(0, X_BLOCK)[:, None]
//             ix_in = ix < 3000
//             x = tl.load(x_ptr + (90 * ix + ir), mask=ix_in & ir_in, other=0.0)
//             sum_1 = sum_1 + tl.where(ix_in & ir_in, x, 0.0)
//             sum_3 = sum_3 + tl.where(ix_in, x, 0.0)
//         sum_1_2 = tl.reshape(tl.sum(tl.reshape(tl.sum(sum_1, 0, keep_dims=True), [R_BLOCK]), 0, keep_dims=True), [1, 1])
//         tl.store(sum_1_slots_ptr + tile + tl.zeros([1, 1], tl.int32), sum_1_2)
//         sum_3_2 = tl.sum(sum_3, 0, keep_dims=True)
//         tl.store(sum_3_slots_ptr + (ir + tile * 90), sum_3_2, mask=ir_in)
// # launch 63 programs, 1 warps: x_ptr=%x, sum_1_slots_ptr=scratch 0 aligned, sum_3_slots_ptr=scratch 1 aligned, X_BLOCK=16, R_BLOCK=128
//
// # k0_sum_total
// #   sum of the parts of the programs before
// # r < 63: blocks of 64, in a loop
// # x < 1: blocks of 1, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_sum_total(sum_1_slots_ptr, a_ptr, R_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     ix = tl.arange(0, X_BLOCK)[None, :]
//     sum_1 = tl.full([R_BLOCK, 1], 0.0, tl.float32)
//     for r_start in range(0, 63, R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[:, None]
//         ir_in = ir < 63
//         sum_1_slots = tl.load(sum_1_slots_ptr + ir, mask=ir_in, other=0.0)
//         sum_1 = sum_1 + tl.where(ir_in, sum_1_slots, 0.0)
//     sum_1_2 = tl.reshape(tl.sum(tl.reshape(sum_1, [R_BLOCK]), 0, keep_dims=True), [1, 1])
//     tl.store(a_ptr + tl.zeros([1, 1], tl.int32), sum_1_2)
// # launch 1 programs, 1 warps: sum_1_slots_ptr=scratch 0 aligned, a_ptr=%a aligned, R_BLOCK=64, X_BLOCK=1
//
// # k0_sum_total1
// #   sum of the parts of the programs before
// # r < 63: blocks of 16, in a loop
// # x < 90: blocks of 128, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_sum_total1(sum_3_slots_ptr, c_ptr, R_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     ix = tl.arange(0, X_BLOCK)[None, :]
//     ix_in = ix < 90
//     sum_1 = tl.full([R_BLOCK, X_BLOCK], 0.0, tl.float32)
//     for r_start in range(0, 63, R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[:, None]
//         ir_in = ir < 63
//         sum_3_slots = tl.load(sum_3_slots_ptr + (90 * ir + ix), mask=ir_in & ix_in, other=0.0)
//         sum_1 = sum_1 + tl.where(ir_in, sum_3_slots, 0.0)
//     sum_1_2 = tl.sum(sum_1, 0, keep_dims=True)
//     tl.store(c_ptr + ix, sum_1_2, mask=ix_in)
// # launch 1 programs, 1 warps: sum_3_slots_ptr=scratch 1 aligned, c_ptr=%c aligned, R_BLOCK=16, X_BLOCK=128
//
