//! Why a kernel has no Triton form.

use permalloy_ir::{DType, PrimOp};
use std::fmt;

/// What is missing; the caller runs the piece another way and can say why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsupported {
    pub kernel: String,
    pub what: Missing,
}

/// The part of a kernel that cannot be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The device does not compute with this dtype.
    DType(DType),
    /// There is no accurate form of the operation on operands of this dtype.
    Operation { op: PrimOp, dtype: DType },
    /// More distinct loads than the device's compiler takes.
    Loads { count: usize, limit: usize },
    /// A schedule or construct the device lacks; the text says which.
    Construct(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::DType(d) => write!(f, "no arithmetic in {d}"),
            Missing::Operation { op, dtype } => write!(f, "no form of {op} on {dtype}"),
            Missing::Loads { count, limit } => write!(f, "{count} loads, at most {limit} compile in reasonable time"),
            Missing::Construct(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {} has no Triton form: {}", self.kernel, self.what)
    }
}

impl std::error::Error for Unsupported {}

/// Of the parts of the generator; the kernel's name is added at the end.
pub(crate) type Part<T> = Result<T, Missing>;

pub(crate) fn construct<T>(what: impl Into<String>) -> Part<T> {
    Err(Missing::Construct(what.into()))
}
