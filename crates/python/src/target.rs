//! What programs run on: the CPU's tile engine, or a CUDA device with kernels that Triton compiles.
//!
//! A fused step that has no Triton form, or that Triton cannot compile, does not stop a compile: the operators it came from
//! take PyTorch's kernels instead, with a record, and the graph is compiled once more.

use crate::pipeline::{CompileError, Options, driver_options, provider};
use crate::{callbacks, tuning};
use permalloy_driver::{Compiled, CompiledJoint};
use permalloy_loops::kernel::{BufferId, Fused, Kernel, Program, Scatter, Step};
use permalloy_passes::{Reason, Record, RouteTaken, Tuner};
use permalloy_runtime::device::{Binary, DeviceEngine, Driver, FaultBoard, StepForm, cuda::CudaDriver};
use permalloy_runtime::engine::{Engine, TileEngine};
use permalloy_runtime::torch::{CudaApi, TorchProvider};
use permalloy_triton::device::Family;
use permalloy_triton::{CompileRequest, Device, Generated, Launch, Missing, TileChoice, generate, generate_scatter};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Compiles of one graph before it is left to PyTorch: each sends more operators there.
const ROUNDS: usize = 12;
/// Operands of a kernel below which it is not made smaller for having too many.
const FEWEST_OPERANDS: usize = 8;
/// Of a kernel that does not compile with the tile of its device.
const SMALL_TILE: TileChoice = TileChoice { outer: 8, inner: 128, warps: 4 };

/// A compile as far as loop IR.
pub trait Lowered {
    fn programs(&self) -> Vec<&Program>;
    fn records(&mut self) -> &mut Vec<Record>;
}

impl Lowered for Compiled {
    fn programs(&self) -> Vec<&Program> {
        vec![&self.program]
    }

    fn records(&mut self) -> &mut Vec<Record> {
        &mut self.records
    }
}

impl Lowered for CompiledJoint {
    fn programs(&self) -> Vec<&Program> {
        vec![&self.forward, &self.backward]
    }

    fn records(&mut self) -> &mut Vec<Record> {
        &mut self.records
    }
}

/// Who runs the programs of a compile: PyTorch's operators, and an engine a program.
pub struct Runners {
    pub provider: Arc<TorchProvider>,
    pub engines: Vec<Arc<dyn Engine>>,
}

/// Lowers a graph for the options' target, and makes its kernels ready.
pub fn compile<L: Lowered>(
    options: &Options,
    lower: impl Fn(&permalloy_driver::Options) -> Result<L, CompileError>,
) -> Result<(L, Runners), CompileError> {
    if options.target != "cuda" {
        let tuner = tuner(options)?;
        let made = lower(&permalloy_driver::Options { tuner, ..driver_options(options) })?;
        let tiles: Arc<dyn Engine> = Arc::new(TileEngine::new());
        let engines = made.programs().iter().map(|_| tiles.clone()).collect();
        return Ok((made, Runners { provider: provider()?, engines }));
    }
    // A machine without the device is found out before anything is compiled for it.
    let gpu = Gpu::of(options.device)?;
    let (made, forms) = with_kernels(options, lower)?;
    let engine = |forms| DeviceEngine::new(gpu.driver.clone(), gpu.board.clone(), forms);
    let engines = (forms.into_iter())
        .map(|f| engine(f).map(|e| Arc::new(e) as Arc<dyn Engine>).map_err(CompileError::unsupported))
        .collect::<Result<_, _>>()?;
    Ok((made, Runners { provider: gpu.provider, engines }))
}

/// PyTorch's operators and memory on the options' device.
pub fn provider_of(options: &Options) -> Result<Arc<TorchProvider>, CompileError> {
    if options.target == "cuda" { Gpu::of(options.device).map(|g| g.provider) } else { provider() }
}

fn tuner(options: &Options) -> Result<Option<Arc<dyn Tuner>>, CompileError> {
    tuning::tuner(options).map(|t| t.map(|t| t as Arc<dyn Tuner>))
}

/// The launches of each program of a graph, by the name of the step; the device need not be there.
pub fn with_kernels<L: Lowered>(
    options: &Options,
    lower: impl Fn(&permalloy_driver::Options) -> Result<L, CompileError>,
) -> Result<(L, Vec<BTreeMap<String, StepForm>>), CompileError> {
    let device = description(options)?;
    let mut natives: BTreeMap<String, String> = BTreeMap::new();
    let mut limits = device.limits();
    let tuner = tuner(options)?;
    for _ in 0..ROUNDS {
        let mut driver = permalloy_driver::Options { tuner: tuner.clone(), ..driver_options(options) };
        driver.limits = limits;
        driver.routes.extend(natives.keys().map(|op| (op.clone(), "native".to_string())));
        let mut made = lower(&driver)?;
        let failures = match forms(&made.programs(), device, options)? {
            Ok(forms) => {
                explain(made.records(), &natives);
                return Ok((made, forms));
            }
            Err(failures) => failures,
        };
        let Some(first) = failures.first() else { break };
        if failures.iter().any(|f| f.too_large) && limits.operands > FEWEST_OPERANDS {
            // Smaller kernels are better than none.
            limits.operands /= 2;
            continue;
        }
        let location = first.fused.iter().find_map(|f| f.loc.as_ref().map(|l| l.to_string()));
        let known = natives.len();
        for failure in &failures {
            for op in failure.operators(made.records()) {
                natives.entry(op).or_insert_with(|| failure.what.clone());
            }
        }
        let operator = natives.keys().next().cloned();
        if options.strict {
            return Err(CompileError::Forbidden { reason: first.what.clone(), operator, location });
        }
        if natives.len() == known {
            return Err(CompileError::Unsupported { reason: first.what.clone(), operator: None, location });
        }
    }
    Err(CompileError::unsupported("too many operators have no kernel for this device"))
}

/// Says of operators that took PyTorch's kernel for want of ours why that was.
fn explain(records: &mut [Record], natives: &BTreeMap<String, String>) {
    for r in records.iter_mut().filter(|r| r.route == RouteTaken::Native) {
        if let Some(why) = natives.get(&*r.op) {
            (r.reason, r.detail) = (Reason::NoKernel, why.clone());
        }
    }
}

/// A fused step without a kernel.
struct Failure {
    what: String,
    /// It reads more than the device's compiler takes.
    too_large: bool,
    /// The prims it may be due to.
    fused: Vec<Fused>,
}

impl Failure {
    /// Of a nest, any of whose prims it may be due to.
    fn of(nest: Nest<'_>, what: String) -> Failure {
        Failure { what, too_large: false, fused: named(nest).1.to_vec() }
    }

    /// Operators that became prims of the step, as far as source lines tell, and that PyTorch has a kernel for.
    fn operators(&self, records: &[Record]) -> Vec<String> {
        let native = |op: &str| permalloy_ops::lookup(op).is_some_and(|d| d.native);
        let ours = |r: &&Record| matches!(r.route, RouteTaken::Decomposed(_)) && native(&r.op);
        let here = |r: &&Record| self.fused.iter().any(|f| f.loc == r.loc);
        records.iter().filter(ours).filter(here).map(|r| r.op.to_string()).collect()
    }
}

type Forms = Vec<BTreeMap<String, StepForm>>;

/// Generates and compiles the kernels of all fused steps, each kernel once.
fn forms(
    programs: &[&Program],
    device: &'static Device,
    options: &Options,
) -> Result<Result<Forms, Vec<Failure>>, CompileError> {
    let mut failures = Vec::new();
    let mut steps: Vec<(usize, &Program, Nest<'_>, Generated)> = Vec::new();
    for (at, program) in programs.iter().enumerate() {
        for nest in program.steps.iter().flat_map(nests) {
            match generated(program, nest, device, options, None) {
                Ok(g) => steps.push((at, program, nest, g)),
                Err(failure) => failures.push(failure),
            }
        }
    }
    if !failures.is_empty() {
        return Ok(Err(failures));
    }
    let mut compiled = BTreeMap::new();
    compile_all(steps.iter().map(|(.., g)| g), &mut compiled, options)?;
    // What does not compile is tried with small tiles before it is given up.
    let fails = |g: &Generated, compiled: &BTreeMap<CompileRequest, Result<Arc<Binary>, String>>| {
        requests(g).into_iter().find_map(|r| compiled.get(&r).and_then(|c| c.as_ref().err()).cloned())
    };
    for (_, program, nest, g) in &mut steps {
        if fails(g, &compiled).is_some()
            && let Ok(small) = generated(program, *nest, device, options, Some(SMALL_TILE))
        {
            *g = small;
        }
    }
    compile_all(steps.iter().map(|(.., g)| g), &mut compiled, options)?;
    let mut forms: Forms = programs.iter().map(|_| BTreeMap::new()).collect();
    for (at, _, nest, generated) in steps {
        let (name, _) = named(nest);
        if let Some(error) = fails(&generated, &compiled) {
            let what = format!("kernel {name} does not compile: {error}");
            failures.push(Failure::of(nest, what));
            continue;
        }
        let binary = |r: CompileRequest| compiled.get(&r).and_then(|c| c.as_ref().ok()).cloned();
        let binaries = requests(&generated).into_iter().filter_map(binary).collect();
        forms[at].insert(name.to_string(), StepForm { generated, binaries });
    }
    Ok(if failures.is_empty() { Ok(forms) } else { Err(failures) })
}

fn generated(
    program: &Program,
    nest: Nest<'_>,
    device: &'static Device,
    options: &Options,
    tile: Option<TileChoice>,
) -> Result<Generated, Failure> {
    let (name, fused) = named(nest);
    let here = match device.family {
        Family::Cuda => permalloy_ir::Device::Cuda(options.device),
        Family::Ascend => permalloy_ir::Device::Npu(options.device),
    };
    if let Some(b) = touched(nest).into_iter().find(|b| program.buffer(*b).device != here) {
        let b = program.buffer(b);
        let what = format!("kernel {name} uses {}, which is on {}", b.name, b.device);
        return Err(Failure::of(nest, what));
    }
    let how = permalloy_triton::Options { tile, ..Default::default() };
    let made = match nest {
        Nest::Scatter(s) if options.deterministic => {
            let what = format!("kernel {} adds in an order that depends on timing", s.name);
            return Err(Failure::of(nest, what));
        }
        Nest::Scatter(s) => generate_scatter(s, &program.buffers, &program.symbols, device, &how),
        Nest::Kernel(k) => generate(k, &program.buffers, &program.symbols, device, &how),
    };
    made.map_err(|e| {
        let what = e.to_string();
        // Where one operation is the reason, its neighbours are none.
        let culprit = match e.what {
            Missing::Operation { op, .. } => Some(format!("prim.{}", op.name())),
            _ => None,
        };
        let only: Vec<Fused> = fused.iter().filter(|f| culprit.as_deref() == Some(&*f.op)).cloned().collect();
        let too_large = matches!(e.what, Missing::Loads { .. });
        Failure { what, too_large, fused: if only.is_empty() { fused.to_vec() } else { only } }
    })
}

/// A loop nest that gets kernels of its own.
#[derive(Clone, Copy)]
enum Nest<'a> {
    Kernel(&'a Kernel),
    Scatter(&'a Scatter),
}

fn nests(step: &Step) -> Vec<Nest<'_>> {
    match step {
        Step::Kernel(k) => vec![Nest::Kernel(k)],
        Step::Group(g) => g.kernels.iter().map(Nest::Kernel).collect(),
        Step::Scatter(s) => vec![Nest::Scatter(s)],
        Step::Native(_) => vec![],
    }
}

fn named(nest: Nest<'_>) -> (&str, &[Fused]) {
    match nest {
        Nest::Kernel(k) => (&k.name, &k.fused),
        Nest::Scatter(s) => (&s.name, &s.fused),
    }
}

fn touched(nest: Nest<'_>) -> Vec<BufferId> {
    match nest {
        Nest::Kernel(k) => [k.reads(), k.writes()].concat(),
        Nest::Scatter(s) => vec![s.src.0, s.index.0, s.out.0],
    }
}

fn requests(g: &Generated) -> Vec<CompileRequest> {
    let kernel = |l: &Launch| match l {
        Launch::Kernel(k) => Some(k.compile_request()),
        _ => None,
    };
    g.launches.iter().filter_map(kernel).collect()
}

/// Compiles what is not there yet.
fn compile_all<'a>(
    all: impl Iterator<Item = &'a Generated>,
    compiled: &mut BTreeMap<CompileRequest, Result<Arc<Binary>, String>>,
    options: &Options,
) -> Result<(), CompileError> {
    let mut missing: Vec<CompileRequest> = all.flat_map(requests).filter(|r| !compiled.contains_key(r)).collect();
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let made = callbacks::compile_kernels(&missing, options.capability).map_err(CompileError::unsupported)?;
    if made.len() != missing.len() {
        return Err(CompileError::Internal(format!("{} kernels asked for, {} came back", missing.len(), made.len())));
    }
    compiled.extend(missing.into_iter().zip(made).map(|(request, made)| (request, made.map(Arc::new))));
    Ok(())
}

/// The description of the options' device: by name, or by compute capability (90 for 9.0).
fn description(options: &Options) -> Result<&'static Device, CompileError> {
    let capability = options.capability;
    let name = match capability {
        _ if options.target != "cuda" => &*options.target,
        80..=89 => "cuda-sm80",
        90..=99 => "cuda-sm90",
        100.. => "cuda-sm100",
        _ => {
            let (major, minor) = (capability / 10, capability % 10);
            return Err(CompileError::unsupported(format!(
                "a CUDA device of compute capability {major}.{minor}: 8.0 is the least"
            )));
        }
    };
    Device::of(name).ok_or_else(|| CompileError::Options(format!("there is no device {name}")))
}

/// A CUDA device of this process.
#[derive(Clone)]
struct Gpu {
    provider: Arc<TorchProvider>,
    driver: Arc<dyn Driver>,
    board: Arc<FaultBoard>,
}

impl Gpu {
    fn of(index: u8) -> Result<Gpu, CompileError> {
        static GPUS: Mutex<BTreeMap<u8, Gpu>> = Mutex::new(BTreeMap::new());
        let mut gpus = GPUS.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(gpu) = gpus.get(&index) {
            return Ok(gpu.clone());
        }
        let gpu = Gpu::new(index).map_err(|e| CompileError::unsupported(format!("cuda:{index}: {e}")))?;
        gpus.insert(index, gpu.clone());
        Ok(gpu)
    }

    fn new(index: u8) -> Result<Gpu, String> {
        let provider = crate::pipeline::new_provider()?.on_cuda(index)?;
        let driver = CudaDriver::new(CudaApi::of(provider.api())?, index)?;
        let board = Arc::new(FaultBoard::new(&driver)?);
        Ok(Gpu { provider: Arc::new(provider), driver: Arc::new(driver), board })
    }
}
