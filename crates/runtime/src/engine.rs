//! The border to the code generator: what turns a kernel into something that runs.

use crate::parallel::ParallelFor;
use permalloy_cpu::isa::IsaLevel;
use permalloy_cpu::{CompiledGroup, CompiledKernel, CompiledScatter};
use permalloy_ir::SymbolValues;
use permalloy_loops::kernel::{Group, Kernel, Program, Scatter};
use std::sync::Arc;

/// Makes kernels ready for concrete sizes.
pub trait Engine: Send + Sync {
    fn kernel(
        &self,
        program: &Program,
        kernel: &Kernel,
        symbols: &SymbolValues,
    ) -> Result<Box<dyn CompiledStep>, String>;

    /// Kernels that run together. An engine that has nothing better runs them one after the other.
    fn group(&self, program: &Program, group: &Group, symbols: &SymbolValues) -> Result<Box<dyn CompiledStep>, String> {
        let kernels = group.kernels.iter().map(|k| self.kernel(program, k, symbols)).collect::<Result<_, _>>()?;
        Ok(Box::new(InTurn(kernels)))
    }

    fn scatter(
        &self,
        program: &Program,
        scatter: &Scatter,
        symbols: &SymbolValues,
    ) -> Result<Box<dyn CompiledStep>, String>;

    /// A kernel may lie in the memory of an input that it is the last to read, where
    /// [`in_place_pairs`](crate::plan::in_place_pairs) allows it.
    fn works_in_place(&self) -> bool {
        true
    }

    /// Called on the thread of a run before its first step.
    fn enter(&self) -> Result<(), StepError> {
        Ok(())
    }
}

/// Why a kernel failed.
#[derive(Clone, PartialEq, Debug)]
pub enum StepError {
    /// An index read at run time lies outside of `0..size` of a buffer.
    Index {
        buffer: Arc<str>,
        index: i64,
        size: i64,
    },
    /// The same, found after the kernel had run: what it says of the index, and which operators it may be of.
    Late {
        message: String,
        by: String,
    },
    Other(String),
}

impl From<permalloy_cpu::RunError> for StepError {
    fn from(e: permalloy_cpu::RunError) -> StepError {
        match e {
            permalloy_cpu::RunError::Index { buffer, index, size, .. } => StepError::Index { buffer, index, size },
            other => StepError::Other(other.to_string()),
        }
    }
}

/// A kernel that is ready to run.
pub trait CompiledStep: Send + Sync {
    /// Bytes of memory that [`run`](Self::run) needs for itself.
    fn scratch_bytes(&self) -> usize {
        0
    }

    /// # Safety
    /// `buffers` gives, by buffer id, the address of the first element of each buffer that the kernel touches, valid for
    /// its extent. A buffer that is written shares memory with no other one, except that a buffer it reads may lie at the
    /// same place when [`in_place_pairs`](crate::plan::in_place_pairs) names the two (of a group: `in_place_pairs_of`). `scratch` has
    /// [`scratch_bytes`](Self::scratch_bytes) bytes, aligned to 64.
    unsafe fn run(&self, buffers: &[*mut u8], scratch: *mut u8, parallel: &dyn ParallelFor) -> Result<(), StepError>;
}

struct InTurn(Vec<Box<dyn CompiledStep>>);

impl CompiledStep for InTurn {
    fn scratch_bytes(&self) -> usize {
        self.0.iter().map(|k| k.scratch_bytes()).max().unwrap_or(0)
    }

    unsafe fn run(&self, buffers: &[*mut u8], scratch: *mut u8, parallel: &dyn ParallelFor) -> Result<(), StepError> {
        // SAFETY: the caller's promise holds for each kernel.
        self.0.iter().try_for_each(|k| unsafe { k.run(buffers, scratch, parallel) })
    }
}

/// The CPU's tile engine.
#[derive(Clone, Copy, Debug)]
pub struct TileEngine {
    level: IsaLevel,
}

impl TileEngine {
    /// For the processor it runs on.
    pub fn new() -> TileEngine {
        TileEngine { level: IsaLevel::detect() }
    }

    /// With no more instructions than `level` has.
    pub fn at(level: IsaLevel) -> TileEngine {
        TileEngine { level }
    }
}

impl Default for TileEngine {
    fn default() -> Self {
        TileEngine::new()
    }
}

impl Engine for TileEngine {
    fn kernel(
        &self,
        program: &Program,
        kernel: &Kernel,
        symbols: &SymbolValues,
    ) -> Result<Box<dyn CompiledStep>, String> {
        let compiled = permalloy_cpu::compile_kernel(kernel, &program.buffers, symbols, self.level);
        Ok(Box::new(compiled.map_err(|e| e.to_string())?))
    }

    fn group(&self, program: &Program, group: &Group, symbols: &SymbolValues) -> Result<Box<dyn CompiledStep>, String> {
        let compiled = permalloy_cpu::compile_group(&group.kernels, &program.buffers, symbols, self.level);
        Ok(Box::new(compiled.map_err(|e| e.to_string())?))
    }

    fn scatter(
        &self,
        program: &Program,
        scatter: &Scatter,
        symbols: &SymbolValues,
    ) -> Result<Box<dyn CompiledStep>, String> {
        let compiled = permalloy_cpu::compile_scatter(scatter, &program.buffers, symbols, self.level);
        Ok(Box::new(compiled.map_err(|e| e.to_string())?))
    }
}

impl CompiledStep for CompiledKernel {
    fn scratch_bytes(&self) -> usize {
        CompiledKernel::scratch_bytes(self)
    }

    unsafe fn run(&self, buffers: &[*mut u8], scratch: *mut u8, parallel: &dyn ParallelFor) -> Result<(), StepError> {
        // SAFETY: the caller's promise is the engine's contract.
        unsafe { CompiledKernel::run(self, buffers, scratch, parallel) }.map_err(StepError::from)
    }
}

impl CompiledStep for CompiledGroup {
    unsafe fn run(&self, buffers: &[*mut u8], _: *mut u8, parallel: &dyn ParallelFor) -> Result<(), StepError> {
        // SAFETY: the caller's promise is the engine's contract.
        unsafe { CompiledGroup::run(self, buffers, parallel) }.map_err(StepError::from)
    }
}

impl CompiledStep for CompiledScatter {
    fn scratch_bytes(&self) -> usize {
        CompiledScatter::scratch_bytes(self)
    }

    unsafe fn run(&self, buffers: &[*mut u8], scratch: *mut u8, parallel: &dyn ParallelFor) -> Result<(), StepError> {
        // SAFETY: the caller's promise is the engine's contract.
        unsafe { CompiledScatter::run(self, buffers, scratch, parallel) }.map_err(StepError::from)
    }
}
