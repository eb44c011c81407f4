//! Generated kernels on a device: what a launch is made of, and who launches it.
//!
//! [`Driver`] is the border to the device. [`cuda::CudaDriver`] is the real one; tests put a recorder in its place. Work is
//! queued on PyTorch's current stream, so that operators of PyTorch's and kernels of ours keep their order without waiting.

pub mod cuda;
mod engine;
mod faults;

pub use engine::{DeviceEngine, StepForm};
pub use faults::FaultBoard;

use std::ffi::c_void;

/// A compiled kernel as Triton leaves it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binary {
    /// Machine code for the device.
    pub image: Vec<u8>,
    /// Name of the function in it.
    pub entry: String,
    pub shared_bytes: u32,
    /// Identifies kernels that are the same.
    pub key: String,
}

/// A kernel that is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function(pub usize);

/// Where work is queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream(pub usize);

/// Size of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Programs, in one dimension.
    pub programs: u32,
    /// Threads of a program.
    pub threads: u32,
    pub shared_bytes: u32,
}

/// Integers that a device can write and the host can read at any time.
#[derive(Clone, Copy, Debug)]
pub struct SharedWords {
    pub host: *mut i32,
    /// Address on the device.
    pub device: u64,
    pub count: usize,
}

// SAFETY: plain memory that is never given back; every access is atomic.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

/// One device.
pub trait Driver: Send + Sync {
    /// Makes the device current on this thread; called before any of the following.
    fn enter(&self) -> Result<(), String>;

    /// Loads a kernel, or finds it loaded. It stays until the process ends.
    fn load(&self, binary: &Binary) -> Result<Function, String>;

    /// The stream of PyTorch's operators on this thread.
    fn stream(&self) -> Result<Stream, String>;

    /// Queues a kernel.
    ///
    /// # Safety
    /// `parameters` point to the values of the function's parameters, in its order and of its types. Addresses among them
    /// are valid on the device when the kernel runs, for as far as it reaches.
    unsafe fn launch(
        &self,
        function: Function,
        grid: Grid,
        stream: Stream,
        parameters: &mut [*mut c_void],
    ) -> Result<(), String>;

    /// Queues zeroing of memory.
    ///
    /// # Safety
    /// `bytes` from `data` on are valid on the device when it happens.
    unsafe fn zero(&self, data: *mut u8, bytes: usize, stream: Stream) -> Result<(), String>;

    /// Words that are 0 and never go away.
    fn shared_words(&self, count: usize) -> Result<SharedWords, String>;
}
