//! The graph: SSA nodes over tensor values, in execution order.

use crate::dim::{Dim, Symbol, SymbolValues};
use crate::dtype::{DType, Device};
use crate::hash::MixHash;
use crate::names::Names;
use crate::prim::PrimOp;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Handle of a value in its graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId(pub u32);

/// Handle of a node in its graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId(pub u32);

/// What a node does.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Op {
    /// An operator of PyTorch (or a library on it) with its overload: `aten.add.Tensor`.
    External(Arc<str>),
    /// One of ours.
    Prim(PrimOp),
}

impl Op {
    /// Name as the text form writes it.
    pub fn name(&self) -> String {
        self.to_string()
    }

    /// As [`Op::name`], shared.
    pub fn shared_name(&self) -> Arc<str> {
        match self {
            Op::External(n) => n.clone(),
            Op::Prim(p) => p.shared_name(),
        }
    }

    /// The external operator's full name, or None for a prim.
    pub fn external(&self) -> Option<&str> {
        match self {
            Op::External(n) => Some(n),
            Op::Prim(_) => None,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::External(n) => f.write_str(n),
            Op::Prim(p) => p.fmt(f),
        }
    }
}

/// An argument of a node. Integers are [`Dim`]s, so a symbolic one is nothing special.
#[derive(Clone, PartialEq, Debug)]
pub enum Arg {
    Value(ValueId),
    Int(Dim),
    Float(f64),
    Bool(bool),
    Str(Arc<str>),
    DType(DType),
    Device(Device),
    /// `torch.strided`, `torch.sparse_coo`, …
    Layout(Arc<str>),
    /// `torch.contiguous_format`, …
    MemoryFormat(Arc<str>),
    /// Shared between the graphs of one compile.
    List(Arc<[Arg]>),
    None,
}

impl Arg {
    pub fn as_value(&self) -> Option<ValueId> {
        match self {
            Arg::Value(v) => Some(*v),
            _ => None,
        }
    }

    pub fn as_dim(&self) -> Option<Dim> {
        match self {
            Arg::Int(d) => Some(d.clone()),
            Arg::Bool(b) => Some(Dim::Const(i64::from(*b))),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        self.as_dim().and_then(|d| d.as_const())
    }

    /// Numeric value of a static int, float or bool.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Arg::Float(x) => Some(*x),
            other => other.as_i64().map(|i| i as f64),
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Arg::Bool(b) => Some(*b),
            Arg::Int(Dim::Const(c)) => Some(*c != 0),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Arg]> {
        match self {
            Arg::List(items) => Some(items),
            _ => None,
        }
    }

    /// A list of integers (a lone integer counts as a list of one).
    pub fn as_dims(&self) -> Option<Vec<Dim>> {
        match self {
            Arg::List(items) => items.iter().map(Arg::as_dim).collect(),
            other => other.as_dim().map(|d| vec![d]),
        }
    }

    pub fn as_i64s(&self) -> Option<Vec<i64>> {
        self.as_dims()?.iter().map(Dim::as_const).collect()
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Arg::None)
    }

    /// Calls `f` on every value inside, lists included.
    pub fn for_each_value(&self, f: &mut impl FnMut(ValueId)) {
        match self {
            Arg::Value(v) => f(*v),
            Arg::List(items) => items.iter().for_each(|a| a.for_each_value(f)),
            _ => {}
        }
    }

    /// A value, or a list with one somewhere inside.
    pub fn has_values(&self) -> bool {
        match self {
            Arg::Value(_) => true,
            Arg::List(items) => items.iter().any(Arg::has_values),
            _ => false,
        }
    }

    /// The same argument with every value replaced.
    pub fn map_values<E>(&self, f: &mut impl FnMut(ValueId) -> Result<ValueId, E>) -> Result<Arg, E> {
        Ok(match self {
            Arg::Value(v) => Arg::Value(f(*v)?),
            Arg::List(items) if self.has_values() => {
                Arg::List(items.iter().map(|a| a.map_values(f)).collect::<Result<_, _>>()?)
            }
            other => other.clone(),
        })
    }

    /// A list of integer constants.
    pub fn ints(items: impl IntoIterator<Item = i64>) -> Arg {
        Arg::List(items.into_iter().map(|i| Arg::Int(Dim::Const(i))).collect())
    }

    /// A list of sizes.
    pub fn dims(items: &[Dim]) -> Arg {
        Arg::List(items.iter().cloned().map(Arg::Int).collect())
    }
}

/// Type of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Vec<Dim>,
    /// Element strides where they are promised (graph inputs, outputs, results of native operators); otherwise ours to choose.
    pub strides: Option<Vec<Dim>>,
    pub device: Device,
}

impl TensorType {
    pub fn new(dtype: DType, shape: Vec<Dim>) -> TensorType {
        TensorType { dtype, shape, strides: None, device: Device::Cpu }
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    pub fn numel(&self) -> Dim {
        Dim::product(&self.shape)
    }

    /// Bytes of a dense tensor of this type, if static.
    pub fn bytes(&self) -> Option<i64> {
        self.numel().as_const().map(|n| n * self.dtype.size() as i64)
    }
}

/// Row-major strides of a shape; a dim of size 0 counts as 1, as in PyTorch.
pub fn contiguous_strides(shape: &[Dim]) -> Vec<Dim> {
    let mut strides = vec![Dim::ONE; shape.len()];
    for i in (0..shape.len().saturating_sub(1)).rev() {
        let size = if shape[i + 1].is_const(0) { Dim::ONE } else { shape[i + 1].clone() };
        strides[i] = &strides[i + 1] * &size;
    }
    strides
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Def {
    /// Index into [`Graph::inputs`].
    Input(u32),
    /// Node and position among its results.
    Node(NodeId, u32),
}

/// A tensor value.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// Unique in the graph; printed after `%`.
    pub name: Arc<str>,
    /// One for all values of this type: a graph has thousands of values and a few dozen types.
    pub ty: Arc<TensorType>,
    pub def: Def,
}

/// An operation.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub op: Op,
    pub args: Vec<Arg>,
    pub kwargs: Vec<(Arc<str>, Arg)>,
    /// One entry a result of the operator; None where it returns nothing (an output mask bit that is off).
    pub results: Vec<Option<ValueId>>,
    /// Line of the user's model, for messages.
    pub loc: Option<Arc<str>>,
}

impl Node {
    /// Attributes of a prim, for the same prim elsewhere.
    pub fn attributes(&self) -> Vec<(&str, Arg)> {
        self.kwargs.iter().map(|(n, a)| (&**n, a.clone())).collect()
    }

    pub fn prim(&self) -> Option<PrimOp> {
        match self.op {
            Op::Prim(p) => Some(p),
            Op::External(_) => None,
        }
    }

    pub fn kwarg(&self, name: &str) -> Option<&Arg> {
        self.kwargs.iter().find(|(n, _)| &**n == name).map(|(_, a)| a)
    }

    /// Argument by position, or by name when given as keyword.
    pub fn arg(&self, position: usize, name: &str) -> Option<&Arg> {
        self.args.get(position).or_else(|| self.kwarg(name))
    }

    /// Tensor operand by position.
    pub fn operand(&self, position: usize) -> Option<ValueId> {
        self.args.get(position).and_then(Arg::as_value)
    }

    /// Attribute `name` as sizes; empty when absent (the verifier makes sure prims have theirs).
    pub fn dims_attr(&self, name: &str) -> Vec<Dim> {
        self.kwarg(name).and_then(Arg::as_dims).unwrap_or_default()
    }

    /// Attribute `name` as static integers.
    pub fn ints_attr(&self, name: &str) -> Vec<i64> {
        self.kwarg(name).and_then(Arg::as_i64s).unwrap_or_default()
    }

    /// Attribute `name` as a dim index.
    pub fn dim_attr(&self, name: &str) -> usize {
        self.kwarg(name).and_then(Arg::as_i64).unwrap_or(0) as usize
    }

    /// Every tensor value among the arguments, in order, with repeats.
    pub fn operands(&self) -> Vec<ValueId> {
        let mut out = Vec::with_capacity(self.args.len());
        self.for_each_operand(|v| out.push(v));
        out
    }

    /// As [`Node::operands`], without a list of them.
    pub fn for_each_operand(&self, mut f: impl FnMut(ValueId)) {
        for a in self.args.iter().chain(self.kwargs.iter().map(|(_, a)| a)) {
            a.for_each_value(&mut f);
        }
    }

    /// The only result of a prim (or of any operator with one result).
    pub fn result(&self) -> Option<ValueId> {
        self.results.first().copied().flatten()
    }
}

/// What an input is to the training step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Parameter, buffer or user input; also a value saved by the forward graph.
    Primal,
    /// Gradient coming in.
    Tangent,
}

/// A graph input, in calling order.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    Tensor {
        value: ValueId,
        role: Role,
    },
    /// An integer argument that binds a symbol (or must equal an expression of others).
    Int(Dim),
}

/// A graph output, in returning order.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    Value(ValueId),
    Int(Dim),
    None,
}

/// What the graph is a trace of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GraphKind {
    /// Forward and backward together; the first `forward_outputs` outputs are the forward's.
    Joint {
        forward_outputs: usize,
    },
    Forward,
    Backward,
    Inference,
}

/// A size symbol with what is known of it.
#[derive(Clone, PartialEq, Debug)]
pub struct SymbolInfo {
    pub name: Symbol,
    /// A value it had when traced; for estimates only.
    pub hint: i64,
    pub min: i64,
    pub max: i64,
}

/// The values that size symbols had when traced.
pub fn hints(symbols: &[SymbolInfo]) -> SymbolValues {
    symbols.iter().map(|s| (s.name.clone(), s.hint)).collect()
}

/// A whole graph.
#[derive(Clone, Debug)]
pub struct Graph {
    pub name: Arc<str>,
    pub kind: GraphKind,
    pub symbols: Vec<SymbolInfo>,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    values: Vec<Value>,
    nodes: Vec<Node>,
    names: Names,
    /// Types of values made here, asked for membership only.
    types: HashSet<Arc<TensorType>, MixHash>,
}

/// How large a graph was, to go back to: see [`Graph::rollback`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    values: usize,
    nodes: usize,
}

impl PartialEq for Graph {
    fn eq(&self, other: &Graph) -> bool {
        (&self.name, self.kind, &self.symbols) == (&other.name, other.kind, &other.symbols)
            && (&self.inputs, &self.outputs) == (&other.inputs, &other.outputs)
            && (&self.values, &self.nodes) == (&other.values, &other.nodes)
    }
}

impl Graph {
    pub fn new(name: &str, kind: GraphKind) -> Graph {
        Graph {
            name: name.into(),
            kind,
            symbols: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            values: Vec::new(),
            nodes: Vec::new(),
            names: Names::default(),
            types: HashSet::default(),
        }
    }

    /// Makes room for a graph of that size.
    pub(crate) fn reserve(&mut self, values: usize, nodes: usize) {
        self.values.reserve(values);
        self.nodes.reserve(nodes);
    }

    pub fn value(&self, v: ValueId) -> &Value {
        &self.values[v.0 as usize]
    }

    /// As [`Graph::value`], or None for a handle that is not of this graph.
    pub fn get_value(&self, v: ValueId) -> Option<&Value> {
        self.values.get(v.0 as usize)
    }

    /// For changing a type; for a name use [`Graph::rename`], which keeps names unique.
    pub fn value_mut(&mut self, v: ValueId) -> &mut Value {
        &mut self.values[v.0 as usize]
    }

    pub fn ty(&self, v: ValueId) -> &TensorType {
        &self.value(v).ty
    }

    /// The type as values share it.
    pub fn shared_ty(&self, v: ValueId) -> Arc<TensorType> {
        self.value(v).ty.clone()
    }

    /// The shared form of a type.
    pub fn share(&mut self, ty: TensorType) -> Arc<TensorType> {
        if let Some(known) = self.types.get(&ty) {
            return known.clone();
        }
        let ty = Arc::new(ty);
        self.types.insert(ty.clone());
        ty
    }

    /// Promises strides for a value, or takes the promise back.
    pub fn set_strides(&mut self, v: ValueId, strides: Option<Vec<Dim>>) {
        let ty = self.share(TensorType { strides, ..self.ty(v).clone() });
        self.values[v.0 as usize].ty = ty;
    }

    pub fn shape(&self, v: ValueId) -> &[Dim] {
        &self.value(v).ty.shape
    }

    pub fn dtype(&self, v: ValueId) -> DType {
        self.value(v).ty.dtype
    }

    pub fn node(&self, n: NodeId) -> &Node {
        &self.nodes[n.0 as usize]
    }

    pub fn node_mut(&mut self, n: NodeId) -> &mut Node {
        &mut self.nodes[n.0 as usize]
    }

    /// Nodes in execution order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> + DoubleEndedIterator {
        self.nodes.iter().enumerate().map(|(i, n)| (NodeId(i as u32), n))
    }

    pub fn values(&self) -> impl ExactSizeIterator<Item = (ValueId, &Value)> {
        self.values.iter().enumerate().map(|(i, v)| (ValueId(i as u32), v))
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// The node that makes a value, or None for an input.
    pub fn producer(&self, v: ValueId) -> Option<&Node> {
        match self.value(v).def {
            Def::Node(n, _) => Some(self.node(n)),
            Def::Input(_) => None,
        }
    }

    /// Adds an input tensor. A name already taken gets a number appended.
    pub fn add_input(&mut self, name: &str, ty: impl Into<Arc<TensorType>>, role: Role) -> ValueId {
        let name = self.names.unique_of_next(&self.values, name.into());
        self.push_input(name, ty.into(), role)
    }

    /// As [`Graph::add_input`], by a name that is known to be free.
    pub(crate) fn push_input(&mut self, name: Arc<str>, ty: Arc<TensorType>, role: Role) -> ValueId {
        let value = ValueId(self.values.len() as u32);
        self.values.push(Value { name, ty, def: Def::Input(self.inputs.len() as u32) });
        self.inputs.push(Input::Tensor { value, role });
        value
    }

    /// Adds an integer input.
    pub fn add_int_input(&mut self, dim: Dim) {
        self.inputs.push(Input::Int(dim));
    }

    /// Appends a node. `results` gives name and type of each result, None where the operator returns nothing.
    /// An empty name gets one made from the value's number; a name already taken gets a number appended.
    pub fn add_node<T: Into<Arc<TensorType>>>(
        &mut self,
        op: Op,
        args: Vec<Arg>,
        kwargs: Vec<(Arc<str>, Arg)>,
        results: Vec<Option<(Arc<str>, T)>>,
        loc: Option<Arc<str>>,
    ) -> NodeId {
        let mut ids = Vec::with_capacity(results.len());
        for (i, r) in results.into_iter().enumerate() {
            ids.push(r.map(|(name, ty)| {
                let name = self.names.unique_of_next(&self.values, name);
                self.push_result(i, name, ty.into())
            }));
        }
        self.push_node(Node { op, args, kwargs, results: ids, loc })
    }

    /// A result of the node that is appended next, by a name that is known to be free.
    pub(crate) fn push_result(&mut self, position: usize, name: Arc<str>, ty: Arc<TensorType>) -> ValueId {
        let v = ValueId(self.values.len() as u32);
        let def = Def::Node(NodeId(self.nodes.len() as u32), position as u32);
        self.values.push(Value { name, ty, def });
        v
    }

    /// Appends a node whose results are there already.
    pub(crate) fn push_node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Gives a value another name; one already taken gets a number appended.
    pub fn rename(&mut self, v: ValueId, name: &str) {
        if *self.value(v).name != *name {
            let name = self.names.unique(&self.values, name.into());
            self.values[v.0 as usize].name = name;
        }
    }

    /// Names that no value gets from now on, unless it is a copy of the value that has it in `of`.
    pub(crate) fn reserve_names(&mut self, of: &Graph) {
        self.names.reserve(of.values.iter());
    }

    /// Gives up the tables of names and types: a graph that is done rarely grows again, and then they are made anew.
    pub(crate) fn forget_tables(&mut self) {
        self.names = Names::default();
        self.types = HashSet::default();
    }

    /// The name that the next value would get.
    pub(crate) fn free_name(&mut self, wanted: Arc<str>) -> Arc<str> {
        self.names.unique_of_next(&self.values, wanted)
    }

    /// Where the graph ends now.
    pub fn mark(&self) -> Mark {
        Mark { values: self.values.len(), nodes: self.nodes.len() }
    }

    /// Takes away the nodes appended since; inputs may not have been.
    pub fn rollback(&mut self, to: Mark) {
        self.names.forget(&self.values, to.values);
        self.values.truncate(to.values);
        self.nodes.truncate(to.nodes);
    }

    /// How often each value is read, outputs counted.
    pub fn use_counts(&self) -> Vec<u32> {
        let mut uses = vec![0u32; self.values.len()];
        for n in &self.nodes {
            n.for_each_operand(|v| uses[v.0 as usize] += 1);
        }
        for o in &self.outputs {
            if let Output::Value(v) = o {
                uses[v.0 as usize] += 1;
            }
        }
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_unique_whoever_comes_first() {
        let ty = TensorType::new(DType::F32, vec![]);
        let mut g = Graph::new("t", GraphKind::Inference);
        let a = g.add_input("v1", ty.clone(), Role::Primal);
        let made =
            g.add_node(Op::Prim(PrimOp::Exp), vec![Arg::Value(a)], vec![], vec![Some(("".into(), ty.clone()))], None);
        let given = g.add_node(
            Op::Prim(PrimOp::Exp),
            vec![Arg::Value(a)],
            vec![],
            vec![Some(("v1_1".into(), ty.clone()))],
            None,
        );
        let again = g.add_input("v1", ty, Role::Primal);
        let names: Vec<&str> = g.values().map(|(_, v)| &*v.name).collect();
        let distinct: HashSet<&str> = names.iter().copied().collect();
        assert_eq!(distinct.len(), 4, "{names:?}");
        assert_eq!(&*g.value(a).name, "v1");
        assert!(g.node(made).result() < g.node(given).result());
        assert_ne!(&*g.value(again).name, "v1");
    }
}
