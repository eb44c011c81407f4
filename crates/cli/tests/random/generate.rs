//! Random graphs of prims and matrix products, legal by construction.

use crate::rng::Rng;
use crate::vjp;
use permalloy_ir::{
    Arg, Builder, DType, Def, Dim, Graph, GraphKind, Input, Op, Output, PrimKind, Role, SymbolInfo, TensorType,
    ValueId, contiguous_strides,
};

/// A graph, and values of its size symbols to run it at beside the hints.
pub struct Case {
    pub graph: Graph,
    pub sizes: Vec<Vec<(String, i64)>>,
}

pub(crate) const FLOATS: [DType; 6] = [DType::F32, DType::F32, DType::F32, DType::F64, DType::BF16, DType::F16];
pub(crate) const INTS: [DType; 6] = [DType::I64, DType::I64, DType::I32, DType::I16, DType::I8, DType::U8];

/// The graph of a seed; a third of them forward and backward together.
pub fn case(seed: u64) -> Case {
    let mut rng = Rng::new(seed);
    let joint = rng.once_in(3);
    let symbolic = rng.once_in(6);
    let limit = match rng.below(40) {
        0 => 20_000,
        1..4 => 3_000,
        _ => 160,
    };
    let mut g = Gen { graph: Graph::new("random", GraphKind::Inference), rng, sizes: Vec::new(), limit, joint };
    g.palette(symbolic);
    g.inputs();
    for _ in 0..3 + g.rng.below(if g.limit > 1000 { 10 } else { 16 }) {
        g.statement();
    }
    g.finish()
}

pub(crate) struct Gen {
    pub graph: Graph,
    pub rng: Rng,
    /// Sizes that dims are made from, so that shapes meet.
    pub sizes: Vec<Dim>,
    /// Most elements of a value, by hint.
    limit: i64,
    joint: bool,
}

impl Gen {
    fn palette(&mut self, symbolic: bool) {
        let large = self.limit > 1000;
        for _ in 0..2 + self.rng.below(2) {
            let n = *self.rng.pick(if large { &[1, 3, 16, 33, 65, 130, 520] } else { &[1, 2, 2, 3, 4, 5, 6, 8] });
            self.sizes.push(Dim::from(n));
        }
        if self.rng.once_in(25) {
            self.sizes.push(Dim::ZERO);
        }
        if symbolic {
            for i in 0..1 + self.rng.below(2) {
                let hint = 2 + self.rng.below(5) as i64;
                self.graph.symbols.push(SymbolInfo { name: format!("s{i}").as_str().into(), hint, min: 2, max: 64 });
                let s = Dim::sym(&format!("s{i}"));
                self.sizes.push(s.clone());
                self.sizes.push(s);
            }
        }
    }

    pub fn b(&mut self) -> Builder<'_> {
        Builder::new(&mut self.graph)
    }

    fn hint(&self, d: &Dim) -> i64 {
        let hints = self.graph.symbols.iter().map(|s| (s.name.clone(), s.hint)).collect();
        d.eval(&hints).unwrap_or(1)
    }

    /// Its value at the smallest sizes: sizes grow with their symbols.
    pub fn least(&self, d: &Dim) -> i64 {
        let smallest = self.graph.symbols.iter().map(|s| (s.name.clone(), s.min)).collect();
        d.eval(&smallest).unwrap_or(0)
    }

    pub fn fits(&self, shape: &[Dim]) -> bool {
        // Symbols may be run at larger sizes than their hints.
        shape.len() <= 6 && shape.iter().map(|d| self.hint(d).max(1)).product::<i64>() <= self.limit
    }

    fn shape(&mut self) -> Vec<Dim> {
        loop {
            let rank = *self.rng.pick(&[0, 1, 1, 2, 2, 2, 3, 3, 4]);
            let shape: Vec<Dim> = (0..rank).map(|_| self.size()).collect();
            if self.fits(&shape) {
                return shape;
            }
        }
    }

    pub fn size(&mut self) -> Dim {
        if self.rng.once_in(8) { Dim::ONE } else { self.rng.pick(&self.sizes).clone() }
    }

    fn inputs(&mut self) {
        for i in 0..2 + self.rng.below(3) {
            let dtype = match self.rng.below(8) {
                0 if !self.joint => *self.rng.pick(&INTS),
                1 => DType::Bool,
                2 => DType::I64,
                _ => *self.rng.pick(&FLOATS),
            };
            let shape = self.shape();
            self.input(&format!("x{i}"), dtype, shape);
        }
        let symbols = self.graph.symbols.clone();
        for s in symbols {
            let sizes = self.graph.inputs.iter().filter_map(|i| match i {
                Input::Tensor { value, .. } => Some(self.graph.shape(*value)),
                Input::Int(_) => None,
            });
            let bound = sizes.flatten().any(|d| d.as_symbol() == Some(&s.name));
            if !bound || self.rng.once_in(3) {
                self.graph.add_int_input(Dim::sym(&s.name));
            }
        }
    }

    /// Dense, transposed, with gaps, or with elements that share memory.
    fn input(&mut self, name: &str, dtype: DType, shape: Vec<Dim>) -> ValueId {
        let strides = match self.rng.below(5) {
            0 => Some(contiguous_strides(&shape)),
            1 | 2 => Some(self.permuted_strides(&shape)),
            3 => {
                let gap = Dim::from(1 + self.rng.below(3) as i64);
                let mut wide = shape.clone();
                if let Some(d) = wide.last_mut() {
                    *d = &*d + &gap;
                }
                let times = Dim::from(1 + self.rng.below(2) as i64);
                Some(contiguous_strides(&wide).iter().map(|s| s * &times).collect())
            }
            _ => {
                let mut strides = contiguous_strides(&shape);
                let shared: Vec<bool> = shape.iter().map(|_| self.rng.once_in(2)).collect();
                let kept: Vec<Dim> =
                    shape.iter().zip(&shared).map(|(n, s)| if *s { Dim::ONE } else { n.clone() }).collect();
                for (d, stride) in contiguous_strides(&kept).into_iter().enumerate() {
                    strides[d] = if shared[d] { Dim::ZERO } else { stride };
                }
                Some(strides)
            }
        };
        let strides = strides.filter(|_| !self.rng.once_in(4));
        let ty = TensorType { strides, ..TensorType::new(dtype, shape) };
        self.graph.add_input(name, ty, Role::Primal)
    }

    fn permuted_strides(&mut self, shape: &[Dim]) -> Vec<Dim> {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        self.rng.shuffle(&mut order);
        let permuted: Vec<Dim> = order.iter().map(|d| shape[*d].clone()).collect();
        let dense = contiguous_strides(&permuted);
        let mut strides = vec![Dim::ONE; shape.len()];
        for (k, d) in order.iter().enumerate() {
            strides[*d] = dense[k].clone();
        }
        strides
    }

    // --- choice of operands ---

    pub fn all(&self, ok: impl Fn(&TensorType) -> bool) -> Vec<ValueId> {
        self.graph.values().filter(|(_, v)| ok(&v.ty)).map(|(v, _)| v).collect()
    }

    /// Recent values more often, so that graphs grow deep.
    pub fn choose(&mut self, from: &[ValueId]) -> Option<ValueId> {
        if from.is_empty() {
            return None;
        }
        let n = from.len();
        let i = if self.rng.once_in(2) { self.rng.below(n) } else { n - 1 - self.rng.below(n.min(4)) };
        Some(from[i])
    }

    pub fn any(&mut self) -> ValueId {
        let all = self.all(|_| true);
        self.choose(&all).expect("a graph has inputs")
    }

    pub fn float(&mut self) -> ValueId {
        let floats = self.all(|t| t.dtype.is_float());
        match self.choose(&floats) {
            Some(v) => v,
            None => {
                let (x, dtype) = (self.any(), *self.rng.pick(&FLOATS));
                self.b().cast(x, dtype)
            }
        }
    }

    /// A value of this dtype that broadcasts with `x`, best one of its shape.
    pub fn partner(&mut self, x: ValueId, dtype: DType) -> ValueId {
        let shape = self.graph.shape(x).to_vec();
        if self.rng.once_in(6) {
            let value = self.literal(dtype);
            return self.b().full(value, &shape, dtype);
        }
        let same = self.all(|t| t.shape == shape && (t.dtype == dtype || self.castable(t.dtype, dtype)));
        let narrow = self.all(|t| {
            let broadcasts = t.rank() <= shape.len()
                && t.shape.iter().rev().zip(shape.iter().rev()).all(|(a, b)| a == b || a.is_const(1));
            broadcasts && self.castable(t.dtype, dtype)
        });
        let from = if self.rng.once_in(3) && !narrow.is_empty() { narrow } else { same };
        match self.choose(&from) {
            Some(v) => {
                let v = self.b().cast(v, dtype);
                self.b().expand(v, &shape)
            }
            None => {
                let value = self.literal(dtype);
                self.b().full(value, &shape, dtype)
            }
        }
    }

    fn castable(&self, from: DType, to: DType) -> bool {
        // Through a cast to integers no gradient flows and rounding decides: rarely wanted.
        from == to || from.is_float() == to.is_float() || !from.is_float()
    }

    fn literal(&mut self, dtype: DType) -> Arg {
        if dtype.is_float() {
            Arg::Float(*self.rng.pick(&[0.0, 1.0, -1.0, 0.5, 2.0, 0.1, -3.0, 1e-3]))
        } else if dtype == DType::Bool {
            Arg::Bool(self.rng.once_in(2))
        } else if !self.graph.symbols.is_empty() && self.rng.once_in(3) {
            let i = self.rng.below(self.graph.symbols.len());
            Arg::Int(Dim::sym(&self.graph.symbols[i].name))
        } else {
            Arg::Int(Dim::from(self.rng.below(6) as i64))
        }
    }

    // --- the end ---

    fn finish(mut self) -> Case {
        let uses = self.graph.use_counts();
        let made: Vec<ValueId> =
            self.graph.values().filter(|(_, v)| matches!(v.def, Def::Node(..))).map(|(v, _)| v).collect();
        let mut outputs: Vec<ValueId> = made.iter().copied().filter(|v| uses[v.0 as usize] == 0).collect();
        for _ in 0..self.rng.below(3) {
            let v = self.any();
            outputs.push(v);
        }
        self.rng.shuffle(&mut outputs);
        if self.joint {
            self.promise(&outputs);
            vjp::make_joint(&mut self.graph, &outputs);
        } else {
            self.copies(&mut outputs);
            self.promise(&outputs);
            self.graph.outputs.extend(outputs.into_iter().map(Output::Value));
            if !self.graph.symbols.is_empty() && self.rng.once_in(4) {
                let s = Dim::sym(&self.graph.symbols[0].name);
                self.graph.outputs.push(Output::Int(&(&s * &Dim::from(2)) + &Dim::ONE));
            }
            self.graph.kind = *self.rng.pick(&[GraphKind::Inference, GraphKind::Forward, GraphKind::Backward]);
        }
        let names: Vec<String> = self.graph.symbols.iter().map(|s| s.name.to_string()).collect();
        let mut sizes = Vec::new();
        if !names.is_empty() {
            for n in [2, 7] {
                sizes.push(names.iter().enumerate().map(|(i, s)| (s.clone(), n + i as i64)).collect());
            }
        }
        Case { graph: self.graph, sizes }
    }

    /// Overwrites inputs at the end, as a functionalised step does. Nothing returned may share their memory.
    fn copies(&mut self, outputs: &mut Vec<ValueId>) {
        if !self.rng.once_in(4) {
            return;
        }
        let inputs: Vec<ValueId> = self
            .graph
            .inputs
            .iter()
            .filter_map(|i| match i {
                Input::Tensor { value, .. } => Some(*value),
                Input::Int(_) => None,
            })
            .collect();
        for x in inputs {
            let ty = self.graph.ty(x).clone();
            let shared = ty.strides.as_ref().is_some_and(|s| s.iter().any(|s| s.is_const(0)));
            let sources = self.all(|t| t.dtype == ty.dtype && t.shape == ty.shape);
            let sources: Vec<ValueId> = sources.into_iter().filter(|v| *v != x).collect();
            if shared || self.rng.once_in(2) {
                continue;
            }
            let Some(source) = self.choose(&sources) else { continue };
            outputs.retain(|o| !self.may_view(*o, x));
            let args = vec![Arg::Value(x), Arg::Value(source)];
            let op = Op::External("aten.copy_.default".into());
            self.graph.add_node(op, args, vec![], vec![Some(("".into(), ty))], None);
        }
    }

    /// `v` is `x` or might be returned as a view of it.
    fn may_view(&self, v: ValueId, x: ValueId) -> bool {
        let mut stack = vec![v];
        while let Some(v) = stack.pop() {
            if v == x {
                return true;
            }
            if let Some(n) = self.graph.producer(v).filter(|n| n.prim().is_some_and(|p| p.kind() == PrimKind::View)) {
                stack.extend(n.operands());
            }
        }
        false
    }

    /// Promises strides of some outputs that memory of their own will hold.
    fn promise(&mut self, outputs: &[ValueId]) {
        for v in outputs {
            let views =
                self.graph.inputs.iter().any(|i| matches!(i, Input::Tensor { value, .. } if self.may_view(*v, *value)));
            let prim = self.graph.producer(*v).is_some_and(|n| n.prim().is_some());
            if !views && prim && self.graph.ty(*v).strides.is_none() && self.rng.once_in(3) {
                let shape = self.graph.shape(*v).to_vec();
                let strides = self.permuted_strides(&shape);
                self.graph.set_strides(*v, Some(strides));
            }
        }
    }
}
