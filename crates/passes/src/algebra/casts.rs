//! Casts of views.

use super::{Site, again};
use permalloy_ir::{Arg, Builder, DType, Device, Graph, Node, PrimOp, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// `cast(view(x)) = view(cast(x))` to 16 bits on a GPU, where `x` is cast through another view, too, or the view repeats it:
/// it is cast and stored once. Elsewhere a view before a cast says how the result lies in memory best.
pub(super) fn rise(b: &mut Builder<'_>, site: &Site<'_>) -> Option<ValueId> {
    let to = narrowed(b.graph, site.node).filter(|_| !site.owns)?;
    let (base, views) = behind(b.graph, site.node.operand(0)?);
    let repeats = views.iter().any(|v| v.prim() == Some(PrimOp::Expand));
    if views.is_empty() || !(repeats || site.cast_twice) {
        return None;
    }
    let mut value = b.cast(base, to);
    for view in views.iter().rev() {
        value = again(b, view, &[value])?;
    }
    Some(value)
}

/// Results of casts of values that are cast to the same dtype through different views.
pub(super) fn cast_twice(graph: &Graph) -> BTreeSet<ValueId> {
    let mut by_base: BTreeMap<(ValueId, DType), Vec<ValueId>> = BTreeMap::new();
    for (_, node) in graph.nodes() {
        if let (Some(to), Some(x), Some(result)) = (narrowed(graph, node), node.operand(0), node.result()) {
            by_base.entry((behind(graph, x).0, to)).or_default().push(result);
        }
    }
    by_base.into_values().filter(|casts| casts.len() > 1).flatten().collect()
}

/// What a node casts to, if that is 16 bits of more, on a GPU.
fn narrowed(graph: &Graph, node: &Node) -> Option<DType> {
    let x = node.operand(0).filter(|_| node.prim() == Some(PrimOp::Cast))?;
    let Some(Arg::DType(to)) = node.kwarg("dtype") else { return None };
    let narrows = matches!(to, DType::BF16 | DType::F16) && matches!(graph.dtype(x), DType::F32 | DType::F64);
    (narrows && matches!(graph.ty(x).device, Device::Cuda(_))).then_some(*to)
}

/// The value that `x` is a view of, leaving nothing out, and the views from `x` to there.
fn behind(graph: &Graph, x: ValueId) -> (ValueId, Vec<Node>) {
    let (mut base, mut views) = (x, Vec::new());
    while let Some(node) = graph.producer(base)
        && matches!(node.prim(), Some(PrimOp::Permute | PrimOp::Reshape | PrimOp::Expand))
        && let Some(up) = node.operand(0)
    {
        views.push(node.clone());
        base = up;
    }
    (base, views)
}
