//! A program made ready for one choice of sizes: everything that does not change from run to run.

use crate::engine::{CompiledStep, Engine};
use crate::error::RunError;
use crate::plan::{Lifetimes, OWN_MEMORY, for_each_tensor, pack, reads, writes};
use crate::provider::{NativeRoute, PreparedCall, Provider, ResolvedArg, ResolvedCall, TensorSpec};
use crate::tensor::{TensorHandle, extent};
use permalloy_ir::{Dim, PrimKind, PrimOp, SymbolValues};
use permalloy_loops::kernel::{
    BufferId, BufferKind, Fused, Group, Kernel, NativeArg, NativeCall, Program, ProgramInput, ProgramOutput, Scatter,
    Step, TensorRef,
};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// See the module's comment.
pub struct Instance {
    pub buffers: Vec<BufferSpec>,
    pub arena_bytes: usize,
    /// Outputs that took over an input's place in the arena.
    pub in_place: usize,
    /// Buffers in the arena with their offsets.
    pub arena: Vec<(u32, usize)>,
    pub inputs: Vec<InputSpec>,
    pub steps: Vec<StepSpec>,
    pub outputs: Vec<OutputSpec>,
    /// Native operands that lie in the arena.
    pub arena_views: Vec<ArenaView>,
    /// Tensors over those, per arena block they were made for; taken out while a run uses them.
    pub views: Mutex<Vec<ViewSet>>,
    pub routes: Vec<RouteRecord>,
}

/// A buffer with its sizes known.
pub struct BufferSpec {
    pub spec: TensorSpec,
    /// Elements from the first to the last one.
    pub extent: i64,
    pub place: Place,
    /// A kernel of ours reads or writes it.
    pub in_kernels: bool,
}

impl BufferSpec {
    pub fn bytes(&self) -> usize {
        self.extent as usize * self.spec.dtype.size()
    }
}

/// Where a buffer's memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Input,
    Arena(usize),
    /// A tensor of the provider's, made before the first step that writes it.
    Tensor,
    /// The tensor that the native operator returns.
    FromOp,
    Unused,
}

pub enum InputSpec {
    Int(i64),
    /// `written`: a step writes to it, so that a copy made for its layout must be copied back.
    Tensor {
        buffer: u32,
        written: bool,
    },
}

pub struct StepSpec {
    pub kind: StepKind,
    /// Tensors to make before the step.
    pub make: Vec<u32>,
    /// Tensors that nobody needs after it.
    pub release: Vec<u32>,
}

/// The memory that a kernel needs for itself.
pub enum Scratch {
    /// At this offset of the arena.
    Arena(usize),
    /// So many bytes, had for the step alone: in the arena they would be held for all of the run.
    Own(usize),
}

pub enum StepKind {
    Kernel {
        compiled: Box<dyn CompiledStep>,
        scratch: Scratch,
        name: String,
        fused: String,
        /// The operators among those that read or write at an index.
        indexing: String,
    },
    Native(NativeSpec),
}

pub struct NativeSpec {
    pub call: Box<dyn PreparedCall>,
    pub resolved: Arc<ResolvedCall>,
    pub args: Vec<ArgSource>,
    /// Memory for the result of a call that writes into it.
    pub out: Option<ArgSource>,
    pub results: Vec<Option<u32>>,
}

/// Where a native operand is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArgSource {
    /// Position in [`Instance::arena_views`].
    Arena(usize),
    /// The buffer's own tensor.
    Whole(u32),
    /// A view of the buffer's tensor: position among the call's operands (or its result), and where it begins.
    View(u32, i64),
}

/// A tensor over part of the arena.
pub struct ArenaView {
    pub offset_bytes: usize,
    pub spec: TensorSpec,
}

/// Tensors over one arena block, made on first use.
pub struct ViewSet {
    pub block: u64,
    pub tensors: Vec<Option<TensorHandle>>,
}

pub enum OutputSpec {
    /// `whole`: the buffer's own tensor. `last`: no later output is of the same buffer.
    Tensor {
        buffer: u32,
        whole: bool,
        last: bool,
        offset: i64,
        spec: TensorSpec,
    },
    Int(i64),
    None,
}

/// How one native operator of a program is reached.
#[derive(Clone, PartialEq, Debug)]
pub struct RouteRecord {
    pub op: Arc<str>,
    pub loc: Option<Arc<str>>,
    pub route: NativeRoute,
}

/// What stays the same for all sizes.
pub struct Analysis {
    pub lifetimes: Lifetimes,
    /// Per step, outputs and inputs that may share a place.
    pub pairs: Vec<Vec<(BufferId, BufferId)>>,
}

impl Instance {
    pub fn new(
        program: &Program,
        analysis: &Analysis,
        symbols: &SymbolValues,
        provider: &dyn Provider,
        engine: &dyn Engine,
    ) -> Result<Instance, RunError> {
        let eval = |d: &Dim| d.eval(symbols).map_err(|e| RunError::Symbol(e.to_string()));
        let lifetimes = &analysis.lifetimes;
        let mut buffers = buffer_specs(program, &eval)?;
        let mut prepared = Vec::with_capacity(program.steps.len());
        for step in &program.steps {
            let kernel = |compiled: Result<_, String>, name: &str, fused: &[Fused]| {
                compiled.map(Prepared::Kernel).map_err(|what| RunError::Kernel {
                    name: name.into(),
                    fused: fused_names(fused),
                    what,
                })
            };
            prepared.push(match step {
                Step::Kernel(k) => kernel(engine.kernel(program, k, symbols), &k.name, &k.fused)?,
                Step::Group(g) => kernel(engine.group(program, g, symbols), &g.name, &fused_in(g))?,
                Step::Scatter(k) => kernel(engine.scatter(program, k, symbols), &k.name, &k.fused)?,
                Step::Native(c) => {
                    let (resolved, refs) = resolve(c, program, &buffers, &eval)?;
                    let resolved = Arc::new(resolved);
                    let call = provider.prepare(resolved.clone()).map_err(|what| native_error(c, what))?;
                    Prepared::Native(call, resolved, refs)
                }
            });
        }
        let routes = (prepared.iter())
            .filter_map(|p| match p {
                Prepared::Kernel(_) => None,
                Prepared::Native(call, r, _) => {
                    Some(RouteRecord { op: r.op.clone(), loc: r.loc.clone(), route: call.route().clone() })
                }
            })
            .collect();
        for (b, spec) in buffers.iter_mut().enumerate() {
            let writers = &lifetimes.writers[b];
            let allocates = |s: usize| matches!(&prepared[s], Prepared::Native(call, ..) if !call.writes_into());
            let made_by_op = matches!(writers.as_slice(), [s] if allocates(*s));
            spec.place = match program.buffers[b].kind {
                BufferKind::Input(_) => Place::Input,
                _ if made_by_op && lifetimes.spans[b].is_some_and(|(first, _)| writers[0] == first) => Place::FromOp,
                BufferKind::Output => Place::Tensor,
                _ if lifetimes.returned[b] => Place::Tensor,
                _ if lifetimes.spans[b].is_some() && !provider.uses_pools() && spec.bytes() >= OWN_MEMORY => {
                    Place::Tensor
                }
                _ if lifetimes.spans[b].is_some() => Place::Arena(0),
                _ => Place::Unused,
            };
        }
        let mut sizes: Vec<_> =
            (buffers.iter()).map(|b| matches!(b.place, Place::Arena(_)).then(|| b.bytes())).collect();
        let mut spans = lifetimes.spans.clone();
        // Scratch memory lives for one step.
        for (step, p) in prepared.iter().enumerate() {
            if let Prepared::Kernel(k) = p {
                sizes.push((!has_own_scratch(provider, k.scratch_bytes())).then(|| k.scratch_bytes()));
                spans.push(Some((step, step)));
            }
        }
        let plan = pack(program.steps.len(), &sizes, &spans, &analysis.pairs);
        let mut offsets = plan.offsets[buffers.len()..].iter().map(|o| o.unwrap_or(0));
        let mut scratch = |compiled: &dyn CompiledStep| {
            let (offset, bytes) = (offsets.next().unwrap_or(0), compiled.scratch_bytes());
            if has_own_scratch(provider, bytes) { Scratch::Own(bytes) } else { Scratch::Arena(offset) }
        };
        let mut arena = Vec::new();
        for (b, spec) in buffers.iter_mut().enumerate() {
            if let (Place::Arena(_), Some(offset)) = (spec.place, plan.offsets[b]) {
                spec.place = Place::Arena(offset);
                arena.push((b as u32, offset));
            }
        }
        let mut arena_views = Vec::new();
        let mut steps = Vec::with_capacity(program.steps.len());
        for (step, prepared) in program.steps.iter().zip(prepared) {
            let kind = match (step, prepared) {
                (Step::Kernel(Kernel { name, fused, .. }) | Step::Scatter(Scatter { name, fused, .. }), p) => {
                    let Prepared::Kernel(compiled) = p else { continue };
                    let indexing: Vec<Fused> = fused.iter().filter(|f| indexes(f)).cloned().collect();
                    let (name, fused, indexing) = (name.clone(), fused_names(fused), fused_names(&indexing));
                    StepKind::Kernel { scratch: scratch(&*compiled), compiled, name, fused, indexing }
                }
                (Step::Group(g), p) => {
                    let Prepared::Kernel(compiled) = p else { continue };
                    let (name, fused, indexing) = (g.name.clone(), fused_names(&fused_in(g)), String::new());
                    StepKind::Kernel { scratch: scratch(&*compiled), compiled, name, fused, indexing }
                }
                (Step::Native(c), p) => {
                    let Prepared::Native(call, resolved, refs) = p else { continue };
                    let mut source = |buffer: u32, spec: &TensorSpec, offset: i64| {
                        source_of(&buffers, &mut arena_views, buffer, spec, offset)
                    };
                    let args = refs.iter().zip(&resolved.tensors).map(|((b, o), spec)| source(*b, spec, *o)).collect();
                    let results: Vec<_> = c.results.iter().map(|r| r.map(|b| b.0)).collect();
                    let out = match (call.writes_into(), results.as_slice()) {
                        (false, _) => None,
                        (true, [Some(b)]) => Some(source(*b, &buffers[*b as usize].spec, 0)),
                        (true, _) => return Err(native_error(c, "one result expected".into())),
                    };
                    StepKind::Native(NativeSpec { call, resolved, args, out, results })
                }
            };
            steps.push(StepSpec { kind, make: Vec::new(), release: Vec::new() });
        }
        let inputs = input_specs(program, lifetimes, &eval)?;
        let outputs = output_specs(program, &buffers, &eval)?;
        schedule_tensors(program, lifetimes, &buffers, &inputs, &mut steps);
        Ok(Instance {
            buffers,
            arena_bytes: plan.bytes,
            in_place: plan.in_place,
            arena,
            inputs,
            steps,
            outputs,
            arena_views,
            views: Mutex::new(Vec::new()),
            routes,
        })
    }
}

/// A step whose memory is not known yet.
enum Prepared {
    Kernel(Box<dyn CompiledStep>),
    /// With the operands as buffer and offset.
    Native(Box<dyn PreparedCall>, Arc<ResolvedCall>, Vec<(u32, i64)>),
}

fn has_own_scratch(provider: &dyn Provider, bytes: usize) -> bool {
    !provider.uses_pools() && bytes >= OWN_MEMORY
}

type Eval<'a> = &'a dyn Fn(&Dim) -> Result<i64, RunError>;

fn buffer_specs(program: &Program, eval: Eval<'_>) -> Result<Vec<BufferSpec>, RunError> {
    (program.buffers.iter())
        .map(|b| {
            let shape = b.shape.iter().map(eval).collect::<Result<Vec<_>, _>>()?;
            let strides = b.strides.iter().map(eval).collect::<Result<Vec<_>, _>>()?;
            let n = (shape.len() == strides.len()).then(|| extent(&shape, &strides)).flatten();
            let n = n.filter(|n| n.checked_mul(b.dtype.size() as i64).is_some()).ok_or_else(|| {
                RunError::Program(format!("buffer {} has sizes {shape:?} and strides {strides:?}", b.name))
            })?;
            let spec = TensorSpec { dtype: b.dtype, shape, strides };
            Ok(BufferSpec { spec, extent: n, place: Place::Unused, in_kernels: false })
        })
        .collect::<Result<_, _>>()
        .map(|mut specs: Vec<BufferSpec>| {
            for step in program.steps.iter().filter(|s| !matches!(s, Step::Native(_))) {
                for b in reads(step).into_iter().chain(writes(step)) {
                    specs[b.0 as usize].in_kernels = true;
                }
            }
            specs
        })
}

/// Evaluates a view and checks that it stays inside of its buffer.
fn view_spec(t: &TensorRef, buffers: &[BufferSpec], eval: Eval<'_>) -> Result<(TensorSpec, i64), RunError> {
    let buffer = &buffers[t.buffer.0 as usize];
    let shape = t.shape.iter().map(eval).collect::<Result<Vec<_>, _>>()?;
    let strides = t.strides.iter().map(eval).collect::<Result<Vec<_>, _>>()?;
    let offset = eval(&t.offset)?;
    let n = (shape.len() == strides.len() && offset >= 0).then(|| extent(&shape, &strides)).flatten();
    if n.is_none_or(|n| n > 0 && offset.checked_add(n).is_none_or(|end| end > buffer.extent)) {
        return Err(RunError::Program(format!(
            "a view of shape {shape:?}, strides {strides:?}, offset {offset} leaves buffer {} of {} elements",
            t.buffer, buffer.extent
        )));
    }
    Ok((TensorSpec { dtype: buffer.spec.dtype, shape, strides }, offset))
}

/// The call with sizes known, and its tensor operands as buffer and offset.
fn resolve(
    c: &NativeCall,
    program: &Program,
    buffers: &[BufferSpec],
    eval: Eval<'_>,
) -> Result<(ResolvedCall, Vec<(u32, i64)>), RunError> {
    let (mut tensors, mut devices, mut refs, mut failed) = (Vec::new(), Vec::new(), Vec::new(), None);
    for a in c.args.iter().chain(c.kwargs.iter().map(|(_, a)| a)) {
        for_each_tensor(a, &mut |t| match view_spec(t, buffers, eval) {
            Ok((spec, offset)) => {
                tensors.push(spec);
                devices.push(program.buffer(t.buffer).device);
                refs.push((t.buffer.0, offset));
            }
            Err(e) => failed = Some(e),
        });
    }
    if let Some(e) = failed {
        return Err(e);
    }
    let mut next = 0;
    let args = c.args.iter().map(|a| resolve_arg(a, &mut next, eval)).collect::<Result<_, _>>()?;
    let kwargs = (c.kwargs.iter())
        .map(|(n, a)| Ok((n.clone(), resolve_arg(a, &mut next, eval)?)))
        .collect::<Result<_, RunError>>()?;
    let results = c.results.iter().map(|r| r.map(|b| buffers[b.0 as usize].spec.clone())).collect();
    Ok((ResolvedCall { op: c.op.clone(), loc: c.loc.clone(), args, kwargs, tensors, results, devices }, refs))
}

fn resolve_arg(a: &NativeArg, next: &mut usize, eval: Eval<'_>) -> Result<ResolvedArg, RunError> {
    Ok(match a {
        NativeArg::Tensor(_) => {
            *next += 1;
            ResolvedArg::Tensor(*next - 1)
        }
        NativeArg::Int(d) => ResolvedArg::Int(eval(d)?),
        NativeArg::Float(x) => ResolvedArg::Float(*x),
        NativeArg::Bool(b) => ResolvedArg::Bool(*b),
        NativeArg::Str(s) => ResolvedArg::Str(s.clone()),
        NativeArg::DType(d) => ResolvedArg::DType(*d),
        NativeArg::Device(d) => ResolvedArg::Device(*d),
        NativeArg::Layout(s) => ResolvedArg::Layout(s.clone()),
        NativeArg::MemoryFormat(s) => ResolvedArg::MemoryFormat(s.clone()),
        NativeArg::List(items) => {
            ResolvedArg::List(items.iter().map(|a| resolve_arg(a, next, eval)).collect::<Result<_, _>>()?)
        }
        NativeArg::None => ResolvedArg::None,
    })
}

fn native_error(c: &NativeCall, what: String) -> RunError {
    RunError::Native { op: c.op.clone(), loc: c.loc.clone(), what }
}

fn indexes(f: &Fused) -> bool {
    f.op.parse::<PrimOp>().is_ok_and(|p| p.kind() == PrimKind::Index)
}

/// The operators of a group's kernels, each once.
fn fused_in(g: &Group) -> Vec<Fused> {
    let mut seen = HashSet::new();
    g.kernels.iter().flat_map(|k| &k.fused).filter(|f| seen.insert((&f.op, &f.loc))).cloned().collect()
}

pub fn fused_names(fused: &[Fused]) -> String {
    let name = |f: &Fused| match &f.loc {
        Some(loc) => format!("{} at {loc}", f.op),
        None => f.op.to_string(),
    };
    fused.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn source_of(
    buffers: &[BufferSpec],
    arena_views: &mut Vec<ArenaView>,
    buffer: u32,
    spec: &TensorSpec,
    offset: i64,
) -> ArgSource {
    let b = &buffers[buffer as usize];
    match b.place {
        Place::Arena(at) => {
            let offset_bytes = at + offset as usize * spec.dtype.size();
            let known =
                arena_views.iter().rev().take(64).position(|v| v.offset_bytes == offset_bytes && v.spec == *spec);
            ArgSource::Arena(match known {
                Some(back) => arena_views.len() - 1 - back,
                None => {
                    arena_views.push(ArenaView { offset_bytes, spec: spec.clone() });
                    arena_views.len() - 1
                }
            })
        }
        _ if offset == 0 && *spec == b.spec => ArgSource::Whole(buffer),
        _ => ArgSource::View(buffer, offset),
    }
}

fn input_specs(program: &Program, lifetimes: &Lifetimes, eval: Eval<'_>) -> Result<Vec<InputSpec>, RunError> {
    let mut written: Vec<bool> = lifetimes.writers.iter().map(|w| !w.is_empty()).collect();
    for step in &program.steps {
        // An operator whose result nobody reads is called for what it writes; `copy_` and the like say so in their name.
        if let Step::Native(c) = step
            && (c.results.iter().all(Option::is_none)
                || c.op.rsplit_once('.').is_some_and(|(base, _)| base.ends_with('_')))
            && let Some(NativeArg::Tensor(t)) = c.args.first()
        {
            written[t.buffer.0 as usize] = true;
        }
    }
    (program.inputs.iter())
        .map(|i| {
            Ok(match i {
                ProgramInput::Int(d) => InputSpec::Int(eval(d)?),
                ProgramInput::Tensor { buffer, .. } => {
                    InputSpec::Tensor { buffer: buffer.0, written: written[buffer.0 as usize] }
                }
            })
        })
        .collect()
}

fn output_specs(program: &Program, buffers: &[BufferSpec], eval: Eval<'_>) -> Result<Vec<OutputSpec>, RunError> {
    let mut seen = vec![false; buffers.len()];
    let mut specs = (program.outputs.iter().rev())
        .map(|o| {
            Ok(match o {
                ProgramOutput::None => OutputSpec::None,
                ProgramOutput::Int(d) => OutputSpec::Int(eval(d)?),
                ProgramOutput::Tensor(t) => {
                    let (spec, offset) = view_spec(t, buffers, eval)?;
                    let whole = offset == 0 && spec == buffers[t.buffer.0 as usize].spec;
                    let last = !std::mem::replace(&mut seen[t.buffer.0 as usize], true);
                    OutputSpec::Tensor { buffer: t.buffer.0, whole, last, offset, spec }
                }
            })
        })
        .collect::<Result<Vec<_>, RunError>>()?;
    specs.reverse();
    Ok(specs)
}

/// Fills in which tensors each step makes and releases.
fn schedule_tensors(
    program: &Program,
    lifetimes: &Lifetimes,
    buffers: &[BufferSpec],
    inputs: &[InputSpec],
    steps: &mut [StepSpec],
) {
    let mut keep = lifetimes.returned.clone();
    for i in inputs {
        if let InputSpec::Tensor { buffer, written: true } = i {
            keep[*buffer as usize] = true;
        }
    }
    for b in 0..program.buffers.len() {
        let Some((first, last)) = lifetimes.spans[b] else { continue };
        if buffers[b].place == Place::Tensor {
            steps[first].make.push(b as u32);
        }
        if matches!(buffers[b].place, Place::Tensor | Place::FromOp | Place::Input) && !keep[b] {
            steps[last].release.push(b as u32);
        }
    }
}
