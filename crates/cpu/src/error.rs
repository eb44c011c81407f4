//! What can go wrong.

use permalloy_ir::{DType, EvalError, PrimOp};
use std::fmt;
use std::sync::Arc;

/// Why a kernel cannot be compiled for the given sizes.
#[derive(Clone, PartialEq, Debug)]
pub enum CompileError {
    /// A size expression has no value.
    Size(EvalError),
    /// The operation does not exist for this dtype.
    Unsupported { op: PrimOp, dtype: DType },
    /// The engine has no arithmetic for the dtype.
    DType(DType),
    /// Addresses `low..=high` (in elements) leave the buffer's `extent`.
    OutOfBounds { buffer: Arc<str>, low: i64, high: i64, extent: i64 },
    /// The kernel breaks a rule of the loop IR; says which, and where.
    Malformed(String),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Size(e) => e.fmt(f),
            CompileError::Unsupported { op, dtype } => write!(f, "{op} has no meaning for {dtype}"),
            CompileError::DType(d) => write!(f, "the CPU engine does not compute {d}"),
            CompileError::OutOfBounds { buffer, low, high, extent } => {
                write!(f, "elements {low} to {high} of {buffer} are addressed, but it has {extent}")
            }
            CompileError::Malformed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for CompileError {}

impl From<EvalError> for CompileError {
    fn from(e: EvalError) -> Self {
        CompileError::Size(e)
    }
}

/// Why a run failed. Nothing outside of the kernel's own outputs was written.
#[derive(Clone, PartialEq, Debug)]
pub enum RunError {
    /// An index read at run time lies outside of `0..size`.
    Index { kernel: String, buffer: Arc<str>, index: i64, size: i64 },
    /// No memory was given for a buffer, or memory not aligned to its dtype.
    Memory { kernel: String, buffer: Arc<str> },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Index { kernel, buffer, index, size } => {
                write!(f, "index {index} is out of range 0..{size} of {buffer} in kernel {kernel}")
            }
            RunError::Memory { kernel, buffer } => {
                write!(f, "kernel {kernel} got no memory, or misaligned memory, for {buffer}")
            }
        }
    }
}

impl std::error::Error for RunError {}
