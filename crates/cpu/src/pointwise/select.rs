//! Selection and conversion loops.

use super::map;
use crate::class::{Bf16, Class, Element, F16};
use crate::isa::{Isa, IsaLevel};
use crate::multiversion;
use permalloy_ir::DType;

macro_rules! select {
    ($t:ident, $body:ident, $name:ident) => {
        #[inline(always)]
        unsafe fn $body<I: Isa>(one: (bool, bool), dst: *mut $t, c: *const u8, a: *const $t, b: *const $t, n: usize) {
            macro_rules! each {
                (|$i:ident| $x:expr, $y:expr) => {
                    for $i in 0..n {
                        let (x, y) = ($x, $y);
                        dst.add($i).write(if c.add($i).read() != 0 { x } else { y });
                    }
                };
            }
            // SAFETY: the caller vouches for n values behind each pointer, one where `one` says so; n is not 0.
            unsafe {
                let (first_a, first_b) = (a.read(), b.read());
                match one {
                    (false, false) => each!(|i| a.add(i).read(), b.add(i).read()),
                    (true, false) => each!(|i| first_a, b.add(i).read()),
                    (false, true) => each!(|i| a.add(i).read(), first_b),
                    (true, true) => each!(|i| first_a, first_b),
                }
            }
        }
        multiversion! {
            /// Values of one width.
            pub(super) unsafe fn $name = $body;
            (one: (bool, bool), dst: *mut $t, c: *const u8, a: *const $t, b: *const $t, n: usize)
        }
    };
}
select!(u8, select_8_body, select_8);
select!(u32, select_32_body, select_32);
select!(u64, select_64_body, select_64);

#[inline(always)]
unsafe fn cast_body<I: Isa>(from: Class, to: DType, dst: *mut u8, a: *const u8, n: usize) {
    macro_rules! from {
        ($t:ident, |$x:ident| $f32:expr, $f64:expr, $i64:expr, $bool:expr) => {{
            let a: *const $t = a.cast();
            match to {
                DType::F64 => map!(dst.cast::<f64>(), a, n, |$x| $f64),
                DType::F32 => map!(dst.cast::<f32>(), a, n, |$x| $f32),
                DType::BF16 => map!(dst.cast::<f32>(), a, n, |$x| Bf16::round($f32).hold()),
                DType::F16 => map!(dst.cast::<f32>(), a, n, |$x| F16::round($f32).hold()),
                DType::I64 => map!(dst.cast::<i64>(), a, n, |$x| $i64),
                DType::I32 => map!(dst.cast::<i64>(), a, n, |$x| i64::from($i64 as i32)),
                DType::I16 => map!(dst.cast::<i64>(), a, n, |$x| i64::from($i64 as i16)),
                DType::I8 => map!(dst.cast::<i64>(), a, n, |$x| i64::from($i64 as i8)),
                DType::U8 => map!(dst.cast::<i64>(), a, n, |$x| i64::from($i64 as u8)),
                DType::Bool => map!(dst, a, n, |$x| u8::from($bool)),
                _ => debug_assert!(false, "no cast to {to}"),
            }
        }};
    }
    // SAFETY: the caller vouches for n values behind each pointer.
    unsafe {
        match from {
            Class::F32 => from!(f32, |x| x, f64::from(x), x as i64, x != 0.0),
            Class::F64 => from!(f64, |x| x as f32, x, x as i64, x != 0.0),
            Class::I64 => from!(i64, |x| x as f32, x as f64, x, x != 0),
            Class::U8 => from!(u8, |x| f32::from(x), f64::from(x), i64::from(x), x != 0),
        }
    }
}
multiversion! {
    /// From class to dtype.
    unsafe fn cast_loops = cast_body; (from: Class, to: DType, dst: *mut u8, a: *const u8, n: usize)
}

/// # Safety
/// As the loops'.
pub(super) unsafe fn cast(level: IsaLevel, from: Class, to: DType, dst: *mut u8, a: *const u8, n: usize) {
    // SAFETY: passed on.
    unsafe { cast_loops(level, from, to, dst, a, n) }
}
