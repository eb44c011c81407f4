//! A graph made from another one, node by node: what passes are written with.
//!
//! [`Rebuild`] keeps where each value of the old graph has gone. A pass walks the old nodes in order and for each one copies
//! it, puts something else in its place, or leaves it out; [`needed`] says which nodes a set of values needs.
//!
//! ```
//! use permalloy_ir::{Graph, Op, PrimOp, Rebuild};
//!
//! let text = "graph \"g\" inference {\n  input %x: f32[4]\n  %a: f32[4] = prim.neg(%x)\n  %b: f32[4] = prim.neg(%a)\n  \
//!             %c: f32[4] = prim.exp(%b)\n  output %c\n}\n";
//! let old = Graph::parse(text)?;
//! // −(−x) is x.
//! let mut new = Rebuild::of(&old);
//! for (_, node) in old.nodes() {
//!     let up = node.operand(0).and_then(|x| old.producer(x)).filter(|n| n.prim() == Some(PrimOp::Neg));
//!     match (node.prim(), up.and_then(|n| n.operand(0)), node.result()) {
//!         (Some(PrimOp::Neg), Some(x), Some(result)) => new.bind(result, new.value(x)?),
//!         _ => {
//!             new.copy(node)?;
//!         }
//!     }
//! }
//! let new = new.finish()?;
//! assert_eq!(new.nodes().map(|(_, n)| n.op.name()).collect::<Vec<_>>(), ["prim.neg", "prim.exp"]);
//! assert_eq!(new.nodes().last().unwrap().1.operand(0), Some(old.nodes().next().unwrap().1.operand(0).unwrap()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::graph::{Graph, GraphKind, Input, Node, NodeId, Output, Role, TensorType, ValueId};
use std::fmt;
use std::sync::Arc;

/// A value of the old graph is read in the new one, but nothing there stands for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The value's name.
    pub value: Arc<str>,
    /// The new graph's name.
    pub graph: Arc<str>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{} is read in {}, but not made there", self.value, self.graph)
    }
}

impl std::error::Error for Missing {}

/// A graph in the making, with where each value of the old one has gone.
#[derive(Clone, Debug)]
pub struct Rebuild<'g> {
    old: &'g Graph,
    /// What has been made so far. Whatever is added here besides gets names that the old graph does not use.
    pub graph: Graph,
    values: Vec<Option<ValueId>>,
    /// The old graph's names are taken out of the choice for new values.
    reserved: bool,
}

impl<'g> Rebuild<'g> {
    /// Starts with the symbols and the inputs of the old graph, under its name.
    pub fn of(old: &'g Graph) -> Rebuild<'g> {
        let mut r = Rebuild::part_of(old, &old.name, old.kind);
        r.graph.reserve(old.value_count(), old.node_count());
        for input in &old.inputs {
            r.input(input);
        }
        r
    }

    /// Starts a graph that takes over a part of the old one, with its symbols alone.
    pub fn part_of(old: &'g Graph, name: &str, kind: GraphKind) -> Rebuild<'g> {
        let mut graph = Graph::new(name, kind);
        graph.symbols = old.symbols.clone();
        Rebuild { old, graph, values: vec![None; old.value_count()], reserved: false }
    }

    /// The graph that this one is made from.
    pub fn old(&self) -> &'g Graph {
        self.old
    }

    /// What stands for a value of the old graph.
    pub fn get(&self, old: ValueId) -> Option<ValueId> {
        self.values[old.0 as usize]
    }

    /// As [`Rebuild::get`], where something must.
    pub fn value(&self, old: ValueId) -> Result<ValueId, Missing> {
        self.get(old).ok_or_else(|| Missing { value: self.old.value(old).name.clone(), graph: self.graph.name.clone() })
    }

    /// From now on `new` stands for `old`.
    pub fn bind(&mut self, old: ValueId, new: ValueId) {
        self.values[old.0 as usize] = Some(new);
    }

    /// Copies an input.
    pub fn input(&mut self, input: &Input) {
        match input {
            Input::Int(d) => self.graph.add_int_input(d.clone()),
            Input::Tensor { value, role } => {
                self.input_for(*value, self.old.shared_ty(*value), *role);
            }
        }
    }

    /// Adds an input that stands for a value, which it has the name of.
    pub fn input_for(&mut self, old: ValueId, ty: impl Into<Arc<TensorType>>, role: Role) -> ValueId {
        let name = self.name_of(old);
        let new = self.graph.push_input(name, ty.into(), role);
        self.bind(old, new);
        new
    }

    /// The node with operands of the new graph; its results still are the old graph's.
    pub fn moved(&self, node: &Node) -> Result<Node, Missing> {
        let mut new = |v: ValueId| self.value(v);
        let args = node.args.iter().map(|a| a.map_values(&mut new)).collect::<Result<_, _>>()?;
        let kwargs = node.kwargs.iter().map(|(n, a)| Ok((n.clone(), a.map_values(&mut new)?)));
        let kwargs = kwargs.collect::<Result<_, Missing>>()?;
        let (op, results, loc) = (node.op.clone(), node.results.clone(), node.loc.clone());
        Ok(Node { op, args, kwargs, results, loc })
    }

    /// Appends a moved node. Its results get the names and types of the old ones, which they stand for unless something
    /// does already.
    pub fn push(&mut self, mut node: Node) -> NodeId {
        for i in 0..node.results.len() {
            let Some(old) = node.results[i] else { continue };
            let name = self.name_of(old);
            let new = self.graph.push_result(i, name, self.old.shared_ty(old));
            self.values[old.0 as usize].get_or_insert(new);
            node.results[i] = Some(new);
        }
        self.graph.push_node(node)
    }

    /// Copies a node.
    pub fn copy(&mut self, node: &Node) -> Result<NodeId, Missing> {
        Ok(self.push(self.moved(node)?))
    }

    /// Gives the name of an old value to a new one that was made for it: one for which no old value's name was copied.
    pub fn take_name(&mut self, old: ValueId, new: ValueId) {
        self.reserve_names();
        self.graph.value_mut(new).name = self.old.value(old).name.clone();
    }

    /// Keeps the old graph's names for copies of its values; to be called before values are added besides.
    pub fn reserve_names(&mut self) {
        if !self.reserved {
            self.graph.reserve_names(self.old);
            self.reserved = true;
        }
    }

    /// Copies an output.
    pub fn output(&mut self, output: &Output) -> Result<(), Missing> {
        let output = match output {
            Output::Value(v) => Output::Value(self.value(*v)?),
            other => other.clone(),
        };
        self.graph.outputs.push(output);
        Ok(())
    }

    /// Copies the outputs and gives the graph.
    pub fn finish(mut self) -> Result<Graph, Missing> {
        for o in &self.old.outputs {
            self.output(o)?;
        }
        self.graph.forget_tables();
        Ok(self.graph)
    }

    /// The name for a copy of a value: its own, the first time.
    fn name_of(&mut self, old: ValueId) -> Arc<str> {
        let name = self.old.value(old).name.clone();
        if self.values[old.0 as usize].is_none() {
            return name;
        }
        self.reserve_names();
        self.graph.free_name(name)
    }
}

/// Which nodes must run to make the values of `wanted`. `there` are values that need not be made; `must` are nodes that run
/// in any case.
pub fn needed(
    graph: &Graph,
    wanted: impl IntoIterator<Item = ValueId>,
    there: impl Fn(ValueId) -> bool,
    must: impl Fn(NodeId, &Node) -> bool,
) -> Vec<bool> {
    let mut read = vec![false; graph.value_count()];
    wanted.into_iter().for_each(|v| read[v.0 as usize] = true);
    let mut needed = vec![false; graph.node_count()];
    for (id, n) in graph.nodes().rev() {
        let made = n.results.iter().flatten().any(|v| read[v.0 as usize] && !there(*v));
        if made || must(id, n) {
            needed[id.0 as usize] = true;
            n.for_each_operand(|v| read[v.0 as usize] = true);
        }
    }
    needed
}

/// The values among outputs.
pub fn output_values(outputs: &[Output]) -> impl Iterator<Item = ValueId> + '_ {
    outputs.iter().filter_map(|o| if let Output::Value(v) = o { Some(*v) } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, PrimOp};

    fn graph(statements: &str) -> Graph {
        Graph::parse(&format!("graph \"g\" inference {{\n  input %x: f32[4]\n{statements}}}\n")).unwrap()
    }

    fn names(g: &Graph) -> Vec<&str> {
        g.values().map(|(_, v)| &*v.name).collect()
    }

    #[test]
    fn a_copy_is_equal_and_shares_types() {
        let old = graph(
            "  symbol s hint=3\n  input s\n  %y: f32[4], _ = aten.two.default(%x, [%x, none], n=[1, s]) loc=\"here\"\n  \
             output none\n  output %y\n  output 2*s\n",
        );
        let mut new = Rebuild::of(&old);
        for (_, n) in old.nodes() {
            new.copy(n).unwrap();
        }
        let new = new.finish().unwrap();
        assert_eq!(new, old);
        assert!(Arc::ptr_eq(&old.value(ValueId(1)).ty, &new.value(ValueId(1)).ty));
    }

    #[test]
    fn names_made_up_in_between_leave_those_of_copies_alone() {
        let old = graph("  %a: f32[4] = prim.exp(%x)\n  %v2: f32[4] = prim.neg(%a)\n  output %v2\n");
        let mut new = Rebuild::of(&old);
        let nodes: Vec<&Node> = old.nodes().map(|(_, n)| n).collect();
        new.copy(nodes[0]).unwrap();
        new.reserve_names();
        let a = new.value(ValueId(1)).unwrap();
        let between = Builder::new(&mut new.graph).unary(PrimOp::Abs, a);
        new.bind(ValueId(1), between);
        new.copy(nodes[1]).unwrap();
        assert_eq!(names(&new.finish().unwrap()), ["x", "a", "v2_2", "v2"]);
    }

    #[test]
    fn a_second_copy_gets_a_name_of_its_own_and_stands_for_nothing() {
        let old = graph("  %y: f32[4] = prim.exp(%x)\n  output %y\n");
        let mut new = Rebuild::of(&old);
        let node = old.nodes().next().unwrap().1;
        new.copy(node).unwrap();
        new.copy(node).unwrap();
        let new = new.finish().unwrap();
        assert_eq!(names(&new), ["x", "y", "y_2"]);
        assert_eq!(new.outputs, [Output::Value(ValueId(1))]);
    }

    #[test]
    fn what_is_not_made_is_named() {
        let old = graph("  %y: f32[4] = prim.exp(%x)\n  %z: f32[4] = prim.exp(%y)\n  output %z\n");
        let mut new = Rebuild::part_of(&old, "half", GraphKind::Forward);
        let last = old.nodes().last().unwrap().1;
        assert_eq!(new.copy(last).unwrap_err().to_string(), "%y is read in half, but not made there");
        new.input(&old.inputs[0]);
        assert_eq!(new.clone().finish().unwrap_err().to_string(), "%z is read in half, but not made there");
    }

    #[test]
    fn needed_nodes_stop_at_what_is_there() {
        let old = graph(
            "  %a: f32[4] = prim.exp(%x)\n  %b: f32[4] = prim.neg(%a)\n  %c: f32[4] = prim.abs(%b)\n  \
             %d: f32[4] = aten.effect.default(%a)\n  output %c\n",
        );
        let id = |name: &str| old.values().find(|(_, v)| &*v.name == name).unwrap().0;
        let wanted = || output_values(&old.outputs);
        assert_eq!(needed(&old, wanted(), |_| false, |_, _| false), [true, true, true, false]);
        assert_eq!(needed(&old, wanted(), |v| v == id("b"), |_, _| false), [false, false, true, false]);
        let effects = |_: NodeId, n: &Node| n.prim().is_none();
        assert_eq!(needed(&old, wanted(), |v| v == id("b"), effects), [true, false, true, true]);
    }

    #[test]
    fn a_rollback_leaves_no_trace() {
        let mut g = graph("  %y: f32[4] = prim.exp(%x)\n");
        let (before, mark) = (g.clone(), g.mark());
        let make = |g: &mut Graph| {
            let mut b = Builder::new(g);
            let a = b.add(ValueId(0), ValueId(1));
            b.unary(PrimOp::Sin, a)
        };
        make(&mut g);
        let with = g.clone();
        g.rollback(mark);
        assert_eq!(g, before);
        make(&mut g);
        assert_eq!(g, with, "names are free again");
    }
}
