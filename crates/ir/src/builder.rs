//! Appending typed prims to a graph; what decomposition rules are written with.
//!
//! Every method checks its operands by the prim's type rule and panics on a broken call, since a rule that makes an
//! ill-typed prim is a bug in the rule: [`Builder::try_prim`] is the form that returns the message instead.
//! Views that change nothing (`reshape` to the same shape, `expand` of nothing, …) add no node.

use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::{Arg, Graph, Op, TensorType, ValueId};
use crate::infer::infer;
use crate::prim::PrimOp;
use std::sync::Arc;

/// Appends nodes to a graph.
pub struct Builder<'g> {
    pub graph: &'g mut Graph,
    /// Given to every node made.
    pub loc: Option<Arc<str>>,
}

impl<'g> Builder<'g> {
    pub fn new(graph: &'g mut Graph) -> Builder<'g> {
        Builder { graph, loc: None }
    }

    pub fn ty(&self, v: ValueId) -> &TensorType {
        self.graph.ty(v)
    }

    pub fn shape(&self, v: ValueId) -> Vec<Dim> {
        self.graph.shape(v).to_vec()
    }

    pub fn rank(&self, v: ValueId) -> usize {
        self.graph.shape(v).len()
    }

    pub fn dtype(&self, v: ValueId) -> DType {
        self.graph.dtype(v)
    }

    /// Appends any prim; the message says what its type rule rejects.
    pub fn try_prim(&mut self, op: PrimOp, operands: &[ValueId], attrs: Vec<(&str, Arg)>) -> Result<ValueId, String> {
        let types: Vec<&TensorType> = operands.iter().map(|v| self.graph.ty(*v)).collect();
        let mut ty = infer(op, &types, &|name| attrs.iter().find(|(n, _)| *n == name).map(|(_, a)| a.clone()))?;
        if let Some(first) = types.first() {
            ty.device = first.device;
        }
        let args = operands.iter().map(|v| Arg::Value(*v)).collect();
        let kwargs = attrs.into_iter().map(|(n, a)| (n.into(), a)).collect();
        let n = self.graph.add_node(Op::Prim(op), args, kwargs, vec![Some(("".into(), ty))], self.loc.clone());
        Ok(self.graph.node(n).result().expect("a prim has one result"))
    }

    pub fn prim(&mut self, op: PrimOp, operands: &[ValueId], attrs: Vec<(&str, Arg)>) -> ValueId {
        match self.try_prim(op, operands, attrs) {
            Ok(v) => v,
            Err(e) => panic!("ill-typed prim: {e} (at {})", self.loc.as_deref().unwrap_or("no location")),
        }
    }

    /// Appends an external operator whose result types the caller knows.
    pub fn external(&mut self, name: &str, args: Vec<Arg>, results: Vec<Option<TensorType>>) -> Vec<Option<ValueId>> {
        let results = results.into_iter().map(|r| r.map(|t| ("".into(), t))).collect();
        let n = self.graph.add_node(Op::External(name.into()), args, Vec::new(), results, self.loc.clone());
        self.graph.node(n).results.clone()
    }

    // --- elementwise ---

    pub fn unary(&mut self, op: PrimOp, x: ValueId) -> ValueId {
        self.prim(op, &[x], vec![])
    }

    /// Elementwise on equal shapes and dtypes (comparisons too); operands are broadcast to each other first.
    pub fn binary(&mut self, op: PrimOp, a: ValueId, b: ValueId) -> ValueId {
        let (a, b) = self.broadcast_pair(a, b);
        self.prim(op, &[a, b], vec![])
    }

    /// As `binary` with a constant on the right, of `a`'s dtype.
    pub fn binary_scalar(&mut self, op: PrimOp, a: ValueId, c: f64) -> ValueId {
        let c = self.scalar_like(a, c);
        self.prim(op, &[a, c], vec![])
    }

    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(PrimOp::Add, a, b)
    }

    pub fn sub(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(PrimOp::Sub, a, b)
    }

    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(PrimOp::Mul, a, b)
    }

    pub fn div(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.binary(PrimOp::Div, a, b)
    }

    pub fn add_scalar(&mut self, a: ValueId, c: f64) -> ValueId {
        self.binary_scalar(PrimOp::Add, a, c)
    }

    pub fn mul_scalar(&mut self, a: ValueId, c: f64) -> ValueId {
        self.binary_scalar(PrimOp::Mul, a, c)
    }

    pub fn select(&mut self, cond: ValueId, a: ValueId, b: ValueId) -> ValueId {
        let (a, b) = self.broadcast_pair(a, b);
        let (cond, a) = self.broadcast_pair(cond, a);
        let (cond, b) = self.broadcast_pair(cond, b);
        self.prim(PrimOp::Where, &[cond, a, b], vec![])
    }

    /// Cast; nothing when the dtype is the same.
    pub fn cast(&mut self, x: ValueId, dtype: DType) -> ValueId {
        if self.dtype(x) == dtype { x } else { self.prim(PrimOp::Cast, &[x], vec![("dtype", Arg::DType(dtype))]) }
    }

    // --- sources ---

    pub fn full(&mut self, value: Arg, shape: &[Dim], dtype: DType) -> ValueId {
        self.prim(PrimOp::Full, &[], vec![("value", value), ("shape", Arg::dims(shape)), ("dtype", Arg::DType(dtype))])
    }

    /// A constant of the shape and dtype of `x`.
    pub fn scalar_like(&mut self, x: ValueId, value: f64) -> ValueId {
        let dtype = self.dtype(x);
        let value = if dtype.is_float() { Arg::Float(value) } else { Arg::Int(Dim::from(value as i64)) };
        let shape = self.shape(x);
        self.full(value, &shape, dtype)
    }

    pub fn iota(&mut self, size: Dim) -> ValueId {
        self.prim(PrimOp::Iota, &[], vec![("size", Arg::Int(size))])
    }

    // --- reductions ---

    /// Reduces `dims` (sorted here; negative ones count from the end); nothing to do for no dims of a sum-like reduction.
    pub fn reduce(&mut self, op: PrimOp, x: ValueId, dims: &[i64], keepdim: bool) -> ValueId {
        let rank = self.rank(x) as i64;
        let mut dims: Vec<i64> = dims.iter().map(|d| if *d < 0 { d + rank } else { *d }).collect();
        dims.sort_unstable();
        dims.dedup();
        let shape = self.shape(x);
        let y = self.prim(op, &[x], vec![("dims", Arg::ints(dims.iter().copied()))]);
        if !keepdim {
            return y;
        }
        let kept: Vec<Dim> =
            (0..rank).map(|i| if dims.contains(&i) { Dim::ONE } else { shape[i as usize].clone() }).collect();
        self.reshape(y, &kept)
    }

    pub fn sum(&mut self, x: ValueId, dims: &[i64], keepdim: bool) -> ValueId {
        self.reduce(PrimOp::Sum, x, dims, keepdim)
    }

    // --- views ---

    pub fn reshape(&mut self, x: ValueId, shape: &[Dim]) -> ValueId {
        if self.graph.shape(x) == shape {
            x
        } else {
            self.prim(PrimOp::Reshape, &[x], vec![("shape", Arg::dims(shape))])
        }
    }

    pub fn permute(&mut self, x: ValueId, perm: &[usize]) -> ValueId {
        if perm.iter().copied().eq(0..perm.len()) && perm.len() == self.rank(x) {
            return x;
        }
        self.prim(PrimOp::Permute, &[x], vec![("perm", Arg::ints(perm.iter().map(|p| *p as i64)))])
    }

    /// Swaps two dims; negative ones count from the end.
    pub fn transpose(&mut self, x: ValueId, a: i64, b: i64) -> ValueId {
        let rank = self.rank(x) as i64;
        let at = |d: i64| (if d < 0 { d + rank } else { d }) as usize;
        let mut perm: Vec<usize> = (0..rank as usize).collect();
        perm.swap(at(a), at(b));
        self.permute(x, &perm)
    }

    pub fn unsqueeze(&mut self, x: ValueId, dim: usize) -> ValueId {
        let mut shape = self.shape(x);
        shape.insert(dim, Dim::ONE);
        self.reshape(x, &shape)
    }

    /// Broadcast to `shape` by PyTorch's rule: new dims in front, size-1 dims repeat.
    pub fn expand(&mut self, x: ValueId, shape: &[Dim]) -> ValueId {
        let mut from = self.shape(x);
        if from.len() < shape.len() {
            from.splice(0..0, std::iter::repeat_n(Dim::ONE, shape.len() - from.len()));
        }
        let x = self.reshape(x, &from);
        if from == shape { x } else { self.prim(PrimOp::Expand, &[x], vec![("shape", Arg::dims(shape))]) }
    }

    pub fn slice(&mut self, x: ValueId, dim: usize, start: &Dim, end: &Dim, step: i64) -> ValueId {
        if start.is_const(0) && *end == self.graph.shape(x)[dim] && step == 1 {
            return x;
        }
        let attrs = vec![
            ("dim", Arg::Int(Dim::from(dim as i64))),
            ("start", Arg::Int(start.clone())),
            ("end", Arg::Int(end.clone())),
            ("step", Arg::Int(Dim::from(step))),
        ];
        self.prim(PrimOp::Slice, &[x], attrs)
    }

    pub fn pad(&mut self, x: ValueId, low: &[Dim], high: &[Dim]) -> ValueId {
        if low.iter().chain(high).all(|p| p.is_const(0)) {
            return x;
        }
        self.prim(PrimOp::Pad, &[x], vec![("low", Arg::dims(low)), ("high", Arg::dims(high))])
    }

    pub fn concat(&mut self, parts: &[ValueId], dim: usize) -> ValueId {
        if let [one] = parts {
            *one
        } else {
            self.prim(PrimOp::Concat, parts, vec![("dim", Arg::Int(Dim::from(dim as i64)))])
        }
    }

    // --- indexing ---

    pub fn take(&mut self, x: ValueId, index: ValueId, dim: usize) -> ValueId {
        self.prim(PrimOp::Take, &[x, index], vec![("dim", Arg::Int(Dim::from(dim as i64)))])
    }

    pub fn gather(&mut self, x: ValueId, index: ValueId, dim: usize) -> ValueId {
        self.prim(PrimOp::Gather, &[x, index], vec![("dim", Arg::Int(Dim::from(dim as i64)))])
    }

    pub fn index_sum(&mut self, src: ValueId, index: ValueId, dim: usize, size: Dim) -> ValueId {
        let attrs = vec![("dim", Arg::Int(Dim::from(dim as i64))), ("size", Arg::Int(size))];
        self.prim(PrimOp::IndexSum, &[src, index], attrs)
    }

    pub fn scatter_sum(&mut self, src: ValueId, index: ValueId, dim: usize, size: Dim) -> ValueId {
        let attrs = vec![("dim", Arg::Int(Dim::from(dim as i64))), ("size", Arg::Int(size))];
        self.prim(PrimOp::ScatterSum, &[src, index], attrs)
    }

    /// PyTorch's broadcast of two shapes; panics when they do not fit.
    pub fn broadcast_shapes(a: &[Dim], b: &[Dim]) -> Vec<Dim> {
        let rank = a.len().max(b.len());
        let at = |s: &[Dim], i: usize| (i + s.len()).checked_sub(rank).map_or(Dim::ONE, |k| s[k].clone());
        (0..rank)
            .map(|i| match (at(a, i), at(b, i)) {
                (x, y) if x == y => x,
                (x, y) if x.is_const(1) => y,
                (x, y) if y.is_const(1) => x,
                (x, y) => panic!("sizes {x} and {y} do not broadcast"),
            })
            .collect()
    }

    fn broadcast_pair(&mut self, a: ValueId, b: ValueId) -> (ValueId, ValueId) {
        if self.graph.shape(a) == self.graph.shape(b) {
            return (a, b);
        }
        let shape = Self::broadcast_shapes(self.graph.shape(a), self.graph.shape(b));
        (self.expand(a, &shape), self.expand(b, &shape))
    }
}
