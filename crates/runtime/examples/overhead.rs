//! What the executable adds to the work itself: bookkeeping per kernel step and per native call.
//!
//!     cargo run --release -p permalloy-runtime --example overhead -- path/to/libtorch_cpu.so

use permalloy_ir::{DType, Device, Dim, GraphKind, Role, SymbolValues, contiguous_strides};
use permalloy_loops::kernel::*;
use permalloy_runtime::engine::{CompiledStep, Engine};
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
    unsafe fn run(&self, buffers: &[*mut u8], _: *mut u8, _: &dyn ParallelFor) -> Result<(), String> {
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

/// Nanoseconds a call of `f`, the best of several batches.
fn best(f: impl Fn()) -> f64 {
    f();
    let batch = || {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| f());
        start.elapsed().as_secs_f64() * 1e9 / ROUNDS as f64
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
}
