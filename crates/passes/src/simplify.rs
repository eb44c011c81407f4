//! Cleaning after routing: equal nodes become one, views of views fold, what nobody reads goes.

use crate::memory::output_roots;
use permalloy_ir::{Arg, Graph, Input, Node, Op, Output, PrimOp, TensorType, ValueId, contiguous_strides};
use permalloy_ops::Effect;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Applies common-subexpression elimination, view folding and dead-code elimination; one pass each way.
pub fn simplify(graph: &Graph) -> Graph {
    let alive = alive(graph);
    let mut s = Simplify {
        out: Graph::new(&graph.name, graph.kind),
        map: vec![None; graph.value_count()],
        seen: HashMap::default(),
        owns: output_roots(graph),
        owned: BTreeSet::new(),
        returned: vec![false; graph.value_count()],
    };
    for o in &graph.outputs {
        if let Output::Value(v) = o {
            s.returned[v.0 as usize] = true;
        }
    }
    s.out.symbols = graph.symbols.clone();
    for input in &graph.inputs {
        match input {
            Input::Int(d) => s.out.add_int_input(d.clone()),
            Input::Tensor { value, role } => {
                let old = graph.value(*value);
                s.map[value.0 as usize] = Some(s.out.add_input(&old.name, old.ty.clone(), *role));
            }
        }
    }
    for (id, node) in graph.nodes() {
        if alive[id.0 as usize] {
            s.node(graph, node);
        }
    }
    s.out.outputs = graph
        .outputs
        .iter()
        .map(|o| match o {
            Output::Value(v) => Output::Value(s.get(*v)),
            other => other.clone(),
        })
        .collect();
    s.out
}

/// Nodes that an output or an effect needs.
pub fn alive(graph: &Graph) -> Vec<bool> {
    let mut value_alive = vec![false; graph.value_count()];
    for o in &graph.outputs {
        if let Output::Value(v) = o {
            value_alive[v.0 as usize] = true;
        }
    }
    let mut alive = vec![false; graph.node_count()];
    for (id, node) in graph.nodes().rev() {
        let needed = node.results.iter().flatten().any(|v| value_alive[v.0 as usize]) || must_run(&node.op);
        if needed {
            alive[id.0 as usize] = true;
            for v in node.operands() {
                value_alive[v.0 as usize] = true;
            }
        }
    }
    alive
}

/// Runs even if nobody reads its result.
pub fn must_run(op: &Op) -> bool {
    effect(op) != Effect::Pure
}

/// The declared effect of an operator; unknown ones are taken to be pure, as AOTAutograd's functional graphs are.
pub fn effect(op: &Op) -> Effect {
    match op {
        Op::Prim(_) => Effect::Pure,
        Op::External(name) => permalloy_ops::lookup(name).map_or(Effect::Pure, |d| d.effect),
    }
}

/// A node and what it returns.
type Made = (Node, Vec<Option<ValueId>>);

struct Simplify {
    out: Graph,
    map: Vec<Option<ValueId>>,
    /// Values of the old graph that must have memory of their own, and what those made so far have become.
    owns: Vec<bool>,
    owned: BTreeSet<ValueId>,
    /// Pure nodes made so far, by structure. Looked up only, never iterated.
    seen: HashMap<u64, Vec<Made>, BuildHasherDefault<DefaultHasher>>,
    /// Outputs of the given graph: their layout is promised, row-major where nothing else is said.
    returned: Vec<bool>,
}

impl Simplify {
    fn get(&self, old: ValueId) -> ValueId {
        self.map[old.0 as usize].expect("a verified graph defines values before it uses them")
    }

    fn node(&mut self, graph: &Graph, node: &Node) {
        let mut one = |v: ValueId| Ok::<_, ()>(self.get(v));
        let mut map = |a: &Arg| a.map_values(&mut one).unwrap_or(Arg::None);
        let args: Vec<Arg> = node.args.iter().map(&mut map).collect();
        let kwargs: Vec<(Arc<str>, Arg)> = node.kwargs.iter().map(|(n, a)| (n.clone(), map(a))).collect();
        let mut new = Node { op: node.op.clone(), args, kwargs, results: vec![], loc: None };
        if let Op::Prim(p) = node.op {
            let result = node.result();
            let same = result.and_then(|v| self.fold(p, &mut new, graph.ty(v)));
            if let (Some(same), Some(v)) = (same, result)
                && (!self.returned[v.0 as usize] || self.keeps_layout(same, graph.ty(v)))
            {
                self.bind(node, &[Some(same)]);
                return;
            }
        }
        if effect(&node.op) != Effect::Pure {
            let results = self.emit(graph, node, new);
            self.bind(node, &results);
            return;
        }
        let key = self.seen.hasher().hash_one(NodeKey(&new));
        let found =
            self.seen.get(&key).and_then(|c| c.iter().find(|(n, _)| same_node(n, &new)).map(|(_, r)| r.clone()));
        // An output mask that differs shows in the arguments, so equal nodes have equal results.
        let same = |r: &Vec<Option<ValueId>>| {
            r.len() == node.results.len() && self.same_promises(graph, node, r) && !self.shares(node, r)
        };
        if let Some(results) = found.filter(same) {
            self.bind(node, &results);
            return;
        }
        let results = self.emit(graph, node, new.clone());
        self.seen.entry(key).or_default().push((new, results.clone()));
        self.bind(node, &results);
    }

    /// Two results that outputs show would become one.
    fn shares(&self, node: &Node, results: &[Option<ValueId>]) -> bool {
        node.results.iter().zip(results).any(|(old, new)| {
            old.is_some_and(|o| self.owns[o.0 as usize]) && new.is_some_and(|n| self.owned.contains(&n))
        })
    }

    fn same_promises(&self, graph: &Graph, node: &Node, results: &[Option<ValueId>]) -> bool {
        node.results.iter().zip(results).all(|(a, b)| match (a, b) {
            (Some(a), Some(b)) => graph.ty(*a).strides == self.out.ty(*b).strides,
            (a, b) => a.is_none() == b.is_none(),
        })
    }

    fn emit(&mut self, graph: &Graph, node: &Node, new: Node) -> Vec<Option<ValueId>> {
        let results =
            node.results.iter().map(|r| r.map(|v| (graph.value(v).name.clone(), graph.ty(v).clone()))).collect();
        let id = self.out.add_node(new.op, new.args, new.kwargs, results, node.loc.clone());
        self.out.node(id).results.clone()
    }

    fn bind(&mut self, node: &Node, results: &[Option<ValueId>]) {
        for (old, new) in node.results.iter().zip(results) {
            if let Some(old) = old {
                self.map[old.0 as usize] = *new;
                self.owned.extend(new.filter(|_| self.owns[old.0 as usize]));
            }
        }
    }

    /// An existing value equal to the node's result, or None; may rewrite the node to read further up a chain of views.
    fn fold(&self, p: PrimOp, node: &mut Node, ty: &TensorType) -> Option<ValueId> {
        let x = node.operand(0)?;
        let identity = self.out.shape(x) == ty.shape && self.out.dtype(x) == ty.dtype;
        match p {
            PrimOp::Reshape | PrimOp::Expand if identity => return self.unpromised(x, ty),
            PrimOp::Cast if identity => return self.unpromised(x, ty),
            PrimOp::Reshape => {
                if let Some(up) = self.operand_of(x, PrimOp::Reshape) {
                    node.args[0] = Arg::Value(up);
                    if self.out.shape(up) == ty.shape {
                        return self.unpromised(up, ty);
                    }
                }
            }
            PrimOp::Permute => {
                let perm = node.ints_attr("perm");
                if perm.iter().copied().eq(0..perm.len() as i64) {
                    return self.unpromised(x, ty);
                }
                if let Some(up) = self.operand_of(x, PrimOp::Permute) {
                    let inner = self.out.producer(x)?.ints_attr("perm");
                    let both: Vec<i64> = perm.iter().map(|p| inner[*p as usize]).collect();
                    node.args[0] = Arg::Value(up);
                    node.kwargs = vec![("perm".into(), Arg::ints(both.iter().copied()))];
                    if both.iter().copied().eq(0..both.len() as i64) {
                        return self.unpromised(up, ty);
                    }
                }
            }
            PrimOp::Expand => {
                if let Some(up) = self.operand_of(x, PrimOp::Expand) {
                    node.args[0] = Arg::Value(up);
                }
            }
            _ => {}
        }
        None
    }

    /// `x`, unless the result was promised strides that `x` was not.
    fn unpromised(&self, x: ValueId, ty: &TensorType) -> Option<ValueId> {
        (ty.strides.is_none() || self.out.ty(x).strides == ty.strides).then_some(x)
    }

    /// An output that becomes `x` gets what it was promised. (A view of an input has the input's layout anyway.)
    fn keeps_layout(&self, x: ValueId, ty: &TensorType) -> bool {
        let dense = |t: &TensorType| t.strides.clone().unwrap_or_else(|| contiguous_strides(&t.shape));
        self.out.producer(x).is_none() || dense(self.out.ty(x)) == dense(ty)
    }

    fn operand_of(&self, x: ValueId, p: PrimOp) -> Option<ValueId> {
        let n = self.out.producer(x)?;
        if n.prim() == Some(p) { n.operand(0) } else { None }
    }
}

struct NodeKey<'a>(&'a Node);

impl Hash for NodeKey<'_> {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.op.hash(h);
        for a in self.0.args.iter().chain(self.0.kwargs.iter().map(|(_, a)| a)) {
            hash_arg(a, h);
        }
    }
}

fn hash_arg<H: Hasher>(a: &Arg, h: &mut H) {
    std::mem::discriminant(a).hash(h);
    match a {
        Arg::Value(v) => v.hash(h),
        Arg::Int(d) => d.hash(h),
        Arg::Float(x) => x.to_bits().hash(h),
        Arg::Bool(b) => b.hash(h),
        Arg::Str(s) | Arg::Layout(s) | Arg::MemoryFormat(s) => s.hash(h),
        Arg::DType(d) => d.hash(h),
        Arg::Device(d) => d.hash(h),
        Arg::List(items) => items.iter().for_each(|i| hash_arg(i, h)),
        Arg::None => {}
    }
}

fn same_node(a: &Node, b: &Node) -> bool {
    a.op == b.op
        && a.args.len() == b.args.len()
        && a.kwargs.len() == b.kwargs.len()
        && a.args.iter().zip(&b.args).all(|(x, y)| same_arg(x, y))
        && a.kwargs.iter().zip(&b.kwargs).all(|((n, x), (m, y))| n == m && same_arg(x, y))
}

/// Equality that tells 0.0 from -0.0 and takes NaN for itself.
fn same_arg(a: &Arg, b: &Arg) -> bool {
    match (a, b) {
        (Arg::Float(x), Arg::Float(y)) => x.to_bits() == y.to_bits(),
        (Arg::List(x), Arg::List(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same_arg(x, y)),
        _ => a == b,
    }
}
