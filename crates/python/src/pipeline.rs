//! The facade of the compile pipeline: all that this crate asks of the rest of the compiler.
//!
//! What the pipeline has to provide, and what it may count on:
//!
//! - [`compile_joint`] gets the text of a `joint` graph. Tensor inputs with `role=tangent` belong to the backward alone, all
//!   other inputs to the forward. Operators that write (`copy_`) belong to the forward.
//!   - forward: arguments are the non-tangent inputs in order; outputs are the first `forward_outputs` outputs, then
//!     [`Joint::saved`], then [`Joint::saved_ints`].
//!   - backward: arguments are `saved_ints`, `saved`, then the tangent inputs in order; outputs are the remaining outputs.
//! - [`compile_graph`] gets a `forward`, `backward` or `inference` graph: arguments are its inputs, results its outputs.
//! - A write to an input goes through PyTorch's `copy_`, or bumps the tensor's version counter: autograd relies on it.
//! - The inputs' and the promised outputs' strides are what the text says. An output may not share memory with another
//!   output or with an input unless the text makes it a view of it.
//! - A backward that reads an input which the forward overwrites (`copy_`) reads it as it was before: the forward saves a
//!   copy of it, or what was computed from it. Nothing is recomputed from an overwritten input.
//! - Trailing inputs may be constants that the graph held; they are inputs like any other and never change.
//!
//! Executables are called from any thread, from several at once, and from within themselves (an operator may call Python).

use pyo3::FromPyObject;
use std::ffi::c_void;
use std::fmt;

/// What `permalloy.config` says, read from its attributes.
#[derive(Clone, Debug, Default, PartialEq, FromPyObject)]
pub struct Options {
    /// `cpu`, `cuda`, `ascend-a2`, `ascend-a5`.
    pub target: String,
    /// Nothing may run outside of the compiler without being named as native in the policy.
    pub strict: bool,
    /// Overrides: operator (with `*` allowed) to `native` or the name of a rule, first match counts.
    pub routes: Vec<(String, String)>,
    /// Patterns over `ROUTE:OPERATOR` that turn a decision into an error.
    pub deny: Vec<String>,
    /// Run internal checks: verifiers after each pass, results of kernels against the interpreter.
    pub check: bool,
    /// `off`, `fast` or `full`.
    pub tune: String,
    /// Threads that kernels may use; 0 means as many as PyTorch.
    pub threads: usize,
    /// Folder of the on-disk cache.
    pub cache_dir: String,
}

/// Why there is no executable.
#[derive(Clone, Debug, PartialEq)]
pub enum CompileError {
    /// The graph runs natively instead. `operator` and `location` name the culprit if there is one.
    Unsupported { reason: String, operator: Option<String>, location: Option<String> },
    /// The text is no graph.
    Malformed(String),
    /// An operator that the user's options forbid.
    Denied { reason: String, operator: Option<String>, location: Option<String> },
    /// A failed check or a panic: a bug of ours.
    Internal(String),
}

impl CompileError {
    pub fn unsupported(reason: impl Into<String>) -> CompileError {
        CompileError::Unsupported { reason: reason.into(), operator: None, location: None }
    }
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// Arguments that do not fit the graph, an index out of range, an operator's own error: the caller's to mend.
    Failed(String),
    /// A failed check or a panic: a bug of ours.
    Internal(String),
}

/// An owned `AtenTensorHandle`; whoever holds it frees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawTensor(pub *mut c_void);

// SAFETY: the handle points to an intrusive pointer with atomic counts; it is moved between threads, never shared.
unsafe impl Send for RawTensor {}

/// One result of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Output {
    Tensor(RawTensor),
    Int(i64),
    None,
}

/// Kind of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InputKind {
    Tensor,
    Int,
}

/// Something that runs.
pub trait Executable: Send + Sync {
    /// Kind of each argument.
    fn inputs(&self) -> &[InputKind];

    /// Runs. `tensors` and `ints` are the tensor and the integer arguments, each in order; there are as many as
    /// [`inputs`](Self::inputs) says. The tensors are the executable's own: it frees each as soon as it is done with it,
    /// on errors too. Results are the caller's. An output that is an input is a new handle of the same tensor.
    ///
    /// # Safety
    /// Each tensor is a live handle made by libtorch.
    unsafe fn run(&self, tensors: Vec<RawTensor>, ints: Vec<i64>) -> Result<Vec<Output>, RunError>;

    /// Decisions made on the way, as JSON: a list of objects with `operator`, `route`, `reason`, `location`.
    fn records(&self) -> String {
        "[]".into()
    }
}

impl fmt::Debug for dyn Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Executable({} inputs)", self.inputs().len())
    }
}

/// A value that the forward keeps for the backward.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// Name in the graph's text, or a new name for a value that the text does not have.
    pub name: String,
    /// Its type as the text form writes it, strides included; None when the text has this value with this very type.
    pub ty: Option<String>,
}

/// A compiled joint graph.
#[derive(Debug)]
pub struct Joint {
    pub forward: Box<dyn Executable>,
    pub backward: Box<dyn Executable>,
    /// Tensors only; inputs are named too if the backward reads them.
    pub saved: Vec<Saved>,
    /// Size expressions whose values the backward needs and cannot read off its tensors' sizes.
    pub saved_ints: Vec<String>,
    /// As [`Executable::records`], for both together.
    pub records: String,
}

/// Compiles a joint graph, cut included.
pub fn compile_joint(_text: &str, _options: &Options) -> Result<Joint, CompileError> {
    Err(CompileError::unsupported("the compile pipeline is not built yet"))
}

/// Compiles a forward, backward or inference graph.
pub fn compile_graph(_text: &str, _options: &Options) -> Result<Box<dyn Executable>, CompileError> {
    Err(CompileError::unsupported("the compile pipeline is not built yet"))
}

/// The plan for a graph in readable form.
pub fn explain(_text: &str, _options: &Options) -> Result<String, CompileError> {
    Err(CompileError::unsupported("the compile pipeline is not built yet"))
}

/// An executable that returns its arguments at the given positions; None for no value. An argument named twice, or
/// not at all, is an error of the caller.
pub fn passthrough(integers: Vec<bool>, outputs: Vec<Option<usize>>) -> Box<dyn Executable> {
    let inputs = integers.into_iter().map(|i| if i { InputKind::Int } else { InputKind::Tensor }).collect();
    Box::new(Passthrough { inputs, outputs })
}

struct Passthrough {
    inputs: Vec<InputKind>,
    outputs: Vec<Option<usize>>,
}

impl Executable for Passthrough {
    fn inputs(&self) -> &[InputKind] {
        &self.inputs
    }

    unsafe fn run(&self, tensors: Vec<RawTensor>, ints: Vec<i64>) -> Result<Vec<Output>, RunError> {
        let (mut tensors, mut ints) = (tensors.into_iter(), ints.into_iter());
        let mut all: Vec<Option<Output>> = Vec::with_capacity(self.inputs.len());
        for kind in &self.inputs {
            all.push(match kind {
                InputKind::Tensor => tensors.next().map(Output::Tensor),
                InputKind::Int => ints.next().map(Output::Int),
            });
        }
        self.outputs
            .iter()
            .map(|place| match place {
                None => Ok(Output::None),
                Some(i) => all
                    .get_mut(*i)
                    .and_then(Option::take)
                    .ok_or_else(|| RunError::Failed(format!("argument {i} is not there, or returned before"))),
            })
            .collect()
    }
}
