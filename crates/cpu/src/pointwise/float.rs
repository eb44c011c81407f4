//! Loops over f32 and f64.

use super::{Form, map, zip, zip_heavy};
use crate::isa::Isa;
use crate::multiversion;
use permalloy_ir::PrimOp;

/// `match` over prims with one loop each.
macro_rules! unary_loops {
    ($t:ident, $m:ident, $op:ident, $dst:ident, $a:ident, $n:ident; $($variant:ident $f:ident),*) => {
        match $op {
            $(PrimOp::$variant => map!($dst.cast::<$t>(), $a, $n, |x| $m::$f::<I>(x)),)*
            PrimOp::IsNan => map!($dst, $a, $n, |x| u8::from(x.is_nan())),
            PrimOp::IsInf => map!($dst, $a, $n, |x| u8::from(x.abs() == $t::INFINITY)),
            _ => debug_assert!(false, "no loop for {}", $op),
        }
    };
}

macro_rules! float {
    ($t:ident, $unary_body:ident, $unary:ident, $arith_body:ident, $arith:ident, $compare_body:ident, $compare:ident) => {
        #[inline(always)]
        unsafe fn $unary_body<I: Isa>(op: PrimOp, dst: *mut u8, a: *const $t, n: usize) {
            use crate::math::$t as m;
            // SAFETY: the caller vouches for n values behind each pointer.
            unsafe {
                unary_loops!($t, m, op, dst, a, n;
                    Neg neg, Abs abs, Sign sign, Exp exp, Exp2 exp2, Expm1 expm1, Log log, Log2 log2, Log10 log10,
                    Log1p log1p, Sqrt sqrt, Rsqrt rsqrt, Reciprocal reciprocal, Sin sin, Cos cos, Tan tan, Asin asin,
                    Acos acos, Atan atan, Sinh sinh, Cosh cosh, Tanh tanh, Asinh asinh, Acosh acosh, Atanh atanh,
                    Erf erf, Erfc erfc, Erfinv erfinv, Lgamma lgamma, Digamma digamma, Sigmoid sigmoid, Floor floor,
                    Ceil ceil, Round round, Trunc trunc)
            }
        }
        multiversion! {
            /// One float operand.
            pub(super) unsafe fn $unary = $unary_body; (op: PrimOp, dst: *mut u8, a: *const $t, n: usize)
        }

        #[inline(always)]
        unsafe fn $arith_body<I: Isa>(op: PrimOp, form: Form, dst: *mut $t, a: *const $t, b: *const $t, n: usize) {
            use crate::math::$t as m;
            // SAFETY: the caller vouches for n values behind each pointer, one where the form says so; n is not 0.
            unsafe {
                match op {
                    PrimOp::Add => zip!(form, dst, a, b, n, |x, y| x + y),
                    PrimOp::Sub => zip!(form, dst, a, b, n, |x, y| x - y),
                    PrimOp::Mul => zip!(form, dst, a, b, n, |x, y| x * y),
                    PrimOp::Div => zip!(form, dst, a, b, n, |x, y| x / y),
                    PrimOp::Min => zip!(form, dst, a, b, n, |x, y| m::min::<I>(x, y)),
                    PrimOp::Max => zip!(form, dst, a, b, n, |x, y| m::max::<I>(x, y)),
                    PrimOp::FloorDiv => zip_heavy!(form, dst, a, b, n, |x, y| m::floor_div::<I>(x, y)),
                    PrimOp::TruncDiv => zip_heavy!(form, dst, a, b, n, |x, y| m::trunc_div::<I>(x, y)),
                    PrimOp::Mod => zip_heavy!(form, dst, a, b, n, |x, y| m::modulo::<I>(x, y)),
                    PrimOp::Fmod => zip_heavy!(form, dst, a, b, n, |x, y| m::fmod::<I>(x, y)),
                    PrimOp::Pow => zip_heavy!(form, dst, a, b, n, |x, y| m::pow::<I>(x, y)),
                    PrimOp::Atan2 => zip_heavy!(form, dst, a, b, n, |x, y| m::atan2::<I>(x, y)),
                    PrimOp::CopySign => zip_heavy!(form, dst, a, b, n, |x, y| m::copysign::<I>(x, y)),
                    PrimOp::Hypot => zip_heavy!(form, dst, a, b, n, |x, y| m::hypot::<I>(x, y)),
                    _ => debug_assert!(false, "no loop for {op}"),
                }
            }
        }
        multiversion! {
            /// Two float operands.
            pub(super) unsafe fn $arith = $arith_body;
            (op: PrimOp, form: Form, dst: *mut $t, a: *const $t, b: *const $t, n: usize)
        }

        #[inline(always)]
        unsafe fn $compare_body<I: Isa>(op: PrimOp, form: Form, dst: *mut u8, a: *const $t, b: *const $t, n: usize) {
            // SAFETY: the caller vouches for n values behind each pointer, one where the form says so.
            unsafe { super::compare_loops!(op, form, dst, a, b, n) }
        }
        multiversion! {
            /// Comparison of floats.
            pub(super) unsafe fn $compare = $compare_body;
            (op: PrimOp, form: Form, dst: *mut u8, a: *const $t, b: *const $t, n: usize)
        }
    };
}

float!(f32, unary_f32_body, unary_f32, arith_f32_body, arith_f32, compare_f32_body, compare_f32);
float!(f64, unary_f64_body, unary_f64, arith_f64_body, arith_f64, compare_f64_body, compare_f64);
