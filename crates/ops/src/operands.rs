//! What the integers of an operand may be, for whoever makes up arguments of an operator.

use permalloy_ir::{Arg, Dim, Graph, Node, ValueId};

/// Integers of an operand are at least 0 and less than this.
#[derive(Clone, Copy, Debug)]
enum Below {
    /// The size of the tensor at position `of` along `dim`, which may count from the end.
    Size { of: usize, dim: i64 },
    /// The size of the tensor at position `of` along the dim that the argument at position `dim` names.
    SizeAlong { of: usize, dim: usize },
    /// The argument at this position.
    Argument(usize),
    /// The size that the list at position `list` has for the dim that the argument at position `dim` names.
    Listed { list: usize, dim: usize },
    /// The operand is a list, whose entries index the dims of the tensor at position `of` in their order.
    Dims { of: usize },
}

use Below::{Argument, Dims, Listed, Size, SizeAlong};

/// Operator, position of the operand, and its bound. An integer operand that does not stand here has no known range.
const INDICES: &[(&str, usize, Below)] = &[
    ("aten.embedding.default", 1, Size { of: 0, dim: 0 }),
    ("aten.embedding_dense_backward.default", 1, Argument(2)),
    ("aten.gather.default", 2, SizeAlong { of: 0, dim: 1 }),
    ("aten.gather_backward.default", 3, SizeAlong { of: 1, dim: 2 }),
    ("aten.index.Tensor", 1, Dims { of: 0 }),
    ("aten.index_add.default", 2, SizeAlong { of: 0, dim: 1 }),
    ("aten.index_put.default", 1, Dims { of: 0 }),
    ("aten.index_select.default", 2, SizeAlong { of: 0, dim: 1 }),
    ("aten.index_select_backward.default", 3, Listed { list: 1, dim: 2 }),
    ("aten.nll_loss2d_forward.default", 1, Size { of: 0, dim: 1 }),
    ("aten.nll_loss_forward.default", 1, Size { of: 0, dim: -1 }),
    ("aten.scatter.src", 2, SizeAlong { of: 0, dim: 1 }),
    ("aten.scatter.value", 2, SizeAlong { of: 0, dim: 1 }),
    ("aten.scatter_add.default", 2, SizeAlong { of: 0, dim: 1 }),
];

/// One more than the largest integer that an operand may hold: `position` counts arguments, `entry` the entries of a list.
/// None where nothing is declared.
pub fn index_bound(graph: &Graph, node: &Node, position: usize, entry: Option<usize>) -> Option<Dim> {
    let op = node.op.external()?;
    let (.., below) = INDICES.iter().find(|(name, at, _)| (*name, *at) == (op, position))?;
    let integer = |at: usize| node.args.get(at)?.as_i64();
    match (*below, entry) {
        (Size { of, dim }, None) => size(graph, node.operand(of)?, dim),
        (SizeAlong { of, dim }, None) => size(graph, node.operand(of)?, integer(dim)?),
        (Argument(at), None) => node.args.get(at)?.as_dim(),
        (Listed { list, dim }, None) => {
            let sizes = node.args.get(list).and_then(Arg::as_dims)?;
            sizes.get(wrap(integer(dim)?, sizes.len())?).cloned()
        }
        (Dims { of }, Some(entry)) => graph.shape(node.operand(of)?).get(entry).cloned(),
        _ => None,
    }
}

fn size(graph: &Graph, tensor: ValueId, dim: i64) -> Option<Dim> {
    let shape = graph.shape(tensor);
    shape.get(wrap(dim, shape.len())?).cloned()
}

fn wrap(dim: i64, rank: usize) -> Option<usize> {
    usize::try_from(if dim < 0 { dim + rank as i64 } else { dim }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_names_a_declared_operator_and_is_in_order() {
        assert!(INDICES.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
        for (op, ..) in INDICES {
            assert!(crate::lookup(op).is_some(), "{op}");
        }
    }

    #[test]
    fn bounds_are_sizes_arguments_and_entries() {
        let text = "graph \"g\" inference {\n  input %x: f32[7, 5]\n  input %i: i64[3]\n  \
                    %a: f32[3, 5] = aten.embedding.default(%x, %i)\n  \
                    %b: f32[7, 3] = aten.index_select.default(%x, -1, %i)\n  \
                    %c: f32[9, 5] = aten.embedding_dense_backward.default(%a, %i, 9, -1, false)\n  \
                    %d: f32[7, 3] = aten.index.Tensor(%x, [none, %i])\n  \
                    %e: f32[11, 5] = aten.index_select_backward.default(%a, [11, 5], 0, %i)\n  \
                    %f: f32[3, 5] = aten.take_along_dim.default(%x, %i, 0)\n  output %f\n}\n";
        let graph = Graph::parse(text).unwrap();
        let at = [(1, None), (2, None), (1, None), (1, Some(1)), (3, None), (1, None)];
        let found: Vec<Option<i64>> = (graph.nodes().zip(at))
            .map(|((_, n), (position, entry))| index_bound(&graph, n, position, entry).and_then(|d| d.as_const()))
            .collect();
        assert_eq!(found, [Some(7), Some(5), Some(9), Some(5), Some(11), None]);
    }
}
