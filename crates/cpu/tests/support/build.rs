//! Kernels written by hand, and the check that every way to run one agrees with the evaluator.

use super::guard::Guard;
use super::{Memory, V, agrees, evaluate, guarded, memory, read, write};
use permalloy_cpu::isa::IsaLevel;
use permalloy_cpu::{RunError, Serial, Threads, compile_kernel};
use permalloy_ir::{DType, Device, Dim, PrimKind, PrimOp, SymbolValues, contiguous_strides};
use permalloy_loops::kernel::*;

/// xorshift64*: the same numbers on every run.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 33) % n.max(1) as u64) as usize
    }
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
    /// True once in `n`.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub struct Case {
    pub kernel: Kernel,
    pub buffers: Vec<Buffer>,
    pub symbols: SymbolValues,
    /// Buffer that lies in the memory of another one.
    pub alias: Vec<(usize, usize)>,
    /// Exclusive upper bound of the values of an integer buffer.
    pub below: Vec<Option<i64>>,
    pub special: bool,
}

pub fn levels() -> Vec<IsaLevel> {
    [IsaLevel::Portable, IsaLevel::Avx2, IsaLevel::Avx512].into_iter().filter(|l| *l <= IsaLevel::best()).collect()
}

impl Case {
    pub fn new(axes: &[(i64, AxisRole)]) -> Case {
        let axes = axes.iter().map(|(n, role)| Axis { size: Dim::from(*n), role: *role }).collect();
        Case {
            kernel: Kernel { name: "test".into(), axes, ops: vec![], fused: vec![] },
            buffers: vec![],
            symbols: SymbolValues::new(),
            alias: vec![],
            below: vec![],
            special: false,
        }
    }

    pub fn op(&mut self, kind: OpKind, dtype: DType) -> OpId {
        self.kernel.ops.push(KernelOp { kind, dtype });
        OpId(self.kernel.ops.len() as u32 - 1)
    }

    pub fn dtype(&self, x: OpId) -> DType {
        self.kernel.op(x).dtype
    }

    pub fn buffer(&mut self, dtype: DType, shape: &[i64], strides: Option<Vec<i64>>) -> BufferId {
        let shape: Vec<Dim> = shape.iter().map(|n| Dim::from(*n)).collect();
        let strides = match strides {
            Some(s) => s.into_iter().map(Dim::from).collect(),
            None => contiguous_strides(&shape),
        };
        let name = format!("t{}", self.buffers.len()).into();
        self.buffers.push(Buffer { name, dtype, device: Device::Cpu, shape, strides, kind: BufferKind::Intermediate });
        self.below.push(None);
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// A dense buffer over the given axes, in that order, and the access to it.
    pub fn dense(&mut self, dtype: DType, axes: &[usize]) -> (BufferId, Access) {
        let shape: Vec<i64> = axes.iter().map(|a| self.kernel.axes[*a].size.as_const().unwrap()).collect();
        let b = self.buffer(dtype, &shape, None);
        (b, self.access(b, axes))
    }

    pub fn access(&self, b: BufferId, axes: &[usize]) -> Access {
        let mut strides = vec![Dim::ZERO; self.kernel.axes.len()];
        for (a, s) in axes.iter().zip(&self.buffers[b.0 as usize].strides) {
            strides[*a] = s.clone();
        }
        Access { offset: Dim::ZERO, strides, masks: vec![] }
    }

    pub fn load(&mut self, dtype: DType, axes: &[usize]) -> OpId {
        let (buffer, access) = self.dense(dtype, axes);
        self.op(OpKind::Load { buffer, access }, dtype)
    }

    pub fn store(&mut self, value: OpId, axes: &[usize]) -> BufferId {
        let dtype = self.dtype(value);
        self.store_as(value, dtype, axes)
    }

    pub fn store_as(&mut self, value: OpId, dtype: DType, axes: &[usize]) -> BufferId {
        let (buffer, access) = self.dense(dtype, axes);
        self.op(OpKind::Store { buffer, access, value }, dtype);
        buffer
    }

    pub fn constant(&mut self, x: f64, dtype: DType) -> OpId {
        self.op(OpKind::Const(Scalar::Float(x)), dtype)
    }

    pub fn un(&mut self, op: PrimOp, x: OpId) -> OpId {
        let dtype = self.dtype(x);
        let test = matches!(op, PrimOp::IsNan | PrimOp::IsInf);
        self.op(OpKind::Unary(op, x), if test { DType::Bool } else { dtype })
    }

    pub fn bin(&mut self, op: PrimOp, a: OpId, b: OpId) -> OpId {
        let dtype = if op.kind() == PrimKind::Compare { DType::Bool } else { self.dtype(a) };
        self.op(OpKind::Binary(op, a, b), dtype)
    }

    pub fn cast(&mut self, x: OpId, dtype: DType) -> OpId {
        self.op(OpKind::Cast(x), dtype)
    }

    pub fn reduce(&mut self, op: PrimOp, over: Over, x: OpId) -> OpId {
        let arg = matches!(op, PrimOp::Argmax | PrimOp::Argmin);
        let dtype = if arg { DType::I64 } else { self.dtype(x) };
        self.op(OpKind::Reduce { op, over, x }, dtype)
    }

    /// Memory filled with values that floats represent exactly, NaN and infinities among them if `special`.
    pub fn fill(&self, rng: &mut Rng) -> Memory {
        let mut m = memory(&self.buffers, &self.symbols);
        for (b, words) in self.buffers.iter().zip(m.iter_mut()) {
            let n = b.extent().eval(&self.symbols).unwrap().max(0) as usize;
            let below = self.below[self.buffers.iter().position(|x| x.name == b.name).unwrap()];
            for at in 0..n {
                let v = match (b.dtype, below) {
                    (_, Some(n)) => V::I(rng.below(n as usize) as i64),
                    (DType::Bool, _) => V::I(rng.below(2) as i64),
                    (d, _) if d.is_float() && self.special && rng.once_in(12) => {
                        V::F(rng.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0]), 0.0)
                    }
                    (d, _) if d.is_float() => V::F((rng.below(257) as f64 - 128.0) / 32.0, 0.0),
                    (DType::U8, _) => V::I(rng.below(12) as i64),
                    _ => V::I(rng.below(19) as i64 - 9),
                };
                write(words, b.dtype, at, v);
            }
        }
        m
    }

    /// Runs one way; buffers that alias share memory. One thread meets the end of each buffer at an inaccessible page,
    /// several its start.
    pub fn run(&self, start: &Memory, level: IsaLevel, threads: usize) -> Result<Memory, RunError> {
        let compiled = compile_kernel(&self.kernel, &self.buffers, &self.symbols, level)
            .unwrap_or_else(|e| panic!("{e}\n{}", self.kernel));
        let guard = if threads == 1 { Guard::Back } else { Guard::Front };
        let run = |mut p: Vec<*mut u8>, scratch| {
            for (b, of) in &self.alias {
                p[*b] = p[*of];
            }
            // SAFETY: each buffer has as many bytes as it spans; scratch is as long as asked for, and aligned.
            unsafe {
                if threads == 1 {
                    compiled.run(&p, scratch, &Serial)
                } else {
                    compiled.run(&p, scratch, &Threads(threads))
                }
            }
        };
        let mut m = guarded((&self.buffers, &self.symbols), start, compiled.scratch_bytes(), guard, run)?;
        for (b, of) in &self.alias {
            m[*b] = m[*of].clone();
        }
        Ok(m)
    }

    /// More points than `MEMCHECK_POINTS`: a memory checker would take minutes over them.
    pub fn is_left_out(&self) -> bool {
        let Ok(most) = std::env::var("MEMCHECK_POINTS") else { return false };
        let size = |a: &Axis| a.size.eval(&self.symbols).unwrap();
        self.kernel.axes.iter().map(size).product::<i64>() > most.parse().unwrap()
    }

    /// All levels against the evaluator; one thread against several, bitwise; nothing but the outputs is touched.
    pub fn check(&self, seed: u64) {
        if self.is_left_out() {
            return;
        }
        let start = self.fill(&mut Rng(seed));
        let mut seen = start.clone();
        for (b, of) in &self.alias {
            seen[*b] = seen[*of].clone();
        }
        let expected = evaluate(&self.kernel, &self.buffers, &self.symbols, &seen).unwrap();
        let mut stored: Vec<Vec<u64>> = self.buffers.iter().map(|_| vec![]).collect();
        for (b, at, ..) in &expected {
            stored[*b].push(*at as u64);
        }
        for s in &mut stored {
            s.sort_unstable();
            s.dedup();
        }
        for level in levels() {
            let one = self.run(&start, level, 1).unwrap();
            assert_eq!(one, self.run(&start, level, 3).unwrap(), "threads matter for {level:?}:\n{}", self.kernel);
            for (b, at, d, v) in &expected {
                let got = read(&one[*b], *d, *at);
                assert!(
                    agrees(got, *v, *d),
                    "{level:?}, seed {seed}: buffer {b} at {at}: got {got:?}, expected {v:?}\n{}\n{:?} alias {:?}",
                    self.kernel,
                    self.symbols,
                    self.alias
                );
            }
            for (b, words) in one.iter().enumerate() {
                let aliased = self.alias.iter().any(|(x, y)| *x == b || *y == b);
                let size = self.buffers[b].dtype.size();
                for at in 0..words.len() * 8 / size {
                    if !aliased && stored[b].binary_search(&(at as u64)).is_err() {
                        let d = self.buffers[b].dtype;
                        let (old, new) = (read(&start[b], d, at), read(&words[..], d, at));
                        let same = old == new || old.f().is_nan() && new.f().is_nan();
                        assert!(same, "{level:?}, seed {seed}: buffer {b} at {at} must stay\n{}", self.kernel);
                    }
                }
            }
        }
    }
}
