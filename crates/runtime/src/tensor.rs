//! A tensor that crosses the boundary of an executable, whoever owns its memory.

use crate::embedded::PlainTensor;
use crate::torch::TorchTensor;
use permalloy_ir::DType;

/// An owned reference to a tensor on the CPU.
#[derive(Debug)]
pub enum TensorHandle {
    Torch(TorchTensor),
    Plain(PlainTensor),
}

impl TensorHandle {
    /// None for a dtype we have no name for.
    pub fn dtype(&self) -> Option<DType> {
        match self {
            TensorHandle::Torch(t) => t.dtype(),
            TensorHandle::Plain(t) => Some(t.dtype()),
        }
    }

    pub fn shape(&self) -> &[i64] {
        match self {
            TensorHandle::Torch(t) => t.shape(),
            TensorHandle::Plain(t) => t.shape(),
        }
    }

    /// In elements.
    pub fn strides(&self) -> &[i64] {
        match self {
            TensorHandle::Torch(t) => t.strides(),
            TensorHandle::Plain(t) => t.strides(),
        }
    }

    /// Address of the first element.
    pub fn data_ptr(&self) -> *mut u8 {
        match self {
            TensorHandle::Torch(t) => t.data_ptr(),
            TensorHandle::Plain(t) => t.data_ptr(),
        }
    }

    /// Another view of the same storage; `offset` counts elements from this tensor's own first one.
    /// The caller has checked that it stays inside.
    pub fn view(&self, shape: &[i64], strides: &[i64], offset: i64) -> Result<TensorHandle, String> {
        match self {
            TensorHandle::Torch(t) => t.view(shape, strides, offset).map(TensorHandle::Torch),
            TensorHandle::Plain(t) => Ok(TensorHandle::Plain(t.view(shape, strides, offset))),
        }
    }

    /// One more reference to the very same tensor.
    pub fn share(&self) -> Result<TensorHandle, String> {
        match self {
            TensorHandle::Torch(t) => t.share().map(TensorHandle::Torch),
            TensorHandle::Plain(t) => Ok(TensorHandle::Plain(t.clone())),
        }
    }

    /// Copies the elements of `source` here.
    pub fn copy_from(&self, source: &TensorHandle) -> Result<(), String> {
        match (self, source) {
            (TensorHandle::Torch(a), TensorHandle::Torch(b)) => a.copy_from(b),
            (TensorHandle::Plain(a), TensorHandle::Plain(b)) => a.copy_from(b),
            _ => Err("a copy between tensors of different providers".into()),
        }
    }

    /// Strided memory of the CPU that kernels can read.
    pub fn is_plain_cpu(&self) -> bool {
        match self {
            TensorHandle::Torch(t) => t.is_plain_cpu(),
            TensorHandle::Plain(_) => true,
        }
    }
}

/// Elements from the first to the last one, both counted; None on overflow or for a negative size or stride.
pub(crate) fn extent(shape: &[i64], strides: &[i64]) -> Option<i64> {
    if shape.iter().chain(strides).any(|n| *n < 0) {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().zip(strides).try_fold(1i64, |acc, (n, s)| acc.checked_add((n - 1).checked_mul(*s)?))
}

/// Strides address the same elements: those of dims of size 1 (and all of an empty tensor) do not matter.
pub(crate) fn same_layout(shape: &[i64], a: &[i64], b: &[i64]) -> bool {
    a == b
        || shape.contains(&0)
        || (a.len() == b.len() && shape.iter().zip(a.iter().zip(b)).all(|(n, (a, b))| a == b || *n == 1))
}
