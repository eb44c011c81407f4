//! Loops over integers (held in i64) and bools.

use super::{Form, map, zip, zip_heavy};
use crate::isa::Isa;
use crate::multiversion;
use permalloy_ir::PrimOp;

/// `floor(a/b)`; 0 for a zero divisor.
#[inline(always)]
fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

#[inline(always)]
fn trunc_div(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_div(b) }
}

/// Remainder with the divisor's sign; 0 for a zero divisor.
#[inline(always)]
fn modulo(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let r = a.wrapping_rem(b);
    if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
}

#[inline(always)]
fn fmod(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_rem(b) }
}

/// Wrapping power; for a negative exponent 0 unless the base is 1 or -1.
fn pow(mut a: i64, b: i64) -> i64 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut left, mut r) = (b, 1i64);
    while left > 0 {
        if left & 1 == 1 {
            r = r.wrapping_mul(a);
        }
        a = a.wrapping_mul(a);
        left >>= 1;
    }
    r
}

/// A count outside of the width shifts everything out.
#[inline(always)]
fn shl(a: i64, b: i64) -> i64 {
    if (0..64).contains(&b) { a.wrapping_shl(b as u32) } else { 0 }
}

#[inline(always)]
fn shr(a: i64, b: i64) -> i64 {
    a >> if (0..64).contains(&b) { b } else { 63 }
}

#[inline(always)]
unsafe fn unary_i64_body<I: Isa>(op: PrimOp, dst: *mut i64, a: *const i64, n: usize) {
    // SAFETY: the caller vouches for n values behind each pointer.
    unsafe {
        match op {
            PrimOp::Neg => map!(dst, a, n, |x| x.wrapping_neg()),
            PrimOp::Abs => map!(dst, a, n, |x| x.wrapping_abs()),
            PrimOp::Sign => map!(dst, a, n, |x| x.signum()),
            PrimOp::Not => map!(dst, a, n, |x| !x),
            _ => debug_assert!(false, "no loop for {op}"),
        }
    }
}
multiversion! {
    /// One integer operand.
    pub(super) unsafe fn unary_i64 = unary_i64_body; (op: PrimOp, dst: *mut i64, a: *const i64, n: usize)
}

#[inline(always)]
unsafe fn unary_bool_body<I: Isa>(dst: *mut u8, a: *const u8, n: usize) {
    // SAFETY: the caller vouches for n values behind each pointer.
    unsafe { map!(dst, a, n, |x| u8::from(x == 0)) }
}
multiversion! {
    /// Logical not.
    pub(super) unsafe fn unary_bool = unary_bool_body; (dst: *mut u8, a: *const u8, n: usize)
}

#[inline(always)]
unsafe fn arith_i64_body<I: Isa>(op: PrimOp, form: Form, dst: *mut i64, a: *const i64, b: *const i64, n: usize) {
    // SAFETY: the caller vouches for n values behind each pointer, one where the form says so; n is not 0.
    unsafe {
        match op {
            PrimOp::Add => zip!(form, dst, a, b, n, |x, y| x.wrapping_add(y)),
            PrimOp::Sub => zip!(form, dst, a, b, n, |x, y| x.wrapping_sub(y)),
            PrimOp::Mul => zip!(form, dst, a, b, n, |x, y| x.wrapping_mul(y)),
            PrimOp::Min => zip!(form, dst, a, b, n, |x, y| x.min(y)),
            PrimOp::Max => zip!(form, dst, a, b, n, |x, y| x.max(y)),
            PrimOp::FloorDiv => zip_heavy!(form, dst, a, b, n, |x, y| floor_div(x, y)),
            PrimOp::TruncDiv => zip_heavy!(form, dst, a, b, n, |x, y| trunc_div(x, y)),
            PrimOp::Mod => zip_heavy!(form, dst, a, b, n, |x, y| modulo(x, y)),
            PrimOp::Fmod => zip_heavy!(form, dst, a, b, n, |x, y| fmod(x, y)),
            PrimOp::Pow => zip_heavy!(form, dst, a, b, n, |x, y| pow(x, y)),
            PrimOp::And => zip_heavy!(form, dst, a, b, n, |x, y| x & y),
            PrimOp::Or => zip_heavy!(form, dst, a, b, n, |x, y| x | y),
            PrimOp::Xor => zip_heavy!(form, dst, a, b, n, |x, y| x ^ y),
            PrimOp::Shl => zip_heavy!(form, dst, a, b, n, |x, y| shl(x, y)),
            PrimOp::Shr => zip_heavy!(form, dst, a, b, n, |x, y| shr(x, y)),
            _ => debug_assert!(false, "no loop for {op}"),
        }
    }
}
multiversion! {
    /// Two integer operands.
    pub(super) unsafe fn arith_i64 = arith_i64_body;
    (op: PrimOp, form: Form, dst: *mut i64, a: *const i64, b: *const i64, n: usize)
}

#[inline(always)]
unsafe fn arith_bool_body<I: Isa>(op: PrimOp, form: Form, dst: *mut u8, a: *const u8, b: *const u8, n: usize) {
    // SAFETY: the caller vouches for n values behind each pointer, one where the form says so; n is not 0.
    unsafe {
        match op {
            PrimOp::And | PrimOp::Mul | PrimOp::Min => zip_heavy!(form, dst, a, b, n, |x, y| x & y),
            PrimOp::Or | PrimOp::Add | PrimOp::Max => zip_heavy!(form, dst, a, b, n, |x, y| x | y),
            PrimOp::Xor => zip_heavy!(form, dst, a, b, n, |x, y| x ^ y),
            _ => debug_assert!(false, "no loop for {op}"),
        }
    }
}
multiversion! {
    /// Two bool operands.
    pub(super) unsafe fn arith_bool = arith_bool_body;
    (op: PrimOp, form: Form, dst: *mut u8, a: *const u8, b: *const u8, n: usize)
}

#[inline(always)]
unsafe fn compare_i64_body<I: Isa>(op: PrimOp, form: Form, dst: *mut u8, a: *const i64, b: *const i64, n: usize) {
    // SAFETY: the caller vouches for n values behind each pointer, one where the form says so.
    unsafe { super::compare_loops!(op, form, dst, a, b, n) }
}
multiversion! {
    /// Comparison of integers.
    pub(super) unsafe fn compare_i64 = compare_i64_body;
    (op: PrimOp, form: Form, dst: *mut u8, a: *const i64, b: *const i64, n: usize)
}

#[inline(always)]
unsafe fn compare_bool_body<I: Isa>(op: PrimOp, form: Form, dst: *mut u8, a: *const u8, b: *const u8, n: usize) {
    // SAFETY: the caller vouches for n values behind each pointer, one where the form says so.
    unsafe { super::compare_loops!(op, form, dst, a, b, n) }
}
multiversion! {
    /// Comparison of bools.
    pub(super) unsafe fn compare_bool = compare_bool_body;
    (op: PrimOp, form: Form, dst: *mut u8, a: *const u8, b: *const u8, n: usize)
}
