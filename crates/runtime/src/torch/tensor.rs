//! Tensors of PyTorch, owned through handles.

use super::api::{Api, RawTensor};
use crate::output_memory::OutputBlock;
use permalloy_ir::{DType, Device};
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

/// An owning `AtenTensorHandle`; deleting it drops one reference to the tensor.
pub struct TorchTensor {
    raw: NonNull<c_void>,
    api: &'static Api,
}

/// Handles alive in this process; a test for leaks reads it.
static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: an `at::Tensor` is an atomically counted pointer; reading its metadata from several threads is allowed, and
// nothing here changes the metadata of an existing tensor.
unsafe impl Send for TorchTensor {}
// SAFETY: as above.
unsafe impl Sync for TorchTensor {}

impl TorchTensor {
    /// Takes over a handle; None when it is null.
    ///
    /// # Safety
    /// `raw` is null or an owning handle that nobody else deletes.
    pub unsafe fn from_raw(api: &'static Api, raw: RawTensor) -> Option<TorchTensor> {
        NonNull::new(raw).map(|raw| {
            LIVE.fetch_add(1, Ordering::Relaxed);
            TorchTensor { raw, api }
        })
    }

    /// The handle, borrowed.
    pub fn raw(&self) -> RawTensor {
        self.raw.as_ptr()
    }

    /// The handle, given away.
    pub fn into_raw(self) -> RawTensor {
        LIVE.fetch_sub(1, Ordering::Relaxed);
        std::mem::ManuallyDrop::new(self).raw.as_ptr()
    }

    /// How many handles this process holds.
    pub fn live_handles() -> i64 {
        LIVE.load(Ordering::Relaxed)
    }

    /// An uninitialised tensor on the CPU, its memory from PyTorch's allocator.
    pub fn empty(api: &'static Api, dtype: DType, shape: &[i64], strides: &[i64]) -> Result<TorchTensor, String> {
        TorchTensor::empty_on(api, Device::Cpu, dtype, shape, strides)
    }

    /// An uninitialised tensor, its memory from PyTorch's allocator for the device.
    pub fn empty_on(
        api: &'static Api,
        device: Device,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
    ) -> Result<TorchTensor, String> {
        debug_assert_eq!(shape.len(), strides.len());
        let (kind, index) = place(device)?;
        Self::make(api, "empty_strided", |out| {
            // SAFETY: `shape` and `strides` hold as many numbers as the first argument says; `out` is writable.
            unsafe {
                (api.empty_strided)(
                    shape.len() as i64,
                    shape.as_ptr(),
                    strides.as_ptr(),
                    dtype.scalar_type(),
                    kind,
                    index,
                    out,
                )
            }
        })
    }

    /// A tensor over memory of the device that it does not own.
    ///
    /// # Safety
    /// The elements that shape and strides reach from `data` stay valid while the tensor or a view of it lives.
    pub unsafe fn from_memory(
        api: &'static Api,
        device: Device,
        data: *mut u8,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
    ) -> Result<TorchTensor, String> {
        debug_assert_eq!(shape.len(), strides.len());
        let (n, code) = (shape.len() as i64, dtype.scalar_type());
        let (kind, index) = place(device)?;
        Self::make(api, "create_tensor_from_blob", |out| {
            // SAFETY: as for `empty`; the caller vouches for `data`; layout 0 is strided and has no metadata.
            unsafe {
                (api.create_tensor_from_blob_v2)(
                    data.cast(),
                    n,
                    shape.as_ptr(),
                    strides.as_ptr(),
                    0,
                    code,
                    kind,
                    index,
                    out,
                    0,
                    std::ptr::null(),
                    0,
                )
            }
        })
    }

    /// A tensor in a block of the process's pool for outputs, which goes back there when the storage dies. Before PyTorch
    /// 2.11, whose C interface has no deleters, a tensor in memory of PyTorch's.
    pub fn in_block(
        api: &'static Api,
        block: OutputBlock<'static>,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
    ) -> Result<TorchTensor, String> {
        debug_assert_eq!(shape.len(), strides.len());
        let Some(from_blob) = api.from_blob else { return TorchTensor::empty(api, dtype, shape, strides) };
        let (n, code) = (shape.len() as i64, dtype.scalar_type());
        let (data, bytes) = block.into_raw();
        let made = Self::make(api, "from_blob", |out| {
            // SAFETY: as for `from_memory`; the block is the storage's until `give_back` is called. The device has no index:
            // the maker compares it with the one it finds for the address, which has none.
            unsafe {
                from_blob(
                    data.as_ptr().cast(),
                    n,
                    shape.as_ptr(),
                    strides.as_ptr(),
                    0,
                    code,
                    CPU,
                    -1,
                    out,
                    0,
                    std::ptr::null(),
                    0,
                    Some(give_back),
                    std::ptr::without_provenance_mut(bytes),
                )
            }
        });
        if made.is_err() {
            // SAFETY: no storage was made, so that nobody else gives the block back.
            drop(unsafe { OutputBlock::from_raw(data, bytes) });
        }
        made
    }

    /// Another view of the same storage; `offset` counts elements from this tensor's own first one.
    pub fn view(&self, shape: &[i64], strides: &[i64], offset: i64) -> Result<TorchTensor, String> {
        debug_assert_eq!(shape.len(), strides.len());
        Self::make(self.api, "reinterpret_tensor", |out| {
            // The offset is added to the one that this tensor has.
            // SAFETY: as for `empty`, and a live handle.
            unsafe {
                (self.api._reinterpret_tensor)(
                    self.raw(),
                    shape.len() as i64,
                    shape.as_ptr(),
                    strides.as_ptr(),
                    offset,
                    out,
                )
            }
        })
    }

    /// One more reference to the very same tensor.
    pub fn share(&self) -> Result<TorchTensor, String> {
        Self::make(self.api, "new_tensor_handle", |out| {
            // SAFETY: a live handle and a writable result.
            unsafe { (self.api.new_tensor_handle)(self.raw(), out) }
        })
    }

    /// Copies the elements of `source` here, converting and broadcasting as `Tensor.copy_` does.
    pub fn copy_from(&self, source: &TorchTensor) -> Result<(), String> {
        // SAFETY: two live handles.
        check(self.api, "copy_", unsafe { (self.api.copy_)(self.raw(), source.raw(), 0) })
    }

    /// None for a dtype we have no name for.
    pub fn dtype(&self) -> Option<DType> {
        let mut code = -1;
        // SAFETY: a live handle and a writable result.
        unsafe { (self.api.get_dtype)(self.raw(), &mut code) };
        DType::from_scalar_type(code)
    }

    /// Strided memory of the CPU that kernels can read.
    pub fn is_plain_cpu(&self) -> bool {
        self.is_plain_on(Device::Cpu)
    }

    /// Strided memory of the device.
    pub fn is_plain_on(&self, device: Device) -> bool {
        let (mut kind, mut index, mut layout) = (-1, -1, -1);
        // SAFETY: a live handle and writable results.
        unsafe {
            (self.api.get_device_type)(self.raw(), &mut kind);
            (self.api.get_device_index)(self.raw(), &mut index);
            (self.api.get_layout)(self.raw(), &mut layout);
        }
        layout == 0 && place(device).is_ok_and(|(k, i)| k == kind && (k == CPU || i == index))
    }

    pub fn is_defined(&self) -> bool {
        let mut defined = false;
        // SAFETY: a live handle and a writable result.
        unsafe { (self.api.is_defined)(self.raw(), &mut defined) };
        defined
    }

    pub fn shape(&self) -> &[i64] {
        self.numbers(self.api.get_sizes)
    }

    /// In elements.
    pub fn strides(&self) -> &[i64] {
        self.numbers(self.api.get_strides)
    }

    /// Address of the first element; null for a tensor without memory.
    pub fn data_ptr(&self) -> *mut u8 {
        let mut data = std::ptr::null_mut();
        // SAFETY: a live handle and a writable result.
        unsafe { (self.api.get_data_ptr)(self.raw(), &mut data) };
        data.cast()
    }

    fn numbers(&self, get: unsafe extern "C" fn(RawTensor, *mut *mut i64) -> i32) -> &[i64] {
        let (mut dim, mut numbers) = (0, std::ptr::null_mut());
        // SAFETY: a live handle and writable results.
        let code = unsafe { (self.api.get_dim)(self.raw(), &mut dim) | get(self.raw(), &mut numbers) };
        if code != 0 || dim <= 0 || numbers.is_null() {
            return &[];
        }
        // SAFETY: libtorch lends `dim` numbers that live in the tensor, which `self` keeps alive and nobody resizes.
        unsafe { std::slice::from_raw_parts(numbers, dim as usize) }
    }

    fn make(api: &'static Api, what: &str, call: impl FnOnce(&mut RawTensor) -> i32) -> Result<TorchTensor, String> {
        let mut raw = std::ptr::null_mut();
        check(api, what, call(&mut raw))?;
        // SAFETY: libtorch just made the handle for us.
        unsafe { TorchTensor::from_raw(api, raw) }.ok_or_else(|| format!("{what} returned no tensor"))
    }
}

/// Deleter of storage in a block: the context is the block's size, so that nothing is allocated or freed.
unsafe extern "C" fn give_back(data: *mut c_void, bytes: *mut c_void) {
    if let Some(data) = NonNull::new(data.cast()) {
        // SAFETY: what `in_block` took from the block, passed back once.
        drop(unsafe { OutputBlock::from_raw(data, bytes.addr()) });
    }
}

/// `c10::DeviceType::CPU`
const CPU: i32 = 0;

/// Type and index of a device that tensors are made on.
fn place(d: Device) -> Result<(i32, i32), String> {
    match d {
        Device::Cpu => Ok((CPU, 0)),
        _ => super::shims::device(d).ok_or_else(|| format!("no memory on {d}")),
    }
}

/// An error code as a message.
pub(super) fn check(api: &Api, what: &str, code: i32) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    Err(match api.last_error() {
        Some(said) => format!("{what}: {said}"),
        None => format!("{what} failed"),
    })
}

impl Drop for TorchTensor {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the handle is ours and is not used again.
        unsafe { (self.api.delete_tensor_object)(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for TorchTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TorchTensor({:?}, {:?}, {:?})", self.dtype(), self.shape(), self.strides())
    }
}
