//! The C functions of libtorch, looked up at run time.
//!
//! Nothing here links against PyTorch: inside a Python process `libtorch_cpu.so` is loaded already and is found by its
//! name; elsewhere a path must be given. The library is never unloaded.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

/// `AtenTensorHandle`: an owning pointer to a tensor, opaque to us.
pub type RawTensor = *mut c_void;
/// `StableIValue`
pub type StableValue = u64;
/// `StableListHandle`, `StringHandle`
pub type RawHandle = *mut c_void;
/// Callback of `torch_parallel_for`: begin, end, context.
pub type ParallelFn = unsafe extern "C" fn(i64, i64, *mut c_void);
/// Deleter of `torch_from_blob`: data, context.
pub type BlobDeleter = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// libtorch could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    NotFound(String),
    MissingSymbol(&'static str),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::NotFound(why) => write!(f, "libtorch_cpu is not loaded and could not be: {why}"),
            LoadError::MissingSymbol(s) => write!(f, "this version of PyTorch lacks the C function {s}"),
        }
    }
}

impl std::error::Error for LoadError {}

macro_rules! api {
    (required { $($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)* } optional { $($oname:ident: fn($($oarg:ty),*) $(-> $oret:ty)?;)* }) => {
        /// libtorch's stable C functions that we call, under their own names less the prefix `aoti_torch_` or `torch_`.
        pub struct Api {
            library: Library,
            cuda: OnceLock<Option<Library>>,
            undefined: OnceLock<usize>,
            log_level: Option<&'static AtomicI32>,
            original_log_level: i32,
            silenced: AtomicUsize,
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub $oname: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,)*
        }

        impl Api {
            fn resolve(library: Library) -> Result<Api, LoadError> {
                let log_level = library.log_level();
                Ok(Api {
                    $($name: {
                        let p = library.symbol(c_name!($name)).ok_or(LoadError::MissingSymbol(concat!("aoti_torch_", stringify!($name))))?;
                        // SAFETY: the symbol is the C function of that name, whose signature the stable ABI fixes.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(p) }
                    },)*
                    $($oname: library.symbol(c_opt_name!($oname)).map(|p| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($oarg),*) $(-> $oret)?>(p) }
                    }),)*
                    original_log_level: log_level.map_or(0, |l| l.load(Ordering::Relaxed)),
                    log_level,
                    silenced: AtomicUsize::new(0),
                    cuda: OnceLock::new(),
                    undefined: OnceLock::new(),
                    library,
                })
            }
        }
    };
}

macro_rules! c_name {
    ($name:ident) => {
        concat!("aoti_torch_", stringify!($name), "\0")
    };
}
macro_rules! c_opt_name {
    ($name:ident) => {
        concat!("torch_", stringify!($name), "\0")
    };
}

api! {
    required {
        abi_version: fn() -> u64;
        delete_tensor_object: fn(RawTensor) -> i32;
        new_tensor_handle: fn(RawTensor, *mut RawTensor) -> i32;
        new_uninitialized_tensor: fn(*mut RawTensor) -> i32;
        is_defined: fn(RawTensor, *mut bool) -> i32;
        get_data_ptr: fn(RawTensor, *mut *mut c_void) -> i32;
        get_dim: fn(RawTensor, *mut i64) -> i32;
        get_sizes: fn(RawTensor, *mut *mut i64) -> i32;
        get_strides: fn(RawTensor, *mut *mut i64) -> i32;
        get_dtype: fn(RawTensor, *mut i32) -> i32;
        get_device_type: fn(RawTensor, *mut i32) -> i32;
        get_device_index: fn(RawTensor, *mut i32) -> i32;
        get_layout: fn(RawTensor, *mut i32) -> i32;
        empty_strided: fn(i64, *const i64, *const i64, i32, i32, i32, *mut RawTensor) -> i32;
        _reinterpret_tensor: fn(RawTensor, i64, *const i64, *const i64, i64, *mut RawTensor) -> i32;
        create_tensor_from_blob_v2: fn(*mut c_void, i64, *const i64, *const i64, i64, i32, i32, i32, *mut RawTensor, i32, *const u8, i64) -> i32;
        copy_: fn(RawTensor, RawTensor, i32) -> i32;
        grad_mode_is_enabled: fn() -> bool;
        grad_mode_set_enabled: fn(bool);
        call_dispatcher: fn(*const c_char, *const c_char, *mut StableValue) -> i32;
    }
    optional {
        call_dispatcher_versioned: fn(*const c_char, *const c_char, *mut StableValue, u64) -> i32;
        new_list_reserve_size: fn(usize, *mut RawHandle) -> i32;
        list_push_back: fn(RawHandle, StableValue) -> i32;
        list_size: fn(RawHandle, *mut usize) -> i32;
        list_get_item: fn(RawHandle, usize, *mut StableValue) -> i32;
        delete_list: fn(RawHandle) -> i32;
        new_string_handle: fn(*const c_char, usize, *mut RawHandle) -> i32;
        parallel_for: fn(i64, i64, i64, ParallelFn, *mut c_void) -> i32;
        get_num_threads: fn(*mut u32) -> i32;
        from_blob: fn(*mut c_void, i64, *const i64, *const i64, i64, i32, i32, i32, *mut RawTensor, i32, *const u8, i64, Option<BlobDeleter>, *mut c_void) -> i32;
        new_stable_ivalue: fn(*mut *mut StableValue) -> i32;
        exception_get_what_without_backtrace: fn() -> *const c_char;
    }
}

impl Api {
    /// The functions of the libtorch of this process, loading the library at `path` when none is loaded yet.
    pub fn load(path: Option<&Path>) -> Result<&'static Api, LoadError> {
        static LOADED: Mutex<Option<&'static Api>> = Mutex::new(None);
        let mut loaded = LOADED.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(api) = *loaded {
            return Ok(api);
        }
        let mut api = Api::resolve(Library::open(path)?)?;
        // `torch_call_dispatcher` takes one argument more than the field of that name, so it is filled by hand.
        api.call_dispatcher_versioned = api.library.symbol("torch_call_dispatcher\0").map(|p| {
            // SAFETY: the symbol is the C function of that name, whose signature the stable ABI fixes.
            unsafe {
                std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const c_char, *const c_char, *mut StableValue, u64) -> i32,
                >(p)
            }
        });
        let api: &'static Api = Box::leak(Box::new(api));
        *loaded = Some(api);
        Ok(api)
    }

    /// Any other function of the library; `name` ends in NUL.
    pub fn symbol(&self, name: &str) -> Option<*mut c_void> {
        self.library.symbol(name)
    }

    /// A tensor that is none, as operators take it where a tensor is missing; lives as long as the process.
    pub fn undefined(&self) -> Result<RawTensor, String> {
        if let Some(known) = self.undefined.get() {
            return Ok(std::ptr::with_exposed_provenance_mut(*known));
        }
        let mut made: RawTensor = std::ptr::null_mut();
        // SAFETY: a writable result.
        super::tensor::check(self, "new_uninitialized_tensor", unsafe { (self.new_uninitialized_tensor)(&mut made) })?;
        let kept = *self.undefined.get_or_init(|| made.expose_provenance());
        Ok(std::ptr::with_exposed_provenance_mut(kept))
    }

    /// A function of libtorch_cuda; None where this process has not loaded it. `name` ends in NUL.
    pub fn cuda_symbol(&self, name: &str) -> Option<*mut c_void> {
        self.cuda.get_or_init(|| Library::loaded(c"libtorch_cuda.so")).as_ref()?.symbol(name)
    }

    /// What torch said of the last failed call of this thread, where this version keeps it.
    pub fn last_error(&self) -> Option<String> {
        let what = self.exception_get_what_without_backtrace?;
        // SAFETY: takes nothing; returns null or a NUL-terminated string owned by the thread.
        let text = unsafe {
            let p = what();
            if p.is_null() {
                return None;
            }
            CStr::from_ptr(p)
        };
        let text = text.to_string_lossy().trim().to_string();
        (!text.is_empty()).then_some(text)
    }

    /// Keeps libtorch from writing errors to stderr while the guard lives: whoever holds it reports them another way.
    pub fn silence(&self) -> Silence<'_> {
        if let Some(level) = self.log_level {
            self.silenced.fetch_add(1, Ordering::Relaxed);
            level.store(self.original_log_level.max(LOG_FATAL), Ordering::Relaxed);
        }
        Silence(self)
    }
}

/// `c10::GLOG_FATAL`
const LOG_FATAL: i32 = 3;

/// See [`Api::silence`].
pub struct Silence<'a>(&'a Api);

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        if let Some(level) = self.0.log_level
            && self.0.silenced.fetch_sub(1, Ordering::Relaxed) == 1
        {
            level.store(self.0.original_log_level, Ordering::Relaxed);
        }
    }
}

/// A handle from `dlopen` that is never closed.
struct Library(*mut c_void);

// SAFETY: `dlsym` may be called from any thread, and the handle is never closed.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    fn open(path: Option<&Path>) -> Result<Library, LoadError> {
        let name = if cfg!(target_os = "macos") { c"libtorch_cpu.dylib" } else { c"libtorch_cpu.so" };
        if let Some(library) = Library::loaded(name) {
            return Ok(library);
        }
        let mut handle = std::ptr::null_mut();
        if let Some(path) = path {
            let path = CString::new(path.as_os_str().as_encoded_bytes())
                .map_err(|_| LoadError::NotFound("the path holds a NUL byte".into()))?;
            // SAFETY: a NUL-terminated path; the caller vouches for the library it names.
            handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) };
        }
        if handle.is_null() {
            // SAFETY: `dlerror` returns null or a NUL-terminated string.
            let why = unsafe {
                let e = libc::dlerror();
                if e.is_null() { "no path given".into() } else { CStr::from_ptr(e).to_string_lossy().into_owned() }
            };
            return Err(LoadError::NotFound(why));
        }
        Ok(Library(handle))
    }

    /// A library that is in the process already.
    fn loaded(name: &CStr) -> Option<Library> {
        // SAFETY: a NUL-terminated name; with RTLD_NOLOAD nothing is loaded or run.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Library(handle))
    }

    fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
        // SAFETY: a live handle and a NUL-terminated name.
        let p = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!p.is_null()).then_some(p)
    }

    /// `FLAGS_caffe2_log_level` of libc10, the threshold of its logger.
    fn log_level(&self) -> Option<&'static AtomicI32> {
        let p = self.symbol("FLAGS_caffe2_log_level\0")?.cast::<i32>();
        // SAFETY: a global `int` of a library that stays loaded; only ever read by the logger as a whole word.
        Some(unsafe { AtomicI32::from_ptr(p) })
    }
}
