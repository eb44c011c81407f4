//! Masks of PyTorch's attention operators that hide nothing, or just what comes later.
//!
//! `softmax(s + 0) = softmax(s)`, and where the mask is 0 for `key <= query` and −∞ elsewhere the kernel may skip what is
//! hidden. Each row of a causal mask sees a key, so no row is −∞ throughout. The operators give no gradient of the mask.

use super::attention_mask::is_causal;
use super::{Rewritten, record};
use crate::record::RouteTaken;
use crate::simplify::VERIFIED;
use crate::uniform::Facts;
use permalloy_ir::{Arg, Graph, Node, Op, Rebuild, ValueId};

struct Operator {
    name: &'static str,
    /// Where its mask is: a position, or else by keyword.
    mask: Option<usize>,
    queries: usize,
    dropout: usize,
    causal: usize,
    /// From here on down an added mask hides. cuDNN takes no −∞: PyTorch gives it −65504 for what a boolean mask hides.
    hides: f64,
}

const fn operator(name: &'static str, mask: Option<usize>, queries: usize, dropout: usize, causal: usize) -> Operator {
    Operator { name, mask, queries, dropout, causal, hides: f64::NEG_INFINITY }
}

const OPERATORS: &[Operator] = &[
    operator("aten._scaled_dot_product_flash_attention_for_cpu.default", None, 0, 3, 4),
    operator("aten._scaled_dot_product_flash_attention_for_cpu_backward.default", None, 1, 6, 7),
    operator("aten._scaled_dot_product_efficient_attention.default", Some(3), 0, 5, 6),
    operator("aten._scaled_dot_product_efficient_attention_backward.default", Some(4), 1, 9, 11),
    Operator { hides: -65504.0, ..operator("aten._scaled_dot_product_cudnn_attention.default", Some(3), 0, 5, 6) },
    Operator {
        hides: -65504.0,
        ..operator("aten._scaled_dot_product_cudnn_attention_backward.default", Some(8), 1, 13, 14)
    },
];
/// Position of the flags that say which gradients are wanted, the mask's among them.
const WANTED: (&str, usize) = ("aten._scaled_dot_product_efficient_attention_backward.default", 10);

enum Verdict {
    HidesNothing,
    Causal,
}

impl Operator {
    fn of(n: &Node) -> Option<&'static Operator> {
        OPERATORS.iter().find(|o| n.op.external() == Some(o.name))
    }

    fn mask(&self, n: &Node) -> Option<ValueId> {
        self.mask.map_or_else(|| n.kwarg("attn_mask"), |at| n.args.get(at))?.as_value()
    }

    fn verdict(&self, graph: &Graph, facts: &Facts, node: &Node) -> Option<Verdict> {
        let mask = self.mask(node)?;
        let already = node.arg(self.causal, "is_causal").is_some_and(|a| a.as_bool() != Some(false));
        let drops = node.arg(self.dropout, "dropout_p").is_some_and(|a| a.as_f64() != Some(0.0));
        if already || drops || wants_gradient_of_mask(node) {
            return None;
        }
        let bool = graph.dtype(mask) == permalloy_ir::DType::Bool;
        let shown = f64::from(bool);
        let fact = facts.get(mask);
        if fact.as_constant().is_some_and(|c| c == shown) {
            return Some(Verdict::HidesNothing);
        }
        // Kernels for CUDA differ in what causal means for other numbers of keys than of queries.
        let length = |i: usize| node.operand(i).and_then(|v| graph.shape(v).iter().rev().nth(1));
        if self.mask.is_some() && length(self.queries) != length(self.queries + 1) {
            return None;
        }
        let hidden = |c: f64| if bool { c == 0.0 } else { c <= self.hides };
        is_causal(fact, |c| c == shown, hidden).then_some(Verdict::Causal)
    }

    fn without_mask(&self, node: &Node, causal: bool) -> Node {
        let mut new = node.clone();
        match self.mask {
            Some(at) => new.args[at] = Arg::None,
            None => new.kwargs.retain(|(n, _)| &**n != "attn_mask"),
        }
        if causal {
            new.kwargs.retain(|(n, _)| &**n != "is_causal" && &**n != "dropout_p");
            // What lies between the two is given wherever it is there.
            if new.args.len() <= self.dropout {
                new.args.push(Arg::Float(0.0));
            }
            new.args.truncate(self.causal);
            new.args.push(Arg::Bool(true));
        }
        new
    }
}

fn wants_gradient_of_mask(node: &Node) -> bool {
    node.op.external() == Some(WANTED.0)
        && !matches!(node.args.get(WANTED.1), Some(Arg::List(wanted)) if matches!(wanted.get(3), Some(Arg::Bool(false))))
}

/// Whether this is one of the operators, with a mask.
pub(super) fn has_mask(n: &Node) -> bool {
    Operator::of(n).is_some_and(|o| o.mask(n).is_some())
}

pub(super) fn apply(work: &mut Rewritten) {
    let graph = &work.graph;
    if !graph.nodes().any(|(_, n)| has_mask(n)) {
        return;
    }
    let facts = Facts::of(graph);
    let mut new = Rebuild::of(graph);
    for (_, node) in graph.nodes() {
        match Operator::of(node).and_then(|o| o.verdict(graph, &facts, node).map(|v| (o, v))) {
            Some((operator, verdict)) => {
                let causal = matches!(verdict, Verdict::Causal);
                let detail =
                    if causal { "the mask is causal: is_causal=true" } else { "the mask hides nothing: dropped" };
                let Op::External(op) = &node.op else { continue };
                let route = RouteTaken::Rewritten("sdpa_mask");
                work.records.push(record(op.clone(), route, node.loc.clone(), detail.to_string()));
                new.copy(&operator.without_mask(node, causal)).expect(VERIFIED);
            }
            None => {
                new.copy(node).expect(VERIFIED);
            }
        }
    }
    work.graph = new.finish().expect(VERIFIED);
}
