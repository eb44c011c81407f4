//! The executable: binds sizes, plans memory, and runs a program's steps on kernels of ours and operators of a provider's.
//!
//! A [`Program`](permalloy_loops::kernel::Program) becomes an [`Executable`] together with a [`Provider`](provider::Provider)
//! ([PyTorch](torch), or the [embedded](embedded) one) and an [`Engine`](engine::Engine) that compiles its kernels. All that
//! depends on sizes alone is done once a choice of sizes (an instance): operators are resolved, kernels compiled, memory is
//! planned. A run is then a walk over the steps, without a look-up by name or an allocation per kernel.
//!
//! This crate decides nothing about what is fused or which operator stays native, and it never calls into Python itself.
//!
//! ```
//! use permalloy_ir::{DType, Device, Dim, GraphKind, Role, contiguous_strides};
//! use permalloy_loops::kernel::*;
//! use permalloy_runtime::embedded::{EmbeddedProvider, PlainTensor};
//! use permalloy_runtime::{Executable, RunInput, RunOutput, TensorHandle, engine::TileEngine};
//! use std::sync::Arc;
//!
//! let shape = vec![Dim::from(2), Dim::from(2)];
//! let strides = contiguous_strides(&shape);
//! let buffer = |name: &str, kind| Buffer {
//!     name: name.into(), dtype: DType::F32, device: Device::Cpu, shape: shape.clone(), strides: strides.clone(), kind,
//! };
//! let whole = |b| TensorRef { buffer: BufferId(b), shape: shape.clone(), strides: strides.clone(), offset: Dim::ZERO };
//! let square = Program {
//!     name: "square".into(),
//!     kind: GraphKind::Inference,
//!     symbols: vec![],
//!     buffers: vec![buffer("x", BufferKind::Input(0)), buffer("y", BufferKind::Output)],
//!     inputs: vec![ProgramInput::Tensor { buffer: BufferId(0), role: Role::Primal }],
//!     outputs: vec![ProgramOutput::Tensor(whole(1))],
//!     steps: vec![Step::Native(NativeCall {
//!         op: "aten.mm.default".into(),
//!         args: vec![NativeArg::Tensor(whole(0)), NativeArg::Tensor(whole(0))],
//!         kwargs: vec![],
//!         results: vec![Some(BufferId(1))],
//!         loc: None,
//!     })],
//! };
//! let exe = Executable::new(Arc::new(square), Arc::new(EmbeddedProvider::new(1)), Arc::new(TileEngine::new())).unwrap();
//! let x = PlainTensor::from_values(DType::F32, &[2, 2], &[1f32, 2.0, 3.0, 4.0]);
//! let out = exe.run(vec![RunInput::Tensor(TensorHandle::Plain(x))]).unwrap();
//! let RunOutput::Tensor(TensorHandle::Plain(y)) = &out[0] else { panic!() };
//! assert_eq!(y.values::<f32>(), [7.0, 10.0, 15.0, 22.0]);
//! ```

pub mod arena;
mod bind;
pub mod device;
pub mod embedded;
pub mod engine;
mod error;
mod executable;
mod gaps;
mod instance;
pub mod malloc;
pub mod output_memory;
pub mod parallel;
pub mod peak;
pub mod plan;
pub mod profile;
pub mod provider;
mod tensor;
pub mod torch;
pub mod upload;
pub mod watch;

pub use bind::RunInput;
pub use error::RunError;
pub use executable::{Executable, RunOutput};
pub use instance::RouteRecord;
pub use tensor::TensorHandle;
