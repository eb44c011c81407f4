// The compiler of A5 takes a load at a loaded index in a tile of one dim only: the other axis is a scalar of the program.
// run: verify | triton
// target: ascend-a5
graph "columns" inference {
  input %x: f32[512, 81] strides=[81, 1]
  input %i: i64[36] strides=[1]
  %y: f32[512, 36] = prim.take(%x, %i, dim=1)
  output %y
}
// expect:
// # k0_gather
// #   prim.take
// # z < 512: one a program
// # x < 36: blocks of 64, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_gather(i_ptr, x_ptr, fault_ptr, y_ptr, X_BLOCK: tl.constexpr):
//     for tile in range(tl.program_id(0), 512, tl.num_programs(0)):
//         iz = tile
//         ix = tl.arange(0, X_BLOCK)
//         ix_in = ix < 36
//         i = tl.load(i_ptr + ix, mask=ix_in, other=0)
//         i_inside = (i >= 0) & (i < 81)
//         tl.store(fault_ptr + tl.zeros([X_BLOCK], tl.int32), 1, mask=ix_in & (i_inside == 0))
//         x_at = tl.load(x_ptr + (81 * iz + i.to(tl.int32)), mask=ix_in & i_inside, other=0.0)
//         tl.store(y_ptr + (36 * iz + ix), x_at, mask=ix_in)
// # launch 64 programs, 1 warps: i_ptr=%i, x_ptr=%x, fault_ptr=fault aligned, y_ptr=%y aligned, X_BLOCK=64
// # fault 1: index out of range of x
//
