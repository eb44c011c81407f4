//! Masks of PyTorch's attention operators that hide nothing, or just what comes later.
//!
//! `softmax(s + 0) = softmax(s)`, and where the mask is 0 for `key <= query` and −∞ elsewhere the kernel may skip what is
//! hidden. Each row of a causal mask sees a key, so no row is −∞ throughout. The operators give no gradient of the mask.

use super::attention_mask::is_causal;
use super::{Rewritten, record};
use crate::record::RouteTaken;
use crate::simplify::VERIFIED;
use crate::uniform::Facts;
use permalloy_ir::{Arg, Graph, Node, Op, Rebuild};

/// Operators that take `attn_mask=` by keyword, with the position of `dropout_p`; `is_causal` follows it.
const OPERATORS: &[(&str, usize)] = &[
    ("aten._scaled_dot_product_flash_attention_for_cpu.default", 3),
    ("aten._scaled_dot_product_flash_attention_for_cpu_backward.default", 6),
];

enum Verdict {
    HidesNothing,
    Causal,
}

/// The position of `dropout_p`, if this is one of the operators.
fn position(n: &Node) -> Option<usize> {
    OPERATORS.iter().find(|(name, _)| n.op.external() == Some(*name)).map(|(_, p)| *p)
}

/// Whether this is one of the operators, with a mask.
pub(super) fn has_mask(n: &Node) -> bool {
    position(n).is_some() && n.kwarg("attn_mask").is_some_and(|m| m.as_value().is_some())
}

pub(super) fn apply(work: &mut Rewritten) {
    let graph = &work.graph;
    if !graph.nodes().any(|(_, n)| has_mask(n)) {
        return;
    }
    let facts = Facts::of(graph);
    let mut new = Rebuild::of(graph);
    for (_, node) in graph.nodes() {
        match position(node).and_then(|p| verdict(graph, &facts, node, p).map(|v| (p, v))) {
            Some((dropout, verdict)) => {
                let causal = matches!(verdict, Verdict::Causal);
                let detail =
                    if causal { "the mask is causal: is_causal=true" } else { "the mask hides nothing: dropped" };
                let Op::External(op) = &node.op else { continue };
                let route = RouteTaken::Rewritten("sdpa_mask");
                work.records.push(record(op.clone(), route, node.loc.clone(), detail.to_string()));
                new.copy(&without_mask(node, dropout, causal)).expect(VERIFIED);
            }
            None => {
                new.copy(node).expect(VERIFIED);
            }
        }
    }
    work.graph = new.finish().expect(VERIFIED);
}

fn verdict(graph: &Graph, facts: &Facts, node: &Node, dropout: usize) -> Option<Verdict> {
    let mask = node.kwarg("attn_mask")?.as_value()?;
    let already = node.arg(dropout + 1, "is_causal").is_some_and(|a| a.as_bool() != Some(false));
    let drops = node.arg(dropout, "dropout_p").is_some_and(|a| a.as_f64() != Some(0.0));
    if already || drops {
        return None;
    }
    let bool = graph.dtype(mask) == permalloy_ir::DType::Bool;
    let shown = f64::from(bool);
    let fact = facts.get(mask);
    if fact.as_constant().is_some_and(|c| c == shown) {
        return Some(Verdict::HidesNothing);
    }
    let hidden = |c: f64| if bool { c == 0.0 } else { c == f64::NEG_INFINITY };
    is_causal(fact, |c| c == shown, hidden).then_some(Verdict::Causal)
}

fn without_mask(node: &Node, dropout: usize, causal: bool) -> Node {
    let mut new = node.clone();
    new.kwargs.retain(|(n, _)| &**n != "attn_mask");
    if causal {
        new.kwargs.retain(|(n, _)| &**n != "is_causal" && &**n != "dropout_p");
        new.args.truncate(dropout);
        new.args.extend([Arg::Float(0.0), Arg::Bool(true)]);
    }
    new
}
