//! The border to the code generator: what turns a kernel into something that runs.

use crate::parallel::ParallelFor;
use permalloy_ir::SymbolValues;
use permalloy_loops::kernel::{BufferId, Kernel, Program, Scatter};

/// Makes kernels ready for concrete sizes.
pub trait Engine: Send + Sync {
    fn kernel(
        &self,
        program: &Program,
        kernel: &Kernel,
        symbols: &SymbolValues,
    ) -> Result<Box<dyn CompiledStep>, String>;

    fn scatter(
        &self,
        program: &Program,
        scatter: &Scatter,
        symbols: &SymbolValues,
    ) -> Result<Box<dyn CompiledStep>, String>;
}

/// A kernel that is ready to run.
pub trait CompiledStep: Send + Sync {
    /// The buffers it wants, in the order [`run`](Self::run) takes them.
    fn buffers(&self) -> &[BufferId];

    /// # Safety
    /// `buffers` are the addresses of the first elements of [`buffers`](Self::buffers), each valid for its extent;
    /// a buffer that is written shares no memory with another one, except as [`crate::plan`] allows in place.
    unsafe fn run(&self, buffers: &[*mut u8], parallel: &dyn ParallelFor) -> Result<(), String>;
}
