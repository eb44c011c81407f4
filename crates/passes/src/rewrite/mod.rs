//! Algebra on prims: equations that turn much work into little. Runs after routing; `simplify` cleans up behind it.
//!
//! Each rule has its equation at its head, goes one way, and never makes a graph dearer. A rule sees a node whose operands
//! are rewritten already, and either gives the value that takes the result's place or leaves the node as it is.

mod along;
mod constant;
mod gather;
mod one_hot;

use crate::memory::output_roots;
use permalloy_ir::{Arg, Builder, Graph, Input, Node, Output, SymbolValues, ValueId};

/// A rule: the new value of the node's result, of the same dtype and shape.
type Rule = fn(&mut Builder<'_>, &Site<'_>) -> Option<ValueId>;

/// What a rule may know of the node it looks at.
struct Site<'a> {
    node: &'a Node,
    hints: &'a SymbolValues,
    /// The result must have memory that no other value has: an existing value cannot take its place.
    owns: bool,
}

const RULES: &[Rule] = &[constant::fold, constant::select, one_hot::sum, gather::sink];

/// Applies every rule where it fits, one pass in the graph's order.
pub fn rewrite(graph: &Graph) -> Graph {
    let hints: SymbolValues = graph.symbols.iter().map(|s| (s.name.clone(), s.hint)).collect();
    let owns = output_roots(graph);
    let mut out = Graph::new(&graph.name, graph.kind);
    out.symbols = graph.symbols.clone();
    let mut map: Vec<Option<ValueId>> = vec![None; graph.value_count()];
    for input in &graph.inputs {
        match input {
            Input::Int(d) => out.add_int_input(d.clone()),
            Input::Tensor { value, role } => {
                let old = graph.value(*value);
                map[value.0 as usize] = Some(out.add_input(&old.name, old.ty.clone(), *role));
            }
        }
    }
    let get = |map: &[Option<ValueId>], v: ValueId| {
        map[v.0 as usize].expect("a verified graph defines values before it uses them")
    };
    for (_, node) in graph.nodes() {
        let mut one = |v: ValueId| Ok::<_, ()>(get(&map, v));
        let mut mapped = |a: &Arg| a.map_values(&mut one).unwrap_or(Arg::None);
        let new = Node {
            op: node.op.clone(),
            args: node.args.iter().map(&mut mapped).collect(),
            kwargs: node.kwargs.iter().map(|(n, a)| (n.clone(), mapped(a))).collect(),
            results: vec![],
            loc: node.loc.clone(),
        };
        if let (Some(_), Some(old)) = (node.prim(), node.result()) {
            let site = Site { node: &new, hints: &hints, owns: owns[old.0 as usize] };
            if let Some(v) = apply(&mut out, &site, graph, old) {
                map[old.0 as usize] = Some(v);
                continue;
            }
        }
        let results =
            node.results.iter().map(|r| r.map(|v| (graph.value(v).name.clone(), graph.ty(v).clone()))).collect();
        let id = out.add_node(new.op, new.args, new.kwargs, results, new.loc);
        for (old, made) in node.results.iter().zip(out.node(id).results.clone()) {
            if let Some(old) = old {
                map[old.0 as usize] = made;
            }
        }
    }
    out.outputs = graph
        .outputs
        .iter()
        .map(|o| match o {
            Output::Value(v) => Output::Value(get(&map, *v)),
            other => other.clone(),
        })
        .collect();
    out
}

/// The value of the first rule that fits; one made just now takes over the result's name and promised strides.
fn apply(out: &mut Graph, site: &Site<'_>, graph: &Graph, old: ValueId) -> Option<ValueId> {
    let before = out.value_count();
    let mut b = Builder::new(out);
    b.loc = site.node.loc.clone();
    let made = RULES.iter().find_map(|rule| rule(&mut b, site))?;
    let wanted = graph.value(old);
    let is_new = made.0 as usize >= before;
    if is_new {
        out.rename(made, &wanted.name);
        out.value_mut(made).ty.strides = wanted.ty.strides.clone();
    }
    let got = out.ty(made);
    debug_assert!(got.shape == wanted.ty.shape && got.dtype == wanted.ty.dtype, "a rule changed the type of a result");
    Some(made)
}

/// `node` on other operands.
fn again(b: &mut Builder<'_>, node: &Node, operands: &[ValueId]) -> Option<ValueId> {
    let attrs = node.kwargs.iter().map(|(n, a)| (&**n, a.clone())).collect();
    b.try_prim(node.prim()?, operands, attrs).ok()
}
