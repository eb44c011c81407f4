//! NVIDIA's driver: `libcuda.so.1`, found when it is first asked for.

use super::{Binary, Driver, Function, Grid, SharedWords, Stream};
use crate::torch::CudaApi;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock};

macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($arg:ty),*);)*) => {
        /// The functions of the driver that we call.
        struct Cuda {
            $($name: unsafe extern "C" fn($($arg),*) -> c_int,)*
        }

        impl Cuda {
            fn resolve(symbol: impl Fn(&CStr) -> Option<*mut c_void>) -> Result<Cuda, String> {
                Ok(Cuda {
                    $($name: {
                        let p = symbol($symbol).ok_or_else(|| format!("libcuda lacks {:?}", $symbol))?;
                        // SAFETY: the symbol is the driver's function of that name and version.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> c_int>(p) }
                    },)*
                })
            }
        }
    };
}

functions! {
    init = c"cuInit": fn(c_uint);
    error_string = c"cuGetErrorString": fn(c_int, *mut *const c_char);
    device_get = c"cuDeviceGet": fn(*mut c_int, c_int);
    retain_context = c"cuDevicePrimaryCtxRetain": fn(*mut *mut c_void, c_int);
    get_context = c"cuCtxGetCurrent": fn(*mut *mut c_void);
    set_context = c"cuCtxSetCurrent": fn(*mut c_void);
    load_module = c"cuModuleLoadData": fn(*mut *mut c_void, *const c_void);
    get_function = c"cuModuleGetFunction": fn(*mut *mut c_void, *mut c_void, *const c_char);
    set_attribute = c"cuFuncSetAttribute": fn(*mut c_void, c_int, c_int);
    launch = c"cuLaunchKernel": fn(*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void, *mut *mut c_void, *mut *mut c_void);
    memset = c"cuMemsetD8Async": fn(u64, u8, usize, *mut c_void);
    host_alloc = c"cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    host_pointer = c"cuMemHostGetDevicePointer_v2": fn(*mut u64, *mut c_void, c_uint);
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`
const MAX_SHARED: c_int = 8;
/// Shared memory that a kernel gets without asking.
const ORDINARY_SHARED: u32 = 48 << 10;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`
const SHARED_WITH_DEVICES: c_uint = 3;

impl Cuda {
    fn get() -> Result<&'static Cuda, String> {
        static CUDA: OnceLock<Result<Cuda, String>> = OnceLock::new();
        CUDA.get_or_init(|| {
            // SAFETY: a NUL-terminated name of a library that may be loaded at any time; it is never unloaded.
            let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
            if handle.is_null() {
                return Err("libcuda.so.1 could not be loaded: is NVIDIA's driver installed?".to_string());
            }
            let cuda = Cuda::resolve(|name| {
                // SAFETY: a live handle and a NUL-terminated name.
                let p = unsafe { libc::dlsym(handle, name.as_ptr()) };
                (!p.is_null()).then_some(p)
            })?;
            // SAFETY: takes no pointers.
            cuda.check("cuInit", unsafe { (cuda.init)(0) })?;
            Ok(cuda)
        })
        .as_ref()
        .map_err(String::clone)
    }

    fn check(&self, what: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: a writable result; the text is a constant of the driver's.
        let said = unsafe {
            match (self.error_string)(code, &mut text) {
                0 if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
                _ => "unknown error".to_string(),
            }
        };
        Err(format!("{what}: {said} (CUDA error {code})"))
    }
}

/// A CUDA device, its streams PyTorch's.
pub struct CudaDriver {
    cuda: &'static Cuda,
    torch: CudaApi,
    index: i32,
    /// PyTorch's: the primary one.
    context: usize,
    /// Kernels loaded, by key.
    loaded: Mutex<BTreeMap<String, Function>>,
}

impl CudaDriver {
    pub fn new(torch: CudaApi, index: u8) -> Result<CudaDriver, String> {
        let cuda = Cuda::get()?;
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: writable results.
        cuda.check("cuDeviceGet", unsafe { (cuda.device_get)(&mut device, c_int::from(index)) })?;
        // SAFETY: a writable result; the context is kept for as long as the process lives.
        cuda.check("cuDevicePrimaryCtxRetain", unsafe { (cuda.retain_context)(&mut context, device) })?;
        let loaded = Mutex::new(BTreeMap::new());
        Ok(CudaDriver { cuda, torch, index: i32::from(index), context: context.expose_provenance(), loaded })
    }
}

impl Driver for CudaDriver {
    fn enter(&self) -> Result<(), String> {
        let mut current = std::ptr::null_mut();
        // SAFETY: a writable result.
        self.cuda.check("cuCtxGetCurrent", unsafe { (self.cuda.get_context)(&mut current) })?;
        if current.addr() != self.context {
            let context = std::ptr::with_exposed_provenance_mut(self.context);
            // SAFETY: a context that is kept.
            self.cuda.check("cuCtxSetCurrent", unsafe { (self.cuda.set_context)(context) })?;
        }
        Ok(())
    }

    fn load(&self, binary: &Binary) -> Result<Function, String> {
        let mut loaded = self.loaded.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(f) = loaded.get(&binary.key) {
            return Ok(*f);
        }
        let name = CString::new(&*binary.entry).map_err(|_| "a kernel's name holds a NUL byte")?;
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: an image as Triton compiled it, whose length is in its own header; writable results.
        unsafe {
            let image = binary.image.as_ptr().cast();
            self.cuda.check("cuModuleLoadData", (self.cuda.load_module)(&mut module, image))?;
            self.cuda.check("cuModuleGetFunction", (self.cuda.get_function)(&mut function, module, name.as_ptr()))?;
            if binary.shared_bytes > ORDINARY_SHARED {
                let bytes = binary.shared_bytes as c_int;
                let code = (self.cuda.set_attribute)(function, MAX_SHARED, bytes);
                self.cuda.check("cuFuncSetAttribute", code)?;
            }
        }
        let function = Function(function.expose_provenance());
        loaded.insert(binary.key.clone(), function);
        Ok(function)
    }

    fn stream(&self) -> Result<Stream, String> {
        self.torch.stream(self.index).map(|s| Stream(s.expose_provenance()))
    }

    unsafe fn launch(
        &self,
        function: Function,
        grid: Grid,
        stream: Stream,
        parameters: &mut [*mut c_void],
    ) -> Result<(), String> {
        // SAFETY: a function and a stream of this device, both exposed when they were made; the caller's promise for the
        // rest.
        let code = unsafe {
            (self.cuda.launch)(
                std::ptr::with_exposed_provenance_mut(function.0),
                grid.programs,
                1,
                1,
                grid.threads,
                1,
                1,
                grid.shared_bytes,
                std::ptr::with_exposed_provenance_mut(stream.0),
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.cuda.check("cuLaunchKernel", code)
    }

    unsafe fn zero(&self, data: *mut u8, bytes: usize, stream: Stream) -> Result<(), String> {
        let stream = std::ptr::with_exposed_provenance_mut(stream.0);
        // SAFETY: the caller's promise.
        self.cuda.check("cuMemsetD8Async", unsafe { (self.cuda.memset)(data.addr() as u64, 0, bytes, stream) })
    }

    fn shared_words(&self, count: usize) -> Result<SharedWords, String> {
        self.enter()?;
        let (mut host, mut device) = (std::ptr::null_mut(), 0);
        let bytes = count * size_of::<i32>();
        // SAFETY: writable results; the memory just allocated is zeroed within its size.
        unsafe {
            self.cuda.check("cuMemHostAlloc", (self.cuda.host_alloc)(&mut host, bytes, SHARED_WITH_DEVICES))?;
            self.cuda.check("cuMemHostGetDevicePointer", (self.cuda.host_pointer)(&mut device, host, 0))?;
            host.cast::<u8>().write_bytes(0, bytes);
        }
        Ok(SharedWords { host: host.cast(), device, count })
    }
}
