// A row of a vocabulary does not fit into a program: maximum and sum are one loop over it, the result another.
// run: verify | route | simplify | triton
// target: cuda-sm90
graph "softmax" inference {
  input %x: f32[4096, 50257] strides=[50257, 1]
  %y: f32[4096, 50257] = aten._softmax.default(%x, 1, false)
  output %y
}
// expect:
// # k0_amax_sub_exp_sum_div
// #   prim.amax
// #   prim.sub
// #   prim.exp
// #   prim.sum
// #   prim.div
// # x < 4096: blocks of 1, one a program
// # r < 50257: blocks of 2048, in a loop
// import triton
// import triton.language as tl
//
//
// @triton.jit
// def add_exponential(m, s, x):
//     """Maximum m and s = sum of e^(x - m) of some x, with one x more. One of the two exponents is 0. Below the least number
//     no exponent is measured, so that m may be -inf. A power of two too small for a normal number is 0, beside a 1 in s."""
//     base = greater_or_nan(m, -3.4028234663852886e38)
//     e = tl.exp2(-1.4426950408889634 * tl.abs(x - base))
//     return greater_or_nan(m, x), tl.where(x > base, s * e + 1.0, s + e)
//
//
// @triton.jit
// def exp(x):
//     """2^n * e^(x - n ln 2): the hardware's exponential, of which there are few units, sees a small argument only, where it
//     is accurate. Adding 1.5 * 2^23 rounds to n, which then stands in the low bits; with 254 more, that is the sum of two
//     biased exponents, whose powers of two the result is multiplied by."""
//     x = tl.where(x > 89.0, 89.0, tl.where(x < -104.0, -104.0, x))
//     shifted = x * 1.4426950408889634 + 12583166.0
//     n = shifted - 12583166.0
//     rest = (x - n * 0.693145751953125) - n * 1.42860682030941723212e-6
//     bits = shifted.to(tl.int32, bitcast=True)
//     half = bits >> 1
//     low = (half << 23).to(tl.float32, bitcast=True)
//     high = ((bits - half) << 23).to(tl.float32, bitcast=True)
//     return tl.exp2(rest * 1.4426950408889634) * low * high
//
//
// @triton.jit
// def greater_or_nan(a, b):
//     """Elementwise maximum; NaN if either is."""
//     return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
//
//
// @triton.jit
// def reduce_max_or_nan(x, axis: tl.constexpr):
//     """Maximum over an axis, which stays with one element; NaN if there is one."""
//     nan = tl.max((x != x).to(tl.int32), axis, keep_dims=True) != 0
//     return tl.where(nan, float("nan"), tl.max(x, axis, keep_dims=True))
//
//
// @triton.jit
// def scaled_exponentials(m, s, top):
//     """The sums of `add_exponential` as sums of e^(x - top)."""
//     return s * exp(greater_or_nan(m, -3.4028234663852886e38) - top)
//
//
// @triton.jit
// def k0_amax_sub_exp_sum_div(x_ptr, y_ptr, X_BLOCK: tl.constexpr, R_BLOCK: tl.constexpr):
//     tile = tl.program_id(0)
//     ix = tile * X_BLOCK + tl.arange(0, X_BLOCK)[:, None]
//     amax_1_parts = tl.full([X_BLOCK, R_BLOCK], float("-inf"), tl.float32)
//     sum_4_parts = tl.full([X_BLOCK, R_BLOCK], 0.0, tl.float32)
//     for r_start in range(0, 50257, R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[None, :]
//         ir_in = ir < 50257
//         x = tl.load(x_ptr + (50257 * ix + ir), mask=ir_in, other=0.0)
//         amax_1_parts, sum_4_parts = add_exponential(amax_1_parts, sum_4_parts, tl.where(ir_in, x, float("-inf")))
//     amax_1 = reduce_max_or_nan(amax_1_parts, 1)
//     sum_4 = tl.sum(scaled_exponentials(amax_1_parts, sum_4_parts, amax_1), 1, keep_dims=True)
//     for r_start in range(0, 50257, R_BLOCK):
//         ir = r_start + tl.arange(0, R_BLOCK)[None, :]
//         ir_in = ir < 50257
//         x_2 = tl.load(x_ptr + (50257 * ix + ir), mask=ir_in, other=0.0)
//         sub_2 = x_2 - amax_1
//         exp_3 = exp(sub_2)
//         div_5 = tl.div_rn(exp_3, sum_4)
//         tl.store(y_ptr + (50257 * ix + ir), div_5, mask=ir_in)
// # launch 4096 programs, 8 warps: x_ptr=%x, y_ptr=%y aligned, X_BLOCK=1, R_BLOCK=2048
//
