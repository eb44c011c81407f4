//! Exponentials, hyperbolic functions and powers.

use super::{LN2_HIGH, LN2_LOW, horner, trunc, wide};
use crate::isa::Isa;

/// 1.5·2^23: adding it rounds to an integer n, which then stands in the low bits. With 127 more, those bits are the
/// biased exponent of 2^n, for -127 < n < 128.
const ROUND: f32 = 12_582_912.0;
const ROUND_NORMAL: f32 = ROUND + 127.0;
/// For n of any size a result can have: the bits are those of two exponents.
const ROUND_WIDE: f32 = ROUND + 254.0;

/// 2^n, from the bits of n + ROUND_NORMAL.
#[inline(always)]
fn power_of_two(shifted: u32) -> f32 {
    f32::from_bits(shifted << 23)
}

/// y·2^n in one rounding, for results that may be denormal or overflow, from the bits of n + ROUND_WIDE.
#[inline(always)]
fn scale(y: f32, shifted: u32) -> f32 {
    let half = shifted >> 1;
    y * power_of_two(half) * power_of_two(shifted.wrapping_sub(half))
}

/// x = n·ln 2 + r, |r| <= ln(2)/2: r and the bits of n + `round`.
#[inline(always)]
fn reduce<I: Isa>(x: f32, round: f32) -> (f32, u32) {
    let shifted = I::fma(x, std::f32::consts::LOG2_E, round);
    let n = shifted - round;
    let r = I::fma(n, -LN2_HIGH, x);
    (I::fma(n, -LN2_LOW, r), shifted.to_bits())
}

/// e^r for |r| <= 0.3469: (e^r - 1 - r)/r² with relative error 3.2e-9 of e^r.
#[inline(always)]
fn exp_reduced<I: Isa>(r: f32) -> f32 {
    let q = horner!(I::fma, r; 0.49999994, 0.16666517, 0.041668106, 0.008369126, 0.001383628);
    I::fma(r * r, q, r) + 1.0
}

/// 2^f and the bits of n + `round` of t = n + f: (2^f - 1)/f on [-0.5005, 0.5005], relative error 7.9e-9 of 2^f.
#[inline(always)]
fn exp2_parts<I: Isa>(t: f32, round: f32) -> (f32, u32) {
    let shifted = t + round;
    let f = t - (shifted - round);
    let q = horner!(I::fma, f; 0.69314724, 0.24022655, 0.055502724, 0.009617056, 0.0013419094, 0.00015828684);
    (I::fma(f, q, 1.0), shifted.to_bits())
}

/// 2^t for -126 <= t < 128.
#[inline(always)]
pub(super) fn exp2_normal<I: Isa>(t: f32) -> f32 {
    let (y, n) = exp2_parts::<I>(t, ROUND_NORMAL);
    y * power_of_two(n)
}

#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    // Selects that keep NaN.
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

#[inline(always)]
pub fn exp<I: Isa>(x: f32) -> f32 {
    let (r, n) = reduce::<I>(clamp(x, -104.0, 89.0), ROUND_WIDE);
    scale(exp_reduced::<I>(r), n)
}

#[inline(always)]
pub fn exp2<I: Isa>(x: f32) -> f32 {
    let (y, n) = exp2_parts::<I>(clamp(x, -151.0, 129.0), ROUND_WIDE);
    scale(y, n)
}

/// (e^r - 1 - r)/r² on [-0.3469, 0.3469] with relative error 1.8e-8 of e^r - 1.
#[inline(always)]
pub fn expm1<I: Isa>(x: f32) -> f32 {
    let (r, n) = reduce::<I>(clamp(x, -20.0, 89.0), ROUND_NORMAL - 1.0);
    let q = horner!(I::fma, r; 0.49999997, 0.16666543, 0.0416672, 0.008366582, 0.001388255);
    let p = I::fma(r * r, q, r);
    // Half the result, so that 2^128 is not needed.
    let s = power_of_two(n);
    let half = I::fma(s, p, s - 0.5);
    if x.abs() < 5.9e-8 { x } else { half + half }
}

/// e/(1+e) or 1/(1+e) with e = exp(-|x|), which keeps the denormals of the left tail.
#[inline(always)]
pub fn sigmoid<I: Isa>(x: f32) -> f32 {
    let a = x.abs();
    let (r, n) = reduce::<I>(if a > 104.0 { -104.0 } else { -a }, ROUND_WIDE);
    let e = scale(exp_reduced::<I>(r), n);
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// Below 0.625, (tanh(x)/x - 1)/x² in x² on [0, 0.390625], relative error 4.5e-9 of tanh; above, 1 - 2/(e^2x + 1).
#[inline(always)]
pub fn tanh<I: Isa>(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    let p = horner!(I::fma, z; -0.3333328, 0.13331406, -0.05373652, 0.02062819, -0.00569233);
    let small = I::fma(a * z, p, a);
    let twice = if a > 10.0 { 20.0 } else { a + a };
    let (r, n) = reduce::<I>(twice, ROUND_NORMAL);
    let e = exp_reduced::<I>(r) * power_of_two(n);
    let large = 1.0 - 2.0 / (e + 1.0);
    (if a < 0.625 { small } else { large }).copysign(x)
}

/// Below 0.5, Taylor's series to x⁹; above, from e^|x|; in f64.
#[inline(always)]
pub fn sinh<I: Isa>(x: f32) -> f32 {
    let a = x.abs() as f64;
    let z = a * a;
    let series = horner!(I::fma64, z; 1.0, 1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0, 1.0 / 362880.0) * a;
    let e = wide::exp::<I>(a);
    let large = 0.5 * e - 0.5 / e;
    ((if a < 0.5 { series } else { large }) as f32).copysign(x)
}

#[inline(always)]
pub fn cosh<I: Isa>(x: f32) -> f32 {
    let e = wide::exp::<I>(x.abs() as f64);
    (0.5 * e + 0.5 / e) as f32
}

/// 2^(b·log2|a|) in f64, with C's special values.
#[inline(always)]
pub fn pow<I: Isa>(a: f32, b: f32) -> f32 {
    let magnitude = a.abs();
    let power = wide::exp2::<I>(b as f64 * wide::log2::<I>(magnitude as f64)) as f32;
    let half = 0.5 * b;
    let integer = trunc::<I>(b) == b;
    let odd = integer & (trunc::<I>(half) != half);
    let negated = if odd & a.is_sign_negative() { -power } else { power };
    let undefined = (a < 0.0) & (a != f32::NEG_INFINITY) & !integer;
    let result = if undefined & !b.is_nan() { f32::NAN } else { negated };
    let one = (b == 0.0) | (a == 1.0) | ((magnitude == 1.0) & (b.abs() == f32::INFINITY));
    if one { 1.0 } else { result }
}
