//! Register classes, and the element types of memory with their way into and out of them.

use crate::math::half;
use permalloy_ir::DType;

/// How values of a dtype are held in a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// f32, bf16, f16.
    F32,
    F64,
    /// Every integer, wrapped to its width.
    I64,
    /// bool: 0 or 1.
    U8,
}

impl Class {
    /// None for the dtypes that engines do not compute.
    pub(crate) fn of(dtype: DType) -> Option<Class> {
        match dtype {
            DType::F32 | DType::BF16 | DType::F16 => Some(Class::F32),
            DType::F64 => Some(Class::F64),
            DType::Bool => Some(Class::U8),
            d if d.is_int() => Some(Class::I64),
            _ => None,
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Class::F32 => 4,
            Class::F64 | Class::I64 => 8,
            Class::U8 => 1,
        }
    }

    /// The dtype whose memory is laid out as a tile of this class.
    pub(crate) fn dtype(self) -> DType {
        match self {
            Class::F32 => DType::F32,
            Class::F64 => DType::F64,
            Class::I64 => DType::I64,
            Class::U8 => DType::Bool,
        }
    }
}

/// A type that lies in memory.
pub(crate) trait Element: Copy {
    /// What a tile holds it as.
    type Held: Copy;
    fn hold(self) -> Self::Held;
    /// To nearest even; integers wrap.
    fn round(held: Self::Held) -> Self;
}

macro_rules! same {
    ($($t:ty),*) => {$(
        impl Element for $t {
            type Held = $t;
            #[inline(always)]
            fn hold(self) -> $t {
                self
            }
            #[inline(always)]
            fn round(held: $t) -> $t {
                held
            }
        }
    )*};
}
same!(f32, f64, i64);

macro_rules! narrow {
    ($($t:ty),*) => {$(
        impl Element for $t {
            type Held = i64;
            #[inline(always)]
            fn hold(self) -> i64 {
                i64::from(self)
            }
            #[inline(always)]
            fn round(held: i64) -> $t {
                held as $t
            }
        }
    )*};
}
narrow!(i32, i16, i8, u8);

/// A byte that is 0 or 1.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Bool(u8);

impl Element for Bool {
    type Held = u8;
    #[inline(always)]
    fn hold(self) -> u8 {
        self.0
    }
    #[inline(always)]
    fn round(held: u8) -> Bool {
        Bool(held)
    }
}

/// bfloat16, by its bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Bf16(u16);

impl Element for Bf16 {
    type Held = f32;
    #[inline(always)]
    fn hold(self) -> f32 {
        half::bf16_to_f32(self.0)
    }
    #[inline(always)]
    fn round(held: f32) -> Bf16 {
        Bf16(half::f32_to_bf16(held))
    }
}

/// IEEE half precision, by its bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct F16(u16);

impl Element for F16 {
    type Held = f32;
    #[inline(always)]
    fn hold(self) -> f32 {
        half::f16_to_f32(self.0)
    }
    #[inline(always)]
    fn round(held: f32) -> F16 {
        F16(half::f32_to_f16(held))
    }
}

/// Runs `$body` with `$T` standing for the memory type of `$dtype`; nothing for dtypes without arithmetic.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            permalloy_ir::DType::F64 => {
                type $T = f64;
                $body
            }
            permalloy_ir::DType::F32 => {
                type $T = f32;
                $body
            }
            permalloy_ir::DType::BF16 => {
                type $T = $crate::class::Bf16;
                $body
            }
            permalloy_ir::DType::F16 => {
                type $T = $crate::class::F16;
                $body
            }
            permalloy_ir::DType::I64 => {
                type $T = i64;
                $body
            }
            permalloy_ir::DType::I32 => {
                type $T = i32;
                $body
            }
            permalloy_ir::DType::I16 => {
                type $T = i16;
                $body
            }
            permalloy_ir::DType::I8 => {
                type $T = i8;
                $body
            }
            permalloy_ir::DType::U8 => {
                type $T = u8;
                $body
            }
            permalloy_ir::DType::Bool => {
                type $T = $crate::class::Bool;
                $body
            }
            _ => {}
        }
    };
}
pub(crate) use with_element;
