//! Loop IR, and the way down to it from the prims: lowering and fusion.
//!
//! [`lower`] turns a graph of prims and native operators into a [`kernel::Program`]: fused loop nests, scatters and native
//! calls over buffers, in an order that keeps every dependence. It decides nothing about how a kernel is run; engines do.

mod domain;
pub mod kernel;
mod lower;
mod text;
mod units;
mod view;

pub use lower::{Limits, LowerError, Options, lower};
