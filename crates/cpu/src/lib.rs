//! The tile engine: runs fused kernels on the CPU with no compile step.
//!
//! A [`Kernel`](permalloy_loops::kernel::Kernel) is instantiated for concrete sizes by [`compile_kernel`], which takes
//! microseconds: it writes a short program of vector micro-ops over registers that are tiles of about a thousand elements
//! (module `program`). Micro-ops are plain Rust loops compiled for each instruction set ([`isa`]).
//!
//! The engine knows nothing of graphs, allocation or threads: memory is given to [`CompiledKernel::run`] as pointers, and
//! tasks are handed to a [`ParallelFor`]. Results do not depend on who runs the tasks.
//!
//! ```
//! use permalloy_cpu::{Serial, compile_kernel, isa::IsaLevel};
//! use permalloy_ir::{DType, Device, Dim, PrimOp, SymbolValues};
//! use permalloy_loops::kernel::*;
//!
//! let n = Dim::sym("s0");
//! let buffer = |name: &str| Buffer {
//!     name: name.into(), dtype: DType::F32, device: Device::Cpu,
//!     shape: vec![n.clone()], strides: vec![Dim::ONE], kind: BufferKind::Intermediate,
//! };
//! let access = Access { offset: Dim::ZERO, strides: vec![Dim::ONE], masks: vec![] };
//! let op = |kind| KernelOp { kind, dtype: DType::F32 };
//! let kernel = Kernel {
//!     name: "exp".into(),
//!     axes: vec![Axis { size: n.clone(), role: AxisRole::Batch }],
//!     ops: vec![
//!         op(OpKind::Load { buffer: BufferId(0), access: access.clone() }),
//!         op(OpKind::Unary(PrimOp::Exp, OpId(0))),
//!         op(OpKind::Store { buffer: BufferId(1), access, value: OpId(1) }),
//!     ],
//!     fused: vec![],
//! };
//! let sizes = SymbolValues::from([("s0".into(), 3)]);
//! let exp = compile_kernel(&kernel, &[buffer("x"), buffer("y")], &sizes, IsaLevel::detect()).unwrap();
//! let (mut x, mut y) = ([0f32, 1.0, 2.0], [0f32; 3]);
//! // SAFETY: both buffers have three elements.
//! unsafe { exp.run(&[x.as_mut_ptr().cast(), y.as_mut_ptr().cast()], std::ptr::null_mut(), &Serial) }.unwrap();
//! assert!((y[1] - 1f32.exp()).abs() < 1e-6);
//! ```

#![allow(
    clippy::extra_unused_type_parameters,
    reason = "bodies of multiversioned loops are generic over the instruction set even where they do not ask it for anything"
)]

mod access;
mod cache;
mod class;
mod compile;
mod concrete;
mod copy;
mod error;
mod exec;
mod fold;
mod group;
pub mod isa;
mod jit;
mod layout;
pub mod math;
mod pointwise;
mod pool;
mod program;
mod regs;
mod run;
mod scatter;
mod worker_memory;

pub use error::{CompileError, RunError};
pub use group::{CompiledGroup, compile_group};
pub use pool::{ParallelFor, Serial, Threads};
pub use run::{CompiledKernel, compile_kernel};
pub use scatter::{CompiledScatter, compile_scatter};
