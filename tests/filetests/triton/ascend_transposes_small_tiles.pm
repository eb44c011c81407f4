// The transposed tile of 2048 elements did not fit into the unified buffer of A2.
// run: verify | route | simplify | triton
// target: ascend-a2
graph "transposed" inference {
  input %x: bf16[128, 256] strides=[256, 1]
  input %y: bf16[256, 128] strides=[128, 1]
  %t: bf16[256, 128] = aten.t.default(%x)
  %z: bf16[256, 128] strides=[128, 1] = aten.add.Tensor(%t, %y)
  output %z
}
// expect:
// # k0_add
// #   prim.add
// # y < 256: blocks of 32, one a program
// # x < 128: blocks of 32, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_add(x_ptr, y_ptr, z_ptr, Y_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     for tile in range(tl.program_id(0), 32, tl.num_programs(0)):
//         x_tile = tile % 4
//         tiles = tile // 4
//         iy = tiles * Y_BLOCK + tl.arange(0, Y_BLOCK)[:, None]
//         ix = x_tile * X_BLOCK + tl.arange(0, X_BLOCK)[None, :]
//         x = tl.load(x_ptr + (iy + 256 * ix)).to(tl.float32)
//         y = tl.load(y_ptr + (128 * iy + ix)).to(tl.float32)
//         add_2 = x + y
//         tl.store(z_ptr + (128 * iy + ix), add_2.to(tl.bfloat16))
// # launch 32 programs, 1 warps: x_ptr=%x, y_ptr=%y, z_ptr=%z aligned, Y_BLOCK=32, X_BLOCK=32
//
