//! Parallel loops: the CPU engine's interface, which the providers implement.

pub use permalloy_cpu::{ParallelFor, Serial, Threads};
