//! f32 functions, within 2 ulp of the correctly rounded result.

use super::f64;
use crate::isa::Isa;

macro_rules! unary {
    ($($name:ident)*) => {$(
        #[inline(always)]
        pub fn $name<I: Isa>(x: f32) -> f32 {
            f64::$name::<I>(x as f64) as f32
        }
    )*};
}

macro_rules! binary {
    ($($name:ident)*) => {$(
        #[inline(always)]
        pub fn $name<I: Isa>(a: f32, b: f32) -> f32 {
            f64::$name::<I>(a as f64, b as f64) as f32
        }
    )*};
}

unary! {
    neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh
    asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid floor ceil round trunc
}
binary! { pow atan2 hypot copysign fmod min max }

/// Remainder with the divisor's sign, as Python's `%`.
#[inline(always)]
pub fn modulo<I: Isa>(a: f32, b: f32) -> f32 {
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
}

#[inline(always)]
pub fn floor_div<I: Isa>(a: f32, b: f32) -> f32 {
    floor::<I>(a / b)
}

#[inline(always)]
pub fn trunc_div<I: Isa>(a: f32, b: f32) -> f32 {
    trunc::<I>(a / b)
}
