//! One call of an operator cut out of its graph, for whoever times the operator's routes.

use permalloy_ir::{
    Arg, DType, Def, Dim, Graph, GraphKind, Node, Op, Output, PrimKind, PrimOp, Role, SymbolValues, TensorType, ValueId,
};
use permalloy_ops::policy::Route;
use permalloy_ops::{Cost, Effect, OpDecl, index_bound};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Picks among the routes of an operator by measurement.
pub trait Tuner: fmt::Debug + Send + Sync {
    /// The route for a call, or None to leave it to the policy.
    fn choose(&self, call: &IsolatedCall) -> Option<Measured>;
}

/// A decision by measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    pub route: Route,
    /// What was measured, for the record.
    pub detail: String,
}

/// A call of an operator, alone in a graph of static sizes (symbols have their hints).
///
/// An operand that a pointwise operator makes, and nothing else reads, comes from one pointwise prim there, and a result
/// that only fusable operators read goes into one: what a rule makes fuses with its neighbours, and PyTorch's kernel does not.
#[derive(Clone, Debug)]
pub struct IsolatedCall {
    pub op: &'static OpDecl,
    /// Names in it come from positions, so that equal calls are equal graphs.
    pub graph: Graph,
    /// For each input, what its integers are less than; None for other dtypes.
    pub bounds: Vec<Option<i64>>,
    /// The route by the policy: `native` or `decompose:RULE`.
    pub default: String,
}

/// Routes that an operator can be given: `native` and each rule.
///
/// None for an operator that is not timed: one with a single route, one that does more than give its results, or one whose
/// cost is that of the memory it touches, since alone it tells nothing of a kernel that it is a part of.
pub fn routes_to_time(op: &OpDecl) -> Option<Vec<String>> {
    let timed = matches!(op.cost, Cost::Reduction | Cost::Indexing | Cost::Compute | Cost::Opaque);
    let rules = op.rules.iter().map(|r| format!("decompose:{}", r.name));
    let routes: Vec<String> = op.native.then(|| "native".to_string()).into_iter().chain(rules).collect();
    (timed && op.effect == Effect::Pure && routes.len() > 1).then_some(routes)
}

/// Every call of a graph that could be timed, with the first of its routes as default.
pub fn isolated_calls(graph: &Graph) -> Vec<IsolatedCall> {
    let readers = Readers::of(graph);
    let one = |node: &Node| {
        let op = permalloy_ops::lookup(node.op.external()?)?;
        readers.isolate(node, op, routes_to_time(op)?.into_iter().next()?)
    };
    graph.nodes().filter_map(|(_, n)| one(n)).collect()
}

/// Who reads each value of a graph.
#[derive(Debug)]
pub struct Readers<'g> {
    graph: &'g Graph,
    hints: SymbolValues,
    /// Nodes by position, once for each time they read.
    nodes: Vec<Vec<u32>>,
    returned: Vec<bool>,
}

impl<'g> Readers<'g> {
    pub fn of(graph: &'g Graph) -> Readers<'g> {
        let mut nodes = vec![Vec::new(); graph.value_count()];
        for (id, node) in graph.nodes() {
            node.for_each_operand(|v| nodes[v.0 as usize].push(id.0));
        }
        let mut returned = vec![false; graph.value_count()];
        permalloy_ir::output_values(&graph.outputs).for_each(|v| returned[v.0 as usize] = true);
        Readers { graph, hints: permalloy_ir::hints(&graph.symbols), nodes, returned }
    }

    /// The call alone; None where arguments for it cannot be made up.
    pub fn isolate(&self, node: &Node, op: &'static OpDecl, default: String) -> Option<IsolatedCall> {
        let mut made = Making {
            readers: self,
            node,
            graph: Graph::new("call", GraphKind::Inference),
            bounds: vec![],
            known: BTreeMap::new(),
        };
        let args = (node.args.iter().enumerate())
            .map(|(position, a)| made.argument(a, Some(position), None))
            .collect::<Option<Vec<_>>>()?;
        let kwargs = (node.kwargs.iter())
            .map(|(name, a)| Some((name.clone(), made.argument(a, None, None)?)))
            .collect::<Option<Vec<_>>>()?;
        let results = node.results.iter().enumerate().map(|(i, r)| match r {
            None => Some(None),
            Some(v) => Some(Some((Arc::from(format!("r{i}")), self.static_type(*v)?))),
        });
        let results = results.collect::<Option<Vec<Option<(Arc<str>, TensorType)>>>>()?;
        let (mut graph, bounds) = (made.graph, made.bounds);
        let id = graph.add_node(node.op.clone(), args, kwargs, results, None);
        for (old, new) in node.results.iter().zip(graph.node(id).results.clone()) {
            let (Some(old), Some(new)) = (old, new) else { continue };
            if !self.is_read(*old) {
                continue;
            }
            let fuses = graph.dtype(new).is_float() && self.is_read_fused(*old);
            let shown = if fuses { pointwise(&mut graph, new, "s") } else { new };
            graph.outputs.push(Output::Value(shown));
        }
        let same_device = graph.values().all(|(_, v)| v.ty.device == graph.ty(ValueId(0)).device);
        let whole = !graph.outputs.is_empty() && !bounds.is_empty() && same_device;
        whole.then_some(IsolatedCall { op, graph, bounds, default })
    }

    fn size(&self, d: &Dim) -> Option<i64> {
        d.eval(&self.hints).ok()
    }

    fn static_type(&self, v: ValueId) -> Option<TensorType> {
        let ty = self.graph.ty(v);
        let all = |dims: &[Dim]| dims.iter().map(|d| self.size(d).map(Dim::from)).collect::<Option<Vec<_>>>();
        let strides = match &ty.strides {
            Some(strides) => Some(all(strides)?),
            None => None,
        };
        Some(TensorType { dtype: ty.dtype, shape: all(&ty.shape)?, strides, device: ty.device })
    }

    fn is_read(&self, v: ValueId) -> bool {
        self.returned[v.0 as usize] || !self.nodes[v.0 as usize].is_empty()
    }

    fn readers(&self, v: ValueId) -> impl Iterator<Item = &'g Node> {
        self.nodes[v.0 as usize].iter().map(|n| self.graph.node(permalloy_ir::NodeId(*n)))
    }

    /// All that reads it fuses, be it through views.
    fn is_read_fused(&self, v: ValueId) -> bool {
        let through = |n: &Node| match place(n) {
            Place::View => n.result().is_some_and(|r| self.is_read_fused(r)),
            Place::Pointwise | Place::Reading => true,
            Place::Other => false,
        };
        !self.returned[v.0 as usize] && self.readers(v).all(through)
    }

    /// It, or what it is a view of, is made by a pointwise operator for this one reader.
    fn is_made_fused(&self, v: ValueId) -> bool {
        if self.returned[v.0 as usize] || self.nodes[v.0 as usize].len() > 1 {
            return false;
        }
        let Def::Node(n, _) = self.graph.value(v).def else { return false };
        let node = self.graph.node(n);
        match place(node) {
            Place::View => node.operand(0).is_some_and(|x| self.is_made_fused(x)),
            place => place == Place::Pointwise,
        }
    }
}

/// How a node takes part in fusion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    View,
    Pointwise,
    /// Takes a computed operand, as a reduction and a gather do; what it makes is read from memory.
    Reading,
    Other,
}

fn place(node: &Node) -> Place {
    match &node.op {
        Op::Prim(p) => match p.kind() {
            PrimKind::Unary | PrimKind::Binary | PrimKind::Compare | PrimKind::Select => Place::Pointwise,
            PrimKind::Reduce | PrimKind::Index => Place::Reading,
            PrimKind::View => Place::View,
            PrimKind::Source | PrimKind::Scan => Place::Other,
        },
        Op::External(name) => match permalloy_ops::lookup(name) {
            Some(d) if d.cost == Cost::View => Place::View,
            Some(d) if d.rules.is_empty() => Place::Other,
            Some(d) if d.cost == Cost::Pointwise => Place::Pointwise,
            Some(d) if matches!(d.cost, Cost::Reduction | Cost::Indexing) => Place::Reading,
            _ => Place::Other,
        },
    }
}

/// `|x|`, which costs next to nothing.
fn pointwise(graph: &mut Graph, x: ValueId, name: &str) -> ValueId {
    let ty = TensorType { strides: None, ..graph.ty(x).clone() };
    let id = graph.add_node(Op::Prim(PrimOp::Abs), vec![Arg::Value(x)], vec![], vec![Some((name.into(), ty))], None);
    graph.node(id).result().unwrap_or(x)
}

/// A call's graph up to the call.
struct Making<'r, 'g> {
    readers: &'r Readers<'g>,
    node: &'r Node,
    graph: Graph,
    bounds: Vec<Option<i64>>,
    /// What stands for each operand.
    known: BTreeMap<ValueId, ValueId>,
}

impl Making<'_, '_> {
    fn argument(&mut self, arg: &Arg, position: Option<usize>, entry: Option<usize>) -> Option<Arg> {
        Some(match arg {
            Arg::Value(v) => Arg::Value(self.operand(*v, position, entry)?),
            Arg::Int(d) => Arg::Int(Dim::from(self.readers.size(d)?)),
            Arg::List(items) => Arg::List(
                (items.iter().enumerate())
                    .map(|(i, a)| self.argument(a, position, Some(i)))
                    .collect::<Option<Vec<_>>>()?
                    .into(),
            ),
            other => other.clone(),
        })
    }

    fn operand(&mut self, old: ValueId, position: Option<usize>, entry: Option<usize>) -> Option<ValueId> {
        if let Some(new) = self.known.get(&old) {
            return Some(*new);
        }
        let ty = self.readers.static_type(old)?;
        let bound = match ty.dtype {
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 => None,
            DType::I64 | DType::I32 => {
                let bound = index_bound(self.readers.graph, self.node, position?, entry)?;
                Some(self.readers.size(&bound).filter(|b| *b > 0)?)
            }
            // Which elements a mask selects may decide the sizes.
            DType::Bool if entry.is_none() => None,
            _ => return None,
        };
        let fuses = ty.dtype.is_float() && self.readers.is_made_fused(old);
        let input = self.graph.add_input(&format!("a{}", self.bounds.len()), ty, Role::Primal);
        self.bounds.push(bound);
        let new = if fuses { pointwise(&mut self.graph, input, "p") } else { input };
        self.known.insert(old, new);
        Some(new)
    }
}
