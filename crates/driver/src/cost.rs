//! What a program costs by a simple model: bytes moved, operations, steps.
//!
//! It tells routes of one operator apart that differ by a factor, no more: each step reads its operands and writes its results
//! once at the device's bandwidth, or computes for longer than that, and has a price of its own. What the model says of a
//! single operator decides whether timing it is worth the while (`config.tune`).

use permalloy_ir::{Dim, PrimOp};
use permalloy_loops::kernel::{BufferId, Kernel, NativeArg, NativeCall, OpKind, Program, Step};
use permalloy_ops::Cost;

/// What a kind of device does, roughly; ratios are what counts.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCost {
    /// The target of that name.
    pub target: &'static str,
    /// Bytes of main memory a second.
    pub bandwidth: f64,
    /// Elementwise operations of f32 a second.
    pub operations: f64,
    /// Additions and multiplications of a matrix product a second.
    pub products: f64,
    /// Seconds that a kernel of ours takes to start.
    pub kernel: f64,
    /// Seconds that an operator of PyTorch's takes to start.
    pub native: f64,
}

/// A processor of a few cores, and a GPU of 2020 or later.
pub const DEVICES: &[DeviceCost] = &[
    DeviceCost { target: "cpu", bandwidth: 2e10, operations: 3e10, products: 1e11, kernel: 2e-6, native: 4e-6 },
    DeviceCost { target: "cuda", bandwidth: 2e12, operations: 2e13, products: 1e14, kernel: 4e-6, native: 6e-6 },
];

impl DeviceCost {
    pub fn of(target: &str) -> Option<&'static DeviceCost> {
        DEVICES.iter().find(|d| d.target == target)
    }
}

/// What the steps of a program do altogether; sizes by hint.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Read and written.
    pub bytes: f64,
    /// Elementwise operations.
    pub operations: f64,
    /// Additions and multiplications of matrix products.
    pub products: f64,
    pub kernels: usize,
    pub natives: usize,
    /// Seconds on the device.
    pub seconds: f64,
}

impl Work {
    /// The work of a program on a device.
    pub fn of(program: &Program, device: &DeviceCost) -> Work {
        let sizes = Sizes { program, symbols: permalloy_ir::hints(&program.symbols) };
        let mut all = Work::default();
        for step in &program.steps {
            let one = sizes.step(step);
            let moving = one.bytes / device.bandwidth;
            let computing = one.operations / device.operations + one.products / device.products;
            let starting = one.kernels as f64 * device.kernel + one.natives as f64 * device.native;
            all.bytes += one.bytes;
            all.operations += one.operations;
            all.products += one.products;
            all.kernels += one.kernels;
            all.natives += one.natives;
            all.seconds += moving.max(computing) + starting;
        }
        all
    }
}

struct Sizes<'p> {
    program: &'p Program,
    symbols: permalloy_ir::SymbolValues,
}

impl Sizes<'_> {
    fn size(&self, d: &Dim) -> f64 {
        d.eval(&self.symbols).unwrap_or(1) as f64
    }

    fn elements(&self, shape: &[Dim]) -> f64 {
        shape.iter().map(|d| self.size(d)).product()
    }

    fn bytes(&self, b: BufferId) -> f64 {
        let b = self.program.buffer(b);
        self.elements(&b.shape) * b.dtype.size() as f64
    }

    fn step(&self, step: &Step) -> Work {
        match step {
            Step::Kernel(k) => self.kernel(k),
            Step::Group(g) => {
                let parts = g.kernels.iter().map(|k| self.kernel(k));
                let sum =
                    |a: Work, b: Work| Work { bytes: a.bytes + b.bytes, operations: a.operations + b.operations, ..b };
                parts.fold(Work::default(), sum)
            }
            Step::Scatter(s) => {
                let points: f64 = s.axes.iter().map(|d| self.size(d)).product();
                let width = self.program.buffer(s.src.0).dtype.size() as f64;
                // The result is zeroed, then read and written where something is added.
                let bytes = points * width * 3.0 + self.bytes(s.index.0) + self.bytes(s.out.0);
                Work { bytes, operations: points, kernels: 1, ..Work::default() }
            }
            Step::Native(n) => self.native(n),
        }
    }

    fn kernel(&self, k: &Kernel) -> Work {
        let points: f64 = k.axes.iter().map(|a| self.size(&a.size)).product();
        let weight: f64 = k.ops.iter().map(|o| weight(&o.kind)).sum();
        // An indexed load reads as many elements as there are points, if the buffer has as many.
        let indexed =
            |b: BufferId| k.ops.iter().any(|o| matches!(&o.kind, OpKind::LoadAt { buffer, .. } if *buffer == b));
        let read = |b: BufferId| {
            let most = if indexed(b) { points * self.program.buffer(b).dtype.size() as f64 } else { f64::INFINITY };
            self.bytes(b).min(most)
        };
        let bytes =
            k.reads().into_iter().map(read).sum::<f64>() + k.writes().into_iter().map(|b| self.bytes(b)).sum::<f64>();
        Work { bytes, operations: points * weight, kernels: 1, ..Work::default() }
    }

    fn native(&self, n: &NativeCall) -> Work {
        let (mut read, mut elements, mut largest) = (0.0, 0.0, 0.0f64);
        let mut matrices: Vec<f64> = vec![];
        for a in n.args.iter().chain(n.kwargs.iter().map(|(_, a)| a)) {
            each_tensor(a, &mut |t| {
                let count = self.elements(&t.shape);
                read += count * self.program.buffer(t.buffer).dtype.size() as f64;
                elements += count;
                largest = largest.max(count);
                if let [.., inner] = t.shape.as_slice() {
                    matrices.push(self.size(inner));
                }
            });
        }
        let results = || n.results.iter().flatten();
        let written: f64 = results().map(|b| self.bytes(*b)).sum();
        let made: f64 = results().map(|b| self.elements(&self.program.buffer(*b).shape)).sum();
        let mut work = Work { bytes: read + written, operations: elements + made, natives: 1, ..Work::default() };
        match permalloy_ops::lookup(&n.op).map(|d| d.cost) {
            // Rows are read twice: for what they are reduced to, and for what comes of them.
            Some(Cost::Reduction) => (work.bytes, work.operations) = (2.0 * read + written, 4.0 * elements),
            // No more of a table is read than goes out.
            Some(Cost::Indexing) => work.bytes = read.min(2.0 * written.max(read - largest)) + written,
            Some(Cost::Compute) => {
                // The product sums over the last dim of the last matrix but one.
                let inner = matrices.iter().rev().nth(1).copied().unwrap_or(1.0);
                work.products = 2.0 * made * inner;
            }
            _ => {}
        }
        work
    }
}

fn each_tensor(a: &NativeArg, f: &mut impl FnMut(&permalloy_loops::kernel::TensorRef)) {
    match a {
        NativeArg::Tensor(t) => f(t),
        NativeArg::List(items) => items.iter().for_each(|a| each_tensor(a, f)),
        _ => {}
    }
}

/// Additions that an operation is worth.
fn weight(kind: &OpKind) -> f64 {
    match kind {
        OpKind::Load { .. } | OpKind::Const(_) | OpKind::Size(_) | OpKind::Store { .. } => 0.0,
        OpKind::Unary(PrimOp::Neg | PrimOp::Abs | PrimOp::Not, _) => 1.0,
        OpKind::Unary(..) | OpKind::LoadAt { .. } | OpKind::Binary(PrimOp::Pow | PrimOp::Atan2, ..) => 8.0,
        _ => 1.0,
    }
}
