//! Rewrites a graph by decomposition rules alone: the first rule of each operator that accepts it, no policy.

use permalloy_interp::{RuleError, apply_rules};
use permalloy_ir::{Arg, Def, Graph, Input, Node, Op, Output, TensorType, ValueId, verify};
use permalloy_ops::Rule;

/// The graph with every operator that has a rule replaced; an operator whose rules all decline stays.
pub fn decompose(graph: &Graph) -> Result<Graph, String> {
    verify(graph).map_err(|e| e.to_string())?;
    let mut copy = Copy::of(graph);
    for (id, node) in graph.nodes() {
        let fail = |m: String| format!("{m}\n  {}", graph.node_text(id));
        let node = copy.moved(node).map_err(fail)?;
        let rules = node.op.external().and_then(permalloy_ops::lookup).map_or(&[] as &[Rule], |d| d.rules);
        if rules.is_empty() {
            copy.push(graph, &node);
            continue;
        }
        let results: Vec<Option<TensorType>> = node.results.iter().map(|v| v.map(|v| graph.ty(v).clone())).collect();
        let first_new = copy.graph.node_count() as u32;
        match apply_rules(&mut copy.graph, &node, &results, rules) {
            Ok((_, made)) => {
                for (old, new) in node.results.iter().zip(made) {
                    let (Some(old), Some(new)) = (old, new) else { continue };
                    copy.values[old.0 as usize] = Some(new);
                    // The result keeps its name, unless the rule returned a value that had one before.
                    if matches!(copy.graph.value(new).def, Def::Node(n, _) if n.0 >= first_new) {
                        copy.graph.rename(new, &graph.value(*old).name);
                    }
                }
            }
            Err(RuleError::Declined(_)) => copy.push(graph, &node),
            Err(RuleError::Failed(m)) => return Err(fail(m)),
        }
    }
    let decomposed = without_dead_prims(&copy.finish(graph)?)?;
    verify(&decomposed).map_err(|e| format!("a rule made an illegal graph: {e}"))?;
    Ok(decomposed)
}

/// Rules emit for every result, and a rule that declined may have emitted too: prims that nothing reads go.
fn without_dead_prims(graph: &Graph) -> Result<Graph, String> {
    let mut live = vec![false; graph.value_count()];
    for o in &graph.outputs {
        if let Output::Value(v) = o {
            live[v.0 as usize] = true;
        }
    }
    let mut kept = vec![false; graph.node_count()];
    for (id, node) in graph.nodes().rev() {
        let read = node.results.iter().flatten().any(|v| live[v.0 as usize]);
        if read || matches!(node.op, Op::External(_)) {
            kept[id.0 as usize] = true;
            node.operands().iter().for_each(|v| live[v.0 as usize] = true);
        }
    }
    let mut copy = Copy::of(graph);
    for (id, node) in graph.nodes().filter(|(id, _)| kept[id.0 as usize]) {
        let node = copy.moved(node).map_err(|m| format!("{m}\n  {}", graph.node_text(id)))?;
        copy.push(graph, &node);
    }
    copy.finish(graph)
}

/// A graph being rebuilt, with where each value of the old one now is.
struct Copy {
    graph: Graph,
    values: Vec<Option<ValueId>>,
}

impl Copy {
    /// Starts with symbols and inputs.
    fn of(old: &Graph) -> Copy {
        let mut graph = Graph::new(&old.name, old.kind);
        graph.symbols = old.symbols.clone();
        let mut values = vec![None; old.value_count()];
        for input in &old.inputs {
            match input {
                Input::Int(d) => graph.add_int_input(d.clone()),
                Input::Tensor { value, role } => {
                    let v = old.value(*value);
                    values[value.0 as usize] = Some(graph.add_input(&v.name, v.ty.clone(), *role));
                }
            }
        }
        Copy { graph, values }
    }

    /// The node with operands of the new graph and results still of the old one.
    fn moved(&self, node: &Node) -> Result<Node, String> {
        let mut node = node.clone();
        let mut new =
            |v: ValueId| self.values[v.0 as usize].ok_or_else(|| "a rule did not make this operand".to_string());
        for a in node.args.iter_mut().chain(node.kwargs.iter_mut().map(|(_, a): &mut (_, Arg)| a)) {
            *a = a.map_values(&mut new)?;
        }
        Ok(node)
    }

    /// Appends a moved node.
    fn push(&mut self, old: &Graph, node: &Node) {
        let named = node.results.iter().map(|v| v.map(|v| (old.value(v).name.clone(), old.ty(v).clone()))).collect();
        let id = self.graph.add_node(node.op.clone(), node.args.clone(), node.kwargs.clone(), named, node.loc.clone());
        for (old, new) in node.results.iter().zip(&self.graph.node(id).results) {
            if let Some(old) = old {
                self.values[old.0 as usize] = *new;
            }
        }
    }

    /// Ends with the outputs.
    fn finish(mut self, old: &Graph) -> Result<Graph, String> {
        for o in &old.outputs {
            let output = match o {
                Output::Value(v) => {
                    let new = self.values[v.0 as usize];
                    Output::Value(new.ok_or_else(|| format!("output %{} was not made", old.value(*v).name))?)
                }
                other => other.clone(),
            };
            self.graph.outputs.push(output);
        }
        Ok(self.graph)
    }
}
