// One pass over the data; the header says which operators went in and where they stand in the user's model.
// run: verify | route | simplify | triton
// target: cuda-sm90
graph "bias_gelu" inference {
  input %x: bf16[4096, 768] strides=[768, 1]
  input %bias: bf16[768] strides=[1]
  %h: bf16[4096, 768] = aten.add.Tensor(%x, %bias) loc="model.py:12 forward"
  %y: bf16[4096, 768] = aten.gelu.default(%h, approximate="none") loc="model.py:13 forward"
  output %y
}
// expect:
// # k0_add_mul_erf
// #   prim.add  # model.py:12 forward
// #   prim.cast (2 times)  # model.py:13 forward
// #   prim.mul (3 times)  # model.py:13 forward
// #   prim.erf  # model.py:13 forward
// #   prim.add  # model.py:13 forward
// # x < 3145728: blocks of 1024, one a program
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def k0_add_mul_erf(x_ptr, bias_ptr, y_ptr, X_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     ix = tile * X_BLOCK + tl.arange(0, X_BLOCK)
//     x = tl.load(x_ptr + ix).to(tl.float32)
//     i1 = ix % 768
//     bias = tl.load(bias_ptr + i1).to(tl.float32)
//     add_2 = x + bias
//     mul_8 = add_2 * 0.5
//     mul_5 = add_2 * 0.7071067811865476
//     erf_6 = tl.erf(mul_5)
//     add_10 = erf_6 + 1.0
//     mul_11 = mul_8 * add_10
//     cast_12 = mul_11.to(tl.bfloat16).to(tl.float32)
//     tl.store(y_ptr + ix, cast_12.to(tl.bfloat16))
// # launch 3072 programs, 2 warps: x_ptr=%x, bias_ptr=%bias, y_ptr=%y aligned, X_BLOCK=1024
//
