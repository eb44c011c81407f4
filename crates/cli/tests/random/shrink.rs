//! Makes a failing graph smaller while it still fails.

use permalloy_cli::compare::Disagreement;
use permalloy_ir::{Arg, Graph, GraphKind, Input, NodeId, Op, Output, Role, TensorType, ValueId, verify};

/// The smallest graph found with its failure; None when the graph does not fail as text.
pub fn shrink(graph: &Graph, fails: &dyn Fn(&Graph) -> Option<Disagreement>) -> Option<(Graph, Disagreement)> {
    let mut best = (cleaned(graph, &|_| None, &|_| None)?, fails(graph)?);
    if let Some(e) = fails(&best.0) {
        best.1 = e;
    } else {
        return None;
    }
    let mut budget = 600;
    loop {
        let before = weight(&best.0);
        for candidate in 0.. {
            let Some(small) = attempt(&best.0, candidate) else { break };
            let Some(small) = small.filter(|g| weight(g) < weight(&best.0) && verify(g).is_ok()) else { continue };
            budget -= 1;
            if let Some(e) = fails(&small) {
                best = (small, e);
            }
            if budget == 0 {
                return Some(best);
            }
        }
        if weight(&best.0) == before {
            return Some(best);
        }
    }
}

fn weight(g: &Graph) -> usize {
    let strides = g.values().filter(|(_, v)| v.ty.strides.is_some()).count();
    let joint = usize::from(matches!(g.kind, GraphKind::Joint { .. }));
    20 * g.node_count() + 8 * g.outputs.len() + 4 * g.inputs.len() + strides + 10 * joint
}

/// Candidate `k` of a graph: outer None when there are no more, inner None when this one makes no sense.
fn attempt(g: &Graph, k: usize) -> Option<Option<Graph>> {
    let (outputs, nodes, values) = (g.outputs.len(), g.node_count(), g.value_count());
    if k < outputs {
        return Some(without_output(g, k));
    }
    let k = k - outputs;
    if k < nodes {
        // The result becomes an input.
        let n = nodes - 1 - k;
        let made = g.node(NodeId(n as u32)).result();
        return Some(made.and_then(|v| cleaned(g, &|x| (x == v).then_some(Replacement::Input), &|_| None)));
    }
    let k = k - nodes;
    if k < 3 * nodes {
        // The result becomes one of the operands.
        let node = g.node(NodeId((k / 3) as u32));
        let (v, x) = (node.result(), node.operands().get(k % 3).copied());
        let (Some(v), Some(x)) = (v, x) else { return Some(None) };
        let same = g.dtype(v) == g.dtype(x) && g.shape(v) == g.shape(x);
        return Some(same.then(|| cleaned(g, &|y| (y == v).then_some(Replacement::Value(x)), &|_| None)).flatten());
    }
    let k = k - 3 * nodes;
    if k < values {
        let v = ValueId(k as u32);
        if g.ty(v).strides.is_none() || matches!(g.producer(v), Some(n) if n.op.external().is_some()) {
            return Some(None);
        }
        return Some(cleaned(g, &|_| None, &|x| (x == v).then_some(())));
    }
    if k == values && matches!(g.kind, GraphKind::Joint { .. }) {
        let mut plain = g.clone();
        plain.kind = GraphKind::Inference;
        return Some(Some(plain));
    }
    None
}

fn without_output(g: &Graph, k: usize) -> Option<Graph> {
    let mut g = g.clone();
    g.outputs.remove(k);
    if let GraphKind::Joint { forward_outputs } = &mut g.kind
        && k < *forward_outputs
    {
        *forward_outputs -= 1;
    }
    cleaned(&g, &|_| None, &|_| None)
}

enum Replacement {
    Input,
    Value(ValueId),
}

/// Rebuilds a graph with values replaced, promises dropped, and without what nothing reads.
fn cleaned(
    g: &Graph,
    replace: &dyn Fn(ValueId) -> Option<Replacement>,
    forget: &dyn Fn(ValueId) -> Option<()>,
) -> Option<Graph> {
    let target = |v: ValueId| match replace(v) {
        Some(Replacement::Value(x)) => x,
        _ => v,
    };
    let mut live = vec![false; g.value_count()];
    for o in &g.outputs {
        if let Output::Value(v) = o {
            live[target(*v).0 as usize] = true;
        }
    }
    let copies = |op: &Op| op.external() == Some("aten.copy_.default");
    let mut keep = vec![false; g.node_count()];
    for (id, n) in g.nodes().rev() {
        let replaced = n.result().is_some_and(|v| replace(v).is_some());
        let wanted = n.results.iter().flatten().any(|v| live[v.0 as usize]) || copies(&n.op);
        if wanted && !replaced {
            keep[id.0 as usize] = true;
            n.operands().iter().for_each(|v| live[target(*v).0 as usize] = true);
        }
    }
    let mut out = Graph::new(&g.name, g.kind);
    let ty = |v: ValueId| TensorType {
        strides: if forget(v).is_some() { None } else { g.ty(v).strides.clone() },
        ..g.ty(v).clone()
    };
    let mut map: Vec<Option<ValueId>> = vec![None; g.value_count()];
    for i in &g.inputs {
        match i {
            Input::Int(d) => out.add_int_input(d.clone()),
            Input::Tensor { value, role } => {
                let binds = g.shape(*value).iter().any(|d| d.as_const().is_none());
                if live[value.0 as usize] || binds {
                    map[value.0 as usize] = Some(out.add_input(&g.value(*value).name, ty(*value), *role));
                }
            }
        }
    }
    let mut symbols = Vec::new();
    for (_, v) in g.values() {
        v.ty.shape.iter().for_each(|d| d.collect_symbols(&mut symbols));
    }
    out.symbols = g.symbols.iter().filter(|s| symbols.contains(&s.name)).cloned().collect();
    for (id, n) in g.nodes() {
        if let Some(v) = n.result()
            && matches!(replace(v), Some(Replacement::Input))
            && live[v.0 as usize]
        {
            let plain = TensorType { strides: None, ..g.ty(v).clone() };
            map[v.0 as usize] = Some(out.add_input(&g.value(v).name, plain, Role::Primal));
        }
        if !keep[id.0 as usize] {
            continue;
        }
        let mut one = |v: ValueId| map[target(v).0 as usize].ok_or(());
        let args: Vec<Arg> = n.args.iter().map(|a| a.map_values(&mut one)).collect::<Result<_, ()>>().ok()?;
        let results = n.results.iter().map(|r| r.map(|v| (g.value(v).name.clone(), ty(v)))).collect();
        let id = out.add_node(n.op.clone(), args, n.kwargs.clone(), results, None);
        let made = out.node(id).results.clone();
        for (old, new) in n.results.iter().zip(made) {
            if let Some(old) = old {
                map[old.0 as usize] = new;
            }
        }
    }
    for o in &g.outputs {
        out.outputs.push(match o {
            Output::Value(v) => Output::Value(map[target(*v).0 as usize]?),
            other => other.clone(),
        });
    }
    Some(out)
}
