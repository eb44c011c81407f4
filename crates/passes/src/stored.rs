//! What the forward graph writes to memory whatever is saved for the backward.

use crate::memory::{root, viewed};
use permalloy_ir::{Graph, Node, NodeId, Output, PrimOp, ValueId};

/// By value: saving it costs no store. Operators outside of kernels read and write memory, and so do scatters, gathers
/// and concatenations; a value that is read on both sides of such an operator waits for it in memory. What one kernel
/// can make and use up need never be stored.
pub fn stored_anyway(joint: &Graph, forward_outputs: usize, forward: impl Fn(NodeId) -> bool) -> Vec<bool> {
    let mut stored = vec![false; joint.value_count()];
    let mut mark = |v: ValueId| stored[root(joint, v).0 as usize] = true;
    // How many operators outside of kernels come before a value, one after the other.
    let mut level = vec![0u32; joint.value_count()];
    for (_, node) in joint.nodes().filter(|(id, _)| forward(*id)) {
        let operands = node.operands();
        let mut here = operands.iter().map(|v| level[v.0 as usize]).max().unwrap_or(0);
        match node.prim() {
            Some(PrimOp::Concat | PrimOp::IndexSum | PrimOp::ScatterSum) => results(node).for_each(&mut mark),
            Some(PrimOp::Gather | PrimOp::Take) => node.operand(0).into_iter().for_each(&mut mark),
            None if is_step(joint, node) => {
                results(node).chain(operands.iter().copied()).for_each(&mut mark);
                here += 1;
            }
            _ => operands.iter().filter(|v| level[v.0 as usize] < here).for_each(|v| mark(*v)),
        }
        results(node).for_each(|r| level[r.0 as usize] = here);
    }
    for o in &joint.outputs[..forward_outputs] {
        if let Output::Value(v) = o {
            mark(*v);
        }
    }
    stored
}

/// An operator that runs by itself: no view, and none of the copies that become part of kernels.
fn is_step(joint: &Graph, node: &Node) -> bool {
    let copies = matches!(node.op.external(), Some("aten.clone.default" | "aten.copy_.default"));
    let view = results(node).next().is_some() && results(node).all(|r| viewed(joint, r).is_some());
    !copies && !view
}

fn results(node: &Node) -> impl Iterator<Item = ValueId> + '_ {
    node.results.iter().flatten().copied()
}
