//! Logarithms and inverse hyperbolic functions.

use super::{LN2_HIGH, LN2_LOW, horner, wide};
use crate::isa::Isa;

/// The bits of 2^k for normal x = 2^k·m, m in [2/3, 4/3), less those of 1.
#[inline(always)]
fn exponent(x: f32) -> u32 {
    const TWO_THIRDS: u32 = 0x3f2a_aaab;
    x.to_bits().wrapping_sub(TWO_THIRDS) & 0xff80_0000
}

/// ln(1 + f) + k·ln 2 for f in [-1/3, 1/3]: (ln(1+f) - f + f²/2)/f³ with relative error 2.1e-8 of ln(1+f).
#[inline(always)]
fn log_parts<I: Isa>(f: f32, k: f32) -> f32 {
    let p = horner!(I::fma, f;
        0.3333334, -0.2499989, 0.20002337, -0.16674866, 0.14131065, -0.12277254, 0.13427435, -0.12436207);
    let z = f * f;
    let y = I::fma(z * f, p, k * LN2_LOW);
    let y = I::fma(z, -0.5, y) + f;
    I::fma(k, LN2_HIGH, y)
}

/// The special values of a logarithm of `x`: 0 gives -inf, a negative NaN, inf and NaN themselves.
#[inline(always)]
fn special(x: f32, value: f32) -> f32 {
    let value = if x < f32::INFINITY { value } else { x };
    let at_zero = if x == 0.0 { f32::NEG_INFINITY } else { f32::NAN };
    if x <= 0.0 { at_zero } else { value }
}

/// 2^-23: turns an exponent's bits into its value.
const EXPONENT_UNIT: f32 = 1.192_092_9e-7;

#[inline(always)]
pub fn log<I: Isa>(x: f32) -> f32 {
    let denormal = x < f32::MIN_POSITIVE;
    let normal = if denormal { x * 8_388_608.0 } else { x };
    let e = exponent(normal);
    let m = f32::from_bits(normal.to_bits().wrapping_sub(e));
    let k = I::fma(e as i32 as f32, EXPONENT_UNIT, if denormal { -23.0 } else { 0.0 });
    special(x, log_parts::<I>(m - 1.0, k))
}

/// ln of u = 1 + x rounded, with the rounding's error added where the mantissa is.
#[inline(always)]
pub fn log1p<I: Isa>(x: f32) -> f32 {
    let u = 1.0 + x;
    let one = u - x;
    let lost = (x - (u - one)) + (1.0 - one);
    let e = exponent(u);
    let m = f32::from_bits(u.to_bits().wrapping_sub(e));
    let scaled = lost * f32::from_bits(0x3f80_0000u32.wrapping_sub(e));
    let f = (m - 1.0) + if x < 1e10 { scaled } else { 0.0 };
    let y = special(u, log_parts::<I>(f, e as i32 as f32 * EXPONENT_UNIT));
    // Keeps -0.
    if x.abs() < 1e-8 { x } else { y }
}

#[inline(always)]
pub fn log2<I: Isa>(x: f32) -> f32 {
    wide::log2::<I>(x as f64) as f32
}

#[inline(always)]
pub fn log10<I: Isa>(x: f32) -> f32 {
    (wide::log2::<I>(x as f64) * std::f64::consts::LOG10_2) as f32
}

/// Below this the series' second term suffices for the inverse hyperbolic functions; above, their logarithm's argument
/// leaves 2^-41 of relative error.
const SMALL: f64 = 1.0 / 4096.0;

/// ln(|x| + √(x²+1)) in f64.
#[inline(always)]
pub fn asinh<I: Isa>(x: f32) -> f32 {
    let a = x.abs() as f64;
    let z = a * a;
    let large = wide::log::<I>(a + (z + 1.0).sqrt());
    let small = I::fma64(a * z, -1.0 / 6.0, a);
    ((if a < SMALL { small } else { large }) as f32).copysign(x)
}

/// ln(x + √(x²-1)) in f64.
#[inline(always)]
pub fn acosh<I: Isa>(x: f32) -> f32 {
    let x = x as f64;
    let y = wide::log::<I>(x + ((x - 1.0) * (x + 1.0)).sqrt()) as f32;
    if x < 1.0 { f32::NAN } else { y }
}

/// ½·ln((1+|x|)/(1-|x|)) in f64.
#[inline(always)]
pub fn atanh<I: Isa>(x: f32) -> f32 {
    let a = x.abs() as f64;
    let large = 0.5 * wide::log::<I>((1.0 + a) / (1.0 - a));
    let small = I::fma64(a * a * a, 1.0 / 3.0, a);
    ((if a < SMALL { small } else { large }) as f32).copysign(x)
}
