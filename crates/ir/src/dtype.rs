//! Element types and devices.

use std::fmt;
use std::str::FromStr;

/// Element type of a tensor. The first ten are computed by our engines; the rest only pass through native operators.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DType {
    F64,
    F32,
    BF16,
    F16,
    I64,
    I32,
    I16,
    I8,
    U8,
    Bool,
    U16,
    U32,
    U64,
    C32,
    C64,
    C128,
    F8E4M3FN,
    F8E5M2,
}

impl DType {
    /// Every dtype, in promotion-table order.
    pub const ALL: [DType; 18] = [
        DType::F64,
        DType::F32,
        DType::BF16,
        DType::F16,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U8,
        DType::Bool,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::C32,
        DType::C64,
        DType::C128,
        DType::F8E4M3FN,
        DType::F8E5M2,
    ];

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::BF16 => "bf16",
            DType::F16 => "f16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::Bool => "bool",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::C32 => "c32",
            DType::C64 => "c64",
            DType::C128 => "c128",
            DType::F8E4M3FN => "f8e4m3fn",
            DType::F8E5M2 => "f8e5m2",
        }
    }

    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            DType::C128 => 16,
            DType::F64 | DType::I64 | DType::U64 | DType::C64 => 8,
            DType::F32 | DType::I32 | DType::U32 | DType::C32 => 4,
            DType::BF16 | DType::F16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::Bool | DType::F8E4M3FN | DType::F8E5M2 => 1,
        }
    }

    /// Real floating point of a kind the engines compute.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::BF16 | DType::F16)
    }

    /// Signed or unsigned integer of a kind the engines compute; not bool.
    pub fn is_int(self) -> bool {
        matches!(self, DType::I64 | DType::I32 | DType::I16 | DType::I8 | DType::U8)
    }

    /// The engines have arithmetic for it.
    pub fn is_computed(self) -> bool {
        self.is_float() || self.is_int() || self == DType::Bool
    }

    /// The dtype in which an engine holds intermediate values of this dtype: f32 for the 16-bit floats, itself otherwise.
    pub fn compute(self) -> DType {
        match self {
            DType::BF16 | DType::F16 => DType::F32,
            other => other,
        }
    }

    /// PyTorch's `c10::ScalarType` number, as the stable C ABI wants it.
    pub fn scalar_type(self) -> i32 {
        match self {
            DType::U8 => 0,
            DType::I8 => 1,
            DType::I16 => 2,
            DType::I32 => 3,
            DType::I64 => 4,
            DType::F16 => 5,
            DType::F32 => 6,
            DType::F64 => 7,
            DType::C32 => 8,
            DType::C64 => 9,
            DType::C128 => 10,
            DType::Bool => 11,
            DType::BF16 => 15,
            DType::F8E5M2 => 23,
            DType::F8E4M3FN => 24,
            DType::U16 => 27,
            DType::U32 => 28,
            DType::U64 => 29,
        }
    }

    /// Inverse of [`DType::scalar_type`].
    pub fn from_scalar_type(code: i32) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.scalar_type() == code)
    }

    /// `torch.promote_types` for two tensors of equal rank category, over the computed dtypes.
    pub fn promote(self, other: DType) -> DType {
        use DType::*;
        if self == other {
            return self;
        }
        let rank = |d: DType| match d {
            Bool => 0,
            U8 | I8 => 1,
            I16 => 2,
            I32 => 3,
            I64 => 4,
            F16 | BF16 => 5,
            F32 => 6,
            F64 => 7,
            _ => 8,
        };
        match (self, other) {
            (BF16, F16) | (F16, BF16) => F32,
            (U8, I8) | (I8, U8) => I16,
            (a, b) if rank(a) >= rank(b) => a,
            (_, b) => b,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        DType::ALL.into_iter().find(|d| d.name() == s).ok_or(())
    }
}

/// Where a tensor lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Device {
    #[default]
    Cpu,
    Cuda(u8),
    Npu(u8),
    Meta,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(i) => write!(f, "cuda:{i}"),
            Device::Npu(i) => write!(f, "npu:{i}"),
            Device::Meta => f.write_str("meta"),
        }
    }
}

impl FromStr for Device {
    type Err = ();
    fn from_str(s: &str) -> Result<Self, ()> {
        let (kind, index) = s.split_once(':').unwrap_or((s, "0"));
        let index = index.parse().map_err(|_| ())?;
        match kind {
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(index)),
            "npu" => Ok(Device::Npu(index)),
            "meta" => Ok(Device::Meta),
            _ => Err(()),
        }
    }
}
