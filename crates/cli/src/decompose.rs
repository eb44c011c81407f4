//! Rewrites a graph by decomposition rules alone: the first rule of each operator that accepts it, no policy.

use permalloy_ir::{Def, Graph, Op, Rebuild, TensorType, needed, output_values, verify};
use permalloy_ops::{Rule, RuleError, apply_rules};

/// The graph with every operator that has a rule replaced; an operator whose rules all decline stays.
pub fn decompose(graph: &Graph) -> Result<Graph, String> {
    verify(graph).map_err(|e| e.to_string())?;
    let mut new = Rebuild::of(graph);
    new.reserve_names();
    for (id, node) in graph.nodes() {
        let fail = |m: String| format!("{m}\n  {}", graph.node_text(id));
        let moved = new.moved(node).map_err(|e| fail(e.to_string()))?;
        let rules = node.op.external().and_then(permalloy_ops::lookup).map_or(&[] as &[Rule], |d| d.rules);
        if rules.is_empty() {
            new.push(moved);
            continue;
        }
        let results: Vec<Option<TensorType>> = node.results.iter().map(|v| v.map(|v| graph.ty(v).clone())).collect();
        let first_new = new.graph.node_count() as u32;
        match apply_rules(&mut new.graph, &moved, &results, rules) {
            Ok((_, made)) => {
                for (old, made) in node.results.iter().zip(made) {
                    let (Some(old), Some(made)) = (old, made) else { continue };
                    new.bind(*old, made);
                    // The result keeps its name, unless the rule returned a value that had one before.
                    if matches!(new.graph.value(made).def, Def::Node(n, _) if n.0 >= first_new) {
                        new.take_name(*old, made);
                    }
                }
            }
            Err(RuleError::Declined(_)) => {
                new.push(moved);
            }
            Err(RuleError::Failed(m)) => return Err(fail(m)),
        }
    }
    let decomposed = without_dead_prims(&new.finish().map_err(|e| e.to_string())?)?;
    verify(&decomposed).map_err(|e| format!("a rule made an illegal graph: {e}"))?;
    Ok(decomposed)
}

/// Rules emit for every result: prims that nothing reads go.
fn without_dead_prims(graph: &Graph) -> Result<Graph, String> {
    let keep = needed(graph, output_values(&graph.outputs), |_| false, |_, n| matches!(n.op, Op::External(_)));
    let mut new = Rebuild::of(graph);
    for (id, node) in graph.nodes().filter(|(id, _)| keep[id.0 as usize]) {
        new.copy(node).map_err(|e| format!("{e}\n  {}", graph.node_text(id)))?;
    }
    new.finish().map_err(|e| e.to_string())
}
