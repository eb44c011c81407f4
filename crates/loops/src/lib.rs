//! Loop IR, and the way down to it from the prims: lowering, fusion, scheduling, memory plan.
pub mod kernel;
