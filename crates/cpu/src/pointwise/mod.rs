//! Elementwise micro-ops: flat loops over tiles, compiled for every instruction set, no dispatch inside.

mod float;
mod int;
mod select;

use crate::class::Class;
use crate::isa::IsaLevel;
use permalloy_ir::{DType, PrimKind, PrimOp};

/// Which operands of a two-operand loop are vectors; the other is one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    VecVec,
    VecOne,
    OneVec,
}

/// The loop exists for operands of this class.
pub(crate) fn has_unary(op: PrimOp, class: Class) -> bool {
    match class {
        Class::F32 | Class::F64 => {
            op.kind() == PrimKind::Unary && op != PrimOp::Not || matches!(op, PrimOp::IsNan | PrimOp::IsInf)
        }
        Class::I64 => matches!(op, PrimOp::Neg | PrimOp::Abs | PrimOp::Sign | PrimOp::Not),
        Class::U8 => op == PrimOp::Not,
    }
}

/// The loop exists for operands of this class.
pub(crate) fn has_binary(op: PrimOp, class: Class) -> bool {
    use PrimOp::*;
    if op.kind() == PrimKind::Compare {
        return !matches!(op, IsNan | IsInf);
    }
    let bits = matches!(op, And | Or | Xor);
    op.kind() == PrimKind::Binary
        && match class {
            Class::F32 | Class::F64 => !bits && !matches!(op, Shl | Shr),
            Class::I64 => !matches!(op, Div | Atan2 | CopySign | Hypot),
            Class::U8 => bits || matches!(op, Add | Mul | Min | Max),
        }
}

/// `dst[i] = op(a[i])`.
///
/// # Safety
/// `a` holds `n` values of `class`, `dst` room for `n` of the result's class; they do not overlap.
pub(crate) unsafe fn unary(level: IsaLevel, class: Class, op: PrimOp, dst: *mut u8, a: *const u8, n: usize) {
    // SAFETY: passed on; the level was checked when the kernel was compiled.
    unsafe {
        match class {
            Class::F32 => float::unary_f32(level, op, dst, a.cast(), n),
            Class::F64 => float::unary_f64(level, op, dst, a.cast(), n),
            Class::I64 => int::unary_i64(level, op, dst.cast(), a.cast(), n),
            Class::U8 => int::unary_bool(level, dst, a, n),
        }
    }
}

/// `dst[i] = op(a[i], b[i])`, with one value in place of `a` or `b` as `form` says.
///
/// # Safety
/// As [`unary`].
#[allow(clippy::too_many_arguments, reason = "the loop's operands")]
pub(crate) unsafe fn binary(
    level: IsaLevel,
    class: Class,
    op: PrimOp,
    form: Form,
    dst: *mut u8,
    a: *const u8,
    b: *const u8,
    n: usize,
) {
    let compare = op.kind() == PrimKind::Compare;
    // SAFETY: passed on.
    unsafe {
        match class {
            Class::F32 if compare => float::compare_f32(level, op, form, dst, a.cast(), b.cast(), n),
            Class::F64 if compare => float::compare_f64(level, op, form, dst, a.cast(), b.cast(), n),
            Class::I64 if compare => int::compare_i64(level, op, form, dst, a.cast(), b.cast(), n),
            Class::U8 if compare => int::compare_bool(level, op, form, dst, a, b, n),
            Class::F32 => float::arith_f32(level, op, form, dst.cast(), a.cast(), b.cast(), n),
            Class::F64 => float::arith_f64(level, op, form, dst.cast(), a.cast(), b.cast(), n),
            Class::I64 => int::arith_i64(level, op, form, dst.cast(), a.cast(), b.cast(), n),
            Class::U8 => int::arith_bool(level, op, form, dst, a, b, n),
        }
    }
}

/// `dst[i] = c[i] ? a[i] : b[i]`; `one` says which of `a` and `b` are single values.
///
/// # Safety
/// As [`unary`]; `class` is that of `a`, `b` and `dst`, `c` holds bools.
#[allow(clippy::too_many_arguments, reason = "the loop's operands")]
pub(crate) unsafe fn select(
    level: IsaLevel,
    class: Class,
    one: (bool, bool),
    dst: *mut u8,
    c: *const u8,
    a: *const u8,
    b: *const u8,
    n: usize,
) {
    // SAFETY: passed on.
    unsafe {
        match class.size() {
            4 => select::select_32(level, one, dst.cast(), c, a.cast(), b.cast(), n),
            8 => select::select_64(level, one, dst.cast(), c, a.cast(), b.cast(), n),
            _ => select::select_8(level, one, dst, c, a, b, n),
        }
    }
}

/// Converts from class to class and rounds (or wraps) to `to`.
///
/// # Safety
/// As [`unary`], with `a` of class `from` and `dst` of the class of `to`.
pub(crate) unsafe fn cast(level: IsaLevel, from: Class, to: DType, dst: *mut u8, a: *const u8, n: usize) {
    // SAFETY: passed on.
    unsafe { select::cast(level, from, to, dst, a, n) }
}

/// Copies one value `n` times.
///
/// # Safety
/// `dst` has room for `n` values of `size` bytes, `a` holds one.
pub(crate) unsafe fn splat(size: usize, dst: *mut u8, a: *const u8, n: usize) {
    // SAFETY: by the contract; reads and writes need no alignment here.
    unsafe {
        match size {
            4 => {
                let x = a.cast::<u32>().read_unaligned();
                (0..n).for_each(|i| dst.cast::<u32>().add(i).write_unaligned(x));
            }
            8 => {
                let x = a.cast::<u64>().read_unaligned();
                (0..n).for_each(|i| dst.cast::<u64>().add(i).write_unaligned(x));
            }
            _ => dst.write_bytes(a.read(), n),
        }
    }
}

/// The two-operand loop in its three forms.
macro_rules! zip {
    ($form:expr, $dst:ident, $a:ident, $b:ident, $n:ident, |$x:ident, $y:ident| $e:expr) => {
        match $form {
            $crate::pointwise::Form::VecVec => {
                for i in 0..$n {
                    let ($x, $y) = ($a.add(i).read(), $b.add(i).read());
                    $dst.add(i).write($e);
                }
            }
            $crate::pointwise::Form::VecOne => {
                let $y = $b.read();
                for i in 0..$n {
                    let $x = $a.add(i).read();
                    $dst.add(i).write($e);
                }
            }
            $crate::pointwise::Form::OneVec => {
                let $x = $a.read();
                for i in 0..$n {
                    let $y = $b.add(i).read();
                    $dst.add(i).write($e);
                }
            }
        }
    };
}

/// The two-operand loop for expensive operations: written once, single values are repeated in a small array.
macro_rules! zip_heavy {
    ($form:expr, $dst:ident, $a:ident, $b:ident, $n:ident, |$x:ident, $y:ident| $e:expr) => {{
        const PIECE: usize = 128;
        let (one_a, one_b) = ([$a.read(); PIECE], [$b.read(); PIECE]);
        let mut at = 0;
        while at < $n {
            let len = PIECE.min($n - at);
            let pa = if $form == $crate::pointwise::Form::OneVec { one_a.as_ptr() } else { $a.add(at) };
            let pb = if $form == $crate::pointwise::Form::VecOne { one_b.as_ptr() } else { $b.add(at) };
            for i in 0..len {
                let ($x, $y) = (pa.add(i).read(), pb.add(i).read());
                $dst.add(at + i).write($e);
            }
            at += len;
        }
    }};
}

/// The six comparisons.
macro_rules! compare_loops {
    ($op:ident, $form:ident, $dst:ident, $a:ident, $b:ident, $n:ident) => {
        match $op {
            PrimOp::Eq => $crate::pointwise::zip!($form, $dst, $a, $b, $n, |x, y| u8::from(x == y)),
            PrimOp::Ne => $crate::pointwise::zip!($form, $dst, $a, $b, $n, |x, y| u8::from(x != y)),
            PrimOp::Lt => $crate::pointwise::zip!($form, $dst, $a, $b, $n, |x, y| u8::from(x < y)),
            PrimOp::Le => $crate::pointwise::zip!($form, $dst, $a, $b, $n, |x, y| u8::from(x <= y)),
            PrimOp::Gt => $crate::pointwise::zip!($form, $dst, $a, $b, $n, |x, y| u8::from(x > y)),
            PrimOp::Ge => $crate::pointwise::zip!($form, $dst, $a, $b, $n, |x, y| u8::from(x >= y)),
            _ => debug_assert!(false, "no loop for {}", $op),
        }
    };
}

/// The one-operand loop.
macro_rules! map {
    ($dst:expr, $a:ident, $n:ident, |$x:ident| $e:expr) => {{
        let dst = $dst;
        for i in 0..$n {
            let $x = $a.add(i).read();
            dst.add(i).write($e);
        }
    }};
}

pub(crate) use {compare_loops, map, zip, zip_heavy};
