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

use crate::{callbacks, target};
use permalloy_cli::kernels::KernelCheck;
use permalloy_ops::policy::glob;
use permalloy_runtime::TensorHandle;
use permalloy_runtime::provider::{PythonOp, ResolvedArg, ResolvedCall};
use permalloy_runtime::torch::TorchProvider;
use pyo3::FromPyObject;
use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What `permalloy.config` says, read from its attributes.
#[derive(Clone, Debug, Default, PartialEq, FromPyObject)]
pub struct Options {
    /// Names the policy table, and what programs run on: `cpu` or `cuda`.
    pub target: String,
    /// Which of the target's devices.
    pub device: u8,
    /// Compute capability of a CUDA device, times ten.
    pub capability: u32,
    /// Results must not depend on timing.
    pub deterministic: bool,
    /// An operator that runs natively for lack of support is an error.
    pub strict: bool,
    /// Overrides: operator (with `*` allowed) to `native`, `decompose` or the name of a rule; the last match counts.
    pub routes: Vec<(String, String)>,
    /// Rewrites by name: `on`, `off` or `always`.
    pub rewrites: Vec<(String, String)>,
    /// Patterns over `ROUTE:OPERATOR` that turn a decision into an error.
    pub deny: Vec<String>,
    /// Run the verifier after each pass.
    pub check: bool,
    /// Run each fused kernel's unfused graph in the interpreter, too.
    pub check_kernels: bool,
    /// 16-bit floats are rounded after each operator.
    pub emulate_eager_casts: bool,
    /// Bytes of a piece of a loss's logits, if they are made in pieces.
    pub chunked_loss: Option<i64>,
    /// Part of the bytes saved for a backward at best speed that may be saved.
    pub memory_budget: f64,
    /// Large outputs live in memory that is kept from call to call.
    pub pool_outputs: bool,
    /// How routes are chosen by measurement, if they are.
    pub tuning: Option<Tuning>,
}

/// How routes are chosen by measurement.
#[derive(Clone, Debug, Default, PartialEq, FromPyObject)]
pub struct Tuning {
    /// `fast` or `full`.
    pub mode: String,
    /// Where compiled kernels are kept, and measurements.
    pub cache_dir: String,
    /// Name of a CUDA device; empty for the CPU, whose name is known.
    pub device_name: String,
    /// Of PyTorch, and its number of threads.
    pub versions: String,
}

/// Why there is no executable.
#[derive(Clone, Debug, PartialEq)]
pub enum CompileError {
    /// The graph runs natively instead. `operator` and `location` name the culprit if there is one.
    Unsupported { reason: String, operator: Option<String>, location: Option<String> },
    /// The text is no graph.
    Malformed(String),
    /// Options that make no sense.
    Options(String),
    /// A decision that the user's options forbid.
    Forbidden { reason: String, operator: Option<String>, location: Option<String> },
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
    /// Arguments that do not fit the graph, an operator's own error: the caller's to mend.
    Failed(String),
    /// An index out of range.
    Index(String),
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

    /// How kernels compared with their unfused graphs since the last call, as JSON: a list of objects with `kernel`,
    /// `elements`, `worst_absolute`, `worst_relative`, `wrong`, `unchecked`, `reproducer`.
    fn kernel_checks(&self) -> String {
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
pub fn compile_joint(text: &str, options: &Options) -> Result<Joint, CompileError> {
    let lower = |o: &permalloy_driver::Options| permalloy_driver::compile_joint(text, o).map_err(driver_error);
    let (compiled, runners) = target::compile(options, lower)?;
    let [for_forward, for_backward] = runners.engines.as_slice() else {
        return Err(CompileError::Internal("a joint graph has two programs".to_string()));
    };
    let forward = Compiled::new(compiled.forward, &compiled.cut.forward, &runners.provider, for_forward, options)?;
    let backward = Compiled::new(compiled.backward, &compiled.cut.backward, &runners.provider, for_backward, options)?;
    let natives = [forward.executable.routes(), backward.executable.routes()].concat();
    let records = permalloy_driver::report::records_json(&compiled.records, &natives_text(&natives));
    let saved = compiled.saved.into_iter().map(|s| Saved { name: s.name, ty: s.ty }).collect();
    let saved_ints = compiled.cut.saved_ints.iter().map(ToString::to_string).collect();
    Ok(Joint { forward: Box::new(forward), backward: Box::new(backward), saved, saved_ints, records })
}

/// Compiles a forward, backward or inference graph.
pub fn compile_graph(text: &str, options: &Options) -> Result<Box<dyn Executable>, CompileError> {
    let lower = |o: &permalloy_driver::Options| permalloy_driver::compile_graph(text, o).map_err(driver_error);
    let (compiled, runners) = target::compile(options, lower)?;
    let [engine] = runners.engines.as_slice() else {
        return Err(CompileError::Internal("a graph has one program".to_string()));
    };
    let mut executable = Compiled::new(compiled.program, &compiled.graph, &runners.provider, engine, options)?;
    executable.records =
        permalloy_driver::report::records_json(&compiled.records, &natives_text(&executable.executable.routes()));
    Ok(Box::new(executable))
}

pub(crate) fn driver_options(options: &Options) -> permalloy_driver::Options {
    permalloy_driver::Options {
        target: options.target.clone(),
        routes: options.routes.clone(),
        rewrites: options.rewrites.clone(),
        deny: options.deny.clone(),
        strict: options.strict,
        check: options.check,
        emulate_eager_casts: options.emulate_eager_casts,
        chunked_loss: options.chunked_loss,
        memory_budget: options.memory_budget,
        ..Default::default()
    }
}

/// Reads overrides, rewrites and denied decisions as a compile would. The error says what is wrong with one. Returns operator
/// patterns of `deny` that match nothing in the operator table.
pub fn check_options(
    routes: &[(String, String)],
    rewrites: &[(String, String)],
    deny: &[String],
) -> Result<Vec<String>, String> {
    permalloy_passes::parse_overrides(routes)?;
    permalloy_passes::RewriteOptions::of(rewrites)?;
    let deny = deny.iter().map(|d| permalloy_driver::Deny::parse(d)).collect::<Result<Vec<_>, _>>()?;
    let known = |d: &permalloy_driver::Deny| permalloy_ops::table().keys().any(|n| glob(d.pattern(), n));
    Ok(deny.iter().filter(|d| !known(d)).map(|d| d.pattern().to_string()).collect())
}

/// The entry of `deny` that forbids an operator to run as PyTorch's own kernel.
pub fn denies_native(deny: &[String], op: &str) -> Option<String> {
    let forbids = |d: &&String| permalloy_driver::Deny::parse(d).is_ok_and(|d| d.forbids_native(op));
    deny.iter().find(forbids).cloned()
}

/// The Triton form of a graph for a device, as JSON: a list of programs, forward and backward for a joint graph.
/// `tile`: other tile sizes than the device's, outer, inner, warps.
pub fn triton_sources(
    text: &str,
    device: &str,
    deterministic: bool,
    tile: Option<(u32, u32, u32)>,
) -> Result<String, CompileError> {
    let device = permalloy_triton::Device::of(device).ok_or_else(|| {
        let known: Vec<&str> = permalloy_triton::device::DEVICES.iter().map(|d| d.name).collect();
        CompileError::Options(format!("there is no device {device}; devices: {}", known.join(", ")))
    })?;
    let mut options = permalloy_driver::Options { limits: device.limits(), ..Default::default() };
    if device.family == permalloy_triton::device::Family::Cuda {
        options.target = "cuda".to_string();
    }
    let programs = permalloy_driver::programs(text, &options).map_err(driver_error)?;
    let tile = tile.map(|(outer, inner, warps)| permalloy_triton::TileChoice { outer, inner, warps });
    let how = permalloy_triton::Options { deterministic, tile, ..Default::default() };
    let form = |p| permalloy_triton::program_json(p, device, &how);
    Ok(serde_json::Value::Array(programs.iter().map(form).collect()).to_string())
}

/// Compiles a graph's kernels for a CUDA device that need not be there. A list, one object a program: names of the steps
/// with what each launches, and the records.
pub fn device_kernels(text: &str, options: &Options) -> Result<String, CompileError> {
    fn shown<L: target::Lowered>(
        options: &Options,
        lower: impl Fn(&permalloy_driver::Options) -> Result<L, CompileError>,
    ) -> Result<String, CompileError> {
        let (mut made, forms) = target::with_kernels(options, lower)?;
        let step = |(name, form): (&String, &permalloy_runtime::device::StepForm)| {
            let kernels: Vec<&str> = form.binaries.iter().map(|b| &*b.key).collect();
            serde_json::json!({"step": name, "kernels": kernels})
        };
        let programs: Vec<_> = forms.iter().map(|f| f.iter().map(step).collect::<Vec<_>>()).collect();
        let records = permalloy_driver::report::records_json(made.records(), &[]);
        Ok(format!("{{\"programs\": {}, \"records\": {records}}}", serde_json::json!(programs)))
    }
    match permalloy_driver::is_joint(text).map_err(driver_error)? {
        true => shown(options, |o| permalloy_driver::compile_joint(text, o).map_err(driver_error)),
        false => shown(options, |o| permalloy_driver::compile_graph(text, o).map_err(driver_error)),
    }
}

pub(crate) fn driver_error(e: permalloy_driver::Error) -> CompileError {
    use permalloy_driver::Error;
    match e {
        Error::Parse(e) => CompileError::Malformed(e.to_string()),
        Error::Verify { stage: "input", message } => CompileError::Malformed(message),
        Error::Forbidden(f) => {
            CompileError::Forbidden { reason: f.reason, operator: Some(f.operator), location: f.location }
        }
        Error::Options(reason) => CompileError::Options(reason),
        other => CompileError::Internal(other.to_string()),
    }
}

fn natives_text(routes: &[permalloy_runtime::RouteRecord]) -> Vec<(String, String)> {
    routes.iter().map(|r| (r.op.to_string(), r.route.to_string())).collect()
}

/// A program on PyTorch's operators and kernels of ours.
struct Compiled {
    executable: permalloy_runtime::Executable,
    api: &'static permalloy_runtime::torch::Api,
    inputs: Vec<InputKind>,
    records: String,
    check: Option<Arc<KernelCheck>>,
}

impl Compiled {
    fn new(
        program: permalloy_loops::kernel::Program,
        graph: &permalloy_ir::Graph,
        provider: &Arc<TorchProvider>,
        engine: &Arc<dyn permalloy_runtime::engine::Engine>,
        options: &Options,
    ) -> Result<Compiled, CompileError> {
        use permalloy_loops::kernel::ProgramInput;
        let api = provider.api();
        let kind = |i: &ProgramInput| match i {
            ProgramInput::Tensor { .. } => InputKind::Tensor,
            ProgramInput::Int(_) => InputKind::Int,
        };
        let inputs = program.inputs.iter().map(kind).collect();
        // The reference runs on the CPU.
        let checks = options.check_kernels && options.target == "cpu";
        let check = checks.then(|| Arc::new(KernelCheck::new(graph, &program)));
        let executable = permalloy_runtime::Executable::new(Arc::new(program), provider.clone(), engine.clone())
            .map_err(|e| CompileError::Internal(e.to_string()))?;
        let executable = if options.pool_outputs {
            permalloy_runtime::malloc::keep_freed_blocks();
            executable
        } else {
            executable.without_pooled_outputs()
        };
        let executable = match &check {
            Some(check) => executable.watched(check.clone()),
            None => executable,
        };
        Ok(Compiled { executable, api, inputs, records: "[]".to_string(), check })
    }
}

impl Executable for Compiled {
    fn inputs(&self) -> &[InputKind] {
        &self.inputs
    }

    unsafe fn run(&self, tensors: Vec<RawTensor>, ints: Vec<i64>) -> Result<Vec<Output>, RunError> {
        use permalloy_runtime::{RunInput, RunOutput, TensorHandle, torch::TorchTensor};
        let (mut tensors, mut ints) = (tensors.into_iter(), ints.into_iter());
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for kind in &self.inputs {
            let input = match kind {
                InputKind::Int => ints.next().map(RunInput::Int),
                // SAFETY: the caller hands over owning handles.
                InputKind::Tensor => tensors
                    .next()
                    .and_then(|t| unsafe { TorchTensor::from_raw(self.api, t.0) })
                    .map(|t| RunInput::Tensor(TensorHandle::Torch(t))),
            };
            inputs.push(input.ok_or_else(|| RunError::Failed("an argument is missing".to_string()))?);
        }
        let outputs = self.executable.run(inputs).map_err(|e| match e {
            permalloy_runtime::RunError::Internal(what) => RunError::Internal(what),
            e @ (permalloy_runtime::RunError::Index { .. } | permalloy_runtime::RunError::LateIndex { .. }) => {
                RunError::Index(e.to_string())
            }
            other => RunError::Failed(other.to_string()),
        })?;
        outputs
            .into_iter()
            .map(|o| match o {
                RunOutput::Int(i) => Ok(Output::Int(i)),
                RunOutput::None => Ok(Output::None),
                RunOutput::Tensor(TensorHandle::Torch(t)) => Ok(Output::Tensor(RawTensor(t.into_raw()))),
                RunOutput::Tensor(_) => Err(RunError::Internal("an output is no tensor of PyTorch's".to_string())),
            })
            .collect()
    }

    fn records(&self) -> String {
        self.records.clone()
    }

    fn kernel_checks(&self) -> String {
        let one = |f: permalloy_cli::kernels::Found| {
            serde_json::json!({
                "kernel": f.kernel, "elements": f.elements, "worst_absolute": f.worst_absolute,
                "worst_relative": f.worst_relative, "wrong": f.wrong, "unchecked": f.unchecked, "reproducer": f.reproducer,
            })
        };
        let found = self.check.as_ref().map_or_else(Vec::new, |c| c.take());
        serde_json::Value::Array(found.into_iter().map(one).collect()).to_string()
    }
}

/// PyTorch's operators and memory on the CPU, one provider for the process.
pub(crate) fn provider() -> Result<Arc<TorchProvider>, CompileError> {
    static PROVIDER: OnceLock<Result<Arc<TorchProvider>, String>> = OnceLock::new();
    PROVIDER.get_or_init(|| new_provider().map(Arc::new)).clone().map_err(CompileError::unsupported)
}

pub(crate) fn new_provider() -> Result<TorchProvider, String> {
    TorchProvider::new(None, Arc::new(Python)).map_err(|e| e.to_string())
}

fn api() -> Result<&'static permalloy_runtime::torch::Api, String> {
    provider().map(|p| p.api()).map_err(|e| format!("{e:?}"))
}

/// Schemas, and the operators that C functions cannot reach.
struct Python;

impl PythonOp for Python {
    fn schema(&self, op: &str) -> Option<String> {
        callbacks::schema(op)
    }

    fn call(&self, call: &ResolvedCall, tensors: &[&TensorHandle]) -> Result<Vec<Option<TensorHandle>>, String> {
        let api = api()?;
        let args = call.args.iter().map(|a| python_value(a, tensors)).collect::<Result<Vec<_>, _>>()?;
        let kwargs = call
            .kwargs
            .iter()
            .map(|(n, a)| Ok((&**n, python_value(a, tensors)?)))
            .collect::<Result<Vec<_>, String>>()?;
        let results = callbacks::call_op(&call.op, &args, &kwargs)?;
        // A list that the operator returns counts as its results.
        let results = match results.as_slice() {
            [callbacks::Value::List(items)] => items.clone(),
            _ => results,
        };
        let adopt = |v: callbacks::Value| match v {
            callbacks::Value::Tensor(t) => {
                // SAFETY: the callback hands over an owning handle.
                Ok(unsafe { permalloy_runtime::torch::TorchTensor::from_raw(api, t.0) }.map(TensorHandle::Torch))
            }
            // Integers are no values of the graph: whoever reads them has their sizes.
            callbacks::Value::None | callbacks::Value::Int(_) => Ok(None),
            other => Err(format!("{} returned {other:?}, not a tensor", call.op)),
        };
        results.into_iter().map(adopt).collect()
    }
}

fn python_value(arg: &ResolvedArg, tensors: &[&TensorHandle]) -> Result<callbacks::Value, String> {
    use callbacks::Value;
    Ok(match arg {
        ResolvedArg::Tensor(i) => match tensors.get(*i).map(|t| t.share()) {
            Some(Ok(TensorHandle::Torch(t))) => Value::Tensor(RawTensor(t.into_raw())),
            Some(Err(e)) => return Err(e),
            _ => return Err("an operand is no tensor of PyTorch's".to_string()),
        },
        ResolvedArg::Int(i) => Value::Int(*i),
        ResolvedArg::Float(x) => Value::Float(*x),
        ResolvedArg::Bool(b) => Value::Bool(*b),
        ResolvedArg::Str(s) => Value::Str(s.to_string()),
        ResolvedArg::DType(d) => Value::DType(d.to_string()),
        ResolvedArg::Device(d) => Value::Device(d.to_string()),
        ResolvedArg::Layout(s) => Value::Layout(s.to_string()),
        ResolvedArg::MemoryFormat(s) => Value::MemoryFormat(s.to_string()),
        ResolvedArg::List(items) => {
            Value::List(items.iter().map(|i| python_value(i, tensors)).collect::<Result<_, _>>()?)
        }
        ResolvedArg::None => Value::None,
    })
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
