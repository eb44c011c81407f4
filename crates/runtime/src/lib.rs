//! The executable: binds sizes, plans memory, and runs a program's steps on kernels of ours and operators of a provider's.
//!
//! A [`Program`](permalloy_loops::kernel::Program) becomes an [`Executable`] together with a [`Provider`](provider::Provider)
//! (PyTorch, or the embedded one) and an [`Engine`](engine::Engine) that compiles its kernels. All that depends on sizes
//! alone is done once a choice of sizes; a run is a walk over the steps.

pub mod arena;
mod bind;
pub mod embedded;
pub mod engine;
mod error;
mod executable;
mod instance;
pub mod parallel;
pub mod plan;
pub mod provider;
mod tensor;
pub mod torch;

pub use bind::RunInput;
pub use error::RunError;
pub use executable::{Executable, RunOutput};
pub use instance::RouteRecord;
pub use tensor::TensorHandle;
