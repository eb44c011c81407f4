//! What the executable adds to the work itself: bookkeeping per kernel step and per native call.
//!
//!     cargo run --release -p permalloy-runtime --example overhead -- path/to/libtorch_cpu.so

use permalloy_ir::{DType, Device, Dim, GraphKind, Role, SymbolValues, contiguous_strides};
use permalloy_loops::kernel::*;
use permalloy_runtime::engine::{CompiledStep, Engine, StepError, TileEngine};
use permalloy_runtime::parallel::ParallelFor;
use permalloy_runtime::provider::{Provider, PythonOp, ResolvedCall};
use permalloy_runtime::torch::TorchProvider;
use permalloy_runtime::{Executable, RunInput, TensorHandle};
use std::sync::Arc;
use std::time::Instant;

const STEPS: usize = 200;
const ROUNDS: usize = 500;

struct Schemas;

impl PythonOp for Schemas {
    fn schema(&self, op: &str) -> Option<String> {
        let text = match op {
            "aten.mm.default" => "aten::mm(Tensor self, Tensor mat2) -> Tensor",
            "aten.cumsum.default" => "aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
            "aten.logical_not.default" => "aten::logical_not(Tensor self) -> Tensor",
            _ => return None,
        };
        Some(text.into())
    }

    fn call(&self, _: &ResolvedCall, _: &[&TensorHandle]) -> Result<Vec<Option<TensorHandle>>, String> {
        Err("no Python here".into())
    }
}

/// Kernels that do nothing.
struct Nothing;

struct Idle;

impl Engine for Nothing {
    fn kernel(&self, _: &Program, _: &Kernel, _: &SymbolValues) -> Result<Box<dyn CompiledStep>, String> {
        Ok(Box::new(Idle))
    }

    fn scatter(&self, _: &Program, _: &Scatter, _: &SymbolValues) -> Result<Box<dyn CompiledStep>, String> {
        Err("no scatter".into())
    }
}

impl CompiledStep for Idle {
    unsafe fn run(&self, buffers: &[*mut u8], _: *mut u8, _: &dyn ParallelFor) -> Result<(), StepError> {
        std::hint::black_box(buffers);
        Ok(())
    }
}

/// A chain of `STEPS` steps over 2×2 matrices; `op` None makes kernels, else native calls.
fn chain(op: Option<(&str, bool)>) -> Program {
    let shape = [Dim::from(2), Dim::from(2)];
    let mut p = Program {
        name: "chain".into(),
        kind: GraphKind::Inference,
        symbols: vec![],
        buffers: vec![],
        inputs: vec![],
        outputs: vec![],
        steps: vec![],
    };
    let whole =
        |b| TensorRef { buffer: b, shape: shape.to_vec(), strides: contiguous_strides(&shape), offset: Dim::ZERO };
    for i in 0..=STEPS {
        let kind = match i {
            0 => BufferKind::Input(0),
            STEPS => BufferKind::Output,
            _ if op.is_some() => BufferKind::Native,
            _ => BufferKind::Intermediate,
        };
        p.buffers.push(Buffer {
            name: format!("b{i}").into(),
            dtype: DType::F32,
            device: Device::Cpu,
            shape: shape.to_vec(),
            strides: contiguous_strides(&shape),
            kind,
        });
    }
    let b = |i: usize| BufferId(i as u32);
    p.inputs.push(ProgramInput::Tensor { buffer: b(0), role: Role::Primal });
    for i in 0..STEPS {
        p.steps.push(match op {
            Some((op, two)) => {
                let mut args = vec![NativeArg::Tensor(whole(b(i)))];
                args.push(if two { NativeArg::Tensor(whole(b(i))) } else { NativeArg::Int(Dim::ZERO) });
                if op.contains("logical_not") {
                    args.truncate(1);
                }
                let results = vec![Some(b(i + 1))];
                Step::Native(NativeCall { op: op.into(), args, kwargs: vec![], results, loc: None })
            }
            None => {
                let access = Access { offset: Dim::ZERO, strides: contiguous_strides(&shape), masks: vec![] };
                let kinds = [
                    OpKind::Load { buffer: b(i), access: access.clone() },
                    OpKind::Store { buffer: b(i + 1), access, value: OpId(0) },
                ];
                let ops = kinds.map(|kind| KernelOp { kind, dtype: DType::F32 }).to_vec();
                Step::Kernel(Kernel { name: format!("k{i}"), axes: vec![], ops, fused: vec![] })
            }
        });
    }
    p.outputs.push(ProgramOutput::Tensor(whole(b(STEPS))));
    p
}

/// `steps` doublings of `n` numbers, each into memory of its own; the last is the output.
fn doublings(steps: usize, n: i64) -> Program {
    let mut p = chain(None);
    p.buffers.truncate(steps + 1);
    p.steps.truncate(steps);
    for b in &mut p.buffers {
        (b.shape, b.strides) = (vec![Dim::from(n)], vec![Dim::ONE]);
    }
    p.buffers[steps].kind = BufferKind::Output;
    let access = Access { offset: Dim::ZERO, strides: vec![Dim::ONE], masks: vec![] };
    for (i, s) in p.steps.iter_mut().enumerate() {
        let Step::Kernel(k) = s else { continue };
        k.axes = vec![Axis { size: Dim::from(n), role: AxisRole::Batch }];
        let b = |i: usize| BufferId(i as u32);
        let kinds = [
            OpKind::Load { buffer: b(i), access: access.clone() },
            OpKind::Binary(permalloy_ir::PrimOp::Add, OpId(0), OpId(0)),
            OpKind::Store { buffer: b(i + 1), access: access.clone(), value: OpId(1) },
        ];
        k.ops = kinds.map(|kind| KernelOp { kind, dtype: DType::F32 }).to_vec();
    }
    let whole = TensorRef {
        buffer: BufferId(steps as u32),
        shape: vec![Dim::from(n)],
        strides: vec![Dim::ONE],
        offset: Dim::ZERO,
    };
    p.outputs = vec![ProgramOutput::Tensor(whole)];
    p
}

/// One kernel with `inputs` arguments and `outputs` results of 64 numbers each.
fn wide(inputs: usize, outputs: usize) -> Program {
    let mut p = doublings(1, 64);
    let buffer = |i: usize| {
        let kind = if i < inputs { BufferKind::Input(i as u32) } else { BufferKind::Output };
        Buffer { name: format!("b{i}").into(), kind, ..p.buffers[0].clone() }
    };
    let buffers: Vec<Buffer> = (0..inputs + outputs).map(buffer).collect();
    let id = |i: usize| BufferId(i as u32);
    p.inputs = (0..inputs).map(|i| ProgramInput::Tensor { buffer: id(i), role: Role::Primal }).collect();
    let access = Access { offset: Dim::ZERO, strides: vec![Dim::ONE], masks: vec![] };
    let Step::Kernel(k) = &mut p.steps[0] else { return p };
    let loads = (0..inputs).map(|i| OpKind::Load { buffer: id(i), access: access.clone() });
    let sums = (1..inputs).map(|i| {
        let before = if i == 1 { 0 } else { inputs + i - 2 };
        OpKind::Binary(permalloy_ir::PrimOp::Add, OpId(before as u32), OpId(i as u32))
    });
    let last = OpId((2 * inputs - 2) as u32);
    let stores = (0..outputs).map(|o| OpKind::Store { buffer: id(inputs + o), access: access.clone(), value: last });
    k.ops = loads.chain(sums).chain(stores).map(|kind| KernelOp { kind, dtype: DType::F32 }).collect();
    let output = |o: usize| {
        ProgramOutput::Tensor(TensorRef {
            buffer: id(inputs + o),
            shape: vec![Dim::from(64)],
            strides: vec![Dim::ONE],
            offset: Dim::ZERO,
        })
    };
    p.outputs = (0..outputs).map(output).collect();
    p.buffers = buffers;
    p
}

/// Nanoseconds a call of `f`, the best of several batches.
fn best(f: impl Fn()) -> f64 {
    best_of(ROUNDS, f)
}

fn best_of(rounds: usize, f: impl Fn()) -> f64 {
    f();
    let batch = || {
        let start = Instant::now();
        (0..rounds).for_each(|_| f());
        start.elapsed().as_secs_f64() * 1e9 / rounds as f64
    };
    (0..7).map(|_| batch()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let path = std::env::args().nth(1).expect("the path of libtorch_cpu.so");
    let provider = Arc::new(TorchProvider::new(Some(path.as_ref()), Arc::new(Schemas)).expect("libtorch loads"));
    let exe = |p| Executable::new(Arc::new(p), provider.clone(), Arc::new(Nothing)).expect("the program is fine");
    let x = provider.empty(DType::F32, &[2, 2], &[2, 1]).expect("memory");
    let run = |e: &Executable| {
        e.run(vec![RunInput::Tensor(x.share().expect("a reference"))]).expect("runs");
    };
    let per_step = |total: f64| total / STEPS as f64;

    let kernels = exe(chain(None));
    println!("kernel step                 {:7.0} ns", per_step(best(|| run(&kernels))));

    // The bare C function, operands ready: what torch itself takes.
    let symbol = provider.api().symbol("aoti_torch_cpu_mm_out\0").expect("mm");
    type Three = unsafe extern "C" fn(*mut std::ffi::c_void, *mut std::ffi::c_void, *mut std::ffi::c_void) -> i32;
    // SAFETY: the C function's signature.
    let mm = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Three>(symbol) };
    let out = provider.empty(DType::F32, &[2, 2], &[2, 1]).expect("memory");
    let (TensorHandle::Torch(a), TensorHandle::Torch(o)) = (&x, &out) else { return };
    // SAFETY: live handles.
    let bare = best(|| (0..STEPS).for_each(|_| assert_eq!(unsafe { mm(o.raw(), a.raw(), a.raw()) }, 0)));
    println!("mm.out, bare                {:7.0} ns", per_step(bare));
    for op in ["aten.mm.default", "aten.cumsum.default", "aten.logical_not.default"] {
        let mut p = chain(Some((op, op.contains("mm"))));
        if op.contains("not") {
            p.buffers.iter_mut().skip(1).for_each(|b| b.dtype = DType::Bool);
        }
        let e = exe(p);
        println!("{op:28}{:7.0} ns  {}", per_step(best(|| run(&e))), e.routes()[0].route);
    }

    let tiles = |p| Executable::new(Arc::new(p), provider.clone(), Arc::new(TileEngine::new())).expect("fine");
    let x = provider.empty(DType::F32, &[64], &[1]).expect("memory");
    for (inputs, outputs) in [(1, 1), (6, 1), (1, 6), (6, 6)] {
        let arguments = || (0..inputs).map(|_| RunInput::Tensor(x.share().expect("a reference"))).collect::<Vec<_>>();
        let time = |e: Executable| best(|| drop(e.run(arguments()).expect("runs")));
        let given = best(|| drop(arguments()));
        let made = best(|| {
            drop((0..outputs).map(|_| provider.empty(DType::F32, &[64], &[1])).collect::<Vec<_>>());
        });
        let (idle, tile) = (time(exe(wide(inputs, outputs))), time(tiles(wide(inputs, outputs))));
        println!(
            "call, {inputs} in, {outputs} out: {tile:6.0} ns; without the kernel {idle:6.0} ns; arguments alone {given:6.0} ns, \
             memory for the results alone {made:6.0} ns"
        );
    }
    let e = tiles(doublings(STEPS, 4));
    let x = provider.empty(DType::F32, &[4], &[1]).expect("memory");
    let run = |e: &Executable, x: &TensorHandle| {
        e.run(vec![RunInput::Tensor(x.share().expect("a reference"))]).expect("runs");
    };
    println!("tile kernel of 4 elements   {:7.0} ns", per_step(best(|| run(&e, &x))));
    for n in [1i64 << 16, 1 << 20, 1 << 24] {
        let x = provider.empty(DType::F32, &[n], &[1]).expect("memory");
        let rounds = ((1 << 26) / n as usize).clamp(5, 200);
        let fresh = tiles(doublings(1, n)).without_pooled_outputs();
        let pooled = tiles(doublings(1, n));
        let (a, b) = (best_of(rounds, || run(&fresh, &x)), best_of(rounds, || run(&pooled, &x)));
        println!("output of {n:8} f32: fresh {:9.1} µs, pooled {:9.1} µs, ratio {:.2}", a / 1e3, b / 1e3, a / b);
        let placed = tiles(doublings(9, n));
        let apart = tiles(doublings(9, n)).without_in_place();
        let (a, b) = (best_of(rounds, || run(&apart, &x)), best_of(rounds, || run(&placed, &x)));
        println!("  9 steps: apart {:9.1} µs, in place {:9.1} µs, ratio {:.2}", a / 1e3, b / 1e3, a / b);
    }
}
