//! Several pointwise kernels as one launch: a table of all their tasks.

use crate::error::{CompileError, RunError};
use crate::exec::{Fault, fault_error};
use crate::isa::IsaLevel;
use crate::pool::ParallelFor;
use crate::run::{CompiledKernel, Shared, check_memory, compile_kernel};
use permalloy_ir::SymbolValues;
use permalloy_loops::kernel::{Buffer, Kernel};
use std::sync::Mutex;

/// Kernels ready to run together for one choice of sizes.
pub struct CompiledGroup {
    kernels: Vec<CompiledKernel>,
    /// Number of the first task of each kernel.
    first: Vec<usize>,
    tasks: usize,
}

/// Compiles kernels that depend on none of each other. One with a reduction over rows is an error.
pub fn compile_group(
    kernels: &[Kernel],
    buffers: &[Buffer],
    symbols: &SymbolValues,
    level: IsaLevel,
) -> Result<CompiledGroup, CompileError> {
    let mut group = CompiledGroup { kernels: Vec::with_capacity(kernels.len()), first: Vec::new(), tasks: 0 };
    for k in kernels {
        let compiled = compile_kernel(k, buffers, symbols, level)?;
        if compiled.scratch_bytes() > 0 {
            return Err(CompileError::Malformed(format!(
                "kernel {}: a reduction over rows cannot share a launch",
                k.name
            )));
        }
        group.first.push(group.tasks);
        group.tasks += compiled.tasks();
        group.kernels.push(compiled);
    }
    Ok(group)
}

impl CompiledGroup {
    /// Tasks a run consists of.
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// Runs all kernels, in no particular order.
    ///
    /// # Safety
    /// As for [`CompiledKernel::run`], for each of the kernels; and no kernel stores to memory that another one touches.
    pub unsafe fn run(&self, memory: &[*mut u8], pool: &dyn ParallelFor) -> Result<(), RunError> {
        let mut programs = Vec::with_capacity(self.kernels.len());
        for k in &self.kernels {
            check_memory(k.name(), k.used(), memory)?;
            programs.push(k.program_for(memory));
        }
        let fault: Fault = Mutex::new(None);
        let shared = Shared(memory);
        let body = |task: usize| {
            let i = self.first.partition_point(|first| *first <= task) - 1;
            // SAFETY: tasks of one kernel store to disjoint addresses, and kernels do by the caller's promise.
            unsafe {
                self.kernels[i].task(programs[i], shared.get(), std::ptr::null_mut(), task - self.first[i], &fault)
            }
        };
        pool.run(self.tasks, &body);
        fault_error(fault, self.kernels.first().map_or("", |k| k.name()), |b| {
            let used = self.kernels.iter().flat_map(|k| k.used()).find(|u| u.buffer == b);
            used.map_or_else(|| "?".into(), |u| u.name.clone())
        })
    }
}
