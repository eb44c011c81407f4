//! Appending typed prims to a graph; what decomposition rules are written with.
//!
//! Every method checks its operands by the prim's type rule. What is to be done about a call that breaks it depends on who
//! builds: [`Builder::new`] is for graphs whose types the caller chose, where such a call is a bug, and panics.
//! [`Builder::checked`] is for rules, whose operands come from a user's graph: the first error is kept for whoever applies
//! the rule, and the rule goes on with a value of a likely type, which is thrown away with all that it made.
//! [`Builder::try_prim`] returns the message.
//! Views that change nothing (`reshape` to the same shape, `expand` of nothing, …) add no node.

use crate::dim::Dim;
use crate::dtype::{DType, Device};
use crate::graph::{Arg, Graph, Input, Op, TensorType, ValueId};
use crate::infer::infer;
use crate::prim::{PrimKind, PrimOp, attribute_name};
use std::cell::OnceCell;
use std::sync::Arc;

/// Appends nodes to a graph.
pub struct Builder<'g> {
    pub graph: &'g mut Graph,
    /// Given to every node made.
    pub loc: Option<Arc<str>>,
    /// Where constants and indices are made, which have no operand to follow: the device of the graph's first tensor input
    /// unless set.
    pub device: Device,
    /// Takes the first error; without it, an error is a panic.
    error: Option<&'g OnceCell<String>>,
}

impl<'g> Builder<'g> {
    /// A builder that panics on an ill-typed prim.
    pub fn new(graph: &'g mut Graph) -> Builder<'g> {
        let device = graph.inputs.iter().find_map(|i| match i {
            Input::Tensor { value, .. } => Some(graph.ty(*value).device),
            Input::Int(_) => None,
        });
        Builder { graph, loc: None, device: device.unwrap_or_default(), error: None }
    }

    /// A builder that puts the message of the first ill-typed prim into `error` and goes on; once there is one, nothing
    /// that was built counts.
    pub fn checked(graph: &'g mut Graph, error: &'g OnceCell<String>) -> Builder<'g> {
        Builder { error: Some(error), ..Builder::new(graph) }
    }

    /// The same builder for a shorter time.
    pub fn reborrow(&mut self) -> Builder<'_> {
        Builder { graph: self.graph, loc: self.loc.clone(), device: self.device, error: self.error }
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
        let ty = self.infer(op, operands, &attrs)?;
        Ok(self.push(op, operands, attrs, ty))
    }

    /// Appends any prim, whose operands and attributes must fit it.
    pub fn prim(&mut self, op: PrimOp, operands: &[ValueId], attrs: Vec<(&str, Arg)>) -> ValueId {
        match self.infer(op, operands, &attrs) {
            Ok(ty) => self.push(op, operands, attrs, ty),
            Err(e) => {
                self.fail(e);
                let ty = self.likely_type(op, operands, &attrs);
                self.push(op, operands, attrs, ty)
            }
        }
    }

    fn infer(&self, op: PrimOp, operands: &[ValueId], attrs: &[(&str, Arg)]) -> Result<TensorType, String> {
        let types: Vec<&TensorType> = operands.iter().map(|v| self.graph.ty(*v)).collect();
        let mut ty = infer(op, &types, &|name| attrs.iter().find(|(n, _)| *n == name).map(|(_, a)| a.clone()))?;
        if types.is_empty() {
            ty.device = self.device;
        }
        Ok(ty)
    }

    fn push(&mut self, op: PrimOp, operands: &[ValueId], attrs: Vec<(&str, Arg)>, ty: TensorType) -> ValueId {
        let args = operands.iter().map(|v| Arg::Value(*v)).collect();
        let kwargs = attrs.into_iter().map(|(n, a)| (attribute_name(n), a)).collect();
        let ty = self.graph.share(ty);
        let n = self.graph.add_node(Op::Prim(op), args, kwargs, vec![Some(("".into(), ty))], self.loc.clone());
        self.graph.node(n).result().expect("a prim has one result")
    }

    /// An error of the caller's: kept, or a panic.
    fn fail(&self, message: String) {
        match self.error {
            // Those after the first follow from it.
            Some(first) => {
                first.get_or_init(|| message);
            }
            None => panic!("ill-typed prim: {message} (at {})", self.loc.as_deref().unwrap_or("no location")),
        }
    }

    /// What the result of an ill-typed prim was probably meant to be, so that the caller gets to its end.
    fn likely_type(&self, op: PrimOp, operands: &[ValueId], attrs: &[(&str, Arg)]) -> TensorType {
        let attr = |name: &str| attrs.iter().find(|(n, _)| *n == name).map(|(_, a)| a);
        let like = operands.get(usize::from(op == PrimOp::Where)).or(operands.first());
        let mut ty = like.map_or_else(|| TensorType::new(DType::F32, vec![]), |v| self.ty(*v).clone());
        ty.strides = None;
        match (op.kind(), attr("shape").and_then(Arg::as_dims), attr("dims").and_then(Arg::as_i64s)) {
            (_, Some(shape), _) => ty.shape = shape,
            (PrimKind::Reduce, _, Some(dims)) => {
                let mut at = 0..;
                ty.shape.retain(|_| !at.next().is_some_and(|d| dims.contains(&d)));
            }
            (PrimKind::Compare, ..) => ty.dtype = DType::Bool,
            _ => {}
        }
        if let Some(Arg::DType(dtype)) = attr("dtype") {
            ty.dtype = *dtype;
        }
        ty
    }

    /// Appends an external operator whose result types the caller knows.
    pub fn external(&mut self, name: &str, args: Vec<Arg>, results: Vec<Option<TensorType>>) -> Vec<Option<ValueId>> {
        let results = results.into_iter().map(|r| r.map(|t| ("".into(), self.graph.share(t)))).collect();
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

    /// A constant on [`Builder::device`].
    pub fn full(&mut self, value: Arg, shape: &[Dim], dtype: DType) -> ValueId {
        self.prim(PrimOp::Full, &[], vec![("value", value), ("shape", Arg::dims(shape)), ("dtype", Arg::DType(dtype))])
    }

    /// A constant of the shape and dtype of `x`, where `x` is.
    pub fn scalar_like(&mut self, x: ValueId, value: f64) -> ValueId {
        let dtype = self.dtype(x);
        let value = if dtype.is_float() { Arg::Float(value) } else { Arg::Int(Dim::from(value as i64)) };
        let shape = self.shape(x);
        let of_x = self.ty(x).device;
        let device = std::mem::replace(&mut self.device, of_x);
        let c = self.full(value, &shape, dtype);
        self.device = device;
        c
    }

    /// `0, 1, 2, …` as i64, on [`Builder::device`].
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
        if at(a).max(at(b)) >= rank as usize {
            self.fail(format!("dims {a} and {b} of a tensor of rank {rank} cannot be swapped"));
            return x;
        }
        let mut perm: Vec<usize> = (0..rank as usize).collect();
        perm.swap(at(a), at(b));
        self.permute(x, &perm)
    }

    pub fn unsqueeze(&mut self, x: ValueId, dim: usize) -> ValueId {
        let mut shape = self.shape(x);
        if dim > shape.len() {
            self.fail(format!("a tensor of rank {} cannot get a dim at {dim}", shape.len()));
            return x;
        }
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
        if start.is_const(0) && self.graph.shape(x).get(dim) == Some(end) && step == 1 {
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

    fn broadcast_pair(&mut self, a: ValueId, b: ValueId) -> (ValueId, ValueId) {
        if self.graph.shape(a) == self.graph.shape(b) {
            return (a, b);
        }
        match broadcast_shapes(self.graph.shape(a), self.graph.shape(b)) {
            Ok(shape) => (self.expand(a, &shape), self.expand(b, &shape)),
            Err(e) => {
                self.fail(e);
                (a, b)
            }
        }
    }
}

/// PyTorch's broadcast of two shapes.
fn broadcast_shapes(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, String> {
    let rank = a.len().max(b.len());
    let at = |s: &[Dim], i: usize| (i + s.len()).checked_sub(rank).map_or(Dim::ONE, |k| s[k].clone());
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (x, y) if x.is_const(1) => Ok(y),
            (x, y) if y.is_const(1) => Ok(x),
            (x, y) => Err(format!("sizes {x} and {y} do not broadcast")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GraphKind, Role};

    fn graph(device: Device) -> (Graph, ValueId, ValueId) {
        let mut g = Graph::new("g", GraphKind::Inference);
        let ty = |shape: &[i64]| TensorType {
            device,
            ..TensorType::new(DType::F32, shape.iter().map(|n| Dim::from(*n)).collect())
        };
        let x = g.add_input("x", ty(&[2, 3]), Role::Primal);
        let y = g.add_input("y", ty(&[4]), Role::Primal);
        (g, x, y)
    }

    #[test]
    fn the_first_error_is_kept_and_the_rule_gets_to_its_end() {
        let (mut g, x, y) = graph(Device::Cpu);
        let error = OnceCell::new();
        let mut b = Builder::checked(&mut g, &error);
        let sum = b.add(x, y);
        let total = b.sum(sum, &[-1], false);
        assert_eq!(b.rank(total), 1);
        let wide = b.transpose(x, 0, 7);
        b.unsqueeze(wide, 9);
        b.slice(x, 5, &Dim::ZERO, &Dim::ONE, 1);
        let not = b.reshape(x, &[Dim::from(5)]);
        assert_eq!(b.shape(not), [Dim::from(5)]);
        assert_eq!(error.get().map(String::as_str), Some("sizes 3 and 4 do not broadcast"));
    }

    #[test]
    fn each_kind_of_broken_call_is_an_error() {
        type Call = fn(&mut Builder<'_>, ValueId, ValueId) -> ValueId;
        let broken: [(Call, &str); 6] = [
            (|b, x, _| b.transpose(x, 0, 2), "dims 0 and 2 of a tensor of rank 2 cannot be swapped"),
            (|b, x, _| b.unsqueeze(x, 3), "a tensor of rank 2 cannot get a dim at 3"),
            (|b, x, _| b.slice(x, 2, &Dim::ZERO, &Dim::ONE, 1), "prim.slice: dim=2 is outside of rank 2"),
            (|b, x, _| b.concat(&[], x.0 as usize), "prim.concat takes"),
            (|b, x, y| b.select(x, y, y), "sizes 3 and 4 do not broadcast"),
            (|b, x, y| b.prim(PrimOp::Add, &[x, y], vec![]), "prim.add: operand shapes differ"),
        ];
        for (call, message) in broken {
            let (mut g, x, y) = graph(Device::Cpu);
            let error = OnceCell::new();
            call(&mut Builder::checked(&mut g, &error), x, y);
            let got = error.get().expect(message);
            assert!(got.starts_with(message), "{got}");
        }
    }

    #[test]
    #[should_panic(expected = "ill-typed prim: sizes 3 and 4 do not broadcast (at no location)")]
    fn an_unchecked_error_is_a_panic() {
        let (mut g, x, y) = graph(Device::Cpu);
        Builder::new(&mut g).add(x, y);
    }

    #[test]
    fn constants_and_indices_live_where_the_graph_does() {
        let (mut g, x, _) = graph(Device::Cuda(1));
        let mut b = Builder::new(&mut g);
        let n = b.iota(Dim::from(3));
        let c = b.full(Arg::Float(1.0), &[], DType::F32);
        assert_eq!([b.ty(n).device, b.ty(c).device], [Device::Cuda(1); 2]);
        b.device = Device::Cpu;
        let here = b.full(Arg::Float(1.0), &[], DType::F32);
        assert_eq!(b.ty(here).device, Device::Cpu);
        // A number on the CPU beside a tensor elsewhere: the result is with the tensor, whatever comes first.
        let scaled = b.mul(here, x);
        let shifted = b.add_scalar(x, 1.0);
        assert_eq!([b.ty(scaled).device, b.ty(shifted).device], [Device::Cuda(1); 2]);
    }
}
