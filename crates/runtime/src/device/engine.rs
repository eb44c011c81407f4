//! Steps of a program as launches on a device.

use super::faults::FaultSlot;
use super::{Binary, Driver, FaultBoard, Function, Grid};
use crate::arena::ALIGN;
use crate::engine::{CompiledStep, Engine, StepError};
use crate::instance::fused_names;
use crate::parallel::ParallelFor;
use permalloy_ir::{Dim, SymbolValues};
use permalloy_loops::kernel::{BufferId, Fused, Kernel, Program, Scatter};
use permalloy_triton::{Arg, ArgKind, Generated, KernelLaunch, Launch, Memory};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

/// Threads of a warp.
const WARP: u32 = 32;

/// A step's launches with their kernels compiled: one binary for each kernel launch, in order.
pub struct StepForm {
    pub generated: Generated,
    pub binaries: Vec<Arc<Binary>>,
}

/// Launches the generated kernels of one program.
pub struct DeviceEngine {
    driver: Arc<dyn Driver>,
    board: Arc<FaultBoard>,
    /// By the name of the kernel or scatter.
    steps: BTreeMap<String, (Generated, Vec<(Function, u32)>)>,
}

impl DeviceEngine {
    /// Loads the kernels of every fused step, by name.
    pub fn new(
        driver: Arc<dyn Driver>,
        board: Arc<FaultBoard>,
        forms: impl IntoIterator<Item = (String, StepForm)>,
    ) -> Result<DeviceEngine, String> {
        driver.enter()?;
        let mut steps = BTreeMap::new();
        for (name, form) in forms {
            let load = |b: &Arc<Binary>| Ok((driver.load(b)?, b.shared_bytes));
            let functions = form.binaries.iter().map(load).collect::<Result<Vec<_>, String>>();
            let functions = functions.map_err(|e| format!("kernel {name}: {e}"))?;
            if steps.insert(name.clone(), (form.generated, functions)).is_some() {
                return Err(format!("two steps are called {name}"));
            }
        }
        Ok(DeviceEngine { driver, board, steps })
    }

    fn step(
        &self,
        program: &Program,
        name: &str,
        fused: &[Fused],
        symbols: &SymbolValues,
    ) -> Result<Box<dyn CompiledStep>, String> {
        let (generated, functions) = self.steps.get(name).ok_or("it was not compiled for this device")?;
        let eval = |d: &Dim| d.eval(symbols).map_err(|e| e.to_string());
        let (mut offsets, mut scratch_bytes) = (Vec::new(), 0usize);
        for s in &generated.scratch {
            let bytes = (eval(&s.elements)?.max(0) as usize).checked_mul(s.dtype.size());
            offsets.push(scratch_bytes);
            let end = bytes.and_then(|b| scratch_bytes.checked_add(b)?.checked_next_multiple_of(ALIGN));
            scratch_bytes = end.ok_or("its scratch memory is too large")?;
        }
        let mut step =
            DeviceStep { driver: self.driver.clone(), launches: Vec::new(), scratch_bytes, _slots: Vec::new() };
        let place = |m: Memory| match m {
            Memory::Buffer(b) => Ok(Param::Buffer(b)),
            Memory::Scratch(i) => offsets.get(i).map(|o| Param::Scratch(*o)).ok_or("scratch memory is missing"),
            Memory::Fault => Err("a fault word is no memory"),
        };
        let mut functions = functions.iter();
        for launch in &generated.launches {
            match launch {
                Launch::Zero(m) => {
                    let bytes = match m {
                        Memory::Buffer(b) => {
                            let buffer = program.buffer(*b);
                            eval(&buffer.extent())?.max(0) as usize * buffer.dtype.size()
                        }
                        Memory::Scratch(i) => {
                            let s = generated.scratch.get(*i).ok_or("scratch memory is missing")?;
                            eval(&s.elements)?.max(0) as usize * s.dtype.size()
                        }
                        Memory::Fault => return Err("a fault word is not zeroed".into()),
                    };
                    step.launches.push(Ready::Zero { at: place(*m)?, bytes });
                }
                Launch::Kernel(k) => {
                    let (function, shared_bytes) = *functions.next().ok_or("a kernel is missing")?;
                    let mut slot = None;
                    if !k.faults.is_empty() {
                        slot = Some(self.board.slot(&k.faults, &fused_names(fused))?);
                    }
                    let ready = ready(k, function, shared_bytes, &slot, &eval, &place)?;
                    step.launches.extend(ready);
                    step._slots.extend(slot);
                }
                Launch::Sort { .. } => return Err("sorting is not built for this device".into()),
            }
        }
        Ok(Box::new(step))
    }
}

/// A launch with its sizes known; None where there is nothing to do.
fn ready(
    k: &KernelLaunch,
    function: Function,
    shared_bytes: u32,
    slot: &Option<FaultSlot>,
    eval: &dyn Fn(&Dim) -> Result<i64, String>,
    place: &dyn Fn(Memory) -> Result<Param, &'static str>,
) -> Result<Option<Ready>, String> {
    for (size, limit) in &k.requires {
        let n = eval(size)?;
        if n > *limit {
            return Err(format!("{size} is {n}, but it was compiled for at most {limit}"));
        }
    }
    let programs = eval(&k.programs)?;
    if programs <= 0 {
        return Ok(None);
    }
    let programs = i32::try_from(programs).map_err(|_| format!("{programs} programs are too many for one launch"))?;
    let param = |a: &Arg| match &a.kind {
        ArgKind::Pointer { memory: Memory::Fault, .. } => slot
            .as_ref()
            .map(|s| Param::Value(s.address()))
            .ok_or_else(|| "a kernel without faults reports them".into()),
        ArgKind::Pointer { memory, .. } => place(*memory).map_err(String::from),
        ArgKind::Size { value, wide, .. } => {
            let n = eval(value)?;
            match wide {
                true => Ok(Param::Value(n as u64)),
                // The callee reads the low half.
                false => i32::try_from(n)
                    .map(|n| Param::Value(u64::from(n as u32)))
                    .map_err(|_| format!("{} is {n}, which 32 bits do not hold", a.name)),
            }
        }
    };
    let params = k.args.iter().map(param).collect::<Result<_, String>>()?;
    let grid = Grid { programs: programs as u32, threads: k.num_warps * WARP, shared_bytes };
    Ok(Some(Ready::Kernel { function, grid, params }))
}

impl Engine for DeviceEngine {
    fn kernel(&self, program: &Program, k: &Kernel, symbols: &SymbolValues) -> Result<Box<dyn CompiledStep>, String> {
        self.step(program, &k.name, &k.fused, symbols)
    }

    fn scatter(&self, program: &Program, s: &Scatter, symbols: &SymbolValues) -> Result<Box<dyn CompiledStep>, String> {
        self.step(program, &s.name, &s.fused, symbols)
    }

    /// A program reads its tile and writes it again by other threads, in several passes: what an address holds must not
    /// change between them.
    fn works_in_place(&self) -> bool {
        false
    }

    fn enter(&self) -> Result<(), StepError> {
        self.driver.enter().map_err(StepError::Other)?;
        self.board.look()
    }
}

/// The launches of a step, sizes known.
struct DeviceStep {
    driver: Arc<dyn Driver>,
    launches: Vec<Ready>,
    scratch_bytes: usize,
    /// The words that launches write faults to; theirs as long as the step lives.
    _slots: Vec<FaultSlot>,
}

enum Ready {
    Zero { at: Param, bytes: usize },
    Kernel { function: Function, grid: Grid, params: Vec<Param> },
}

#[derive(Clone, Copy, Debug)]
enum Param {
    Buffer(BufferId),
    /// Offset in the step's scratch memory.
    Scratch(usize),
    Value(u64),
}

impl Param {
    fn value(self, buffers: &[*mut u8], scratch: *mut u8) -> u64 {
        match self {
            Param::Buffer(b) => buffers[b.0 as usize].addr() as u64,
            Param::Scratch(offset) => scratch.wrapping_add(offset).addr() as u64,
            Param::Value(v) => v,
        }
    }
}

impl CompiledStep for DeviceStep {
    fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    unsafe fn run(&self, buffers: &[*mut u8], scratch: *mut u8, _: &dyn ParallelFor) -> Result<(), StepError> {
        let stream = self.driver.stream().map_err(StepError::Other)?;
        let (mut values, mut pointers) = (Vec::<u64>::new(), Vec::<*mut c_void>::new());
        for launch in &self.launches {
            let done = match launch {
                Ready::Zero { bytes: 0, .. } => Ok(()),
                Ready::Zero { at, bytes } => {
                    let data = std::ptr::without_provenance_mut(at.value(buffers, scratch) as usize);
                    // SAFETY: the whole of a buffer, or of scratch memory, as the caller promises.
                    unsafe { self.driver.zero(data, *bytes, stream) }
                }
                Ready::Kernel { function, grid, params } => {
                    values.clear();
                    values.extend(params.iter().map(|p| p.value(buffers, scratch)));
                    // Triton's own last two parameters, memory that these kernels do not ask for.
                    values.extend([0, 0]);
                    pointers.clear();
                    pointers.extend(values.iter_mut().map(|v| (&raw mut *v).cast::<c_void>()));
                    // SAFETY: the values follow the launch description that the kernel was compiled from; the caller
                    // vouches for the buffers.
                    unsafe { self.driver.launch(*function, *grid, stream, &mut pointers) }
                }
            };
            done.map_err(StepError::Other)?;
        }
        Ok(())
    }
}
