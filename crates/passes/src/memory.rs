//! Which values share memory in eager PyTorch: what a view looks at, and what outputs must not have in common.

use permalloy_ir::{Dim, Graph, Op, Output, PrimKind, PrimOp, SymbolValues, ValueId};

/// The value whose memory a value lies in: itself, or what it is a view of.
pub fn root(graph: &Graph, mut v: ValueId) -> ValueId {
    while let Some(up) = viewed(graph, v) {
        v = up;
    }
    v
}

/// The operand that a value is a view of.
pub fn viewed(graph: &Graph, v: ValueId) -> Option<ValueId> {
    let n = graph.producer(v)?;
    if is_view(&n.op) { n.operand(0) } else { None }
}

/// By value: an operator makes it, and an output is it or looks at it. No two such values may share memory, nor may one
/// share an input's: the caller may write to either.
pub fn output_roots(graph: &Graph) -> Vec<bool> {
    let mut out = vec![false; graph.value_count()];
    for o in &graph.outputs {
        if let Output::Value(v) = o {
            let root = root(graph, *v);
            out[root.0 as usize] = graph.producer(root).is_some();
        }
    }
    out
}

/// Whether two indices may have one address (by hint, for symbolic sizes).
pub fn overlap(shape: &[Dim], strides: &[Dim], hints: &SymbolValues) -> bool {
    let eval = |d: &Dim| d.eval(hints).unwrap_or(0);
    let mut dims: Vec<(i64, i64)> = strides.iter().map(eval).zip(shape.iter().map(eval)).collect();
    dims.retain(|(_, n)| *n != 1);
    dims.sort_unstable();
    let mut reach = 0;
    dims.iter().any(|(stride, n)| {
        let clash = *stride <= reach;
        reach += stride * (n - 1);
        clash
    })
}

fn is_view(op: &Op) -> bool {
    match op {
        Op::Prim(p) => p.kind() == PrimKind::View && *p != PrimOp::Concat,
        Op::External(name) => {
            let base = name.strip_prefix("aten.").and_then(|n| n.split('.').next());
            base.is_some_and(|b| VIEWS.contains(&b))
        }
    }
}

/// ATen operators whose result is a view of their first operand.
const VIEWS: &[&str] = &[
    "_reshape_alias",
    "_unsafe_view",
    "alias",
    "as_strided",
    "broadcast_to",
    "chunk",
    "detach",
    "diagonal",
    "expand",
    "expand_as",
    "flatten",
    "mT",
    "moveaxis",
    "movedim",
    "narrow",
    "numpy_T",
    "permute",
    "reshape",
    "reshape_as",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "swapaxes",
    "t",
    "tensor_split",
    "transpose",
    "unbind",
    "unflatten",
    "unfold",
    "unsqueeze",
    "view",
    "view_as",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_sorted_by_name() {
        assert!(VIEWS.is_sorted());
    }

    #[test]
    fn an_output_is_traced_to_what_owns_its_memory() {
        let text = "graph \"g\" inference {\n  input %x: f32[4]\n  %y: f32[4] = aten.clone.default(%x)\n  \
                    %v: f32[2, 2] = aten.view.default(%y, [2, 2])\n  %w: f32[2, 2] = prim.reshape(%x, shape=[2, 2])\n  \
                    output %v\n  output %w\n}\n";
        let g = Graph::parse(text).unwrap();
        let roots = output_roots(&g);
        let name = |v: &permalloy_ir::Value| v.name.to_string();
        let found: Vec<String> = g.values().filter(|(v, _)| roots[v.0 as usize]).map(|(_, v)| name(v)).collect();
        assert_eq!(found, ["y"]);
    }
}
