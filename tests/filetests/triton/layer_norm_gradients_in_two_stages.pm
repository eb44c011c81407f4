// The rows are divided among programs; each leaves its part of the gradients of weight and bias in a slot of its own, and a
// second launch adds the slots in their order.
// run: verify | route | simplify | triton
// target: cuda-sm90
graph "layer_norm_backward" backward {
  input %dy: f32[16384, 768] strides=[768, 1] role=tangent
  input %x: f32[16384, 768] strides=[768, 1]
  input %mean: f32[16384, 1] strides=[1, 1]
  input %rstd: f32[16384, 1] strides=[1, 1]
  input %w: f32[768] strides=[1]
  input %b: f32[768] strides=[1]
  %dx: f32[16384, 768], %dw: f32[768], %db: f32[768] = aten.native_layer_norm_backward.default(%dy, %x, [768], %mean, %rstd, %w, %b, [true, true, true])
  output %dx
  output %dw
  output %db
}
// expect:
// # scratch 0: 393216 of f32
// # scratch 1: 393216 of f32
// # k0_sub_mul_sum_div
// #   prim.sub (3 times)
// #   prim.mul (6 times)
// #   prim.sum (4 times)
// #   prim.div (2 times)
// # x < 16384: blocks of 2, in a loop over one of 512 runs of 32
// # r < 768: whole, as a block of 1024
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_sub_mul_sum_div(rstd_ptr, dy_ptr, w_ptr, x_ptr, mean_ptr, dx_ptr, sum_20_slots_ptr, sum_22_slots_ptr, X_BLOCK: tl.constexpr, R_BLOCK: tl.constexpr):
//     ir = tl.arange(0, R_BLOCK)[None, :]
//     ir_in = ir < 768
//     tile = tl.program_id(0)
//     sum_20 = tl.full([X_BLOCK, R_BLOCK], 0.0, tl.float32)
//     sum_22 = tl.full([X_BLOCK, R_BLOCK], 0.0, tl.float32)
//     x_first = tile * 32
//     w = tl.load(w_ptr + ir, mask=ir_in, other=0.0)
//     constant = tl.full([1, 1], 768.0, tl.float32)
//     for x_start in range(x_first, tl.minimum(x_first + 32, 16384), X_BLOCK):
//         ix = x_start + tl.arange(0, X_BLOCK)[:, None]
//         rstd = tl.load(rstd_ptr + ix)
//         dy = tl.load(dy_ptr + (768 * ix + ir), mask=ir_in, other=0.0)
//         mul_7 = dy * w
//         sum_8 = tl.sum(tl.where(ir_in, mul_7, 0.0), 1, keep_dims=True)
//         div_10 = tl.div_rn(sum_8, constant)
//         sub_11 = mul_7 - div_10
//         x = tl.load(x_ptr + (768 * ix + ir), mask=ir_in, other=0.0)
//         mean = tl.load(mean_ptr + ix)
//         sub_2 = x - mean
//         mul_4 = sub_2 * rstd
//         mul_12 = mul_7 * mul_4
//         sum_13 = tl.sum(tl.where(ir_in, mul_12, 0.0), 1, keep_dims=True)
//         div_14 = tl.div_rn(sum_13, constant)
//         mul_15 = mul_4 * div_14
//         sub_16 = sub_11 - mul_15
//         mul_17 = rstd * sub_16
//         tl.store(dx_ptr + (768 * ix + ir), mul_17, mask=ir_in)
//         mul_19 = dy * mul_4
//         sum_20 = sum_20 + mul_19
//         sum_22 = sum_22 + dy
//     sum_20_2 = tl.sum(sum_20, 0, keep_dims=True)
//     tl.store(sum_20_slots_ptr + (ir + tile * 768), sum_20_2, mask=ir_in)
//     sum_22_2 = tl.sum(sum_22, 0, keep_dims=True)
//     tl.store(sum_22_slots_ptr + (ir + tile * 768), sum_22_2, mask=ir_in)
// # launch 512 programs, 2 warps: rstd_ptr=%rstd, dy_ptr=%dy, w_ptr=%w, x_ptr=%x, mean_ptr=%mean, dx_ptr=%dx aligned, sum_20_slots_ptr=scratch 0 aligned, sum_22_slots_ptr=scratch 1 aligned, X_BLOCK=2, R_BLOCK=1024
//
// # k0_sub_mul_sum_div_total
// #   sum of the parts of the programs before
// # r < 512: blocks of 128, in a loop
// # x < 768: blocks of 16, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_sub_mul_sum_div_total(sum_20_slots_ptr, sum_22_slots_ptr, dw_ptr, db_ptr, R_BLOCK: tl.constexpr, X_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     ix = tile * X_BLOCK + tl.arange(0, X_BLOCK)[None, :]
//     sum_1 = tl.full([R_BLOCK, X_BLOCK], 0.0, tl.float32)
//     sum_4 = tl.full([R_BLOCK, X_BLOCK], 0.0, tl.float32)
//     for r_start in range(0, 512, R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[:, None]
//         sum_20_slots = tl.load(sum_20_slots_ptr + (768 * ir + ix))
//         sum_1 = sum_1 + sum_20_slots
//         sum_22_slots = tl.load(sum_22_slots_ptr + (768 * ir + ix))
//         sum_4 = sum_4 + sum_22_slots
//     sum_1_2 = tl.sum(sum_1, 0, keep_dims=True)
//     tl.store(dw_ptr + ix, sum_1_2)
//     sum_4_2 = tl.sum(sum_4, 0, keep_dims=True)
//     tl.store(db_ptr + ix, sum_4_2)
// # launch 48 programs, 8 warps: sum_20_slots_ptr=scratch 0 aligned, sum_22_slots_ptr=scratch 1 aligned, dw_ptr=%dw aligned, db_ptr=%db aligned, R_BLOCK=128, X_BLOCK=16
//
