//! Looking at what a step reads and writes while a program runs, for checks.

use crate::embedded::PlainTensor;
use crate::instance::BufferSpec;
use permalloy_loops::kernel::BufferId;

/// Sees the memory of steps. Slow: all of it is copied.
pub trait Watch: Send + Sync {
    /// The buffers to copy before a step and after it; None for a step that is of no interest.
    fn wants(&self, step: usize) -> Option<(&[BufferId], &[BufferId])>;

    /// What lay in those buffers; None where a buffer had no memory.
    fn saw(&self, step: usize, before: Vec<Option<PlainTensor>>, after: Vec<Option<PlainTensor>>);
}

/// Copies of buffers in memory laid out as theirs.
pub(crate) fn copies(ids: &[BufferId], specs: &[BufferSpec], pointers: &[*mut u8]) -> Vec<Option<PlainTensor>> {
    let one = |id: &BufferId| {
        let (b, from) = (&specs[id.0 as usize], pointers[id.0 as usize]);
        let to = PlainTensor::empty(b.spec.dtype, &b.spec.shape, &b.spec.strides).ok().filter(|_| !from.is_null())?;
        // SAFETY: the buffer's memory is valid for its extent, and the copy was made for the same sizes and strides.
        unsafe { std::ptr::copy_nonoverlapping(from, to.data_ptr(), b.bytes()) };
        Some(to)
    };
    ids.iter().map(one).collect()
}
