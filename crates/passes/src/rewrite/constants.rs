//! Values that are provably one constant, operations that provably do nothing, and permutations of nothing but dims of
//! size 1, which are reshapes.

use super::{Rebuild, Rewritten};
use crate::memory::output_roots;
use crate::uniform::Facts;
use permalloy_ir::{Arg, DType, Dim, Graph, Node, Output, PrimKind, PrimOp, TensorType, ValueId};

/// Says whether anything has changed.
pub(super) fn apply(work: &mut Rewritten) -> bool {
    let graph = &work.graph;
    let mut changed = false;
    let facts = Facts::of(graph);
    // What is returned, itself or by a view, has memory of its own and promised strides.
    let owns = output_roots(graph);
    let mut returned = vec![false; graph.value_count()];
    for o in &graph.outputs {
        if let Output::Value(v) = o {
            returned[v.0 as usize] = true;
        }
    }
    let mut rebuild = Rebuild::new(graph);
    for (_, node) in graph.nodes() {
        let free = |v: &ValueId| !returned[v.0 as usize] && !owns[v.0 as usize];
        let plain = node.result().filter(|v| free(v) && graph.ty(*v).strides.is_none());
        if let (Some(p), Some(v)) = (node.prim(), plain) {
            if let Some(same) = same_as_operand(graph, &facts, p, node) {
                changed = true;
                let same = rebuild.get(same);
                rebuild.bind(v, same);
                continue;
            }
            if p == PrimOp::Permute && moves_single_elements(graph, node) {
                changed = true;
                let shape = vec![("shape".into(), Arg::dims(graph.shape(v)))];
                let reshape = Node { op: permalloy_ir::Op::Prim(PrimOp::Reshape), kwargs: shape, ..node.clone() };
                rebuild.copy(graph, &reshape);
                continue;
            }
            if p != PrimOp::Full
                && p.kind() != PrimKind::View
                && let Some(value) = facts.get(v).as_constant().and_then(|c| argument(graph.ty(v), c))
            {
                changed = true;
                let ty = graph.ty(v);
                let attrs = vec![
                    ("value".into(), value),
                    ("shape".into(), Arg::dims(&ty.shape)),
                    ("dtype".into(), Arg::DType(ty.dtype)),
                ];
                let result = Some((graph.value(v).name.clone(), ty.clone()));
                let op = permalloy_ir::Op::Prim(PrimOp::Full);
                let id = rebuild.out.add_node(op, vec![], attrs, vec![result], node.loc.clone());
                if let Some(new) = rebuild.out.node(id).result() {
                    rebuild.bind(v, new);
                }
                continue;
            }
        }
        rebuild.copy(graph, node);
    }
    work.graph = rebuild.finish(graph);
    changed
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
