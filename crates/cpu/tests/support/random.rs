//! Random kernels.

use super::build::{Case, Rng};
use permalloy_ir::{DType, Dim, PrimOp};
use permalloy_loops::kernel::*;

const DTYPES: [DType; 10] = [
    DType::F32,
    DType::BF16,
    DType::F64,
    DType::F16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U8,
    DType::Bool,
];

struct Made {
    id: OpId,
    /// Axes it varies over.
    axes: Vec<bool>,
    /// All engines get the same bits.
    exact: bool,
    /// May be computed with.
    usable: bool,
    stored: bool,
}

pub struct Generator {
    pub rng: Rng,
    pub case: Case,
    sizes: Vec<usize>,
    made: Vec<Made>,
}

/// A kernel of random axes, loads, operations, reductions and stores.
pub fn random_case(seed: u64) -> Case {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    rng.next();
    let reduces = rng.below(6);
    let roles: &[AxisRole] = match reduces {
        0 | 1 => &[AxisRole::Batch],
        2 => &[AxisRole::Batch, AxisRole::Col],
        3 => &[AxisRole::Batch, AxisRole::Row, AxisRole::Col],
        4 => &[AxisRole::Row, AxisRole::Col],
        _ => &[AxisRole::Batch, AxisRole::Row],
    };
    let count = rng.below(5);
    let most = rng.pick(&[300, 3000, 3000, 20000]);
    let mut sizes = Vec::new();
    let mut points = 1;
    for _ in 0..count {
        let n = rng.pick(&[1usize, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 64, 65, 100, 127, 130, 257, 1025, 2500]);
        let n = n.min((most / points).max(1));
        points *= n;
        sizes.push(n);
    }
    let axes: Vec<(i64, AxisRole)> = sizes.iter().map(|n| (*n as i64, rng.pick(roles))).collect();
    let mut case = Case::new(&axes);
    case.special = rng.once_in(4);
    let mut g = Generator { rng, case, sizes, made: Vec::new() };
    for _ in 0..1 + g.rng.below(4) {
        g.load();
    }
    for _ in 0..g.rng.below(10) {
        match g.rng.below(if reduces < 2 { 10 } else { 14 }) {
            0 | 1 => g.load(),
            2 => g.constant(),
            3 => g.gather(),
            4..=6 => g.elementwise(),
            7 => g.cast(),
            8 => g.select(),
            9 => g.elementwise(),
            _ => g.reduce(),
        }
    }
    g.stores();
    g.symbolic();
    g.case
}

impl Generator {
    fn push(&mut self, id: OpId, axes: Vec<bool>, exact: bool) {
        self.made.push(Made { id, axes, exact, usable: true, stored: false });
    }

    /// An access over the axes chosen, to a new buffer with strides of its own.
    fn access(&mut self, dtype: DType, axes: &[bool], masked: bool) -> (BufferId, Access) {
        let mut order: Vec<usize> = (0..axes.len()).filter(|a| axes[*a]).collect();
        if self.rng.once_in(3) {
            for i in (1..order.len()).rev() {
                let j = self.rng.below(i + 1);
                order.swap(i, j);
            }
        }
        let mut access = Access { offset: Dim::ZERO, strides: vec![Dim::ZERO; axes.len()], masks: vec![] };
        let (mut shape, mut strides) = (vec![], vec![]);
        let mut step = self.rng.pick(&[1i64, 1, 1, 1, 2]);
        let mut offset = 0;
        for a in order.into_iter().rev() {
            let n = self.sizes[a] as i64;
            let (mut low, mut high) = (0, n);
            if masked && self.rng.once_in(2) {
                low = self.rng.below(n as usize / 2 + 1) as i64;
                high = n - self.rng.below(n as usize / 2 + 1) as i64;
                access.masks.push(Mask { axis: a, low: Dim::from(low), high: Dim::from(high) });
            }
            let len = (high - low).max(0);
            if self.rng.once_in(8) {
                access.strides[a] = Dim::from(-step);
                offset += step * (high - 1);
            } else {
                access.strides[a] = Dim::from(step);
                offset -= step * low;
            }
            shape.insert(0, len.max(1));
            strides.insert(0, step);
            step *= len.max(1);
            step += if self.rng.once_in(6) { 3 } else { 0 };
        }
        access.offset = Dim::from(offset);
        let b = self.case.buffer(dtype, &shape, Some(strides));
        (b, access)
    }

    fn some_axes(&mut self) -> Vec<bool> {
        let all = self.rng.once_in(2);
        (0..self.sizes.len()).map(|_| all || !self.rng.once_in(3)).collect()
    }

    fn load(&mut self) {
        let dtype = if self.rng.once_in(2) { DType::F32 } else { self.rng.pick(&DTYPES) };
        let axes = self.some_axes();
        let masked = self.rng.once_in(4);
        let (buffer, access) = self.access(dtype, &axes, masked);
        let id = self.case.op(OpKind::Load { buffer, access }, dtype);
        self.push(id, axes, true);
    }

    fn constant(&mut self) {
        let none = vec![false; self.sizes.len()];
        let dtype = self.rng.pick(&DTYPES);
        if self.rng.once_in(3) {
            let axes = self.some_axes();
            let strides = axes.iter().map(|v| Dim::from(if *v { self.rng.below(5) as i64 - 2 } else { 0 })).collect();
            let offset = Dim::from(self.rng.below(9) as i64);
            let access = Access { offset, strides, masks: vec![] };
            let id = self.case.op(OpKind::AxisIndex { access }, DType::I64);
            return self.push(id, axes, true);
        }
        let c = match dtype {
            d if d.is_float() => Scalar::Float(self.rng.below(33) as f64 / 8.0 - 2.0),
            DType::Bool => Scalar::Bool(self.rng.once_in(2)),
            _ => Scalar::Int(self.rng.below(7) as i64 - 2),
        };
        let id = self.case.op(OpKind::Const(c), dtype);
        self.push(id, none, true);
    }

    fn gather(&mut self) {
        let n = 1 + self.rng.below(20) as i64;
        let index_dtype = self.rng.pick(&[DType::I64, DType::I32]);
        let index_axes = self.some_axes();
        let (buffer, access) = self.access(index_dtype, &index_axes, false);
        self.case.below[buffer.0 as usize] = Some(n);
        let index = self.case.op(OpKind::Load { buffer, access }, index_dtype);
        let dtype = self.rng.pick(&DTYPES);
        let axes = self.some_axes();
        let masked = self.rng.once_in(4);
        let (buffer, access) = self.access(dtype, &axes, masked);
        let b = &mut self.case.buffers[buffer.0 as usize];
        let stride = b.extent();
        b.shape.insert(0, Dim::from(n));
        b.strides.insert(0, stride.clone());
        let size = Dim::from(n);
        let id = self.case.op(OpKind::LoadAt { buffer, access, index, stride, size }, dtype);
        let axes = axes.iter().zip(&index_axes).map(|(a, b)| *a || *b).collect();
        self.push(id, axes, true);
    }

    /// A usable value, of the dtype if one is asked for.
    fn value(&mut self, dtype: Option<DType>, exact: bool) -> Option<usize> {
        let fits: Vec<usize> = (0..self.made.len())
            .filter(|i| {
                let m = &self.made[*i];
                m.usable && (m.exact || !exact) && dtype.is_none_or(|d| self.case.dtype(m.id) == d)
            })
            .collect();
        if fits.is_empty() { None } else { Some(self.rng.pick(&fits)) }
    }

    fn join(&self, of: &[usize]) -> (Vec<bool>, bool) {
        let axes = (0..self.sizes.len()).map(|a| of.iter().any(|m| self.made[*m].axes[a])).collect();
        (axes, of.iter().all(|m| self.made[*m].exact))
    }

    fn elementwise(&mut self) {
        use PrimOp::*;
        let Some(x) = self.value(None, false) else { return };
        let dtype = self.case.dtype(self.made[x].id);
        let exact = self.made[x].exact;
        if self.rng.once_in(3) {
            let op = match dtype {
                d if d.is_float() && exact && self.rng.once_in(2) => {
                    self.rng.pick(&[Sign, Floor, Ceil, Round, Trunc, IsNan, IsInf, Sqrt, Reciprocal])
                }
                d if d.is_float() => self.rng.pick(&[Neg, Abs, Tanh, Sigmoid, Atan]),
                DType::Bool => Not,
                _ => self.rng.pick(&[Neg, Abs, Sign, Not, Floor]),
            };
            let id = self.case.un(op, self.made[x].id);
            let exact = exact && !matches!(op, Tanh | Sigmoid | Atan);
            let axes = self.made[x].axes.clone();
            return self.push(id, axes, exact);
        }
        let Some(y) = self.value(Some(dtype), false) else { return };
        let (axes, exact) = self.join(&[x, y]);
        let op = match dtype {
            d if d.is_float() && exact => {
                self.rng.pick(&[Add, Sub, Mul, Div, Min, Max, CopySign, Eq, Ne, Lt, Le, Gt, Ge])
            }
            d if d.is_float() => self.rng.pick(&[Add, Sub, Mul, Min, Max]),
            DType::Bool => self.rng.pick(&[Add, Mul, Min, Max, And, Or, Xor, Eq, Ne, Lt, Ge]),
            _ => self.rng.pick(&[
                Add, Sub, Mul, Min, Max, FloorDiv, TruncDiv, Mod, Fmod, Pow, And, Or, Xor, Shl, Shr, Eq, Lt, Ge,
            ]),
        };
        if op == Pow && self.case.kernel.ops.iter().any(|o| matches!(o.kind, OpKind::Binary(Mul | Pow | Shl, ..))) {
            return; // the evaluator multiplies one by one
        }
        let id = self.case.bin(op, self.made[x].id, self.made[y].id);
        self.push(id, axes, exact);
    }

    fn cast(&mut self) {
        let Some(x) = self.value(None, false) else { return };
        let to = self.rng.pick(&DTYPES);
        if !self.made[x].exact && !to.is_float() {
            return;
        }
        let id = self.case.cast(self.made[x].id, to);
        let m = &self.made[x];
        let (axes, exact) = (m.axes.clone(), m.exact);
        self.push(id, axes, exact);
    }

    fn select(&mut self) {
        let Some(c) = self.value(Some(DType::Bool), true) else { return };
        let Some(x) = self.value(None, false) else { return };
        let Some(y) = self.value(Some(self.case.dtype(self.made[x].id)), false) else { return };
        let (axes, exact) = self.join(&[c, x, y]);
        let dtype = self.case.dtype(self.made[x].id);
        let kind = OpKind::Where(self.made[c].id, self.made[x].id, self.made[y].id);
        let id = self.case.op(kind, dtype);
        self.push(id, axes, exact);
    }

    fn reduce(&mut self) {
        use PrimOp::*;
        let Some(x) = self.value(None, false) else { return };
        let roles: Vec<AxisRole> = self.case.kernel.axes.iter().map(|a| a.role).collect();
        let mut overs = vec![Over::Rows, Over::All];
        if roles.contains(&AxisRole::Col) || !self.case.kernel.axes.is_empty() && !roles.contains(&AxisRole::Row) {
            overs.push(Over::Cols);
            overs.push(Over::Cols);
        }
        let over = self.rng.pick(&overs);
        let dtype = self.case.dtype(self.made[x].id);
        let exact = self.made[x].exact;
        let ordered = roles.iter().rposition(|r| *r == AxisRole::Row).unwrap_or(0)
            < roles.iter().position(|r| *r == AxisRole::Col).unwrap_or(roles.len());
        let op = match dtype {
            DType::Bool => self.rng.pick(&[Any, All]),
            _ if exact && self.rng.once_in(4) && (over != Over::All || ordered) => self.rng.pick(&[Argmax, Argmin]),
            d if d.is_float() && self.rng.once_in(8) => Prod,
            d if d.is_float() => self.rng.pick(&[Sum, Sum, Amax, Amin]),
            _ => self.rng.pick(&[Sum, Prod, Amax, Amin]),
        };
        let id = self.case.reduce(op, over, self.made[x].id);
        let folded = |r: AxisRole| match over {
            Over::Cols => r == AxisRole::Col,
            Over::Rows => r == AxisRole::Row,
            Over::All => r != AxisRole::Batch,
        };
        let axes = self.made[x].axes.iter().zip(&roles).map(|(v, r)| *v && !folded(*r)).collect();
        let sums = dtype.is_float() && matches!(op, Sum | Prod);
        self.push(id, axes, exact && !sums);
        if let Some(m) = self.made.last_mut() {
            m.usable = over == Over::Cols && op != Prod;
        }
    }

    /// Stores what nothing reads, each over the axes it varies over (or more), sometimes in the memory of a load.
    fn stores(&mut self) {
        let read: Vec<OpId> = self.case.kernel.ops.iter().flat_map(|o| o.operands()).collect();
        for i in 0..self.made.len() {
            let (id, axes, usable) = (self.made[i].id, self.made[i].axes.clone(), self.made[i].usable);
            if read.contains(&id) && !self.rng.once_in(6) {
                continue;
            }
            self.made[i].stored = true;
            let mut axes = axes;
            if usable && self.rng.once_in(6) {
                axes.iter_mut().for_each(|a| *a = true);
            }
            let mut dtype = self.case.dtype(id);
            if self.rng.once_in(5) && dtype.is_float() {
                dtype = self.rng.pick(&[DType::F32, DType::BF16, DType::F16, DType::F64]);
                if !usable && (dtype == DType::F64) != (self.case.dtype(id) == DType::F64) {
                    dtype = self.case.dtype(id);
                }
            }
            let (buffer, access) = self.access(dtype, &axes, false);
            if let Some((of, at)) = self.in_place(dtype, &axes) {
                self.case.alias.push((buffer.0 as usize, of));
                self.case.buffers[buffer.0 as usize].shape = self.case.buffers[of].shape.clone();
                self.case.buffers[buffer.0 as usize].strides = self.case.buffers[of].strides.clone();
                self.case.op(OpKind::Store { buffer, access: at, value: id }, dtype);
            } else {
                self.case.op(OpKind::Store { buffer, access, value: id }, dtype);
            }
        }
    }

    /// A load whose memory a store over these axes may reuse.
    fn in_place(&mut self, dtype: DType, axes: &[bool]) -> Option<(usize, Access)> {
        if !self.rng.once_in(3) || !axes.iter().all(|a| *a) {
            return None;
        }
        let fits: Vec<(usize, Access)> = self
            .case
            .kernel
            .ops
            .iter()
            .filter_map(|o| match &o.kind {
                OpKind::Load { buffer, access } => Some((buffer.0 as usize, access.clone(), o.dtype)),
                _ => None,
            })
            .filter(|(b, access, d)| {
                let free = self.case.alias.iter().all(|(_, of)| of != b);
                let all = access.masks.is_empty() && (0..axes.len()).all(|a| self.sizes[a] == 1 || !access.ignores(a));
                *d == dtype && free && all && self.case.below[*b].is_none()
            })
            .map(|(b, access, _)| (b, access))
            .collect();
        if fits.is_empty() { None } else { Some(self.rng.pick(&fits)) }
    }

    /// Replaces some sizes by symbols.
    fn symbolic(&mut self) {
        for a in 0..self.sizes.len() {
            if self.rng.once_in(2) {
                let name = format!("s{a}");
                self.case.kernel.axes[a].size = Dim::sym(&name);
                self.case.symbols.insert(name.as_str().into(), self.sizes[a] as i64);
            }
        }
    }
}
