//! Runs of micro-ops as one loop of machine code, for processors with AVX2 or AVX-512.
//!
//! A micro-op is a pass over a tile: its operands are read from the first-level cache and its result is written there, which
//! takes longer than the arithmetic. A run of cheap ones becomes a function of its own in which intermediate values stay in
//! registers and sums are taken on the way. It is made in microseconds ([`emit`]), without a compiler; where a system
//! forbids processes to make code, or on other processors, the micro-ops run one by one.

mod assembler;
mod chain;
mod code;
mod emit;
mod exec;
mod fuse;
mod lanes;
mod masks;
mod operations;

pub(crate) use assembler::Width;
pub(crate) use code::{Code, fence};
pub(crate) use fuse::fuse;

use crate::access::TileAccess;
use crate::fold::Join;
use crate::program::{Micro, Slot};

/// An argument of the function.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Argument {
    /// A value from outside of the run.
    Slot(Slot),
    /// Position of the first element: address of the access there, as a number.
    Position(TileAccess),
    /// What will be read or written in this memory so many rows further on.
    Ahead(usize, usize),
    /// The result of the micro-op of that number in `outs`.
    Out(usize),
    /// The same where each row replaces the one before.
    Kept(usize),
    /// Lanes in which the column accumulator of that number in `sums` is joined.
    Lanes(usize),
    /// Sums of the last few rows of a row accumulator.
    Rows(usize),
}

/// A run of micro-ops as one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Fused {
    /// Where its function begins in the program's code.
    pub entry: usize,
    /// The same, writing results past the caches; those must be aligned to 64 bytes then.
    pub streaming: Option<usize>,
    pub arguments: Vec<Argument>,
    /// Results that others read.
    pub outs: Vec<Micro>,
    /// Column accumulators.
    pub sums: Vec<(usize, Join)>,
    /// One call does the whole tile; otherwise each row takes one.
    pub flat: bool,
    /// Place of the lanes of the sums.
    pub lanes: usize,
}
