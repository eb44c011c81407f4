//! What is legal in a graph.
//!
//! A verified graph has: distinct, printable names; every operand defined before its use; prims with exactly the
//! operands, attributes and result that their type rule gives; declared symbols with sane ranges; sizes that are not
//! negative; outputs that exist. Later stages rely on it and return a named error, never panic, on such a graph.
//! External operators have no type rule here: what PyTorch promised for their results is taken as written.

use crate::cursor::is_name_byte;
use crate::dim::Dim;
use crate::graph::{Arg, Def, Graph, GraphKind, Input, Node, NodeId, Op, Output, TensorType, ValueId};
use crate::hash::MixHash;
use crate::infer::infer;
use crate::parse::is_reserved;
use crate::prim::{PrimKind, PrimOp};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// The first thing that is wrong with a graph.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyError {
    /// Line in the graph's printed text (comments and blank lines of a file it came from do not count).
    pub line: usize,
    /// The statement on that line.
    pub statement: String,
    /// The operator, when the statement is a node.
    pub op: Option<String>,
    /// Line of the user's model, when the node has one.
    pub loc: Option<Arc<str>>,
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "graph line {}", self.line)?;
        if let Some(op) = &self.op {
            write!(f, ", {op}")?;
        }
        if let Some(loc) = &self.loc {
            write!(f, " at {loc}")?;
        }
        write!(f, ": {}\n  {}", self.message, self.statement)
    }
}

impl std::error::Error for VerifyError {}

/// Checks a whole graph, in time linear in its size.
pub fn verify(graph: &Graph) -> Result<(), VerifyError> {
    let mut v = Verifier {
        g: graph,
        symbols: HashSet::new(),
        names: HashSet::with_capacity_and_hasher(graph.value_count(), MixHash::default()),
        defined: vec![false; graph.value_count()],
    };
    v.symbols().and_then(|()| v.inputs()).map_err(|(place, m)| v.error(place, m))?;
    for (id, node) in graph.nodes() {
        v.node(id, node).map_err(|m| v.error(Place::Node(id), m))?;
    }
    v.outputs().map_err(|(place, m)| v.error(place, m))
}

/// A statement of the printed graph.
#[derive(Clone, Copy)]
enum Place {
    Header,
    Symbol(usize),
    Input(usize),
    Node(NodeId),
    Output(usize),
}

type Check = Result<(), String>;
type PlacedCheck = Result<(), (Place, String)>;

struct Verifier<'g> {
    g: &'g Graph,
    /// Declared size symbols.
    symbols: HashSet<&'g str>,
    names: HashSet<&'g str, MixHash>,
    /// By value: its definition has been passed.
    defined: Vec<bool>,
}

impl<'g> Verifier<'g> {
    fn symbols(&mut self) -> PlacedCheck {
        for (i, s) in self.g.symbols.iter().enumerate() {
            let fail = |m: String| Err((Place::Symbol(i), m));
            let legal = s.name.starts_with(|c: char| c.is_ascii_alphabetic())
                && s.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && !is_reserved(&s.name);
            if !legal {
                return fail(format!("`{}` cannot name a size symbol", s.name));
            }
            if !self.symbols.insert(&s.name) {
                return fail(format!("size symbol {} is declared twice", s.name));
            }
            if s.min > s.max {
                return fail(format!("the range of {} is empty", s.name));
            }
            if s.hint < s.min || s.hint > s.max {
                return fail(format!("the hint of {} lies outside of its range", s.name));
            }
        }
        Ok(())
    }

    fn inputs(&mut self) -> PlacedCheck {
        for (i, input) in self.g.inputs.iter().enumerate() {
            let checked = match input {
                Input::Int(d) => self.dim(d),
                Input::Tensor { value, .. } => self.define(*value, Def::Input(i as u32)),
            };
            checked.map_err(|m| (Place::Input(i), m))?;
        }
        Ok(())
    }

    fn outputs(&self) -> PlacedCheck {
        let g = self.g;
        for (i, output) in g.outputs.iter().enumerate() {
            let checked = match output {
                Output::Value(v) => self.operand(*v),
                Output::Int(d) => self.dim(d),
                Output::None => Ok(()),
            };
            checked.map_err(|m| (Place::Output(i), m))?;
        }
        if let GraphKind::Joint { forward_outputs } = g.kind
            && forward_outputs > g.outputs.len()
        {
            let m =
                format!("{forward_outputs} forward outputs are announced, the graph has {} outputs", g.outputs.len());
            return Err((Place::Header, m));
        }
        match self.defined.iter().position(|d| !d) {
            Some(v) => Err((Place::Header, format!("value number {v} belongs to no input and no node"))),
            None => Ok(()),
        }
    }

    fn node(&mut self, id: NodeId, node: &'g Node) -> Check {
        if let Op::External(name) = &node.op
            && !(name.contains('.') && name.bytes().all(is_name_byte) && !name.starts_with("prim."))
        {
            return Err(format!("`{name}` is not the name of an operator"));
        }
        for a in node.args.iter().chain(node.kwargs.iter().map(|(_, a)| a)) {
            self.arg(a)?;
        }
        for (i, (name, _)) in node.kwargs.iter().enumerate() {
            if node.kwargs[..i].iter().any(|(other, _)| other == name) {
                return Err(format!("keyword {name} is given twice"));
            }
        }
        for (i, v) in node.results.iter().enumerate() {
            if let Some(v) = v {
                self.define(*v, Def::Node(id, i as u32))?;
            }
        }
        match node.prim() {
            Some(p) => self.prim(p, node),
            None => Ok(()),
        }
    }

    /// A prim has tensor operands, the attributes of its signature and the result of its type rule.
    fn prim(&self, op: PrimOp, node: &Node) -> Check {
        let Some(operands) = node.args.iter().map(Arg::as_value).collect::<Option<Vec<_>>>() else {
            return Err(format!("a positional argument is not a tensor; the signature is {}", op.signature()));
        };
        if let Some((name, _)) = node.kwargs.iter().find(|(name, _)| !has_attribute(op, name)) {
            return Err(format!("unknown attribute {name}; the signature is {}", op.signature()));
        }
        let types: Vec<&TensorType> = operands.iter().map(|v| self.g.ty(*v)).collect();
        let inferred = infer(op, &types, &|name| node.kwarg(name).cloned())?;
        if op == PrimOp::Full && !matches!(node.kwarg("value"), Some(Arg::Int(_) | Arg::Float(_) | Arg::Bool(_))) {
            return Err("attribute value is not an int, a float or a bool".to_string());
        }
        let [Some(result)] = node.results.as_slice() else {
            return Err(format!("a prim has one result, this has {}", node.results.len()));
        };
        let ty = self.g.ty(*result);
        if (ty.dtype, &ty.shape) != (inferred.dtype, &inferred.shape) {
            let written = TensorType { strides: None, device: inferred.device, ..ty.clone() };
            return Err(format!("the result is {inferred}, not {written}"));
        }
        if op.kind() != PrimKind::Source && ty.device != inferred.device {
            return Err(format!("the result is on {}, not on {}", inferred.device, ty.device));
        }
        Ok(())
    }

    /// A value comes to be here; its record must agree.
    fn define(&mut self, v: ValueId, def: Def) -> Check {
        let Some(value) = self.g.get_value(v) else {
            return Err(format!("value number {} does not exist", v.0));
        };
        let defined = &mut self.defined[v.0 as usize];
        if *defined || value.def != def {
            return Err(format!("%{} is defined elsewhere", value.name));
        }
        *defined = true;
        if value.name.is_empty() || !value.name.bytes().all(is_name_byte) {
            return Err(format!("`{}` cannot name a value", value.name));
        }
        if !self.names.insert(&value.name) {
            return Err(format!("%{} is the name of another value too", value.name));
        }
        let ty = &value.ty;
        let strides = ty.strides.as_deref().unwrap_or(&[]);
        if ty.strides.is_some() && strides.len() != ty.shape.len() {
            return Err(format!("%{} has {} dims and {} strides", value.name, ty.shape.len(), strides.len()));
        }
        for d in ty.shape.iter().chain(strides) {
            self.dim(d)?;
            if d.as_const().is_some_and(|c| c < 0) {
                return Err(format!("%{} has a negative size or stride: {ty}", value.name));
            }
        }
        Ok(())
    }

    fn arg(&self, a: &Arg) -> Check {
        match a {
            Arg::Value(v) => self.operand(*v),
            Arg::Int(d) => self.dim(d),
            Arg::List(items) => items.iter().try_for_each(|a| self.arg(a)),
            _ => Ok(()),
        }
    }

    fn operand(&self, v: ValueId) -> Check {
        match (self.defined.get(v.0 as usize), self.g.get_value(v)) {
            (Some(true), _) => Ok(()),
            (_, Some(value)) => Err(format!("%{} is used before its definition", value.name)),
            _ => Err(format!("value number {} does not exist", v.0)),
        }
    }

    /// Every symbol of a size expression is declared.
    fn dim(&self, d: &Dim) -> Check {
        let mut symbols = Vec::new();
        d.collect_symbols(&mut symbols);
        match symbols.iter().find(|s| !self.symbols.contains(&***s)) {
            Some(s) => Err(format!("size symbol {s} is not declared (`symbol {s} hint=… range=[…]`)")),
            None => Ok(()),
        }
    }

    fn error(&self, place: Place, message: String) -> VerifyError {
        let g = self.g;
        let (symbols, inputs, nodes) = (g.symbols.len(), g.inputs.len(), g.node_count());
        let (line, statement) = match place {
            Place::Header => (1, g.header_text()),
            Place::Symbol(i) => (2 + i, g.symbols[i].to_string()),
            Place::Input(i) => (2 + symbols + i, g.input_text(i)),
            Place::Node(n) => (g.node_line(n), g.node_text(n)),
            Place::Output(i) => (2 + symbols + inputs + nodes + i, g.output_text(i)),
        };
        let node = match place {
            Place::Node(n) => Some(g.node(n)),
            _ => None,
        };
        let (op, loc) = (node.map(|n| n.op.name()), node.and_then(|n| n.loc.clone()));
        VerifyError { line, statement, op, loc, message }
    }
}

/// The signature's argument list has `name=`.
fn has_attribute(op: PrimOp, name: &str) -> bool {
    let arguments = op.signature().split(')').next().unwrap_or("");
    arguments.split([' ', '(', ',']).filter_map(|word| word.split_once('=')).any(|(attribute, _)| attribute == name)
}
