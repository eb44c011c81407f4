//! Trigonometric functions and their inverses.

use std::f64::consts::{FRAC_PI_2, PI};

use super::{horner, wide};
use crate::isa::Isa;

/// For each biased exponent e, 2^(e-150)·2/π mod 4 in two parts: a multiple of 2^-27, exact when multiplied by an f32's
/// 24-bit mantissa, and the remainder.
struct TwoOverPi {
    high: [f64; 256],
    low: [f64; 256],
}

static TWO_OVER_PI: TwoOverPi = two_over_pi();

const fn two_over_pi() -> TwoOverPi {
    /// Floor(2/π · 2^384).
    const BITS: [u128; 3] =
        [0xa2f9836e4e441529fc2757d1f534ddc0, 0xdb6295993c439041fe5163abdebbc561, 0xb7246e3a424dd2e006492eea09d1921c];
    let mut table = TwoOverPi { high: [0.0; 256], low: [0.0; 256] };
    let mut e = 0;
    while e < 256 {
        // 128 bits of 2/π, the first of them of weight 2 once scaled.
        let start = e as i32 - 152;
        let window = if start <= -128 {
            0
        } else if start < 0 {
            BITS[0] >> -start
        } else {
            let (word, shift) = (start as usize / 128, start % 128);
            let next = if shift == 0 { 0 } else { BITS[word + 1] >> (128 - shift) };
            (BITS[word] << shift) | next
        };
        let high = ((window >> 98) + 1) >> 1;
        let low = window.wrapping_sub(high << 99) as i128;
        table.high[e] = high as f64 / (1u64 << 27) as f64;
        table.low[e] = low as f64 / (1u128 << 126) as f64;
        e += 1;
    }
    table
}

/// |x|·2/π = n + r, |r| <= ½: r and n modulo 4. NaN for infinities; r loses precision below |x| = 2^-17.
#[inline(always)]
fn reduce(x: f32) -> (f64, u32) {
    let bits = x.to_bits();
    let exponent = ((bits >> 23) & 0xff) as usize;
    let mantissa = f32::from_bits((bits & 0x007f_ffff) | 0x4b00_0000) as f64;
    let high = mantissa * TWO_OVER_PI.high[exponent];
    let low = mantissa * TWO_OVER_PI.low[exponent];
    let shifted = (high + low) + wide::ROUND;
    let r = (high - (shifted - wide::ROUND)) + low;
    (r + (x * 0.0) as f64, shifted.to_bits() as u32 & 3)
}

/// Below this sin x and tan x are x, to less than half an ulp.
const SMALL: f32 = 1.0 / 4096.0;

/// sin(t + n·π/2) for |t| <= π/4, in bits. (sin t/t - 1)/t² and (cos t - 1 + t²/2)/t⁴ in t² on [0, 0.618], relative
/// errors 4.1e-9 and 1.2e-10 of the sine and cosine.
#[inline(always)]
fn sine_of_quadrant<I: Isa>(r: f64, n: u32) -> u32 {
    let t = (r * FRAC_PI_2) as f32;
    let z = t * t;
    let p = horner!(I::fma, z; -0.16666655, 0.008332187, -0.00019517897);
    let sine = I::fma(t * z, p, t);
    let q = horner!(I::fma, z; 0.041666646, -0.001388731, 2.4432327e-05);
    let cosine = I::fma(z, I::fma(z, q, -0.5), 1.0);
    (if n & 1 == 0 { sine } else { cosine }).to_bits() ^ ((n & 2) << 30)
}

#[inline(always)]
pub fn sin<I: Isa>(x: f32) -> f32 {
    let (r, n) = reduce(x);
    let y = f32::from_bits(sine_of_quadrant::<I>(r, n) ^ (x.to_bits() & 0x8000_0000));
    if x.abs() < SMALL { x } else { y }
}

#[inline(always)]
pub fn cos<I: Isa>(x: f32) -> f32 {
    let (r, n) = reduce(x);
    f32::from_bits(sine_of_quadrant::<I>(r, n.wrapping_add(1)))
}

/// sin(πr/2)/r and cos(πr/2) in r² on [0, 0.2505], relative errors 2.1e-13 and 6.2e-13; their quotient or its negated
/// reciprocal.
#[inline(always)]
pub fn tan<I: Isa>(x: f32) -> f32 {
    let (r, n) = reduce(x);
    let z = r * r;
    let sine = r * horner!(I::fma64, z;
        1.5707963267945735,
        -0.6459640974418822,
        0.07969262417683629,
        -0.004681730587399513,
        0.0001603292663018164,
        -3.397188101735468e-06);
    let cosine = horner!(I::fma64, z;
        0.9999999999993826,
        -1.2337005500107563,
        0.25366950371425007,
        -0.02086342997941065,
        0.0009189896779923112,
        -2.4577939573209585e-05);
    let even = n & 1 == 0;
    let quotient = (if even { sine } else { -cosine }) / (if even { cosine } else { sine });
    let y = f32::from_bits((quotient as f32).to_bits() ^ (x.to_bits() & 0x8000_0000));
    if x.abs() < SMALL { x } else { y }
}

/// asin(s) of s in [0, ½], given s² too: (asin(s)/s - 1)/s² in s² on [0, 0.2505], relative error 1e-12 of asin.
#[inline(always)]
fn asin_reduced<I: Isa>(s: f64, z: f64) -> f64 {
    let p = horner!(I::fma64, z;
        0.16666666625983026,
        0.0750000512531606,
        0.04464065635988554,
        0.03042739850075116,
        0.02185776288139438,
        0.02068606375167581,
        0.0018766241100489,
        0.0330187708509861);
    I::fma64(s * z, p, s)
}

/// asin |x| below ½; above, asin √((1-|x|)/2), half of acos |x|. Says which.
#[inline(always)]
fn asin_half<I: Isa>(a: f64) -> (f64, bool) {
    let large = a > 0.5;
    let z = if large { 0.5 * (1.0 - a) } else { a * a };
    let s = if large { z.sqrt() } else { a };
    (asin_reduced::<I>(s, z), large)
}

#[inline(always)]
pub fn asin<I: Isa>(x: f32) -> f32 {
    let (p, large) = asin_half::<I>(x.abs() as f64);
    ((if large { FRAC_PI_2 - 2.0 * p } else { p }) as f32).copysign(x)
}

#[inline(always)]
pub fn acos<I: Isa>(x: f32) -> f32 {
    let (p, large) = asin_half::<I>(x.abs() as f64);
    let positive = if large { 2.0 * p } else { FRAC_PI_2 - p };
    (if x < 0.0 { PI - positive } else { positive }) as f32
}

/// atan(q) for q in [0, 1]: (atan(q)/q - 1)/q² in q² on [0, 1], relative error 6.3e-11 of atan.
#[inline(always)]
fn atan_reduced<I: Isa>(q: f64) -> f64 {
    let z = q * q;
    let p = horner!(I::fma64, z;
        -0.33333332133515853,
        0.1999992723451272,
        -0.14284167101108988,
        0.1109450272653874,
        -0.0898543513095812,
        0.07259427760607656,
        -0.054515792648662464,
        0.03447568677128598,
        -0.01629932260864834,
        0.004926307110227193,
        -0.0006979488369696164);
    I::fma64(q * z, p, q)
}

#[inline(always)]
pub fn atan<I: Isa>(x: f32) -> f32 {
    let a = x.abs() as f64;
    let large = a > 1.0;
    let p = atan_reduced::<I>(if large { 1.0 / a } else { a });
    ((if large { FRAC_PI_2 - p } else { p }) as f32).copysign(x)
}

/// The angle of the point (b, a), with C's special values.
#[inline(always)]
pub fn atan2<I: Isa>(a: f32, b: f32) -> f32 {
    let (y, x) = (a.abs() as f64, b.abs() as f64);
    let steep = y > x;
    let (low, high) = (if steep { x } else { y }, if steep { y } else { x });
    let diagonal = if high == 0.0 { 0.0 } else { 1.0 };
    let p = atan_reduced::<I>(if low == high { diagonal } else { low / high });
    let p = if steep { FRAC_PI_2 - p } else { p };
    ((if b.is_sign_negative() { PI - p } else { p }) as f32).copysign(a)
}
