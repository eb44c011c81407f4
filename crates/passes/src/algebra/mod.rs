//! Algebra on prims: equations that turn much work into little. Runs after routing; `simplify` cleans up behind it.
//!
//! Each rule has its equation at its head, goes one way, and never makes a graph dearer. A rule sees a node whose operands
//! are rewritten already, and either gives the value that takes the result's place or leaves the node as it is.

mod along;
mod casts;
mod constant;
mod gather;
mod one_hot;

use crate::memory::output_roots;
use crate::simplify::VERIFIED;
use permalloy_ir::{Builder, Graph, Node, Rebuild, SymbolValues, ValueId};

/// A rule: the new value of the node's result, of the same dtype and shape.
type Rule = fn(&mut Builder<'_>, &Site<'_>) -> Option<ValueId>;

/// What a rule may know of the node it looks at.
struct Site<'a> {
    node: &'a Node,
    hints: &'a SymbolValues,
    /// The result must have memory that no other value has: an existing value cannot take its place.
    owns: bool,
    /// It casts what another node casts to the same dtype through another view.
    cast_twice: bool,
}

const RULES: &[Rule] = &[constant::fold, constant::select, one_hot::sum, gather::sink, casts::rise];

/// Applies every rule where it fits, one pass in the graph's order.
pub fn algebra(graph: &Graph) -> Graph {
    let hints = permalloy_ir::hints(&graph.symbols);
    let owns = output_roots(graph);
    let cast_twice = casts::cast_twice(graph);
    let mut new = Rebuild::of(graph);
    for (_, node) in graph.nodes() {
        let mut moved = new.moved(node).expect(VERIFIED);
        if let (Some(_), Some(old)) = (node.prim(), node.result()) {
            moved.results = vec![];
            let cast_twice = cast_twice.contains(&old);
            let site = Site { node: &moved, hints: &hints, owns: owns[old.0 as usize], cast_twice };
            if let Some(v) = apply(&mut new, &site, old) {
                new.bind(old, v);
                continue;
            }
            moved.results = node.results.clone();
        }
        new.push(moved);
    }
    new.finish().expect(VERIFIED)
}

/// The value of the first rule that fits; one made just now takes over the result's name and promised strides.
fn apply(new: &mut Rebuild<'_>, site: &Site<'_>, old: ValueId) -> Option<ValueId> {
    let wanted = new.old().value(old);
    new.reserve_names();
    let before = new.graph.value_count();
    let mut b = Builder::new(&mut new.graph);
    b.loc = site.node.loc.clone();
    let made = RULES.iter().find_map(|rule| rule(&mut b, site))?;
    if made.0 as usize >= before {
        new.take_name(old, made);
        new.graph.set_strides(made, wanted.ty.strides.clone());
    }
    let got = new.graph.ty(made);
    debug_assert!(got.shape == wanted.ty.shape && got.dtype == wanted.ty.dtype, "a rule changed the type of a result");
    Some(made)
}

/// `node` on other operands.
fn again(b: &mut Builder<'_>, node: &Node, operands: &[ValueId]) -> Option<ValueId> {
    b.try_prim(node.prim()?, operands, node.attributes()).ok()
}
