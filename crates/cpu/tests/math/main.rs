//! Accuracy of the math functions, measured in ulps against f64 on every instruction set this processor has.

mod exact;
mod speed;
mod ulps;
mod values;

use permalloy_cpu::isa::{Avx2, Avx512, Isa, IsaLevel, Portable};
use permalloy_cpu::math;

/// The instruction sets this processor has; the first is the portable baseline.
fn levels() -> Vec<IsaLevel> {
    let all = [IsaLevel::Portable, IsaLevel::Avx2, IsaLevel::Avx512];
    all.into_iter().filter(|level| *level <= IsaLevel::detect()).collect()
}

type Unary = unsafe fn(IsaLevel, &[f32], &mut [f32]);
type Binary = unsafe fn(IsaLevel, &[f32], &[f32], &mut [f32]);

/// `pub unsafe fn run(level, args…)`, which is `body::<I>(args…)` compiled for the level, with `multiversion!`'s features.
macro_rules! run_on_level {
    ($($arg:ident: $ty:ty),*) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
        fn avx512($($arg: $ty),*) {
            body::<Avx512>($($arg),*)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi2")]
        fn avx2($($arg: $ty),*) {
            body::<Avx2>($($arg),*)
        }
        /// # Safety
        /// `level` must be one this processor has.
        pub unsafe fn run(level: IsaLevel, $($arg: $ty),*) {
            match level {
                // SAFETY: the caller vouches for the level.
                #[cfg(target_arch = "x86_64")]
                IsaLevel::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                IsaLevel::Avx2 => unsafe { avx2($($arg),*) },
                _ => body::<Portable>($($arg),*),
            }
        }
    };
}

/// One slice loop per function, compiled for each instruction set.
macro_rules! unary_loops {
    ($($name:ident)*) => {$(
        mod $name {
            use super::*;

            #[inline(always)]
            fn body<I: Isa>(source: &[f32], result: &mut [f32]) {
                for (r, x) in result.iter_mut().zip(source) {
                    *r = math::f32::$name::<I>(*x);
                }
            }

            run_on_level!(source: &[f32], result: &mut [f32]);
        }
    )*};
}

macro_rules! binary_loops {
    ($($name:ident)*) => {$(
        mod $name {
            use super::*;

            #[inline(always)]
            fn body<I: Isa>(a: &[f32], b: &[f32], result: &mut [f32]) {
                for ((r, a), b) in result.iter_mut().zip(a).zip(b) {
                    *r = math::f32::$name::<I>(*a, *b);
                }
            }

            run_on_level!(a: &[f32], b: &[f32], result: &mut [f32]);
        }
    )*};
}

unary_loops! {
    neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh
    asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid floor ceil round trunc
}
binary_loops! { pow atan2 hypot copysign fmod modulo floor_div trunc_div min max }
