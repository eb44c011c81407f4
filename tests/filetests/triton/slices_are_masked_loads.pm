// Padding is a mask on the load, not a copy.
// run: verify | triton
// target: cuda-sm90
graph "pad" inference {
  input %x: f32[4, 8] strides=[8, 1]
  input %z: f32[5, 11] strides=[11, 1]
  %p: f32[5, 11] = prim.pad(%x, low=[0, 2], high=[1, 1])
  %y: f32[5, 11] = prim.mul(%p, %z)
  output %y
}
// expect:
// # k0_mul
// #   prim.mul
// # x < 55: blocks of 64, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_mul(x_ptr, z_ptr, y_ptr, X_BLOCK: tl.constexpr):
//     ix = tl.arange(0, X_BLOCK)
//     ix_in = ix < 55
//     i1 = ix % 11
//     i0 = ix // 11
//     i0_inside = i0 < 4
//     i1_inside = (i1 >= 2) & (i1 < 10)
//     x = tl.load(x_ptr + (-2 + 8 * i0 + i1), mask=i0_inside & i1_inside & ix_in, other=0.0)
//     z = tl.load(z_ptr + ix, mask=ix_in, other=0.0)
//     mul_2 = x * z
//     tl.store(y_ptr + ix, mul_2, mask=ix_in)
// # launch 1 programs, 1 warps: x_ptr=%x, z_ptr=%z, y_ptr=%y aligned, X_BLOCK=64
//
