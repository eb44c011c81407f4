//! How a generated kernel is launched: everything the run time needs beside the source text.

use permalloy_ir::{DType, Dim};
use permalloy_loops::kernel::BufferId;

/// The Triton form of one step of a program: launches in order, and memory they need among themselves.
#[derive(Clone, PartialEq, Debug)]
pub struct Generated {
    pub launches: Vec<Launch>,
    /// Partial sums; nothing but these launches reads them.
    pub scratch: Vec<Scratch>,
}

/// A dense piece of memory that lives for one step.
#[derive(Clone, PartialEq, Debug)]
pub struct Scratch {
    pub dtype: DType,
    pub elements: Dim,
}

/// One kernel launch, or something that every run time can do itself.
#[derive(Clone, PartialEq, Debug)]
pub enum Launch {
    /// Every byte of the memory becomes 0.
    Zero(Memory),
    Kernel(Box<KernelLaunch>),
    /// `keys` (i32) in ascending order to `sorted` (i32), and where each came from to `order` (i64). Equal keys keep their
    /// order.
    Sort {
        keys: Memory,
        sorted: Memory,
        order: Memory,
        elements: Dim,
    },
}

/// What a pointer points to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Memory {
    Buffer(BufferId),
    /// Index into [`Generated::scratch`].
    Scratch(usize),
    /// One i32 that is 0 before the step; another value afterwards names the fault (see [`KernelLaunch::faults`]).
    Fault,
}

/// A kernel and how to call it.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelLaunch {
    /// Name of the function in the source.
    pub name: String,
    /// A Python module: imports, the functions used, the kernel.
    pub source: String,
    /// In the order of the parameters; constants that the compiler must know come after them.
    pub args: Vec<Arg>,
    /// Compile-time constants by name, in the order of the parameters.
    pub constants: Vec<(String, i64)>,
    /// Number of programs (a grid of one dimension). 0: nothing is to be launched.
    pub programs: Dim,
    pub num_warps: u32,
    pub num_stages: u32,
    /// Expressions that must not exceed the bound beside them for this source to be right (32-bit addresses): else the
    /// step must be generated with [`crate::Options::wide_index`].
    pub requires: Vec<(Dim, i64)>,
    /// Message of each fault code, from 1 on.
    pub faults: Vec<String>,
}

/// A parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct Arg {
    pub name: String,
    pub kind: ArgKind,
}

#[derive(Clone, PartialEq, Debug)]
pub enum ArgKind {
    /// A pointer to elements of the dtype (bool is held in bytes of 0 or 1). `aligned`: memory of ours, a multiple of 16
    /// bytes; other pointers have to be looked at before a variant that assumes so is called.
    Pointer { memory: Memory, dtype: DType, aligned: bool },
    /// An integer. `multiple_of_16` whatever the sizes.
    Size { value: Dim, wide: bool, multiple_of_16: bool },
}

impl Arg {
    /// Its type in a Triton signature.
    pub fn signature(&self) -> String {
        match &self.kind {
            ArgKind::Pointer { dtype, .. } => format!("*{}", signature_name(*dtype)),
            ArgKind::Size { wide, .. } => if *wide { "i64" } else { "i32" }.to_string(),
        }
    }
}

/// What a signature calls the elements of memory.
fn signature_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "fp64",
        DType::F32 => "fp32",
        DType::BF16 => "bf16",
        DType::F16 => "fp16",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::I16 => "i16",
        DType::U8 => "u8",
        // A bool is a byte.
        _ => "i8",
    }
}
