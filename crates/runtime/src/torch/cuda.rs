//! What libtorch knows of CUDA devices: the current stream, and guards of the current device.

use super::api::Api;
use std::ffi::c_void;

/// A guard's handle; the device that was current before comes back when it is deleted.
pub type RawGuard = *mut c_void;

/// The functions of libtorch_cuda that a run needs.
#[derive(Clone, Copy)]
pub struct CudaApi {
    create_guard: unsafe extern "C" fn(i32, *mut RawGuard) -> i32,
    delete_guard: unsafe extern "C" fn(RawGuard) -> i32,
    current_stream: unsafe extern "C" fn(i32, *mut *mut c_void) -> i32,
}

impl CudaApi {
    /// Those of the process's PyTorch; the error says what is missing.
    pub fn of(api: &Api) -> Result<CudaApi, String> {
        let find = |name: &str| {
            let missing = || format!("this PyTorch has no {}: it was built without CUDA", name.trim_end_matches('\0'));
            api.cuda_symbol(name).ok_or_else(missing)
        };
        let create = find("aoti_torch_create_cuda_guard\0")?;
        let delete = find("aoti_torch_delete_cuda_guard\0")?;
        let stream = find("aoti_torch_get_current_cuda_stream\0")?;
        // SAFETY: the symbols are the C functions of these names, whose signatures the stable ABI fixes.
        unsafe {
            Ok(CudaApi {
                create_guard: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32, *mut RawGuard) -> i32>(
                    create,
                ),
                delete_guard: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(RawGuard) -> i32>(delete),
                current_stream: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(i32, *mut *mut c_void) -> i32>(
                    stream,
                ),
            })
        }
    }

    /// Makes a device current on this thread; null if that failed, which the next call on the device tells.
    pub(super) fn guard(&self, index: i32) -> RawGuard {
        let mut guard = std::ptr::null_mut();
        // SAFETY: a writable result.
        unsafe { (self.create_guard)(index, &mut guard) };
        guard
    }

    /// # Safety
    /// `guard` was made on this thread and is not used again.
    pub(super) unsafe fn release(&self, guard: RawGuard) {
        // SAFETY: the caller's promise.
        unsafe { (self.delete_guard)(guard) };
    }

    /// The stream that PyTorch's operators of this thread go to.
    pub fn stream(&self, index: i32) -> Result<*mut c_void, String> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: a writable result.
        match unsafe { (self.current_stream)(index, &mut stream) } {
            0 => Ok(stream),
            code => Err(format!("PyTorch has no current stream on cuda:{index} (error {code})")),
        }
    }
}
