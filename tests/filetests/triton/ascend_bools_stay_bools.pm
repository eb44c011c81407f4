// `tl.where(inside, bool, 1)` is an integer in Triton 3.2, which forbids that for the total of a loop.
// run: verify | route | simplify | triton
// target: ascend-a2
graph "all" inference {
  input %x: bool[33, 70] strides=[70, 1]
  %a: bool[70] = aten.all.dim(%x, 0)
  output %a
}
// expect:
// # scratch 0: 210 of bool
// # k0_all
// #   prim.all
// # r < 33: blocks of 16, in a loop over one of 3 runs of 16
// # x < 70: blocks of 128, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_all(x_ptr, all_1_slots_ptr, R_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     for tile in range(tl.program_id(0), 3, tl.num_programs(0)):
//         ix = tl.arange(0, X_BLOCK)[None, :]
//         ix_in = ix < 70
//         all_1 = tl.full([R_BLOCK, X_BLOCK], 1, tl.int1)
//         r_first = tile * 16
//         for r_start in range(r_first, tl.minimum(r_first + 16, 33), R_BLOCK):
//             ir = r_start + tl.arange(0, R_BLOCK)[:, None]
//             ir_in = ir < 33
//             x = tl.load(x_ptr + (70 * ir + ix), mask=ir_in & ix_in, other=0) != 0
//             all_1 = all_1 & (x | ((ir_in) == 0))
//         all_1_2 = (tl.min(all_1.to(tl.int32), 0, keep_dims=True) != 0)
//         tl.store(all_1_slots_ptr + (ix + tile * 70), all_1_2.to(tl.int8), mask=ix_in)
// # launch 3 programs, 1 warps: x_ptr=%x, all_1_slots_ptr=scratch 0 aligned, R_BLOCK=16, X_BLOCK=128
//
// # k0_all_total
// #   sum of the parts of the programs before
// # r < 3: blocks of 4, in a loop
// # x < 70: blocks of 128, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_all_total(all_1_slots_ptr, a_ptr, R_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     ix = tl.arange(0, X_BLOCK)[None, :]
//     ix_in = ix < 70
//     all_1 = tl.full([R_BLOCK, X_BLOCK], 1, tl.int1)
//     for r_start in range(0, 3, R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[:, None]
//         ir_in = ir < 3
//         all_1_slots = tl.load(all_1_slots_ptr + (70 * ir + ix), mask=ir_in & ix_in, other=0) != 0
//         all_1 = all_1 & (all_1_slots | ((ir_in) == 0))
//     all_1_2 = (tl.min(all_1.to(tl.int32), 0, keep_dims=True) != 0)
//     tl.store(a_ptr + ix, all_1_2.to(tl.int8), mask=ix_in)
// # launch 1 programs, 1 warps: all_1_slots_ptr=scratch 0 aligned, a_ptr=%a aligned, R_BLOCK=4, X_BLOCK=128
//
