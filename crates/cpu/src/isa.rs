//! Instruction sets, chosen once at run time.
//!
//! Hot loops are plain Rust, written once, generic over [`Isa`] and `#[inline(always)]`; [`multiversion!`] compiles each for
//! AVX-512, AVX2+FMA and the baseline, and LLVM vectorises the body with what the enclosing function may use.

use std::sync::LazyLock;

/// What generic code may ask of an instruction set.
pub trait Isa: Copy + Send + Sync + 'static {
    /// `a·b + c`, in one rounding where the instruction set has it.
    fn fma(a: f32, b: f32, c: f32) -> f32;
    fn fma64(a: f64, b: f64, c: f64) -> f64;
}

/// Whatever the target's baseline is.
#[derive(Clone, Copy, Debug)]
pub struct Portable;
/// AVX2 with FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2;
/// AVX-512 F, BW, DQ, VL, with FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx512;

impl Isa for Portable {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
    #[inline(always)]
    fn fma64(a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }
}

macro_rules! fused {
    ($($t:ty),*) => {$(
        impl Isa for $t {
            #[inline(always)]
            fn fma(a: f32, b: f32, c: f32) -> f32 {
                a.mul_add(b, c)
            }
            #[inline(always)]
            fn fma64(a: f64, b: f64, c: f64) -> f64 {
                a.mul_add(b, c)
            }
        }
    )*};
}
fused!(Avx2, Avx512);

/// Which of the compiled versions to run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum IsaLevel {
    Portable,
    Avx2,
    Avx512,
}

impl IsaLevel {
    /// The best this processor has; `PERMALLOY_ISA=portable|avx2|avx512` asks for less.
    pub fn detect() -> IsaLevel {
        static LEVEL: LazyLock<IsaLevel> = LazyLock::new(|| {
            let best = IsaLevel::best();
            match std::env::var("PERMALLOY_ISA").as_deref() {
                Ok("portable") => IsaLevel::Portable,
                Ok("avx2") => best.min(IsaLevel::Avx2),
                _ => best,
            }
        });
        *LEVEL
    }

    /// The best this processor has.
    pub fn best() -> IsaLevel {
        static BEST: LazyLock<IsaLevel> = LazyLock::new(best);
        *BEST
    }
}

#[cfg(target_arch = "x86_64")]
fn best() -> IsaLevel {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) => IsaLevel::Avx512,
        (true, false) => IsaLevel::Avx2,
        _ => IsaLevel::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best() -> IsaLevel {
    IsaLevel::Portable
}

/// Declares `pub unsafe fn NAME(level, args…)` that runs the generic `#[inline(always)]` function `BODY::<I>(args…)`
/// compiled for `level`.
#[macro_export]
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident = $body:ident; ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// As the body's; `level` must be one this processor has.
        $vis unsafe fn $name(level: $crate::isa::IsaLevel, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
            unsafe fn avx512($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller keeps the body's contract.
                unsafe { $body::<$crate::isa::Avx512>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,bmi2")]
            unsafe fn avx2($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller keeps the body's contract.
                unsafe { $body::<$crate::isa::Avx2>($($arg),*) }
            }
            match level {
                // SAFETY: the caller vouches for the level and the body's contract.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::IsaLevel::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::IsaLevel::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                _ => unsafe { $body::<$crate::isa::Portable>($($arg),*) },
            }
        }
    };
}
