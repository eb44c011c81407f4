//! f32 functions, within 2 ulp of the correctly rounded result.
//!
//! The functions a training step spends its time in are f32 throughout; the rest compute in f64 ([`wide`]), which vectorises
//! at half the width. Nothing branches: special values are selected at the end. Only `lgamma`, `digamma`, `fmod` and
//! `modulo` are plainly scalar.
//!
//! Coefficients are minimax fits of our own (Remez exchange on the interval stated beside each, for the relative error of
//! the function returned), then rounded to the format one at a time, the others refitted.

mod exponential;
mod logarithm;
mod rounding;
mod special;
mod trigonometric;
mod wide;

pub use exponential::{cosh, exp, exp2, expm1, pow, sigmoid, sinh, tanh};
pub use logarithm::{acosh, asinh, atanh, log, log1p, log2, log10};
pub use rounding::{ceil, floor, floor_div, fmod, modulo, round, trunc, trunc_div};
pub use special::{digamma, erf, erfc, erfinv, lgamma};
pub use trigonometric::{acos, asin, atan, atan2, cos, sin, tan};

use crate::isa::Isa;

/// `c0 + c1·x + c2·x² + …` by Horner's rule, through the given multiply-add.
macro_rules! horner {
    ($fma:path, $x:expr; $c:expr) => { $c };
    ($fma:path, $x:expr; $c:expr, $($rest:expr),+) => { $fma($x, horner!($fma, $x; $($rest),+), $c) };
}
use horner;

/// ln 2 in two parts; the first has 16 bits, so its products with exponents are exact.
pub(crate) const LN2_HIGH: f32 = 0.693_145_75;
pub(crate) const LN2_LOW: f32 = 1.428_606_8e-6;

#[inline(always)]
pub fn neg<I: Isa>(x: f32) -> f32 {
    -x
}

#[inline(always)]
pub fn abs<I: Isa>(x: f32) -> f32 {
    x.abs()
}

/// -1, 0 or 1; both zeros give +0, NaN gives NaN.
#[inline(always)]
pub fn sign<I: Isa>(x: f32) -> f32 {
    let negative = if x < 0.0 { -1.0 } else { x + 0.0 };
    if x > 0.0 { 1.0 } else { negative }
}

#[inline(always)]
pub fn sqrt<I: Isa>(x: f32) -> f32 {
    x.sqrt()
}

#[inline(always)]
pub fn rsqrt<I: Isa>(x: f32) -> f32 {
    1.0 / x.sqrt()
}

#[inline(always)]
pub fn reciprocal<I: Isa>(x: f32) -> f32 {
    1.0 / x
}

/// NaN if either is; of two zeros the second.
#[inline(always)]
pub fn min<I: Isa>(a: f32, b: f32) -> f32 {
    if (a < b) | a.is_nan() { a } else { b }
}

/// NaN if either is; of two zeros the second.
#[inline(always)]
pub fn max<I: Isa>(a: f32, b: f32) -> f32 {
    if (a > b) | a.is_nan() { a } else { b }
}

#[inline(always)]
pub fn copysign<I: Isa>(a: f32, b: f32) -> f32 {
    a.copysign(b)
}

/// Infinity wins over NaN, as in C.
#[inline(always)]
pub fn hypot<I: Isa>(a: f32, b: f32) -> f32 {
    let (wide_a, wide_b) = (a as f64, b as f64);
    let length = I::fma64(wide_a, wide_a, wide_b * wide_b).sqrt() as f32;
    if (a.abs() == f32::INFINITY) | (b.abs() == f32::INFINITY) { f32::INFINITY } else { length }
}
