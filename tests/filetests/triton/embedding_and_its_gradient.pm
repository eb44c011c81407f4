// An index out of range reads and adds nothing and leaves a fault; bf16 gradients are summed in f32 and rounded once.
// run: verify | route | simplify | triton
// target: cuda-sm90
graph "embedding" inference {
  input %w: bf16[1000, 64] strides=[64, 1]
  input %i: i64[512] strides=[1]
  input %g: bf16[512, 64] strides=[64, 1]
  %e: bf16[512, 64] = aten.embedding.default(%w, %i)
  %dw: bf16[1000, 64] = aten.embedding_dense_backward.default(%g, %i, 1000, -1, false)
  output %e
  output %dw
}
// expect:
// # k0_gather
// #   prim.take
// # x < 32768: blocks of 1024, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_gather(i_ptr, w_ptr, fault_ptr, e_ptr, X_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     ix = tile * X_BLOCK + tl.arange(0, X_BLOCK)
//     i0 = ix // 64
//     i = tl.load(i_ptr + i0)
//     i_inside = (i >= 0) & (i < 1000)
//     i1 = ix % 64
//     tl.store(fault_ptr + tl.zeros([X_BLOCK], tl.int32), 1, mask=(i_inside == 0))
//     w_at = tl.load(w_ptr + (i1 + 64 * i.to(tl.int32)), mask=i_inside, other=0.0).to(tl.float32)
//     tl.store(e_ptr + ix, w_at.to(tl.bfloat16))
// # launch 32 programs, 2 warps: i_ptr=%i, w_ptr=%w, fault_ptr=fault aligned, e_ptr=%e aligned, X_BLOCK=1024
// # fault 1: index out of range of w
//
// # scratch 0: 64000 of f32
// # zero scratch 0
// # scatter1
// #   prim.index_sum
// # x < 32768: blocks of 1024, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def scatter1(i_ptr, g_ptr, fault_ptr, dw_f32_ptr, X_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     ix = tile * X_BLOCK + tl.arange(0, X_BLOCK)
//     i0 = ix // 64
//     i = tl.load(i_ptr + i0)
//     i_inside = (i >= 0) & (i < 1000)
//     g = tl.load(g_ptr + ix).to(tl.float32)
//     tl.store(fault_ptr + tl.zeros([X_BLOCK], tl.int32), 1, mask=(i_inside == 0))
//     i1 = ix % 64
//     tl.atomic_add(dw_f32_ptr + (i1 + 64 * i.to(tl.int32)), g, mask=i_inside, sem="relaxed")
// # launch 32 programs, 2 warps: i_ptr=%i, g_ptr=%g, fault_ptr=fault aligned, dw_f32_ptr=scratch 0 aligned, X_BLOCK=1024
// # fault 1: index out of range of dw_f32
//
// # scatter1_round
// #   rounding of the sums
// # x < 64000: blocks of 1024, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def scatter1_round(dw_f32_ptr, dw_ptr, X_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     ix = tile * X_BLOCK + tl.arange(0, X_BLOCK)
//     ix_in = ix < 64000
//     dw_f32 = tl.load(dw_f32_ptr + ix, mask=ix_in, other=0.0)
//     tl.store(dw_ptr + ix, dw_f32.to(tl.bfloat16), mask=ix_in)
// # launch 63 programs, 2 warps: dw_f32_ptr=scratch 0 aligned, dw_ptr=%dw aligned, X_BLOCK=1024
//
