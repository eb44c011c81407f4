//! Errors of the compiler as Python exceptions.

use crate::pipeline::{CompileError, RunError};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error that a panic can be turned into.
pub trait FromPanic {
    fn from_panic(message: String) -> Self;
}

impl FromPanic for CompileError {
    fn from_panic(message: String) -> CompileError {
        CompileError::Internal(message)
    }
}

impl FromPanic for RunError {
    fn from_panic(message: String) -> RunError {
        RunError::Internal(message)
    }
}

/// Runs `f`; a panic becomes an error.
pub fn guarded<T, E: FromPanic>(f: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".into());
        Err(E::from_panic(text))
    })
}

pub fn compile_error(py: Python<'_>, error: CompileError) -> PyErr {
    match error {
        CompileError::Unsupported { reason, operator, location } => {
            ours(py, "Unsupported", &reason, &[("operator", operator), ("location", location)])
        }
        CompileError::Forbidden { reason, operator, location } => {
            ours(py, "UnsupportedError", &reason, &[("operator", operator), ("location", location)])
        }
        CompileError::Malformed(what) | CompileError::Options(what) => PyValueError::new_err(what),
        CompileError::Internal(what) => ours(py, "InternalError", &what, &[]),
    }
}

pub fn run_error(py: Python<'_>, error: RunError) -> PyErr {
    match error {
        RunError::Failed(what) => PyRuntimeError::new_err(what),
        RunError::Index(what) => PyIndexError::new_err(what),
        RunError::Internal(what) => ours(py, "InternalError", &what, &[]),
    }
}

/// An exception of `permalloy.errors`.
fn ours(py: Python<'_>, class: &str, message: &str, keywords: &[(&str, Option<String>)]) -> PyErr {
    let make = || {
        let kwargs = PyDict::new(py);
        for (key, value) in keywords {
            kwargs.set_item(key, value)?;
        }
        py.import("permalloy.errors")?.getattr(class)?.call((message,), Some(&kwargs))
    };
    make().map_or_else(|e| e, PyErr::from_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let made: Result<(), CompileError> = guarded(|| panic!("stage {}", 3));
        std::panic::set_hook(hook);
        assert_eq!(made, Err(CompileError::Internal("stage 3".into())));
        assert_eq!(guarded(|| Ok::<_, RunError>(1)), Ok(1));
    }
}
