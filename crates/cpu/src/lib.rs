//! The tile engine: runs fused kernels on the CPU with no compile step.
pub mod isa;
pub mod math;
