//! Prints a graph in its text form; [`Graph::parse`] reads it back.
//!
//! One statement a line, in the order symbols, inputs, nodes, outputs, so that the line of a node follows from its
//! position alone. Printing never fails, on a graph the verifier rejects either: an error message shows such lines.

use crate::dim::Dim;
use crate::graph::{Arg, Graph, GraphKind, Input, Node, NodeId, Output, Role, SymbolInfo, TensorType, ValueId};
use std::fmt::{self, Display, Formatter, Write};

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {{", self.header_text())?;
        for s in &self.symbols {
            writeln!(f, "  {s}")?;
        }
        for i in 0..self.inputs.len() {
            writeln!(f, "  {}", self.input_text(i))?;
        }
        for (_, n) in self.nodes() {
            f.write_str("  ")?;
            write_node(f, self, n)?;
            f.write_char('\n')?;
        }
        for i in 0..self.outputs.len() {
            writeln!(f, "  {}", self.output_text(i))?;
        }
        f.write_str("}\n")
    }
}

impl Graph {
    /// The statement of a node, as the text form writes it.
    pub fn node_text(&self, n: NodeId) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = write_node(&mut out, self, self.node(n));
        out
    }

    /// The line of a node in the printed graph, counted from 1.
    pub fn node_line(&self, n: NodeId) -> usize {
        2 + self.symbols.len() + self.inputs.len() + n.0 as usize
    }

    pub(crate) fn header_text(&self) -> String {
        let name = quote(&self.name);
        match self.kind {
            GraphKind::Joint { forward_outputs } => format!("graph {name} joint(forward_outputs={forward_outputs})"),
            GraphKind::Forward => format!("graph {name} forward"),
            GraphKind::Backward => format!("graph {name} backward"),
            GraphKind::Inference => format!("graph {name} inference"),
        }
    }

    pub(crate) fn input_text(&self, i: usize) -> String {
        match &self.inputs[i] {
            Input::Int(d) => format!("input {d}"),
            Input::Tensor { value, role } => {
                let role = if *role == Role::Tangent { " role=tangent" } else { "" };
                format!("input {}{role}", Typed(self, *value))
            }
        }
    }

    pub(crate) fn output_text(&self, i: usize) -> String {
        match &self.outputs[i] {
            Output::Value(v) => format!("output {}", Named(self, *v)),
            Output::Int(d) => format!("output {d}"),
            Output::None => "output none".to_string(),
        }
    }
}

/// A number that reads back as the same bits (the payload of a NaN aside).
pub fn float_text(x: f64) -> String {
    if x.is_nan() { "nan".to_string() } else { format!("{x:?}") }
}

/// A string in double quotes, escaped as JSON does.
pub fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl Display for TensorType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        write_list(f, &self.shape)?;
        f.write_char(']')?;
        if let Some(strides) = &self.strides {
            f.write_str(" strides=[")?;
            write_list(f, strides)?;
            f.write_char(']')?;
        }
        if self.device != Default::default() {
            write!(f, " @{}", self.device)?;
        }
        Ok(())
    }
}

impl Display for SymbolInfo {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bound = |b: i64| match b {
            i64::MAX => "inf".to_string(),
            i64::MIN => "-inf".to_string(),
            b => b.to_string(),
        };
        write!(f, "symbol {} hint={} range=[{}, {}]", self.name, self.hint, bound(self.min), bound(self.max))
    }
}

/// `%name`.
struct Named<'g>(&'g Graph, ValueId);

impl Display for Named<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.get_value(self.1) {
            Some(v) => write!(f, "%{}", v.name),
            None => write!(f, "%?{}", self.1.0),
        }
    }
}

/// `%name: type`.
struct Typed<'g>(&'g Graph, ValueId);

impl Display for Typed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Named(self.0, self.1).fmt(f)?;
        match self.0.get_value(self.1) {
            Some(v) => write!(f, ": {}", v.ty),
            None => f.write_str(": ?"),
        }
    }
}

fn write_node(f: &mut impl Write, g: &Graph, n: &Node) -> fmt::Result {
    for (i, r) in n.results.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        match r {
            Some(v) => write!(f, "{}", Typed(g, *v))?,
            None => f.write_char('_')?,
        }
    }
    f.write_str(if n.results.is_empty() { "" } else { " = " })?;
    write!(f, "{}(", n.op)?;
    let mut first = true;
    for a in &n.args {
        f.write_str(if first { "" } else { ", " })?;
        write_arg(f, g, a)?;
        first = false;
    }
    for (name, a) in &n.kwargs {
        f.write_str(if first { "" } else { ", " })?;
        write!(f, "{name}=")?;
        write_arg(f, g, a)?;
        first = false;
    }
    f.write_char(')')?;
    match &n.loc {
        Some(loc) => write!(f, " loc={}", quote(loc)),
        None => Ok(()),
    }
}

fn write_arg(f: &mut impl Write, g: &Graph, a: &Arg) -> fmt::Result {
    match a {
        Arg::Value(v) => write!(f, "{}", Named(g, *v)),
        Arg::Int(d) => write!(f, "{d}"),
        Arg::Float(x) => f.write_str(&float_text(*x)),
        Arg::Bool(b) => write!(f, "{b}"),
        Arg::Str(s) => f.write_str(&quote(s)),
        Arg::DType(d) => write!(f, "{d}"),
        Arg::Device(d) => write!(f, "@{d}"),
        Arg::Layout(l) => write!(f, "layout:{l}"),
        Arg::MemoryFormat(m) => write!(f, "memory_format:{m}"),
        Arg::None => f.write_str("none"),
        Arg::List(items) => {
            f.write_char('[')?;
            for (i, a) in items.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { ", " })?;
                write_arg(f, g, a)?;
            }
            f.write_char(']')
        }
    }
}

fn write_list(f: &mut Formatter<'_>, dims: &[Dim]) -> fmt::Result {
    for (i, d) in dims.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        d.fmt(f)?;
    }
    Ok(())
}
