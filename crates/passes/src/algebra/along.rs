//! How a value varies along one of its dims, as far as the nodes that make it show.

use super::again;
use permalloy_ir::{Arg, Builder, DType, Dim, Graph, PrimKind, PrimOp, ValueId};

/// How many nodes one question may look at.
pub const BUDGET: u32 = 64;

/// Computes each element from the elements at the same index.
pub fn is_elementwise(p: PrimOp) -> bool {
    matches!(p.kind(), PrimKind::Unary | PrimKind::Binary | PrimKind::Compare | PrimKind::Select)
}

/// The dim of a reshape's operand that is dim `d` of its result.
pub fn same_dim(from: &[Dim], to: &[Dim], d: usize) -> Option<usize> {
    let before = Dim::product(&to[..d]);
    (0..from.len()).find(|e| from[*e] == to[d] && Dim::product(&from[..*e]) == before)
}

/// `shape` with size 1 at `d`.
pub fn with_one(shape: &[Dim], d: usize) -> Vec<Dim> {
    let mut out = shape.to_vec();
    out[d] = Dim::ONE;
    out
}

/// Whether `v` is the same at each index of dim `d`. Each node looked at is taken from `budget`; at its end the answer
/// is no.
pub fn repeats(g: &Graph, v: ValueId, d: usize, budget: &mut u32) -> bool {
    if g.shape(v)[d].is_const(1) {
        return true;
    }
    let Some((node, p)) = g.producer(v).and_then(|n| Some((n, n.prim()?))) else { return false };
    if *budget == 0 {
        return false;
    }
    *budget -= 1;
    match (p, node.operand(0)) {
        (PrimOp::Full, _) => true,
        (PrimOp::Expand, Some(x)) => repeats(g, x, d, budget),
        (PrimOp::Reshape, Some(x)) => same_dim(g.shape(x), g.shape(v), d).is_some_and(|e| repeats(g, x, e, budget)),
        (PrimOp::Permute, Some(x)) => repeats(g, x, node.ints_attr("perm")[d] as usize, budget),
        _ if is_elementwise(p) => node.operands().into_iter().all(|x| repeats(g, x, d, budget)),
        _ => false,
    }
}

/// The one slice of a value that `repeats` along `d`: its shape has size 1 there.
pub fn slice_of_repeated(b: &mut Builder<'_>, v: ValueId, d: usize) -> Option<ValueId> {
    let shape = b.shape(v);
    if shape[d].is_const(1) {
        return Some(v);
    }
    let node = b.graph.producer(v)?.clone();
    let one = with_one(&shape, d);
    match (node.prim()?, node.operand(0)) {
        (PrimOp::Full, _) => {
            let value = node.kwarg("value")?.clone();
            let dtype = b.dtype(v);
            Some(b.full(value, &one, dtype))
        }
        (PrimOp::Expand, Some(x)) => {
            let x = slice_of_repeated(b, x, d)?;
            Some(b.expand(x, &one))
        }
        (PrimOp::Reshape, Some(x)) => {
            let e = same_dim(b.graph.shape(x), &shape, d)?;
            let x = slice_of_repeated(b, x, e)?;
            Some(b.reshape(x, &one))
        }
        (PrimOp::Permute, Some(x)) => {
            let perm: Vec<usize> = node.ints_attr("perm").iter().map(|p| *p as usize).collect();
            let x = slice_of_repeated(b, x, perm[d])?;
            Some(b.permute(x, &perm))
        }
        (p, _) if is_elementwise(p) => {
            let operands: Option<Vec<ValueId>> =
                node.operands().into_iter().map(|x| slice_of_repeated(b, x, d)).collect();
            again(b, &node, &operands?)
        }
        _ => None,
    }
}

/// Whether every element of `v` is its index along dim `d`.
pub fn counts(g: &Graph, mut v: ValueId, mut d: usize) -> bool {
    for _ in 0..BUDGET {
        let Some(node) = g.producer(v) else { return false };
        let Some(x) = node.operand(0) else { return node.prim() == Some(PrimOp::Iota) };
        let (shape, from) = (g.shape(v), g.shape(x));
        let up = match node.prim() {
            Some(PrimOp::Expand) => (from[d] == shape[d]).then_some(d),
            Some(PrimOp::Reshape) => same_dim(from, shape, d),
            Some(PrimOp::Permute) => Some(node.ints_attr("perm")[d] as usize),
            Some(PrimOp::Cast) => holds_indices(g.dtype(v), &shape[d]).then_some(d),
            _ => None,
        };
        let Some(up) = up else { return false };
        (v, d) = (x, up);
    }
    false
}

/// Whether the dtype can say every index below `size`, and `size` itself.
pub fn holds_indices(dtype: DType, size: &Dim) -> bool {
    dtype == DType::I64 || dtype == DType::I32 && size.as_const().is_some_and(|n| i32::try_from(n).is_ok())
}

/// Whether every element is zero (of either sign), or false.
pub fn is_zero(g: &Graph, mut v: ValueId) -> bool {
    for _ in 0..BUDGET {
        let Some(node) = g.producer(v) else { return false };
        match (node.prim(), node.operand(0)) {
            (Some(PrimOp::Full), _) => {
                return match node.kwarg("value") {
                    Some(Arg::Bool(x)) => !x,
                    Some(x) => x.as_f64() == Some(0.0),
                    None => false,
                };
            }
            (Some(PrimOp::Expand | PrimOp::Reshape | PrimOp::Permute), Some(x)) => v = x,
            _ => return false,
        }
    }
    false
}
