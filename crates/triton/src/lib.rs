//! Triton source from the loop IR.
//!
//! [`generate`] turns one [`Kernel`](permalloy_loops::kernel::Kernel) into readable Python: kernels with named parameters, a header that says which
//! operators of the user's model went in, and beside the text everything a launch needs. One generator serves every family
//! of devices; what differs is data, in [`device`]. Nothing is run or compiled here, and nothing is guessed: a kernel that
//! has no Triton form is an [`Unsupported`] value that names what is missing.
//!
//! ```
//! use permalloy_ir::{Graph, SymbolInfo};
//! use permalloy_loops::kernel::Step;
//! use permalloy_triton::{Device, Launch, Options, generate};
//!
//! let graph = Graph::parse(r#"graph "g" inference {
//!   input %x: f32[4096] strides=[1]
//!   %y: f32[4096] = prim.exp(%x)
//!   output %y
//! }"#).unwrap();
//! let device = Device::of("cuda-sm90").unwrap();
//! let program = permalloy_loops::lower(&graph, device.limits()).unwrap();
//! let Step::Kernel(kernel) = &program.steps[0] else { panic!() };
//! let made = generate(kernel, &program.buffers, &program.symbols, device, &Options::default()).unwrap();
//! let Launch::Kernel(launch) = &made.launches[0] else { panic!() };
//! assert!(launch.source.contains("def k0_exp(x_ptr, y_ptr, X_BLOCK: tl.constexpr):"));
//! assert_eq!(launch.programs.to_string(), "4");
//! ```

mod address;
mod body;
mod compile;
pub mod device;
mod emit;
mod error;
mod expression;
mod helpers;
mod json;
mod kernel;
mod launch;
mod normalise;
mod online;
mod scatter;
mod schedule;
mod sorted;
mod text;

pub use compile::{CompileRequest, ENTRY};
pub use device::Device;
pub use error::{Missing, Unsupported};
pub use json::program_json;
pub use kernel::generate;
pub use launch::{Arg, ArgKind, Generated, KernelLaunch, Launch, Memory, Scratch};
pub use scatter::generate_scatter;
pub use text::program_text;

/// What a caller may decide about a kernel.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// 64-bit addresses even where sizes do not seem to need them.
    pub wide_index: bool,
    /// Sums of scatters are added in an order that does not depend on timing.
    pub deterministic: bool,
    /// Other tile sizes than the device's; for tuning.
    pub tile: Option<TileChoice>,
}

/// Sizes of a tile: its two dims, and the warps that share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TileChoice {
    pub outer: u32,
    pub inner: u32,
    pub warps: u32,
}
