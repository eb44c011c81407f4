//! Tensors over plain memory.

use crate::output_memory::OutputBlock;
use crate::tensor::extent;
use permalloy_ir::DType;
use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A strided view of shared memory.
#[derive(Clone)]
pub struct PlainTensor {
    dtype: DType,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    data: NonNull<u8>,
    /// None when the memory is somebody else's.
    memory: Option<Arc<Memory>>,
}

enum Memory {
    Own(NonNull<u8>, Layout),
    #[expect(dead_code, reason = "held until the last view dies")]
    Pooled(OutputBlock<'static>),
}

// SAFETY: like PyTorch's tensors these share memory without locks; who writes while others read is the program's
// business, and an executable orders its steps.
unsafe impl Send for PlainTensor {}
// SAFETY: as above.
unsafe impl Sync for PlainTensor {}
// SAFETY: owns its block.
unsafe impl Send for Memory {}
// SAFETY: nothing but the address is read.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Memory::Own(data, layout) = self {
            // SAFETY: allocated with this layout.
            unsafe { std::alloc::dealloc(data.as_ptr(), *layout) };
        }
    }
}

impl PlainTensor {
    /// Zeroed memory.
    pub fn empty(dtype: DType, shape: &[i64], strides: &[i64]) -> Result<PlainTensor, String> {
        let too_large = || format!("no memory for a tensor of shape {shape:?}");
        let bytes = extent(shape, strides).and_then(|n| usize::try_from(n).ok()?.checked_mul(dtype.size()));
        let layout = Layout::from_size_align(bytes.ok_or_else(too_large)?.max(1), 64).map_err(|_| too_large())?;
        // SAFETY: the layout has a size.
        let data = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(too_large)?;
        let memory = Some(Arc::new(Memory::Own(data, layout)));
        Ok(PlainTensor { dtype, shape: shape.into(), strides: strides.into(), data, memory })
    }

    /// A row-major tensor with these values.
    ///
    /// # Panics
    /// When there are more or fewer values than elements, or `T` has another size than the dtype.
    pub fn from_values<T: Copy>(dtype: DType, shape: &[i64], values: &[T]) -> PlainTensor {
        let mut strides = vec![1; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i].max(1);
        }
        assert_eq!(shape.iter().product::<i64>() as usize, values.len());
        assert_eq!(size_of::<T>(), dtype.size());
        let t = PlainTensor::empty(dtype, shape, &strides).expect("memory for a tensor of given values");
        // SAFETY: as many elements of the same size.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), t.data.as_ptr().cast::<T>(), values.len()) };
        t
    }

    /// # Safety
    /// The elements that shape and strides reach from `data` stay valid while the tensor or a view of it lives.
    pub unsafe fn from_memory(data: *mut u8, dtype: DType, shape: &[i64], strides: &[i64]) -> PlainTensor {
        let data = NonNull::new(data).unwrap_or(NonNull::dangling());
        PlainTensor { dtype, shape: shape.into(), strides: strides.into(), data, memory: None }
    }

    /// In a block of the pool for outputs, which goes back there when the last view dies.
    pub fn in_block(block: OutputBlock<'static>, dtype: DType, shape: &[i64], strides: &[i64]) -> PlainTensor {
        let data = NonNull::new(block.data()).unwrap_or(NonNull::dangling());
        let memory = Some(Arc::new(Memory::Pooled(block)));
        PlainTensor { dtype, shape: shape.into(), strides: strides.into(), data, memory }
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    pub fn data_ptr(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// `offset` counts elements from this tensor's first one; the caller has checked that the view stays inside.
    pub fn view(&self, shape: &[i64], strides: &[i64], offset: i64) -> PlainTensor {
        let data = self.data.as_ptr().wrapping_offset(offset as isize * self.dtype.size() as isize);
        PlainTensor {
            dtype: self.dtype,
            shape: shape.into(),
            strides: strides.into(),
            data: NonNull::new(data).unwrap_or(NonNull::dangling()),
            memory: self.memory.clone(),
        }
    }

    /// Elements in row-major order.
    ///
    /// # Panics
    /// When `T` has another size than the dtype.
    pub fn values<T: Copy>(&self) -> Vec<T> {
        assert_eq!(size_of::<T>(), self.dtype.size());
        let read = |o: i64| {
            // SAFETY: the offset lies inside of the tensor, whose elements have the size of `T`.
            unsafe { self.data.as_ptr().cast::<T>().offset(o as isize).read_unaligned() }
        };
        self.offsets().map(read).collect()
    }

    /// Copies element by element; shapes and dtypes must be the same.
    pub fn copy_from(&self, source: &PlainTensor) -> Result<(), String> {
        if self.shape != source.shape || self.dtype != source.dtype {
            return Err(format!("cannot copy {source:?} into {self:?}"));
        }
        let size = self.dtype.size();
        for (to, from) in self.offsets().zip(source.offsets()) {
            // SAFETY: both offsets lie inside of their tensors.
            unsafe {
                let from = source.data.as_ptr().offset(from as isize * size as isize);
                std::ptr::copy(from, self.data.as_ptr().offset(to as isize * size as isize), size);
            }
        }
        Ok(())
    }

    /// Offsets of the elements in row-major order.
    fn offsets(&self) -> impl Iterator<Item = i64> + '_ {
        (0..self.shape.iter().product::<i64>()).map(|mut flat| {
            let mut offset = 0;
            for (n, s) in self.shape.iter().zip(&self.strides).rev() {
                offset += flat % n * s;
                flat /= n;
            }
            offset
        })
    }
}

impl fmt::Debug for PlainTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainTensor({}, {:?}, {:?})", self.dtype, self.shape, self.strides)
    }
}
