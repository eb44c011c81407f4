//! Makes the text of a failing graph smaller while it still fails.
//!
//! A candidate leaves out an output, a statement or an input, or takes up the graph in its middle: values that were made
//! before become arguments, with the elements that the interpreter finds for them. Comments that give arguments, sizes
//! and options stay with what they are about.

use permalloy_interp::{Options, OutputValue, run};
use permalloy_ir::{Graph, GraphKind, Input, NodeId, Op, Output, Rebuild, Role, TensorType, ValueId, needed, verify};
use permalloy_ir::{Missing, output_values};
use std::collections::BTreeMap;
use std::fmt::Write;

use crate::values::{Arguments, list_text};

/// The smallest text found, with its failure; None when the given text does not fail. `fails` is asked at most `budget`
/// times.
pub fn shrink<E>(text: &str, budget: usize, fails: &dyn Fn(&str) -> Option<E>) -> Option<(String, E)> {
    let mut failure = fails(text)?;
    let Some(case) = Case::read(text) else { return Some((text.to_string(), failure)) };
    let mut search = Search { case, fails, budget };
    // The canonical text of the graph is not the given one.
    if let Some(e) = fails(&search.case.text(&search.case.graph)) {
        failure = e;
    } else {
        return Some((text.to_string(), failure));
    }
    let coarse = [search.earliest_value(), search.latest_cut()];
    failure = coarse.into_iter().flatten().last().unwrap_or(failure);
    failure = search.one_by_one().unwrap_or(failure);
    Some((search.case.text(&search.case.graph), failure))
}

/// A graph with the comments that belong to it.
struct Case {
    graph: Graph,
    /// Elements by the name of a value, as comments have them: given ones, and those the interpreter finds.
    elements: BTreeMap<String, String>,
    sizes: Vec<(String, String)>,
    /// Comments on the run as a whole, such as `// options:`.
    rest: Vec<String>,
}

/// Lists longer than this are not written down; random elements stand in.
const LONGEST: usize = 4096;

impl Case {
    fn read(text: &str) -> Option<Case> {
        let graph = Graph::parse(text).ok()?;
        let mut case = Case { elements: known_elements(&graph, text), graph, sizes: vec![], rest: vec![] };
        for line in text.lines().take_while(|l| !l.starts_with("graph")) {
            let Some(comment) = line.trim().strip_prefix("//").map(str::trim) else { continue };
            let pair = |rest: &str| rest.split_once('=').map(|(n, v)| (n.trim().to_string(), v.trim().to_string()));
            if let Some((name, list)) = comment.strip_prefix("input %").and_then(pair) {
                case.elements.insert(name, list);
            } else if let Some(size) = comment.strip_prefix("symbol ").and_then(pair) {
                case.sizes.push(size);
            } else if ["options:", "seed ", "round", "target:", "run:"].iter().any(|s| comment.starts_with(s)) {
                case.rest.push(comment.to_string());
            }
        }
        Some(case)
    }

    fn text(&self, graph: &Graph) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        self.rest.iter().for_each(|line| text.push_str(&format!("// {line}\n")));
        for (name, size) in self.sizes.iter().filter(|(n, _)| graph.symbols.iter().any(|s| *s.name == **n)) {
            let _ = writeln!(text, "// symbol {name} = {size}");
        }
        for input in &graph.inputs {
            let Input::Tensor { value, .. } = input else { continue };
            let name = &*graph.value(*value).name;
            if let Some(list) = self.elements.get(name) {
                let _ = writeln!(text, "// input %{name} = {list}");
            }
        }
        let _ = write!(text, "{graph}");
        text
    }
}

/// The elements of every value that the interpreter can make, rounded to its dtype.
fn known_elements(graph: &Graph, text: &str) -> BTreeMap<String, String> {
    let mut whole = graph.clone();
    whole.kind = GraphKind::Inference;
    whole.outputs = graph.values().map(|(v, _)| Output::Value(v)).collect();
    let values = Arguments::read(text).and_then(|a| a.inputs(&whole));
    let values = values.and_then(|v| run(&whole, &v, Options { round: true }).map_err(|e| e.to_string()));
    // Without them a cut graph gets random arguments.
    let Ok(values) = values else { return BTreeMap::new() };
    let name = |v: ValueId| graph.value(v).name.to_string();
    let known = graph.values().zip(&values).filter_map(|((v, _), value)| match value {
        OutputValue::Tensor(t) if t.numel() <= LONGEST => Some((name(v), list_text(t))),
        _ => None,
    });
    let given =
        graph.inputs.iter().filter_map(|i| if let Input::Tensor { value, .. } = i { Some(*value) } else { None });
    let given: Vec<String> = given.map(name).collect();
    // Arguments without a comment are made up again just as well.
    known.filter(|(n, _)| !given.contains(n)).collect()
}

struct Search<'f, E> {
    case: Case,
    fails: &'f dyn Fn(&str) -> Option<E>,
    budget: usize,
}

impl<E> Search<'_, E> {
    /// Takes a candidate over if it is smaller and fails.
    fn accept(&mut self, candidate: Option<Graph>) -> Option<E> {
        let small = candidate.filter(|g| weight(g) < weight(&self.case.graph) && verify(g).is_ok())?;
        self.budget = self.budget.checked_sub(1)?;
        let failure = (self.fails)(&self.case.text(&small))?;
        self.case.graph = small;
        Some(failure)
    }

    /// Halves the statements for the first one whose result alone fails.
    fn earliest_value(&mut self) -> Option<E> {
        let whole = self.case.graph.clone();
        let (mut low, mut high, mut failure) = (0, whole.node_count(), None);
        while low < high {
            let middle = low.midpoint(high);
            let only = |v| {
                let mut g = whole.clone();
                (g.kind, g.outputs) = (GraphKind::Inference, vec![Output::Value(v)]);
                cleaned(&g, Edit::None)
            };
            let candidate = whole.node(NodeId(middle as u32)).results.iter().flatten().next().copied().and_then(only);
            match self.accept(candidate) {
                Some(e) => (high, failure) = (middle, Some(e)),
                None => low = middle + 1,
            }
        }
        failure
    }

    /// Halves the statements for the last place at which the graph can be taken up.
    fn latest_cut(&mut self) -> Option<E> {
        let whole = self.case.graph.clone();
        let (mut low, mut high, mut failure) = (0, whole.node_count(), None);
        while low < high {
            let middle = low.midpoint(high);
            match self.accept(cleaned(&whole, Edit::Cut(middle as u32 + 1))) {
                Some(e) => (low, failure) = (middle + 1, Some(e)),
                None => high = middle,
            }
        }
        failure
    }

    fn one_by_one(&mut self) -> Option<E> {
        let mut failure = None;
        loop {
            let before = weight(&self.case.graph);
            for k in 0.. {
                let Some(candidate) = attempt(&self.case.graph, k) else { break };
                failure = self.accept(candidate).or(failure);
                if self.budget == 0 {
                    return failure;
                }
            }
            if weight(&self.case.graph) == before {
                return failure;
            }
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
    let (outputs, nodes, values, inputs) = (g.outputs.len(), g.node_count(), g.value_count(), g.inputs.len());
    if k < outputs {
        return Some(without_output(g, k));
    }
    let k = k - outputs;
    if k < nodes {
        // The results become inputs.
        let node = g.node(NodeId((nodes - 1 - k) as u32));
        return Some(node.results.iter().flatten().next().and_then(|v| cleaned(g, Edit::Input(*v))));
    }
    let k = k - nodes;
    if k < 3 * nodes {
        // The result becomes one of the operands.
        let node = g.node(NodeId((k / 3) as u32));
        let (v, x) = (node.result(), node.operands().get(k % 3).copied());
        let (Some(v), Some(x)) = (v, x) else { return Some(None) };
        let same = g.dtype(v) == g.dtype(x) && g.shape(v) == g.shape(x);
        return Some(same.then(|| cleaned(g, Edit::Value(v, x))).flatten());
    }
    let k = k - 3 * nodes;
    if k < values {
        let v = ValueId(k as u32);
        let native = g.producer(v).is_some_and(|n| n.op.external().is_some());
        return Some((g.ty(v).strides.is_some() && !native).then(|| cleaned(g, Edit::Dense(v))).flatten());
    }
    let k = k - values;
    if k < inputs {
        return Some(cleaned(g, Edit::NoInput(k)));
    }
    if k == inputs && matches!(g.kind, GraphKind::Joint { .. }) {
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
    cleaned(&g, Edit::None)
}

#[derive(Clone, Copy, PartialEq)]
enum Edit {
    None,
    /// A value becomes an input.
    Input(ValueId),
    /// A value is replaced by another one.
    Value(ValueId, ValueId),
    /// A value loses the promise of its strides.
    Dense(ValueId),
    /// What the statements before this one make becomes inputs.
    Cut(u32),
    /// An input goes that nothing reads.
    NoInput(usize),
}

/// Rebuilds a graph with an edit, and without what nothing reads then. None if that makes no graph.
fn cleaned(g: &Graph, edit: Edit) -> Option<Graph> {
    edited(g, edit).and_then(|g| pruned(&g, edit)).ok()
}

fn edited(g: &Graph, edit: Edit) -> Result<Graph, Missing> {
    let mut new = Rebuild::of(g);
    new.reserve_names();
    let plain = |v: ValueId| TensorType { strides: None, ..g.ty(v).clone() };
    for (id, node) in g.nodes() {
        match edit {
            Edit::Cut(p) if id.0 < p => {
                for v in node.results.iter().flatten() {
                    new.input_for(*v, plain(*v), Role::Primal);
                }
                continue;
            }
            Edit::Input(v) if node.results.contains(&Some(v)) => {
                for v in node.results.iter().flatten() {
                    new.input_for(*v, plain(*v), Role::Primal);
                }
                continue;
            }
            Edit::Value(v, x) if node.results.contains(&Some(v)) => {
                let x = new.value(x)?;
                new.bind(v, x);
                continue;
            }
            _ => {}
        }
        new.copy(node)?;
    }
    if let Edit::Dense(v) = edit {
        let v = new.value(v)?;
        new.graph.set_strides(v, None);
    }
    new.finish()
}

fn pruned(g: &Graph, edit: Edit) -> Result<Graph, Missing> {
    let writes = |op: &Op| op.external() == Some("aten.copy_.default");
    let keep = needed(g, output_values(&g.outputs), |_| false, |_, n| writes(&n.op));
    let mut read = vec![false; g.value_count()];
    output_values(&g.outputs).for_each(|v| read[v.0 as usize] = true);
    for (_, n) in g.nodes().filter(|(id, _)| keep[id.0 as usize]) {
        n.for_each_operand(|v| read[v.0 as usize] = true);
    }
    let mut new = Rebuild::part_of(g, &g.name, g.kind);
    for (k, input) in g.inputs.iter().enumerate() {
        let wanted = match input {
            _ if edit == Edit::NoInput(k) => false,
            Input::Int(_) => true,
            // A size that only this input has would be lost with it.
            Input::Tensor { value, .. } => {
                read[value.0 as usize] || g.shape(*value).iter().any(|d| d.as_const().is_none())
            }
        };
        if wanted {
            new.input(input);
        }
    }
    for (_, node) in g.nodes().filter(|(id, _)| keep[id.0 as usize]) {
        new.copy(node)?;
    }
    let mut new = new.finish()?;
    let mut symbols = Vec::new();
    new.values().for_each(|(_, v)| v.ty.shape.iter().for_each(|d| d.collect_symbols(&mut symbols)));
    for input in &new.inputs {
        if let Input::Int(d) = input {
            d.collect_symbols(&mut symbols);
        }
    }
    new.symbols.retain(|s| symbols.contains(&s.name));
    Ok(new)
}
