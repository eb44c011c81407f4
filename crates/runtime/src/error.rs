//! What can go wrong when a program is made ready or run.

use std::fmt;
use std::sync::Arc;

/// A program cannot be run as given, or a run failed. Nothing outside of the program's own memory was touched.
#[derive(Clone, PartialEq, Debug)]
pub enum RunError {
    /// The program contradicts itself (a damaged file, or a fault of the compiler).
    Program(String),
    /// A wrong number of arguments.
    InputCount { expected: usize, got: usize },
    /// Argument `index` does not fit; `name` is the graph's name for it.
    Input { index: usize, name: Arc<str>, what: String },
    /// A size symbol has no value, or one outside of the range the graph was compiled for.
    Symbol(String),
    /// An index is outside of `0..size` of the tensor called `tensor`; `by` names the operators that may have used it.
    Index { index: i64, size: i64, tensor: Arc<str>, by: String },
    /// An index was out of range in a kernel of this run or an earlier one: devices tell only afterwards.
    LateIndex { message: String, by: String },
    /// A generated kernel failed.
    Kernel { name: String, fused: String, what: String },
    /// An operator of the provider failed; `what` is the provider's own message.
    Native { op: Arc<str>, loc: Option<Arc<str>>, what: String },
    /// Memory or views could not be had from the provider.
    Provider(String),
    /// A panic on the way, caught.
    Internal(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Program(what) => write!(f, "malformed program: {what}"),
            RunError::InputCount { expected, got } => write!(f, "expected {expected} arguments, got {got}"),
            RunError::Input { index, name, what } => write!(f, "argument {index} ({name}): {what}"),
            RunError::Symbol(what) => f.write_str(what),
            RunError::Index { index, size, tensor, by } => {
                write!(f, "index {index} is out of range for a dimension of size {size} of {tensor}, in {by}")
            }
            RunError::LateIndex { message, by } => {
                write!(f, "{message}, in {by} (found after the kernel had run; what it computed is not valid)")
            }
            RunError::Kernel { name, fused, what } => write!(f, "kernel {name} ({fused}): {what}"),
            RunError::Native { op, loc: Some(loc), what } => write!(f, "{op} at {loc}: {what}"),
            RunError::Native { op, loc: None, what } => write!(f, "{op}: {what}"),
            RunError::Provider(what) => f.write_str(what),
            RunError::Internal(what) => write!(f, "internal error: {what}"),
        }
    }
}

impl std::error::Error for RunError {}
