//! Values that are provably one constant, operations that provably do nothing, and permutations of nothing but dims of
//! size 1, which are reshapes.

use super::Rewritten;
use crate::memory::output_roots;
use crate::simplify::VERIFIED;
use crate::uniform::Facts;
use permalloy_ir::{Arg, DType, Dim, Graph, Node, Op, PrimKind, PrimOp, Rebuild, TensorType, ValueId, output_values};
use std::sync::Arc;

/// Says whether anything has changed.
pub(super) fn apply(work: &mut Rewritten) -> bool {
    let graph = &work.graph;
    let facts = Facts::of(graph);
    // What is returned, itself or by a view, has memory of its own and promised strides.
    let owns = output_roots(graph);
    let mut returned = vec![false; graph.value_count()];
    output_values(&graph.outputs).for_each(|v| returned[v.0 as usize] = true);
    let decide = |node: &Node| {
        let v = node.result().filter(|v| !returned[v.0 as usize] && !owns[v.0 as usize])?;
        change(graph, &facts, node, v).filter(|_| graph.ty(v).strides.is_none())
    };
    let changes: Vec<Option<Change>> = graph.nodes().map(|(_, node)| decide(node)).collect();
    if changes.iter().all(Option::is_none) {
        return false;
    }
    let mut new = Rebuild::of(graph);
    for ((_, node), change) in graph.nodes().zip(changes) {
        match (change, node.result()) {
            (Some(Change::Operand(same)), Some(v)) => {
                let same = new.value(same).expect(VERIFIED);
                new.bind(v, same);
            }
            (Some(Change::Prim(op, kwargs)), Some(_)) => {
                let args = if op == PrimOp::Full { vec![] } else { node.args.clone() };
                new.copy(&Node { op: Op::Prim(op), args, kwargs, ..node.clone() }).expect(VERIFIED);
            }
            _ => {
                new.copy(node).expect(VERIFIED);
            }
        }
    }
    work.graph = new.finish().expect(VERIFIED);
    true
}

/// What a node becomes.
enum Change {
    Operand(ValueId),
    Prim(PrimOp, Vec<(Arc<str>, Arg)>),
}

fn change(graph: &Graph, facts: &Facts, node: &Node, v: ValueId) -> Option<Change> {
    let p = node.prim()?;
    if let Some(same) = same_as_operand(graph, facts, p, node) {
        return Some(Change::Operand(same));
    }
    let ty = graph.ty(v);
    let shape = || ("shape".into(), Arg::dims(&ty.shape));
    if p == PrimOp::Permute && moves_single_elements(graph, node) {
        return Some(Change::Prim(PrimOp::Reshape, vec![shape()]));
    }
    if p == PrimOp::Full || p.kind() == PrimKind::View {
        return None;
    }
    let value = argument(ty, facts.get(v).as_constant()?)?;
    Some(Change::Prim(PrimOp::Full, vec![("value".into(), value), shape(), ("dtype".into(), Arg::DType(ty.dtype))]))
}

/// Whether a permutation keeps the order of all dims but those of size 1. Of few dims it may be the transpose of a matrix
/// with one row, which is better found as such; `einsum` adds dims.
fn moves_single_elements(graph: &Graph, node: &Node) -> bool {
    let Some(from) = node.operand(0).map(|x| graph.shape(x)) else { return false };
    let perm = node.ints_attr("perm");
    let wide = perm.iter().filter(|d| usize::try_from(**d).is_ok_and(|d| from.get(d).is_some_and(|n| !n.is_const(1))));
    from.len() > 4 && wide.is_sorted()
}

fn argument(ty: &TensorType, c: f64) -> Option<Arg> {
    match ty.dtype {
        DType::Bool => Some(Arg::Bool(c != 0.0)),
        d if d.is_float() => Some(Arg::Float(c)),
        d if d.is_int() && c.fract() == 0.0 && c.abs() < 9e15 => Some(Arg::Int(Dim::from(c as i64))),
        _ => None,
    }
}

/// The operand that a node gives back unchanged: `where` of a known condition, `x·1`, `x/1`, `x + 0` of integers, and
/// `x and true`, `x or false`. Only if it has the result's shape and dtype.
fn same_as_operand(graph: &Graph, facts: &Facts, p: PrimOp, node: &Node) -> Option<ValueId> {
    let result = graph.ty(node.result()?);
    let is = |i: usize, c: f64| node.operand(i).and_then(|v| facts.get(v).as_constant()) == Some(c);
    // Either operand may be the neutral one.
    let beside = |c: f64| (0..2).find(|i| is(*i, c)).and_then(|i| node.operand(1 - i));
    let (bool, int) = (result.dtype == DType::Bool, result.dtype.is_int());
    let same = match p {
        PrimOp::Where if is(0, 1.0) => node.operand(1),
        PrimOp::Where if is(0, 0.0) => node.operand(2),
        PrimOp::Mul => beside(1.0),
        PrimOp::Div if is(1, 1.0) => node.operand(0),
        PrimOp::Add if int || bool => beside(0.0),
        PrimOp::And if bool => beside(1.0),
        PrimOp::Or if bool => beside(0.0),
        _ => None,
    }?;
    let ty = graph.ty(same);
    (ty.shape == result.shape && ty.dtype == result.dtype && ty.device == result.device).then_some(same)
}
