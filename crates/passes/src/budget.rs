//! A smaller set of saved values for more work: `memory_budget` below 1.
//!
//! Operators that are dear are allowed to run once more, a tier at a time, cheapest work for a saved byte first, until
//! the cut is small enough. A tier adds to those before it and the first cut within the budget is taken, so that a lower
//! budget never saves more.

use crate::simplify::effect;
use permalloy_ir::{Graph, Node, NodeId, Op, PrimKind, SymbolValues, ValueId};
use permalloy_ops::Effect;

/// Tiers that dear operators are divided among; each costs a cut.
const TIERS: usize = 12;

/// Nodes that may run again when memory is short, and not otherwise, in tiers. `cheap`: those that may in any case.
/// What draws random numbers, talks to others or writes is in no tier, nor is an operator that nothing is known of.
pub fn tiers(joint: &Graph, backward_only: &[bool], cheap: &[bool], hints: &SymbolValues) -> Vec<Vec<NodeId>> {
    let candidate = |id: NodeId, n: &Node| !backward_only[id.0 as usize] && !cheap[id.0 as usize] && may_run_again(n);
    let (mut light, mut dear) = (Vec::new(), Vec::new());
    for (id, n) in joint.nodes().filter(|(id, n)| candidate(*id, n)) {
        match work(joint, n, hints) {
            Some(work) => dear.push((work, id)),
            None => light.push(id),
        }
    }
    dear.sort_unstable();
    let size = dear.len().div_ceil(TIERS).max(1);
    let dear = dear.chunks(size).map(|tier| tier.iter().map(|(_, id)| *id).collect());
    std::iter::once(light).chain(dear).filter(|tier: &Vec<NodeId>| !tier.is_empty()).collect()
}

fn may_run_again(n: &Node) -> bool {
    match &n.op {
        Op::Prim(_) => true,
        Op::External(name) => permalloy_ops::lookup(name).is_some() && effect(&n.op) == Effect::Pure,
    }
}

/// Multiplications for an element of an operator's result, as if it were a product of its first two operands; None for
/// what reads its operands once, or a few times.
fn work(joint: &Graph, n: &Node, hints: &SymbolValues) -> Option<u64> {
    if matches!(&n.op, Op::Prim(p) if p.kind() != PrimKind::Scan) {
        return None;
    }
    let elements = |v: ValueId| joint.ty(v).numel().eval(hints).unwrap_or(1).max(1) as f64;
    let mut sizes: Vec<f64> = n.operands().into_iter().map(elements).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    let operands: f64 = sizes.iter().rev().take(2).product();
    let results: f64 = n.results.iter().flatten().map(|r| elements(*r)).sum();
    Some((operands / results.max(1.0)).sqrt() as u64)
}
