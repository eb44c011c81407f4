// Both operands are read along their own contiguous axis.
// run: verify | triton
// target: cuda-sm90
graph "transposed" inference {
  input %x: f32[512, 1024] strides=[1024, 1]
  input %z: f32[1024, 512] strides=[512, 1]
  %t: f32[1024, 512] = prim.permute(%x, perm=[1, 0])
  %y: f32[1024, 512] = prim.add(%t, %z)
  output %y
}
// expect:
// # k0_add
// #   prim.add
// # y < 1024: blocks of 32, one a program
// # x < 512: blocks of 32, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_add(x_ptr, z_ptr, y_ptr, Y_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     x_tile = tile % 16
//     tiles = tile // 16
//     iy = tiles * Y_BLOCK + tl.arange(0, Y_BLOCK)[:, None]
//     ix = x_tile * X_BLOCK + tl.arange(0, X_BLOCK)[None, :]
//     x = tl.load(x_ptr + (iy + 1024 * ix))
//     z = tl.load(z_ptr + (512 * iy + ix))
//     add_2 = x + z
//     tl.store(y_ptr + (512 * iy + ix), add_2)
// # launch 512 programs, 2 warps: x_ptr=%x, z_ptr=%z, y_ptr=%y aligned, Y_BLOCK=32, X_BLOCK=32
//
