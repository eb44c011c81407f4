//! Cleaning after routing: equal nodes become one, views of views fold, what nobody reads goes.

use crate::memory::output_roots;
use permalloy_ir::{
    Arg, Graph, MixHash, Node, NodeId, Op, PrimOp, Rebuild, TensorType, ValueId, contiguous_strides, needed,
    output_values,
};
use permalloy_ops::Effect;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};

/// Applies common-subexpression elimination, view folding and dead-code elimination to a verified graph; one pass each way.
pub fn simplify(graph: &Graph) -> Graph {
    let alive = needed(graph, output_values(&graph.outputs), |_| false, |_, n| must_run(&n.op));
    let mut s = Simplify {
        new: Rebuild::of(graph),
        seen: HashMap::with_capacity_and_hasher(graph.node_count(), MixHash::default()),
        owns: output_roots(graph),
        owned: BTreeSet::new(),
        returned: vec![false; graph.value_count()],
    };
    output_values(&graph.outputs).for_each(|v| s.returned[v.0 as usize] = true);
    for (id, node) in graph.nodes() {
        if alive[id.0 as usize] {
            s.node(graph, node);
        }
    }
    s.new.finish().expect(VERIFIED)
}

pub(crate) const VERIFIED: &str = "a verified graph defines values before it uses them";

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

struct Simplify<'g> {
    new: Rebuild<'g>,
    /// Values of the old graph that must have memory of their own, and what those made so far have become.
    owns: Vec<bool>,
    owned: BTreeSet<ValueId>,
    /// The first of the pure nodes of each structure, by its hash.
    seen: HashMap<u64, NodeId, MixHash>,
    /// Outputs of the given graph: their layout is promised, row-major where nothing else is said.
    returned: Vec<bool>,
}

impl Simplify<'_> {
    fn node(&mut self, graph: &Graph, node: &Node) {
        let mut moved = self.new.moved(node).expect(VERIFIED);
        if let (Some(p), Some(v)) = (node.prim(), node.result())
            && let Some(same) = self.fold(p, &mut moved, graph.ty(v))
            && (!self.returned[v.0 as usize] || self.keeps_layout(same, graph.ty(v)))
            // What a concatenation returns is nobody else's memory.
            && (p != PrimOp::Concat || !self.owns[v.0 as usize])
        {
            self.bind(v, same);
            return;
        }
        if must_run(&node.op) {
            self.keep(node, moved);
            return;
        }
        let key = self.seen.hasher().hash_one(NodeKey(&moved));
        // Two structures with one hash: the second goes without.
        let equal = self.seen.get(&key).copied().filter(|n| same_node(self.new.graph.node(*n), &moved));
        if let Some(equal) = equal {
            // An output mask that differs shows in the arguments, so equal nodes have equal results.
            let results = &self.new.graph.node(equal).results;
            if results.len() == node.results.len()
                && self.same_promises(graph, node, results)
                && !self.shares(node, results)
            {
                for (i, old) in node.results.iter().enumerate() {
                    if let (Some(old), Some(new)) = (old, self.new.graph.node(equal).results[i]) {
                        self.bind(*old, new);
                    }
                }
                return;
            }
        }
        let id = self.keep(node, moved);
        self.seen.entry(key).or_insert(id);
    }

    /// Two results that outputs show would become one.
    fn shares(&self, node: &Node, results: &[Option<ValueId>]) -> bool {
        node.results.iter().zip(results).any(|(old, new)| {
            old.is_some_and(|o| self.owns[o.0 as usize]) && new.is_some_and(|n| self.owned.contains(&n))
        })
    }

    fn same_promises(&self, graph: &Graph, node: &Node, results: &[Option<ValueId>]) -> bool {
        node.results.iter().zip(results).all(|(a, b)| match (a, b) {
            (Some(a), Some(b)) => graph.ty(*a).strides == self.new.graph.ty(*b).strides,
            (a, b) => a.is_none() == b.is_none(),
        })
    }

    fn keep(&mut self, node: &Node, moved: Node) -> NodeId {
        let id = self.new.push(moved);
        for (i, old) in node.results.iter().enumerate() {
            if let (Some(old), Some(new)) = (old, self.new.graph.node(id).results[i]) {
                self.bind(*old, new);
            }
        }
        id
    }

    fn bind(&mut self, old: ValueId, new: ValueId) {
        self.new.bind(old, new);
        if self.owns[old.0 as usize] {
            self.owned.insert(new);
        }
    }

    /// An existing value equal to the node's result, or None; may rewrite the node to read further up a chain of views.
    fn fold(&self, p: PrimOp, node: &mut Node, ty: &TensorType) -> Option<ValueId> {
        let x = node.operand(0)?;
        let identity = self.new.graph.shape(x) == ty.shape && self.new.graph.dtype(x) == ty.dtype;
        match p {
            PrimOp::Reshape | PrimOp::Expand if identity => return self.unpromised(x, ty),
            PrimOp::Cast if identity => return self.unpromised(x, ty),
            PrimOp::Reshape => {
                if let Some(up) = self.operand_of(x, PrimOp::Reshape) {
                    node.args[0] = Arg::Value(up);
                    if self.new.graph.shape(up) == ty.shape {
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
                    let inner = self.new.graph.producer(x)?.ints_attr("perm");
                    let both: Vec<i64> = perm.iter().map(|p| inner[*p as usize]).collect();
                    node.args[0] = Arg::Value(up);
                    node.kwargs[0].1 = Arg::ints(both.iter().copied());
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
            PrimOp::Concat => {
                let d = node.dim_attr("dim");
                let full: Vec<ValueId> =
                    node.operands().into_iter().filter(|v| !self.new.graph.shape(*v)[d].is_const(0)).collect();
                if let [only] = full[..] {
                    return self.unpromised(only, ty);
                }
                if !full.is_empty() {
                    node.args = full.into_iter().map(Arg::Value).collect();
                }
            }
            _ => {}
        }
        None
    }

    /// `x`, unless the result was promised strides that `x` was not.
    fn unpromised(&self, x: ValueId, ty: &TensorType) -> Option<ValueId> {
        (ty.strides.is_none() || self.new.graph.ty(x).strides == ty.strides).then_some(x)
    }

    /// An output that becomes `x` gets what it was promised. (A view of an input has the input's layout anyway.)
    fn keeps_layout(&self, x: ValueId, ty: &TensorType) -> bool {
        let dense = |t: &TensorType| t.strides.clone().unwrap_or_else(|| contiguous_strides(&t.shape));
        self.new.graph.producer(x).is_none() || dense(self.new.graph.ty(x)) == dense(ty)
    }

    fn operand_of(&self, x: ValueId, p: PrimOp) -> Option<ValueId> {
        let n = self.new.graph.producer(x)?;
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
        (Arg::List(x), Arg::List(y)) => x.len() == y.len() && x.iter().zip(y.iter()).all(|(x, y)| same_arg(x, y)),
        _ => a == b,
    }
}
