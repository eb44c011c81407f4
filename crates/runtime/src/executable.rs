//! A program that can be run.

use crate::arena::{ALIGN, ArenaDemand, Lease, pool};
use crate::bind::{Binder, RunInput};
use crate::engine::{Engine, StepError};
use crate::error::RunError;
use crate::instance::{
    Analysis, ArgSource, InputSpec, Instance, NativeSpec, OutputSpec, Place, RouteRecord, Scratch, StepKind, StepSpec,
    ViewSet,
};
use crate::output_memory::{Demand, SMALLEST, output_pool};
use crate::plan::{Lifetimes, in_place_pairs, in_place_pairs_of, reads, writes};
use crate::profile;
use crate::provider::{Provider, TensorSpec};
use crate::tensor::{TensorHandle, extent, same_layout};
use crate::watch::{Watch, copies};
use permalloy_ir::DType;
use permalloy_loops::kernel::{BufferKind, Program, ProgramInput, ProgramOutput, Step};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};

/// Instances kept: one for each choice of sizes that was run lately.
const INSTANCES: usize = 64;
/// Sets of arena tensors an instance keeps: one for each run at the same time, so to say.
const VIEW_SETS: usize = 4;

/// A result of a run.
#[derive(Debug)]
pub enum RunOutput {
    Tensor(TensorHandle),
    Int(i64),
    None,
}

/// What a run needs of the pools, for the sizes that need most.
#[derive(Default)]
struct Needs {
    output_bytes: usize,
    outputs: Option<Demand<'static>>,
    arena_bytes: usize,
    arena: Option<ArenaDemand<'static>>,
}

/// A program with what it runs on. May run on several threads at the same time, each run with memory of its own.
pub struct Executable {
    program: Arc<Program>,
    provider: Arc<dyn Provider>,
    engine: Arc<dyn Engine>,
    binder: Binder,
    analysis: Analysis,
    /// Large outputs live in memory of the process's pool.
    pools_outputs: bool,
    watch: Option<Arc<dyn Watch>>,
    /// What the pools may keep for it.
    needs: Mutex<Needs>,
    /// Latest first.
    instances: Mutex<Vec<(Vec<i64>, Arc<Instance>)>>,
    /// The one instance of a program without size symbols.
    only: OnceLock<Arc<Instance>>,
}

impl Executable {
    /// Checks the program and makes it ready for the sizes it was traced with, so that what cannot run fails here.
    pub fn new(
        program: Arc<Program>,
        provider: Arc<dyn Provider>,
        engine: Arc<dyn Engine>,
    ) -> Result<Executable, RunError> {
        check(&program)?;
        let pairs = (program.steps.iter())
            .map(|s| match s {
                Step::Kernel(k) if engine.works_in_place() => in_place_pairs(k),
                Step::Group(g) if engine.works_in_place() => in_place_pairs_of(g),
                _ => Vec::new(),
            })
            .collect();
        let analysis = Analysis { lifetimes: Lifetimes::of(&program), pairs };
        let binder = Binder::new(&program);
        let hints = binder.hints().to_vec();
        let (instances, needs, only) = (Mutex::new(Vec::new()), Mutex::default(), OnceLock::new());
        let pools_outputs = provider.uses_pools();
        let exe = Executable {
            program,
            provider,
            engine,
            binder,
            analysis,
            pools_outputs,
            watch: None,
            needs,
            instances,
            only,
        };
        exe.instance(&hints)?;
        Ok(exe)
    }

    /// Gives every output memory of the provider's own, however large. Otherwise large outputs live in blocks of the
    /// [process's pool](crate::output_memory), and PyTorch refuses to enlarge their storage (`resize_`).
    pub fn without_pooled_outputs(mut self) -> Executable {
        self.pools_outputs = false;
        self.needs.get_mut().unwrap_or_else(|e| e.into_inner()).outputs = None;
        self
    }

    /// Gives every intermediate memory of its own for as long as it lives: no kernel overwrites its input.
    pub fn without_in_place(mut self) -> Executable {
        self.analysis.pairs.iter_mut().for_each(Vec::clear);
        self.instances.get_mut().unwrap_or_else(|e| e.into_inner()).clear();
        self.only = OnceLock::new();
        self
    }

    /// Shows what its steps read and write.
    pub fn watched(mut self, watch: Arc<dyn Watch>) -> Executable {
        self.watch = Some(watch);
        self
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// How each native operator is reached, in execution order (for the sizes run last).
    pub fn routes(&self) -> Vec<RouteRecord> {
        self.latest(|i| i.routes.clone()).unwrap_or_default()
    }

    /// Bytes of intermediates without memory of their own (for the sizes run last).
    pub fn arena_bytes(&self) -> usize {
        self.latest(|i| i.arena_bytes).unwrap_or(0)
    }

    /// Kernel outputs that overwrite an input in place (for the sizes run last).
    pub fn in_place(&self) -> usize {
        self.latest(|i| i.in_place).unwrap_or(0)
    }

    fn latest<T>(&self, f: impl FnOnce(&Instance) -> T) -> Option<T> {
        let instances = self.instances.lock().unwrap_or_else(|e| e.into_inner());
        instances.first().map(|(_, i)| f(i))
    }

    /// Runs the program. Outputs are fresh tensors, or views of inputs where the program says so.
    pub fn run(&self, inputs: Vec<RunInput>) -> Result<Vec<RunOutput>, RunError> {
        if inputs.len() != self.program.inputs.len() {
            return Err(RunError::InputCount { expected: self.program.inputs.len(), got: inputs.len() });
        }
        let values = self.binder.values(&inputs)?;
        let (instance, found);
        match self.only.get() {
            Some(only) => instance = only,
            None => {
                found = self.instance(&values)?;
                instance = &found;
            }
        }
        let _entered = Entered(&*self.provider, self.provider.enter());
        self.engine.enter().map_err(|e| step_error(e, "", "", ""))?;
        catch_unwind(AssertUnwindSafe(|| Run::new(self, instance, inputs)?.finish()))
            .unwrap_or_else(|panic| Err(RunError::Internal(panic_message(&*panic))))
    }

    fn instance(&self, values: &[i64]) -> Result<Arc<Instance>, RunError> {
        let lock = || self.instances.lock().unwrap_or_else(|e| e.into_inner());
        {
            let mut instances = lock();
            if let Some(i) = instances.iter().position(|(v, _)| v == values) {
                instances[..=i].rotate_right(1);
                return Ok(instances[0].1.clone());
            }
        }
        let symbols = self.binder.symbols(values);
        let made = catch_unwind(AssertUnwindSafe(|| {
            Instance::new(&self.program, &self.analysis, &symbols, &*self.provider, &*self.engine)
        }));
        let made = Arc::new(made.unwrap_or_else(|panic| Err(RunError::Internal(panic_message(&*panic))))?);
        self.raise_needs(&made).map_err(RunError::Provider)?;
        if values.is_empty() {
            let _ = self.only.set(made.clone()); // another thread's is as good
        }
        let mut instances = lock();
        instances.insert(0, (values.to_vec(), made.clone()));
        instances.truncate(INSTANCES);
        Ok(made)
    }

    /// Lets the pools keep what this instance needs, if no other instance needs more.
    fn raise_needs(&self, instance: &Instance) -> Result<(), String> {
        if !self.provider.uses_pools() {
            return Ok(());
        }
        let mut needs = self.needs.lock().unwrap_or_else(|e| e.into_inner());
        if needs.arena_bytes < instance.arena_bytes {
            needs.arena_bytes = instance.arena_bytes;
            needs.arena = Some(pool().demand(instance.arena_bytes)?);
        }
        let sizes = instance.steps.iter().flat_map(|s| &s.make).map(|b| instance.buffers[*b as usize].bytes());
        let pooled: Vec<usize> = sizes.filter(|bytes| self.pools_outputs && *bytes >= SMALLEST).collect();
        let bytes = pooled.iter().sum();
        if needs.output_bytes < bytes {
            needs.output_bytes = bytes;
            needs.outputs = Some(output_pool().demand(pooled));
        }
        Ok(())
    }
}

/// Every handle of the program points to a buffer, and inputs and buffers agree.
fn check(program: &Program) -> Result<(), RunError> {
    let n = program.buffers.len();
    let bad = |what: String| Err(RunError::Program(what));
    for (i, step) in program.steps.iter().enumerate() {
        if let Some(b) = reads(step).into_iter().chain(writes(step)).find(|b| b.0 as usize >= n) {
            return bad(format!("step {i} uses buffer {b} of {n}"));
        }
    }
    let mut given = vec![0; n];
    for (i, input) in program.inputs.iter().enumerate() {
        if let ProgramInput::Tensor { buffer, .. } = input {
            match program.buffers.get(buffer.0 as usize).map(|b| b.kind) {
                Some(BufferKind::Input(k)) if k as usize == i => given[buffer.0 as usize] += 1,
                other => return bad(format!("argument {i} is buffer {buffer}, which is {other:?}")),
            }
        }
    }
    if let Some(b) = (0..n).find(|b| matches!(program.buffers[*b].kind, BufferKind::Input(_)) && given[*b] != 1) {
        return bad(format!("input buffer {} is no argument", program.buffers[b].name));
    }
    for o in &program.outputs {
        if let ProgramOutput::Tensor(t) = o
            && t.buffer.0 as usize >= n
        {
            return bad(format!("an output uses buffer {} of {n}", t.buffer));
        }
    }
    Ok(())
}

struct Entered<'a>(&'a dyn Provider, u64);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".into())
}

/// The memory of one run.
struct Run<'a> {
    exe: &'a Executable,
    instance: &'a Instance,
    /// Tensors by buffer: arguments, outputs, results of native operators.
    tensors: Vec<Option<TensorHandle>>,
    /// Addresses by buffer.
    pointers: Vec<*mut u8>,
    /// Arguments whose layout was not as promised: buffer, what the caller gave.
    originals: Vec<(u32, TensorHandle)>,
    /// Tensors over the arena; empty if native operators use none.
    views: ViewSet,
    arena: Arena,
}

/// The memory of intermediates.
enum Arena {
    /// The program has none.
    None,
    Pooled(Lease<'static>),
    /// A tensor of the provider's: given back when the run ends, though a device may still work in it. What takes the memory
    /// over is work for the same device, which comes later.
    Tensor(TensorHandle),
}

impl Arena {
    fn new(provider: &dyn Provider, bytes: usize) -> Result<Arena, String> {
        Ok(match (bytes, provider.uses_pools()) {
            (0, _) => Arena::None,
            (_, true) => Arena::Pooled(pool().acquire(bytes)?),
            (_, false) => Arena::Tensor(provider.empty(DType::U8, &[bytes as i64], &[1])?),
        })
    }

    /// The same for the same memory.
    fn id(&self) -> u64 {
        match self {
            Arena::None => 0,
            Arena::Pooled(lease) => lease.id(),
            Arena::Tensor(t) => t.data_ptr().addr() as u64,
        }
    }

    /// A place in it; without memory, an address that nothing of a size lies at.
    fn at(&self, offset: usize) -> *mut u8 {
        let data = match self {
            Arena::None => std::ptr::without_provenance_mut(ALIGN),
            Arena::Pooled(lease) => lease.data(),
            Arena::Tensor(t) => t.data_ptr(),
        };
        data.wrapping_add(offset)
    }
}

impl<'a> Run<'a> {
    fn new(exe: &'a Executable, instance: &'a Instance, inputs: Vec<RunInput>) -> Result<Run<'a>, RunError> {
        let n = instance.buffers.len();
        let arena = Arena::new(&*exe.provider, instance.arena_bytes).map_err(RunError::Provider)?;
        let mut pointers = vec![std::ptr::null_mut(); n];
        for (b, offset) in &instance.arena {
            pointers[*b as usize] = arena.at(*offset);
        }
        let block = arena.id();
        let known = match instance.arena_views.is_empty() {
            true => None,
            false => {
                let mut sets = instance.views.lock().unwrap_or_else(|e| e.into_inner());
                sets.iter().position(|s| s.block == block).map(|i| sets.swap_remove(i))
            }
        };
        let views =
            known.unwrap_or_else(|| ViewSet { block, tensors: instance.arena_views.iter().map(|_| None).collect() });
        let tensors = (0..n).map(|_| None).collect();
        let mut run = Run { exe, instance, tensors, pointers, originals: Vec::new(), views, arena };
        for (index, input) in inputs.into_iter().enumerate() {
            run.take_input(index, input)?;
        }
        Ok(run)
    }

    fn take_input(&mut self, index: usize, input: RunInput) -> Result<(), RunError> {
        let error = |what: String| {
            let name = match &self.exe.program.inputs[index] {
                ProgramInput::Tensor { buffer, .. } => self.exe.program.buffer(*buffer).name.clone(),
                ProgramInput::Int(d) => d.to_string().into(),
            };
            RunError::Input { index, name, what }
        };
        let (buffer, tensor) = match (&self.instance.inputs[index], input) {
            (InputSpec::Int(expected), RunInput::Int(got)) if *expected == got => return Ok(()),
            (InputSpec::Int(expected), RunInput::Int(got)) => {
                return Err(error(format!("is {got}, but the other arguments imply {expected}")));
            }
            (InputSpec::Tensor { buffer, .. }, RunInput::Tensor(t)) => (*buffer, t),
            (InputSpec::Int(_), _) => return Err(error("must be an integer".into())),
            (InputSpec::Tensor { .. }, _) => return Err(error("must be a tensor".into())),
        };
        let spec = &self.instance.buffers[buffer as usize].spec;
        if tensor.dtype() != Some(spec.dtype) {
            let got = tensor.dtype().map_or("of a dtype we do not know".into(), |d| d.to_string());
            return Err(error(format!("must be {}, got {got}", spec.dtype)));
        }
        let shape = tensor.shape();
        if shape != spec.shape {
            let dim = shape.iter().zip(&spec.shape).position(|(a, b)| a != b);
            return Err(error(match dim {
                Some(d) if shape.len() == spec.shape.len() => {
                    format!(
                        "size {} at dim {d}, expected {} (shape {shape:?}, expected {:?})",
                        shape[d], spec.shape[d], spec.shape
                    )
                }
                _ => format!(
                    "has {} dims, expected {} (shape {shape:?}, expected {:?})",
                    shape.len(),
                    spec.shape.len(),
                    spec.shape
                ),
            }));
        }
        // What only PyTorch's own operators read may be anywhere.
        let ours = self.instance.buffers[buffer as usize].in_kernels;
        if ours && !self.exe.provider.reaches(&tensor) {
            return Err(error(format!(
                "must be a dense tensor on {}",
                self.exe.program.buffers[buffer as usize].device
            )));
        }
        let data = tensor.data_ptr();
        if data.is_null() && !shape.contains(&0) {
            return Err(error("has no data (a fake tensor?)".into()));
        }
        let aligned = !ours || data.addr().is_multiple_of(self.exe.provider.alignment(spec.dtype));
        if aligned && same_layout(shape, tensor.strides(), &spec.strides) {
            self.set(buffer, tensor);
            return Ok(());
        }
        let copy = self.exe.provider.empty(spec.dtype, &spec.shape, &spec.strides).map_err(RunError::Provider)?;
        copy.copy_from(&tensor).map_err(RunError::Provider)?;
        self.originals.push((buffer, tensor));
        self.set(buffer, copy);
        Ok(())
    }

    fn set(&mut self, buffer: u32, tensor: TensorHandle) {
        let data = tensor.data_ptr();
        // Empty tensors may have no address at all; kernels must not mistake theirs for a missing buffer.
        self.pointers[buffer as usize] = if data.is_null() { std::ptr::without_provenance_mut(ALIGN) } else { data };
        self.tensors[buffer as usize] = Some(tensor);
    }

    fn make(&mut self, buffer: u32) -> Result<(), RunError> {
        let b = &self.instance.buffers[buffer as usize];
        let s = &b.spec;
        let tensor = if self.exe.pools_outputs && b.bytes() >= SMALLEST {
            let block = output_pool().acquire(b.bytes()).map_err(RunError::Provider)?;
            self.exe.provider.in_block(block, s.dtype, &s.shape, &s.strides)
        } else {
            self.exe.provider.empty(s.dtype, &s.shape, &s.strides)
        };
        self.set(buffer, tensor.map_err(RunError::Provider)?);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<RunOutput>, RunError> {
        let result = self.steps().and_then(|()| self.outputs());
        if !self.views.tensors.is_empty() {
            let mut sets = self.instance.views.lock().unwrap_or_else(|e| e.into_inner());
            if sets.len() >= VIEW_SETS {
                sets.remove(0);
            }
            sets.push(self.views);
        }
        result
    }

    fn steps(&mut self) -> Result<(), RunError> {
        let instance = self.instance;
        for (i, step) in instance.steps.iter().enumerate() {
            for b in &step.make {
                self.make(*b)?;
            }
            let watch = self.exe.watch.as_ref().and_then(|w| Some((w, w.wants(i)?)));
            let before = watch.map(|(_, (reads, _))| copies(reads, &instance.buffers, &self.pointers));
            let name: &str = match &step.kind {
                StepKind::Kernel { name, .. } => name,
                StepKind::Native(native) => &native.resolved.op,
            };
            profile::timed(&self.exe.program.name, name, || self.step(step))?;
            if let (Some((watch, (_, writes))), Some(before)) = (watch, before) {
                watch.saw(i, before, copies(writes, &instance.buffers, &self.pointers));
            }
            for b in &step.release {
                self.tensors[*b as usize] = None;
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &StepSpec) -> Result<(), RunError> {
        let parallel = self.exe.provider.parallel();
        match &step.kind {
            StepKind::Kernel { compiled, scratch, name, fused, indexing } => {
                let (scratch, _own) = match scratch {
                    Scratch::Arena(offset) => (self.arena.at(*offset), Arena::None),
                    Scratch::Own(bytes) => {
                        let own = Arena::new(&*self.exe.provider, *bytes).map_err(RunError::Provider)?;
                        (own.at(0), own)
                    }
                };
                // SAFETY: each address is that of a tensor checked against the buffer's type, or of the buffer's
                // place in the arena, which the plan keeps apart from all others alive; `_own` lives until the call is over.
                let done = unsafe { compiled.run(&self.pointers, scratch, parallel) };
                done.map_err(|e| step_error(e, name, fused, indexing))?;
            }
            StepKind::Native(native) => self.native(native).map_err(|what| RunError::Native {
                op: native.resolved.op.clone(),
                loc: native.resolved.loc.clone(),
                what,
            })?,
        }
        Ok(())
    }

    fn native(&mut self, n: &NativeSpec) -> Result<(), String> {
        for source in n.args.iter().chain(&n.out) {
            if let ArgSource::Arena(v) = source {
                self.arena_tensor(*v)?;
            }
        }
        let mut made = Vec::new();
        for (source, spec) in n.args.iter().zip(&n.resolved.tensors) {
            if let ArgSource::View(b, offset) = source {
                made.push(self.tensor(*b)?.view(&spec.shape, &spec.strides, *offset)?);
            }
        }
        let mut next_made = made.iter();
        let mut operands = Vec::with_capacity(n.args.len());
        for source in &n.args {
            operands.push(match source {
                ArgSource::View(..) => next_made.next().ok_or("a view is missing")?,
                other => self.operand(*other)?,
            });
        }
        let out = n.out.map(|source| self.operand(source)).transpose()?;
        let results = n.call.call(&operands, out)?;
        if out.is_some() {
            return Ok(());
        }
        if results.len() < n.results.len() {
            return Err(format!("returned {} results, {} expected", results.len(), n.results.len()));
        }
        let mut adopted = Vec::new();
        for ((buffer, result), spec) in n.results.iter().zip(results).zip(&n.resolved.results) {
            let (Some(b), Some(spec)) = (buffer, spec) else { continue };
            let result = result.ok_or_else(|| format!("returned nothing for a result of shape {:?}", spec.shape))?;
            adopted.push((*b, self.adopt(*b, result, spec, &operands)?));
        }
        for (b, tensor) in adopted {
            if let Some(t) = tensor {
                self.set(b, t);
            }
        }
        Ok(())
    }

    /// Brings a native result into the promised dtype and layout, which PyTorch's shape functions get wrong for a few
    /// operators; None when it was copied into memory that the buffer has already.
    fn adopt(
        &self,
        b: u32,
        result: TensorHandle,
        spec: &TensorSpec,
        operands: &[&TensorHandle],
    ) -> Result<Option<TensorHandle>, String> {
        if result.dtype().is_none() || result.shape() != spec.shape {
            let (dtype, shape) = (result.dtype(), result.shape());
            return Err(format!("returned {dtype:?} {shape:?}, the graph says {:?} {:?}", spec.dtype, spec.shape));
        }
        match self.instance.buffers[b as usize].place {
            Place::FromOp => {}
            Place::Arena(_) => {
                let data = self.pointers[b as usize];
                // SAFETY: the buffer's place in the arena, for the length of this copy.
                let place = unsafe { self.exe.provider.over_memory(data, spec.dtype, &spec.shape, &spec.strides) }?;
                return place.copy_from(&result).map(|()| None);
            }
            _ => return self.tensor(b)?.copy_from(&result).map(|()| None),
        }
        let provider = &*self.exe.provider;
        let usable = !self.instance.buffers[b as usize].in_kernels
            || provider.reaches(&result) && result.data_ptr().addr().is_multiple_of(provider.alignment(spec.dtype));
        let fits =
            usable && result.dtype() == Some(spec.dtype) && same_layout(&spec.shape, result.strides(), &spec.strides);
        if fits && !operands.iter().any(|o| overlap(o, &result)) {
            return Ok(Some(result));
        }
        let copy = self.exe.provider.empty(spec.dtype, &spec.shape, &spec.strides)?;
        copy.copy_from(&result)?;
        Ok(Some(copy))
    }

    fn tensor(&self, buffer: u32) -> Result<&TensorHandle, String> {
        let name = || format!("buffer {} has no value yet", self.exe.program.buffers[buffer as usize].name);
        self.tensors[buffer as usize].as_ref().ok_or_else(name)
    }

    fn operand(&self, source: ArgSource) -> Result<&TensorHandle, String> {
        match source {
            ArgSource::Arena(v) => self.views.tensors[v].as_ref().ok_or_else(|| "an arena tensor is missing".into()),
            ArgSource::Whole(b) => self.tensor(b),
            ArgSource::View(..) => Err("a view of a result".into()),
        }
    }

    fn arena_tensor(&mut self, v: usize) -> Result<(), String> {
        if self.views.tensors[v].is_none() {
            let view = &self.instance.arena_views[v];
            let data = self.arena.at(view.offset_bytes);
            let s = &view.spec;
            // SAFETY: inside of the block, as the plan made sure; the tensor is used only while a run holds that block.
            let tensor = unsafe { self.exe.provider.over_memory(data, s.dtype, &s.shape, &s.strides) }?;
            self.views.tensors[v] = Some(tensor);
        }
        Ok(())
    }

    fn outputs(&mut self) -> Result<Vec<RunOutput>, RunError> {
        let error = RunError::Provider;
        for (b, original) in &self.originals {
            let written = |i: &InputSpec| matches!(i, InputSpec::Tensor { buffer, written: true } if buffer == b);
            if self.instance.inputs.iter().any(written) {
                original.copy_from(self.tensor(*b).map_err(error)?).map_err(error)?;
            }
        }
        let mut outputs = Vec::with_capacity(self.instance.outputs.len());
        for o in &self.instance.outputs {
            outputs.push(match o {
                OutputSpec::Int(i) => RunOutput::Int(*i),
                OutputSpec::None => RunOutput::None,
                OutputSpec::Tensor { buffer, whole, last, offset, spec } => {
                    let place = self.instance.buffers[*buffer as usize].place;
                    if self.tensors[*buffer as usize].is_none() {
                        self.make(*buffer)?;
                    }
                    if *whole
                        && *last
                        && place != Place::Input
                        && let Some(tensor) = self.tensors[*buffer as usize].take()
                    {
                        outputs.push(RunOutput::Tensor(tensor));
                        continue;
                    }
                    let original = self.originals.iter().find(|(b, _)| b == buffer).map(|(_, t)| t);
                    let tensor = self.tensor(*buffer).map_err(error)?;
                    RunOutput::Tensor(match (whole, place) {
                        (true, Place::Input) => original.unwrap_or(tensor).share().map_err(error)?,
                        // Returned twice, it is one tensor: writes to one show in the other's version counter.
                        (true, _) => tensor.share().map_err(error)?,
                        _ => tensor.view(&spec.shape, &spec.strides, *offset).map_err(error)?,
                    })
                }
            });
        }
        Ok(outputs)
    }
}

fn step_error(e: StepError, name: &str, fused: &str, indexing: &str) -> RunError {
    match e {
        StepError::Index { buffer, index, size } => {
            RunError::Index { index, size, tensor: buffer, by: indexing.to_string() }
        }
        StepError::Late { message, by } => RunError::LateIndex { message, by },
        StepError::Other(what) => RunError::Kernel { name: name.to_string(), fused: fused.to_string(), what },
    }
}

/// The two tensors have memory in common, or might have.
fn overlap(a: &TensorHandle, b: &TensorHandle) -> bool {
    let range = |t: &TensorHandle| {
        let size = t.dtype().map_or(16, |d| d.size());
        let n = extent(t.shape(), t.strides()).unwrap_or(i64::MAX / 16) as usize * size;
        let start = t.data_ptr().addr();
        (start, start.saturating_add(n))
    };
    let ((a0, a1), (b0, b1)) = (range(a), range(b));
    a0 < b1 && b0 < a1
}
