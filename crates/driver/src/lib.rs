//! The compile pipeline in one place: text to routed graph to partition to loop IR, with records and timing.
//!
//! Front ends (the command, the Python module, tests) call this and nothing below it.

pub mod report;

use permalloy_ir::{Graph, GraphKind, ParseError, TensorType, contiguous_strides, shape_text};
use permalloy_loops::kernel::Program;
use permalloy_loops::{Limits, LowerError};
use permalloy_ops::policy::{Entry, Policy};
use permalloy_passes::{Partition, PartitionError, Record, RouteOptions, Timing, partition, route, simplify};
use std::collections::BTreeMap;
use std::fmt;

/// What the user may decide.
#[derive(Clone, Debug)]
pub struct Options {
    /// `cpu`, …: names the policy table.
    pub target: String,
    /// Operator pattern and route, `native` or `decompose[:RULE]`; the last match wins.
    pub routes: Vec<(String, String)>,
    /// Verify the graph after every pass.
    pub check: bool,
    /// How far fusion may go; that of the device.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Options {
        Options { target: "cpu".to_string(), routes: Vec::new(), check: false, limits: Limits::CPU }
    }
}

/// Why there is no program.
#[derive(Clone, Debug)]
pub enum Error {
    /// The text is no graph.
    Parse(ParseError),
    /// The options name something that does not exist.
    Options(String),
    /// A graph broke a rule; `stage` is the pass that made it (`input` for the caller's own).
    Verify {
        stage: &'static str,
        message: String,
    },
    Partition(PartitionError),
    Lower(LowerError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Parse(e) => write!(f, "{e}"),
            Error::Options(e) => f.write_str(e),
            Error::Verify { stage, message } => write!(f, "after {stage}: {message}"),
            Error::Partition(e) => write!(f, "partition: {e}"),
            Error::Lower(e) => write!(f, "lowering: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// A graph on its way down, with what was decided.
#[derive(Clone, Debug)]
pub struct Compiled {
    pub program: Program,
    pub records: Vec<Record>,
    pub timing: Timing,
}

/// A joint graph on its way down.
#[derive(Clone, Debug)]
pub struct CompiledJoint {
    pub forward: Program,
    pub backward: Program,
    pub cut: Partition,
    pub saved: Vec<Saved>,
    pub records: Vec<Record>,
    pub timing: Timing,
}

/// A value that the forward keeps for the backward.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saved {
    pub name: String,
    /// Its type in the text form; None when the given graph has a value of this name, shape and layout.
    pub ty: Option<String>,
}

/// Compiles a forward, backward or inference graph.
pub fn compile_graph(text: &str, options: &Options) -> Result<Compiled, Error> {
    let mut timing = Timing::default();
    let (graph, records) = front(text, options, &mut timing)?;
    if matches!(graph.kind, GraphKind::Joint { .. }) {
        return Err(Error::Options("a joint graph is compiled by compile_joint".to_string()));
    }
    let program = lower(&graph, options, &mut timing)?;
    Ok(Compiled { program, records, timing })
}

/// Compiles a joint graph, cut included.
pub fn compile_joint(text: &str, options: &Options) -> Result<CompiledJoint, Error> {
    let mut timing = Timing::default();
    let (given, graph, records) = front_with_input(text, options, &mut timing)?;
    let types: BTreeMap<&str, &TensorType> = given.values().map(|(_, v)| (&*v.name, &v.ty)).collect();
    // PyTorch must be told the type of what is saved: one with symbolic sizes can only be pointed at.
    let known = |name: &str| types.contains_key(name);
    let mut cut = timing.pass("partition", || partition(&graph, &known)).map_err(Error::Partition)?;
    let saved = cut.saved.iter().map(|(name, ty)| saved(name, ty, types.get(&**name).copied())).collect();
    cut.forward = timing.pass("simplify", || simplify(&cut.forward));
    cut.backward = timing.pass("simplify", || simplify(&cut.backward));
    for g in [&cut.forward, &cut.backward] {
        check("partition", g, options, &mut timing)?;
    }
    let forward = lower(&cut.forward, options, &mut timing)?;
    let backward = lower(&cut.backward, options, &mut timing)?;
    Ok(CompiledJoint { forward, backward, cut, saved, records, timing })
}

/// The programs of a graph: forward and backward of a joint one.
pub fn programs(text: &str, options: &Options) -> Result<Vec<Program>, Error> {
    let graph = Graph::parse(text).map_err(Error::Parse)?;
    if matches!(graph.kind, GraphKind::Joint { .. }) {
        return compile_joint(text, options).map(|c| vec![c.forward, c.backward]);
    }
    compile_graph(text, options).map(|c| vec![c.program])
}

fn saved(name: &str, ty: &TensorType, given: Option<&TensorType>) -> Saved {
    let dense = |t: &TensorType| t.strides.clone().unwrap_or_else(|| contiguous_strides(&t.shape));
    let same = given.is_some_and(|g| g.dtype == ty.dtype && g.shape == ty.shape && dense(g) == dense(ty));
    let text = || format!("{}{} strides={} @{}", ty.dtype, shape_text(&ty.shape), shape_text(&dense(ty)), ty.device);
    Saved { name: name.to_string(), ty: (!same).then(text) }
}

/// Text to a routed, clean graph.
pub fn front(text: &str, options: &Options, timing: &mut Timing) -> Result<(Graph, Vec<Record>), Error> {
    front_with_input(text, options, timing).map(|(_, graph, records)| (graph, records))
}

fn front_with_input(text: &str, options: &Options, timing: &mut Timing) -> Result<(Graph, Graph, Vec<Record>), Error> {
    let policy = Policy::of(&options.target).ok_or_else(|| {
        let known = permalloy_ops::policy::TARGETS.join(", ");
        Error::Options(format!("no policy for target {}; targets: {known}", options.target))
    })?;
    let overrides: Vec<Entry> = permalloy_passes::parse_overrides(&options.routes).map_err(Error::Options)?;
    let given = timing.pass("parse", || Graph::parse(text)).map_err(Error::Parse)?;
    timing
        .pass("verify", || permalloy_ir::verify(&given))
        .map_err(|e| Error::Verify { stage: "input", message: e.to_string() })?;
    let routed = timing.pass("route", || route(&given, &RouteOptions { policy, overrides }));
    check("route", &routed.graph, options, timing)?;
    let graph = timing.pass("simplify", || simplify(&routed.graph));
    check("simplify", &graph, options, timing)?;
    Ok((given, graph, routed.records))
}

fn check(stage: &'static str, graph: &Graph, options: &Options, timing: &mut Timing) -> Result<(), Error> {
    if !options.check {
        return Ok(());
    }
    timing.pass("verify", || permalloy_ir::verify(graph)).map_err(|e| Error::Verify { stage, message: e.to_string() })
}

fn lower(graph: &Graph, options: &Options, timing: &mut Timing) -> Result<Program, Error> {
    timing.pass("lower", || permalloy_loops::lower(graph, options.limits)).map_err(Error::Lower)
}
