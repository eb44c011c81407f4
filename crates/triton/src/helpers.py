"""Functions that generated kernels call, each copied into the kernel's module when it is used.

Only `tl.*` is called: the functions of `libdevice` return None in Triton's interpreter. f32 functions are within a few
ulp; what ends in `_f64` is for doubles.
"""

import triton
import triton.language as tl


@triton.jit
def greater_or_nan(a, b):
    """Elementwise maximum; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def less_or_nan(a, b):
    """Elementwise minimum; NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def reduce_max_or_nan(x, axis: tl.constexpr):
    """Maximum over an axis, which stays with one element; NaN if there is one."""
    nan = tl.max((x != x).to(tl.int32), axis, keep_dims=True) != 0
    return tl.where(nan, float("nan"), tl.max(x, axis, keep_dims=True))


@triton.jit
def reduce_min_or_nan(x, axis: tl.constexpr):
    """Minimum over an axis, which stays with one element; NaN if there is one."""
    nan = tl.max((x != x).to(tl.int32), axis, keep_dims=True) != 0
    return tl.where(nan, float("nan"), tl.min(x, axis, keep_dims=True))


@triton.jit
def exp(x):
    """2^n * e^(x - n ln 2): the hardware's exponential, of which there are few units, sees a small argument only, where it
    is accurate. Adding 1.5 * 2^23 rounds to n, which then stands in the low bits; with 254 more, that is the sum of two
    biased exponents, whose powers of two the result is multiplied by."""
    x = tl.where(x > 89.0, 89.0, tl.where(x < -104.0, -104.0, x))
    shifted = x * 1.4426950408889634 + 12583166.0
    n = shifted - 12583166.0
    rest = (x - n * 0.693145751953125) - n * 1.42860682030941723212e-6
    bits = shifted.to(tl.int32, bitcast=True)
    half = bits >> 1
    low = (half << 23).to(tl.float32, bitcast=True)
    high = ((bits - half) << 23).to(tl.float32, bitcast=True)
    return tl.exp2(rest * 1.4426950408889634) * low * high


@triton.jit
def add_exponential(m, s, x):
    """Maximum m and s = sum of e^(x - m) of some x, with one x more. One of the two exponents is 0. Below the least number
    no exponent is measured, so that m may be -inf. A power of two too small for a normal number is 0, beside a 1 in s."""
    base = greater_or_nan(m, -3.4028234663852886e38)
    e = tl.exp2(-1.4426950408889634 * tl.abs(x - base))
    return greater_or_nan(m, x), tl.where(x > base, s * e + 1.0, s + e)


@triton.jit
def scaled_exponentials(m, s, top):
    """The sums of `add_exponential` as sums of e^(x - top)."""
    return s * exp(greater_or_nan(m, -3.4028234663852886e38) - top)


@triton.jit
def expm1(x):
    """Taylor's series about 0, e^x - 1 elsewhere."""
    series = 1.0 + x * (1.0 / 9.0)
    series = 1.0 + x * (1.0 / 8.0) * series
    series = 1.0 + x * (1.0 / 7.0) * series
    series = 1.0 + x * (1.0 / 6.0) * series
    series = 1.0 + x * (1.0 / 5.0) * series
    series = 1.0 + x * (1.0 / 4.0) * series
    series = 1.0 + x * (1.0 / 3.0) * series
    series = x * (1.0 + x * (1.0 / 2.0) * series)
    return tl.where(tl.abs(x) < 0.5, series, exp(x) - 1.0)


@triton.jit
def expm1_f64(x):
    """(u - 1) x / log u with u = e^x rounded: the errors of u - 1 and log u cancel."""
    u = tl.exp(x)
    plain = (u == 1.0) | (u - 1.0 == -1.0) | (u == float("inf"))
    inner = (u - 1.0) * x / tl.log(tl.where(plain, 2.0, u))
    return tl.where(u == 1.0, x, tl.where(plain, u - 1.0, inner))


@triton.jit
def log1p(x):
    """log(u) x / (u - 1) with u = 1 + x rounded: the error of u cancels."""
    u = 1.0 + x
    plain = (u == 1.0) | (u == float("inf"))
    inner = tl.log(u) * x / tl.where(plain, 1.0, u - 1.0)
    return tl.where(plain, x, inner)


@triton.jit
def sigmoid(x):
    """Of e^-|x|, which cannot overflow."""
    e = exp(-tl.abs(x))
    return tl.where(x < 0.0, e, tl.where(x == x, 1.0, x)) / (1.0 + e)


@triton.jit
def sigmoid_f64(x):
    """Of e^-|x|, which cannot overflow."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0.0, e, tl.where(x == x, 1.0, x)) / (1.0 + e)


@triton.jit
def tanh(x):
    """x + x^3 p(x^2) near 0, with p fitted for the least relative error below 0.6; 1 - 2 / (e^(2|x|) + 1) elsewhere."""
    a = tl.abs(x)
    square = x * x
    p = -0.005895158275961876 * square + 0.020795971155166626
    p = p * square - 0.053783830255270004
    p = p * square + 0.13331924378871918
    p = p * square - 0.33333298563957214
    far = 1.0 - 2.0 / (tl.exp2(a * 2.885390081777927) + 1.0)
    return tl.where(a < 0.6, x + x * (square * p), tl.where(x < 0.0, -far, far))


@triton.jit
def tanh_f64(x):
    """t / (t + 2) with t = e^(2|x|) - 1."""
    a = tl.abs(x)
    t = expm1_f64(2.0 * tl.where(a > 25.0, 25.0, a))
    y = t / (t + 2.0)
    return tl.where(x < 0.0, -y, y)


@triton.jit
def sinh(x):
    """(t + t / (t + 1)) / 2 with t = e^|x| - 1; halved early near overflow."""
    a = tl.abs(x)
    t = expm1(tl.where(a > 80.0, 0.0, a))
    half = exp(a * 0.5)
    y = tl.where(a > 80.0, (0.5 * half) * half, 0.5 * (t + t / (t + 1.0)))
    return tl.where(x < 0.0, -y, y)


@triton.jit
def cosh(x):
    """(e + 1/e) / 2; halved early near overflow."""
    half = exp(tl.abs(x) * 0.5)
    return (0.5 * half) * half + 0.5 / (half * half)


@triton.jit
def asinh(x):
    """log1p(a + a² / (1 + sqrt(a² + 1))); log(2a) where a² is all there is."""
    a = tl.abs(x)
    small = tl.where(a > 1e9, 0.0, a)
    square = small * small
    y = tl.where(a > 1e9, tl.log(a) + 0.6931471805599453, log1p(small + square / (1.0 + tl.sqrt(square + 1.0))))
    return tl.where(x < 0.0, -y, y)


@triton.jit
def acosh(x):
    """log1p(t + sqrt(t (t + 2))) with t = x - 1; log(2x) where x² is all there is."""
    t = tl.where(x > 1e9, 0.0, x - 1.0)
    y = tl.where(x > 1e9, tl.log(x) + 0.6931471805599453, log1p(t + tl.sqrt(t * (t + 2.0))))
    return tl.where(x < 1.0, float("nan"), y)


@triton.jit
def atanh(x):
    """log1p(2a / (1 - a)) / 2."""
    a = tl.abs(x)
    y = 0.5 * log1p(2.0 * a / (1.0 - a))
    return tl.where(x < 0.0, -y, y)


@triton.jit
def round_half_even(x):
    """The nearest integer, of two the even one."""
    low = tl.floor(x)
    part = x - low
    odd = low - 2.0 * tl.floor(0.5 * low)
    up = (part > 0.5) | ((part == 0.5) & (odd == 1.0))
    return tl.where(up, low + 1.0, low)


@triton.jit
def truncate(x):
    """Towards zero."""
    return tl.where(x < 0.0, tl.ceil(x), tl.floor(x))


@triton.jit
def sign(x):
    """-1, 0 or 1; NaN for NaN."""
    return tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, tl.where(x == x, 0.0, x)))


@triton.jit
def int_sign(x):
    """-1, 0 or 1."""
    return tl.where(x > 0, 1, tl.where(x < 0, -1, 0))


@triton.jit
def power(x, y):
    """2^(y log2 |x|) in doubles, then the sign and the cases in which that is no number."""
    y = y.to(tl.float64)
    a = tl.abs(x).to(tl.float64)
    magnitude = tl.where((a == 1.0) | (y == 0.0), 1.0, tl.exp2(y * tl.log2(a))).to(tl.float32)
    whole = tl.floor(y) == y
    odd = whole & (2.0 * tl.floor(0.5 * y) != y)
    negative = (x < 0.0) | ((x == 0.0) & (1.0 / x < 0.0))
    signed = tl.where(negative & odd, -magnitude, magnitude)
    defined = (x >= 0.0) | whole | (a == float("inf")) | (x != x)
    result = tl.where(defined, signed, float("nan"))
    return tl.where((y == 0.0) | (x == 1.0), 1.0, result).to(tl.float32)


@triton.jit
def hypot(x, y):
    """In doubles, so that squares cannot overflow; infinity wins over NaN."""
    a = x.to(tl.float64)
    b = y.to(tl.float64)
    length = tl.sqrt(a * a + b * b).to(tl.float32)
    inf = float("inf")
    return tl.where((tl.abs(x) == inf) | (tl.abs(y) == inf), inf, length)


@triton.jit
def float_remainder(x, y):
    """x - trunc(x / y) y without error: 27 bits of the quotient at a time, in doubles that hold every product exactly."""
    rest = tl.abs(x).to(tl.float64)
    divisor = tl.abs(y).to(tl.float64)
    step = divisor * 1.8971375900641885e81
    for _ in tl.static_range(11):
        rest = rest - tl.floor(rest / step) * step
        rest = tl.where(rest < 0.0, rest + step, rest)
        rest = tl.where(rest >= step, rest - step, rest)
        step = step * 7.450580596923828125e-9
    rest = tl.where((divisor == float("inf")) & (tl.abs(x) < float("inf")), tl.abs(x), rest.to(tl.float32))
    return tl.where(x < 0.0, -rest, rest)


@triton.jit
def float_modulo(x, y):
    """As `float_remainder`, with the divisor's sign."""
    rest = float_remainder(x, y)
    return tl.where((rest != 0.0) & ((rest < 0.0) != (y < 0.0)), rest + y, rest)


@triton.jit
def floor_div(a, b):
    """Of integers, rounded down; 0 for a zero divisor."""
    safe = tl.where(b == 0, 1, b)
    quotient = a // safe
    rest = a - quotient * safe
    down = (rest != 0) & ((rest < 0) != (safe < 0))
    return tl.where(b == 0, 0, tl.where(down, quotient - 1, quotient))


@triton.jit
def trunc_div(a, b):
    """Of integers, rounded towards zero; 0 for a zero divisor."""
    return tl.where(b == 0, 0, a // tl.where(b == 0, 1, b))


@triton.jit
def modulo(a, b):
    """Remainder of integers with the divisor's sign; 0 for a zero divisor."""
    safe = tl.where(b == 0, 1, b)
    rest = a - (a // safe) * safe
    other_sign = (rest != 0) & ((rest < 0) != (safe < 0))
    return tl.where(b == 0, 0, tl.where(other_sign, rest + safe, rest))


@triton.jit
def remainder(a, b):
    """Remainder of integers with the dividend's sign; 0 for a zero divisor."""
    safe = tl.where(b == 0, 1, b)
    return tl.where(b == 0, 0, a - (a // safe) * safe)


@triton.jit
def shift_left(a, b, BITS: tl.constexpr):
    """A count outside of the width shifts everything out."""
    inside = (b >= 0) & (b < BITS)
    return tl.where(inside, a << tl.where(inside, b, 0), 0)


@triton.jit
def shift_right(a, b, BITS: tl.constexpr):
    """Arithmetic; a count outside of the width leaves the sign."""
    inside = (b >= 0) & (b < BITS)
    return a >> tl.where(inside, b, BITS - 1)


@triton.jit
def copy_sign(a, b):
    """|a| with the sign of b, that of zero included."""
    negative = (b < 0.0) | ((b == 0.0) & (1.0 / b < 0.0))
    return tl.where(negative, -tl.abs(a), tl.abs(a))
