//! Rounding to integers, and the divisions and remainders built on it.

use std::any::TypeId;

use crate::isa::{Isa, Portable};

/// 2^23: from here on every f32 is an integer, and adding it rounds anything smaller to one.
const INTEGERS: f32 = 8_388_608.0;

/// Whether a rounding is one instruction; without SSE4.1 it is a call, which does not vectorise.
#[inline(always)]
fn native<I: Isa>() -> bool {
    TypeId::of::<I>() != TypeId::of::<Portable>()
}

/// `to_integer` of |x| and its nearest integer, with x's sign; large values and NaN unchanged.
#[inline(always)]
fn through_integers(x: f32, to_integer: impl FnOnce(f32, f32) -> f32) -> f32 {
    let a = x.abs();
    let nearest = (a + INTEGERS) - INTEGERS;
    let rounded = to_integer(a, nearest).copysign(x);
    if a < INTEGERS { rounded } else { x }
}

#[inline(always)]
pub fn floor<I: Isa>(x: f32) -> f32 {
    if native::<I>() {
        return x.floor();
    }
    through_integers(x, |a, nearest| {
        let down = nearest - if nearest > a { 1.0 } else { 0.0 };
        let up = nearest + if nearest < a { 1.0 } else { 0.0 };
        if x < 0.0 { up } else { down }
    })
}

#[inline(always)]
pub fn ceil<I: Isa>(x: f32) -> f32 {
    if native::<I>() { x.ceil() } else { -floor::<I>(-x) }
}

/// To nearest, ties to even.
#[inline(always)]
pub fn round<I: Isa>(x: f32) -> f32 {
    if native::<I>() { x.round_ties_even() } else { through_integers(x, |_, nearest| nearest) }
}

#[inline(always)]
pub fn trunc<I: Isa>(x: f32) -> f32 {
    if native::<I>() {
        return x.trunc();
    }
    through_integers(x, |a, nearest| nearest - if nearest > a { 1.0 } else { 0.0 })
}

/// `floor(a/b)` of the rounded quotient.
#[inline(always)]
pub fn floor_div<I: Isa>(a: f32, b: f32) -> f32 {
    floor::<I>(a / b)
}

/// `trunc(a/b)` of the rounded quotient.
#[inline(always)]
pub fn trunc_div<I: Isa>(a: f32, b: f32) -> f32 {
    trunc::<I>(a / b)
}

/// Remainder with the dividend's sign, as C's; exact. Scalar.
#[inline(always)]
pub fn fmod<I: Isa>(a: f32, b: f32) -> f32 {
    a % b
}

/// Remainder with the divisor's sign, as Python's; a zero keeps the dividend's. Scalar.
#[inline(always)]
pub fn modulo<I: Isa>(a: f32, b: f32) -> f32 {
    let r = a % b;
    if (r != 0.0) & ((r < 0.0) != (b < 0.0)) { r + b } else { r }
}
