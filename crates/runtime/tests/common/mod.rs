//! What the tests share: a slow engine that evaluates kernels point by point, and short ways to write programs.
#![allow(dead_code, reason = "each test file uses its part")]

use permalloy_ir::{DType, Device, Dim, GraphKind, PrimOp, Role, SymbolInfo, SymbolValues};
use permalloy_loops::kernel::*;
use permalloy_runtime::engine::{CompiledStep, Engine, StepError};
use permalloy_runtime::parallel::ParallelFor;

/// f32 kernels of loads, constants, additions, multiplications and stores.
pub struct Points;

struct PointKernel {
    kernel: Kernel,
    sizes: Vec<i64>,
    symbols: SymbolValues,
}

impl Engine for Points {
    fn kernel(&self, _: &Program, kernel: &Kernel, symbols: &SymbolValues) -> Result<Box<dyn CompiledStep>, String> {
        let sizes =
            kernel.axes.iter().map(|a| a.size.eval(symbols).map_err(|e| e.to_string())).collect::<Result<_, _>>()?;
        Ok(Box::new(PointKernel { kernel: kernel.clone(), sizes, symbols: symbols.clone() }))
    }

    fn scatter(&self, _: &Program, _: &Scatter, _: &SymbolValues) -> Result<Box<dyn CompiledStep>, String> {
        Err("no scatter in tests".into())
    }
}

impl CompiledStep for PointKernel {
    unsafe fn run(&self, buffers: &[*mut u8], _: *mut u8, parallel: &dyn ParallelFor) -> Result<(), StepError> {
        let points: i64 = self.sizes.iter().product();
        let base: Vec<usize> = buffers.iter().map(|p| p.expose_provenance()).collect();
        let address = |b: BufferId, a: &Access, at: &[i64]| {
            let eval = |d: &Dim| d.eval(&self.symbols).unwrap();
            let offset = a.strides.iter().zip(at).fold(eval(&a.offset), |acc, (s, i)| acc + eval(s) * i);
            std::ptr::with_exposed_provenance_mut::<f32>(base[b.0 as usize] + offset as usize * 4)
        };
        parallel.run(points as usize, &|p| {
            let mut at = vec![0; self.sizes.len()];
            let mut rest = p as i64;
            for d in (0..at.len()).rev() {
                (at[d], rest) = (rest % self.sizes[d], rest / self.sizes[d]);
            }
            let mut values: Vec<f32> = Vec::new();
            for op in &self.kernel.ops {
                let v = |o: &OpId| values[o.0 as usize];
                let x = match &op.kind {
                    // SAFETY: tests address inside of their buffers.
                    OpKind::Load { buffer, access } => unsafe { *address(*buffer, access, &at) },
                    OpKind::Const(Scalar::Float(x)) => *x as f32,
                    OpKind::Binary(PrimOp::Add, a, b) => v(a) + v(b),
                    OpKind::Binary(PrimOp::Mul, a, b) => v(a) * v(b),
                    OpKind::Store { buffer, access, value } => {
                        // SAFETY: as above.
                        unsafe { *address(*buffer, access, &at) = v(value) };
                        0.0
                    }
                    other => panic!("the test engine has no {other:?}"),
                };
                values.push(x);
            }
        });
        Ok(())
    }
}

/// Builds a program of f32 buffers.
pub struct P(pub Program);

pub fn c(n: i64) -> Dim {
    Dim::from(n)
}

pub fn dense(shape: &[Dim]) -> Vec<Dim> {
    permalloy_ir::contiguous_strides(shape)
}

impl P {
    pub fn new(name: &str) -> P {
        P(Program {
            name: name.into(),
            kind: GraphKind::Inference,
            symbols: vec![],
            buffers: vec![],
            inputs: vec![],
            outputs: vec![],
            steps: vec![],
        })
    }

    pub fn symbol(&mut self, name: &str, hint: i64) -> Dim {
        self.0.symbols.push(SymbolInfo { name: name.into(), hint, min: 0, max: 1 << 20 });
        Dim::sym(name)
    }

    pub fn buffer(&mut self, name: &str, dtype: DType, shape: &[Dim], strides: &[Dim], kind: BufferKind) -> BufferId {
        let (shape, strides) = (shape.to_vec(), strides.to_vec());
        self.0.buffers.push(Buffer { name: name.into(), dtype, device: Device::Cpu, shape, strides, kind });
        BufferId(self.0.buffers.len() as u32 - 1)
    }

    pub fn input(&mut self, name: &str, shape: &[Dim]) -> BufferId {
        self.typed_input(name, DType::F32, shape)
    }

    pub fn typed_input(&mut self, name: &str, dtype: DType, shape: &[Dim]) -> BufferId {
        let index = self.0.inputs.len() as u32;
        let b = self.buffer(name, dtype, shape, &dense(shape), BufferKind::Input(index));
        self.0.inputs.push(ProgramInput::Tensor { buffer: b, role: Role::Primal });
        b
    }

    pub fn int(&mut self, d: Dim) {
        self.0.inputs.push(ProgramInput::Int(d));
    }

    pub fn f32(&mut self, name: &str, shape: &[Dim], kind: BufferKind) -> BufferId {
        self.buffer(name, DType::F32, shape, &dense(shape), kind)
    }

    /// The whole buffer.
    pub fn whole(&self, b: BufferId) -> TensorRef {
        let x = self.0.buffer(b);
        TensorRef { buffer: b, shape: x.shape.clone(), strides: x.strides.clone(), offset: Dim::ZERO }
    }

    pub fn returns(&mut self, b: BufferId) {
        let whole = self.whole(b);
        self.0.outputs.push(ProgramOutput::Tensor(whole));
    }

    /// `out = x op y`, elementwise; a scalar in place of `y`.
    pub fn pointwise(&mut self, op: PrimOp, out: BufferId, x: BufferId, y: Result<BufferId, f64>) {
        let buffer = self.0.buffer(out).clone();
        let access =
            |b: BufferId| Access { offset: Dim::ZERO, strides: self.0.buffer(b).strides.clone(), masks: vec![] };
        let load = |b: BufferId| OpKind::Load { buffer: b, access: access(b) };
        let second = match y {
            Ok(y) => load(y),
            Err(x) => OpKind::Const(Scalar::Float(x)),
        };
        let kinds = [
            load(x),
            second,
            OpKind::Binary(op, OpId(0), OpId(1)),
            OpKind::Store { buffer: out, access: access(out), value: OpId(2) },
        ];
        let ops = kinds.into_iter().map(|kind| KernelOp { kind, dtype: DType::F32 }).collect();
        let axes = buffer.shape.iter().map(|n| Axis { size: n.clone(), role: AxisRole::Batch }).collect();
        let name = format!("k{}", self.0.steps.len());
        self.0.steps.push(Step::Kernel(Kernel { name, axes, ops, fused: vec![] }));
    }

    pub fn native(&mut self, op: &str, args: Vec<NativeArg>, results: &[Option<BufferId>]) {
        let loc = Some("model.py:7".into());
        let results = results.to_vec();
        self.0.steps.push(Step::Native(NativeCall { op: op.into(), args, kwargs: vec![], results, loc }));
    }

    pub fn t(&self, b: BufferId) -> NativeArg {
        NativeArg::Tensor(self.whole(b))
    }
}
