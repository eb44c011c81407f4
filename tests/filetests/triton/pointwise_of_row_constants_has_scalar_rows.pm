// An operand with one value a row is a scalar of the program: loaded once a block, and no index is divided.
// run: verify | route | simplify | triton
// target: cuda-sm90
graph "scaled" inference {
  input %x: f32[64, 32000] strides=[32000, 1]
  input %m: f32[64, 1] strides=[1, 1]
  %d: f32[64, 32000] = aten.sub.Tensor(%x, %m)
  %y: f32[64, 32000] = aten.sin.default(%d)
  output %y
}
// expect:
// # k0_sub_sin
// #   prim.sub
// #   prim.sin
// # z < 64: one a program
// # x < 32000: blocks of 1024, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_sub_sin(x_ptr, m_ptr, y_ptr, X_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     x_tile = tile % 32
//     tiles = tile // 32
//     iz = tiles
//     ix = x_tile * X_BLOCK + tl.arange(0, X_BLOCK)
//     ix_in = ix < 32000
//     x = tl.load(x_ptr + (32000 * iz + ix), mask=ix_in, other=0.0)
//     m = tl.load(m_ptr + iz)
//     sub_2 = x - m
//     sin_3 = tl.sin(sub_2)
//     tl.store(y_ptr + (32000 * iz + ix), sin_3, mask=ix_in)
// # launch 2048 programs, 2 warps: x_ptr=%x, m_ptr=%m, y_ptr=%y aligned, X_BLOCK=1024
//
