//! Launches on a device that is not there: a recorder takes the place of the driver, main memory that of the device's.

mod common;

use common::{P, c, dense};
use permalloy_ir::{DType, Dim, PrimOp};
use permalloy_loops::kernel::*;
use permalloy_runtime::arena::ALIGN;
use permalloy_runtime::device::{
    Binary, DeviceEngine, Driver, FaultBoard, Function, Grid, SharedWords, StepForm, Stream,
};
use permalloy_runtime::embedded::{EmbeddedProvider, PlainTensor};
use permalloy_runtime::output_memory::OutputBlock;
use permalloy_runtime::parallel::ParallelFor;
use permalloy_runtime::peak::peak;
use permalloy_runtime::plan::OWN_MEMORY;
use permalloy_runtime::provider::{PreparedCall, Provider, ResolvedCall};
use permalloy_runtime::{Executable, RunError, RunInput, RunOutput, TensorHandle};
use permalloy_triton::{Device, Launch, Options, generate, generate_scatter};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// What the recorder saw.
#[derive(Clone, PartialEq, Debug)]
enum Seen {
    Launch { key: String, grid: Grid, values: Vec<u64> },
    Zero { at: u64, bytes: usize },
}

#[derive(Default)]
struct Recorder {
    seen: Mutex<Vec<Seen>>,
    loaded: Mutex<Vec<String>>,
    /// Launches write this code to the address that is their parameter at this position.
    fault: Mutex<Option<(usize, i32)>>,
    fails: Mutex<bool>,
}

impl Driver for Recorder {
    fn enter(&self) -> Result<(), String> {
        Ok(())
    }

    fn load(&self, binary: &Binary) -> Result<Function, String> {
        if binary.image.is_empty() {
            return Err("no image".into());
        }
        let mut loaded = self.loaded.lock().unwrap();
        loaded.push(binary.key.clone());
        Ok(Function(loaded.len() - 1))
    }

    fn stream(&self) -> Result<Stream, String> {
        Ok(Stream(7))
    }

    unsafe fn launch(&self, f: Function, grid: Grid, s: Stream, parameters: &mut [*mut c_void]) -> Result<(), String> {
        assert_eq!(s, Stream(7));
        if *self.fails.lock().unwrap() {
            return Err("cuLaunchKernel: out of resources (CUDA error 701)".into());
        }
        // SAFETY: each parameter points to a word.
        let values: Vec<u64> = parameters.iter().map(|p| unsafe { *p.cast::<u64>() }).collect();
        if let Some((at, code)) = *self.fault.lock().unwrap() {
            // SAFETY: the address of one of the words given out below.
            unsafe { std::ptr::with_exposed_provenance_mut::<i32>(values[at] as usize).write(code) };
        }
        let key = self.loaded.lock().unwrap()[f.0].clone();
        self.seen.lock().unwrap().push(Seen::Launch { key, grid, values });
        Ok(())
    }

    unsafe fn zero(&self, data: *mut u8, bytes: usize, _: Stream) -> Result<(), String> {
        self.seen.lock().unwrap().push(Seen::Zero { at: data.addr() as u64, bytes });
        Ok(())
    }

    fn shared_words(&self, count: usize) -> Result<SharedWords, String> {
        let host = Box::leak(vec![0i32; count].into_boxed_slice()).as_mut_ptr();
        Ok(SharedWords { host, device: host.expose_provenance() as u64, count })
    }
}

/// Plain memory that asks for what a device's does.
struct DeviceMemory(EmbeddedProvider);

impl Provider for DeviceMemory {
    fn name(&self) -> &'static str {
        "test"
    }

    fn parallel(&self) -> &dyn ParallelFor {
        self.0.parallel()
    }

    fn prepare(&self, call: Arc<ResolvedCall>) -> Result<Box<dyn PreparedCall>, String> {
        self.0.prepare(call)
    }

    fn empty(&self, dtype: DType, shape: &[i64], strides: &[i64]) -> Result<TensorHandle, String> {
        self.0.empty(dtype, shape, strides)
    }

    unsafe fn over_memory(&self, p: *mut u8, d: DType, shape: &[i64], strides: &[i64]) -> Result<TensorHandle, String> {
        // SAFETY: the caller's promise.
        unsafe { self.0.over_memory(p, d, shape, strides) }
    }

    fn in_block(&self, _: OutputBlock<'static>, _: DType, _: &[i64], _: &[i64]) -> Result<TensorHandle, String> {
        Err("outputs of a device are no blocks of the process's pool".into())
    }

    fn uses_pools(&self) -> bool {
        false
    }

    fn alignment(&self, _: DType) -> usize {
        16
    }
}

/// Each kernel's binary is called like the kernel; `shared` is their shared memory.
fn executable(driver: &Arc<Recorder>, program: Program, shared: u32) -> Result<Executable, RunError> {
    let device = Device::of("cuda-sm90").unwrap();
    let mut forms = Vec::new();
    for step in &program.steps {
        let (name, made) = match step {
            Step::Kernel(k) => {
                (k.name.clone(), generate(k, &program.buffers, &program.symbols, device, &Options::default()).unwrap())
            }
            Step::Scatter(s) => (
                s.name.clone(),
                generate_scatter(s, &program.buffers, &program.symbols, device, &Options::default()).unwrap(),
            ),
            Step::Group(_) | Step::Native(_) => continue,
        };
        let binary = |l: &Launch| match l {
            Launch::Kernel(k) => Some(Arc::new(Binary {
                image: vec![1],
                entry: "kernel".into(),
                shared_bytes: shared,
                key: k.name.clone(),
            })),
            _ => None,
        };
        let binaries = made.launches.iter().filter_map(binary).collect();
        forms.push((name, StepForm { generated: made, binaries }));
    }
    let board = Arc::new(FaultBoard::new(&**driver).unwrap());
    let engine = DeviceEngine::new(driver.clone(), board, forms).unwrap();
    Executable::new(Arc::new(program), Arc::new(DeviceMemory(EmbeddedProvider::new(1))), Arc::new(engine))
}

fn tensor(n: usize) -> PlainTensor {
    PlainTensor::from_values(DType::F32, &[n as i64], &vec![1f32; n])
}

fn plain(t: &PlainTensor) -> RunInput {
    RunInput::Tensor(TensorHandle::Plain(t.clone()))
}

/// y = (x + 1) * x, in two steps with the sum between them in the arena.
fn two_steps(n: Dim) -> P {
    let mut p = P::new("two_steps");
    let x = p.input("x", std::slice::from_ref(&n));
    let t = p.f32("t", std::slice::from_ref(&n), BufferKind::Intermediate);
    let y = p.f32("y", std::slice::from_ref(&n), BufferKind::Output);
    p.pointwise(PrimOp::Add, t, x, Err(1.0));
    p.pointwise(PrimOp::Mul, y, t, Ok(x));
    p.returns(y);
    p
}

#[test]
fn launches_follow_the_steps_with_packed_arguments() {
    let driver = Arc::new(Recorder::default());
    let exe = executable(&driver, two_steps(c(5000)).0, 1024).unwrap();
    let x = tensor(5000);
    let out = exe.run(vec![plain(&x)]).unwrap();
    let RunOutput::Tensor(y) = &out[0] else { panic!() };
    let seen = driver.seen.lock().unwrap().clone();
    let [Seen::Launch { key: k0, grid: g0, values: v0 }, Seen::Launch { key: k1, grid: g1, values: v1 }] = &*seen
    else {
        panic!("{seen:?}")
    };
    assert_eq!((k0.as_str(), k1.as_str()), ("k0", "k1"));
    // Blocks of 1024 elements, two warps each.
    assert_eq!(*g0, Grid { programs: 5, threads: 64, shared_bytes: 1024 });
    assert_eq!(g0, g1);
    let (x, y) = (x.data_ptr().addr() as u64, y.data_ptr().addr() as u64);
    let t = v0[1];
    // Pointers in the order of their first use, then Triton's own two.
    assert_eq!(*v0, [x, t, 0, 0]);
    assert_eq!(*v1, [t, x, y, 0, 0]);
    assert!(t.is_multiple_of(ALIGN as u64) && t != x && t != y);
}

/// An arena would take the memory of its worst moment for the whole of a run.
#[test]
fn large_intermediates_are_no_part_of_the_arena() {
    let driver = Arc::new(Recorder::default());
    let small = executable(&driver, two_steps(c(1000)).0, 0).unwrap();
    assert_eq!(small.arena_bytes(), 4032);
    let n = OWN_MEMORY / 4;
    let mut program = two_steps(c(n as i64)).0;
    program.buffers.iter_mut().for_each(|b| b.device = permalloy_ir::Device::Cuda(0));
    let planned = peak(&program, &|name| name == "x");
    assert_eq!((planned.arena, planned.tensors, planned.step), (0, 2 * OWN_MEMORY, Some(1)));
    assert_eq!(planned.alive, [("t".into(), OWN_MEMORY), ("y".into(), OWN_MEMORY)]);
    let exe = executable(&driver, program, 0).unwrap();
    assert_eq!(exe.arena_bytes(), 0);
    driver.seen.lock().unwrap().clear();
    let x = tensor(n);
    let out = exe.run(vec![plain(&x)]).unwrap();
    let RunOutput::Tensor(y) = &out[0] else { panic!() };
    let seen = driver.seen.lock().unwrap().clone();
    let [Seen::Launch { values: v0, .. }, Seen::Launch { values: v1, .. }] = &*seen else { panic!("{seen:?}") };
    let t = v0[1];
    let range = |at: u64| at..at + OWN_MEMORY as u64;
    for other in [x.data_ptr().addr() as u64, y.data_ptr().addr() as u64] {
        assert!(range(t).end <= other || range(other).end <= t);
        assert!(v1.contains(&other));
    }
    assert!(v1.contains(&t));
}

#[test]
fn sizes_are_bound_by_each_run() {
    let driver = Arc::new(Recorder::default());
    let mut p = P::new("sizes");
    let n = p.symbol("n", 100);
    let mut q = two_steps(n);
    q.0.symbols = p.0.symbols;
    let exe = executable(&driver, q.0, 0).unwrap();
    // Blocks of 128 elements, as the size that the graph was traced with suggests.
    for (n, programs) in [(1000usize, 8), (70_000, 547)] {
        driver.seen.lock().unwrap().clear();
        exe.run(vec![plain(&tensor(n))]).unwrap();
        for seen in &*driver.seen.lock().unwrap() {
            let Seen::Launch { grid, values, .. } = seen else { panic!("{seen:?}") };
            assert_eq!(grid.programs, programs);
            // The size comes after the pointers, as 32 bits; nothing else of the word is set.
            assert_eq!(values[values.len() - 3..], [n as u64, 0, 0]);
        }
    }
    driver.seen.lock().unwrap().clear();
    exe.run(vec![plain(&tensor(0))]).unwrap();
    assert!(driver.seen.lock().unwrap().is_empty(), "nothing is launched for no elements");
}

#[test]
fn a_size_beyond_what_addresses_hold_is_an_error() {
    let mut p = P::new("long");
    let n = p.symbol("n", 100);
    p.0.symbols[0].max = i64::MAX;
    let mut q = P::new("long");
    let x = q.input("x", &[c(1)]);
    let shape = std::slice::from_ref(&n);
    let y = q.buffer("y", DType::U8, shape, &dense(shape), BufferKind::Output);
    q.int(n.clone());
    q.0.symbols = p.0.symbols;
    let load = Access { offset: Dim::ZERO, strides: vec![Dim::ZERO], masks: vec![] };
    let store = Access { offset: Dim::ZERO, strides: vec![Dim::ONE], masks: vec![] };
    let ops = vec![
        KernelOp { kind: OpKind::Load { buffer: x, access: load }, dtype: DType::F32 },
        KernelOp { kind: OpKind::Cast(OpId(0)), dtype: DType::U8 },
        KernelOp { kind: OpKind::Store { buffer: y, access: store, value: OpId(1) }, dtype: DType::U8 },
    ];
    let axes = vec![Axis { size: n, role: AxisRole::Batch }];
    q.0.steps.push(Step::Kernel(Kernel { name: "k0".into(), axes, ops, fused: vec![] }));
    q.returns(y);
    let exe = executable(&Arc::new(Recorder::default()), q.0, 0).unwrap();
    let error = exe.run(vec![plain(&tensor(1)), RunInput::Int(1 << 31)]).unwrap_err();
    assert!(error.to_string().contains("but it was compiled for at most"), "{error}");
}

#[test]
fn inputs_that_are_not_aligned_are_copied() {
    let driver = Arc::new(Recorder::default());
    let exe = executable(&driver, two_steps(c(64)).0, 0).unwrap();
    let long = tensor(68);
    for start in 0..4 {
        driver.seen.lock().unwrap().clear();
        exe.run(vec![plain(&long.view(&[64], &[1], start))]).unwrap();
        let seen = driver.seen.lock().unwrap().clone();
        let Seen::Launch { values, .. } = &seen[0] else { panic!("{seen:?}") };
        assert!(values[0].is_multiple_of(16));
        assert_eq!(values[0] == long.data_ptr().addr() as u64, start == 0);
    }
}

/// out[index[i]] += x[i]
fn scatter() -> P {
    scatter_into(DType::F32, 10)
}

fn scatter_into(dtype: DType, size: i64) -> P {
    let mut p = P::new("scatter");
    let x = p.input("x", &[c(6)]);
    let i = p.typed_input("i", DType::I64, &[c(6)]);
    let out = p.buffer("out", dtype, &[c(size)], &dense(&[c(size)]), BufferKind::Output);
    let dense = Access { offset: Dim::ZERO, strides: vec![Dim::ONE], masks: vec![] };
    let fixed = Access { offset: Dim::ZERO, strides: vec![Dim::ZERO], masks: vec![] };
    let loc = Some("model.py:3".into());
    p.0.steps.push(Step::Scatter(Scatter {
        name: "s0".into(),
        axes: vec![c(6)],
        src: (x, dense.clone()),
        index: (i, dense),
        out: (out, fixed),
        stride: Dim::ONE,
        size: c(size),
        fused: vec![Fused { op: "prim.index_sum".into(), loc }],
    }));
    p.returns(out);
    p
}

/// Sums of 16 bits are made in f32, in memory of the kernel's own. What is large is had for its step alone.
#[test]
fn large_scratch_memory_is_no_part_of_the_arena() {
    for (size, own) in [(1000, false), (OWN_MEMORY / 4, true)] {
        let driver = Arc::new(Recorder::default());
        let exe = executable(&driver, scatter_into(DType::BF16, size as i64).0, 0).unwrap();
        assert_eq!(exe.arena_bytes(), if own { 0 } else { 4032 });
        let index = PlainTensor::from_values(DType::I64, &[6], &[0i64; 6]);
        let out = exe.run(vec![plain(&tensor(6)), RunInput::Tensor(TensorHandle::Plain(index))]).unwrap();
        let RunOutput::Tensor(y) = &out[0] else { panic!() };
        let seen = driver.seen.lock().unwrap().clone();
        let [Seen::Zero { at, bytes }, Seen::Launch { values: sums, .. }, Seen::Launch { values: last, .. }] = &*seen
        else {
            panic!("{seen:?}")
        };
        assert_eq!(*bytes, 4 * size);
        assert!(at.is_multiple_of(ALIGN as u64) && sums.contains(at) && last.contains(at));
        assert!(last.contains(&(y.data_ptr().addr() as u64)) && *at != y.data_ptr().addr() as u64);
    }
}

#[test]
fn a_scatter_zeroes_its_target_and_tells_of_faults_in_the_next_run() {
    let driver = Arc::new(Recorder::default());
    let exe = executable(&driver, scatter().0, 0).unwrap();
    let inputs = || {
        let index = PlainTensor::from_values(DType::I64, &[6], &[0i64; 6]);
        vec![plain(&tensor(6)), RunInput::Tensor(TensorHandle::Plain(index))]
    };
    let out = exe.run(inputs()).unwrap();
    let RunOutput::Tensor(y) = &out[0] else { panic!() };
    let seen = driver.seen.lock().unwrap().clone();
    assert_eq!(seen[0], Seen::Zero { at: y.data_ptr().addr() as u64, bytes: 40 });
    let Seen::Launch { values, .. } = &seen[1] else { panic!("{seen:?}") };
    // One of the parameters is a word of the board.
    let Some(Launch::Kernel(k)) = (match &scatter().0.steps[0] {
        Step::Scatter(s) => {
            let p = scatter().0;
            generate_scatter(s, &p.buffers, &[], Device::of("cuda-sm90").unwrap(), &Options::default()).unwrap()
        }
        _ => panic!(),
    })
    .launches
    .into_iter()
    .nth(1) else {
        panic!()
    };
    let at = k.args.iter().position(|a| a.name == "fault_ptr").unwrap();
    assert_eq!(values.len(), k.args.len() + 2);
    *driver.fault.lock().unwrap() = Some((at, 1));
    exe.run(inputs()).unwrap();
    *driver.fault.lock().unwrap() = None;
    let error = exe.run(inputs()).unwrap_err();
    assert!(matches!(error, RunError::LateIndex { .. }), "{error:?}");
    assert!(error.to_string().contains("index out of range of out"), "{error}");
    assert!(error.to_string().contains("model.py:3"), "{error}");
    exe.run(inputs()).unwrap();
}

#[test]
fn a_launch_that_fails_is_an_error_of_the_run_that_names_the_kernel() {
    let driver = Arc::new(Recorder::default());
    let exe = executable(&driver, two_steps(c(64)).0, 0).unwrap();
    *driver.fails.lock().unwrap() = true;
    let error = exe.run(vec![plain(&tensor(64))]).unwrap_err();
    assert!(error.to_string().contains("kernel k0") && error.to_string().contains("out of resources"), "{error}");
    *driver.fails.lock().unwrap() = false;
    exe.run(vec![plain(&tensor(64))]).unwrap();
}

#[test]
fn a_kernel_that_does_not_load_is_an_error() {
    let driver = Arc::new(Recorder::default());
    let program = two_steps(c(64)).0;
    let device = Device::of("cuda-sm90").unwrap();
    let Step::Kernel(k) = &program.steps[0] else { panic!() };
    let generated = generate(k, &program.buffers, &[], device, &Options::default()).unwrap();
    let binary = Binary { image: vec![], entry: "kernel".into(), shared_bytes: 0, key: "k".into() };
    let board = Arc::new(FaultBoard::new(&*driver).unwrap());
    let form = StepForm { generated, binaries: vec![Arc::new(binary)] };
    let error = DeviceEngine::new(driver, board, [("k0".to_string(), form)]).err().unwrap();
    assert_eq!(error, "kernel k0: no image");
}
