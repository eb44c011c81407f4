// A column that is repeated and padded: a load that repeated it along the tile would have a stride of 0, which
// triton-ascend fails on.
// run: verify | route | simplify | triton
// target: ascend-a2
graph "pad" inference {
  input %x: f32[40] strides=[1]
  input %y: f32[40, 64] strides=[64, 1]
  %c: f32[40, 1] = aten.unsqueeze.default(%x, 1)
  %p: f32[40, 64] = aten.constant_pad_nd.default(%c, [63, 0], 0.0)
  %z: f32[40, 64] = aten.add.Tensor(%y, %p)
  output %z
}
// expect:
// # k0_add
// #   prim.add
// # y < 40: blocks of 32, one a program
// # x < 64: blocks of 64, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_add(y_ptr, x_ptr, z_ptr, Y_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     for tile in range(tl.program_id(0), 2, tl.num_programs(0)):
//         iy = tile * Y_BLOCK + tl.arange(0, Y_BLOCK)[:, None]
//         iy_in = iy < 40
//         ix = tl.arange(0, X_BLOCK)[None, :]
//         y = tl.load(y_ptr + (64 * iy + ix), mask=iy_in, other=0.0)
//         ix_inside = ix >= 63
//         x = tl.where(ix_inside, tl.load(x_ptr + iy, mask=iy_in, other=0.0), 0.0)
//         add_2 = y + x
//         tl.store(z_ptr + (64 * iy + ix), add_2, mask=iy_in)
// # launch 2 programs, 1 warps: y_ptr=%y, x_ptr=%x, z_ptr=%z aligned, Y_BLOCK=32, X_BLOCK=64
//
