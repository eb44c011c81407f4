//! The compile pipeline in one place: text to routed graph to partition to loop IR, with records and timing.
//!
//! Front ends (the command, the Python module, tests) call this and nothing below it.

pub mod cost;
mod forbid;
pub mod report;

pub use forbid::{Deny, Forbidden};

use permalloy_ir::{Graph, GraphKind, MixHash, ParseError, TensorType, contiguous_strides, shape_text};
use permalloy_loops::kernel::Program;
use permalloy_loops::{Limits, LowerError};
use permalloy_ops::policy::Policy;
use permalloy_passes::{
    Chunks, Partition, PartitionError, Record, RewriteOptions, RouteOptions, Routed, Timing, Tuner, algebra, held,
    merge_records, partition, rewrite, rewrites_apply, route, simplify,
};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// What the user may decide.
#[derive(Clone, Debug)]
pub struct Options {
    /// `cpu`, …: names the policy table.
    pub target: String,
    /// Operator pattern and route, `native`, `decompose`, or a rule's name; the last match wins.
    pub routes: Vec<(String, String)>,
    /// Name of a rewrite, and `on`, `off` or `always`; the last one counts.
    pub rewrites: Vec<(String, String)>,
    /// Decisions that are errors, `ROUTE:OPERATOR`; see [`Deny`].
    pub deny: Vec<String>,
    /// An operator that runs natively for lack of support is an error.
    pub strict: bool,
    /// Verify the graph after every pass.
    pub check: bool,
    /// 16-bit floats are rounded after each operator, as eager does; rewrites that leave roundings out are off.
    pub emulate_eager_casts: bool,
    /// Bytes of a piece of a loss's logits over a large vocabulary, which are then never all in memory.
    pub chunked_loss: Option<i64>,
    /// Part of the bytes saved for a backward at best speed that may be saved; see [`partition`].
    pub memory_budget: f64,
    /// How far fusion may go; that of the device.
    pub limits: Limits,
    /// Picks routes by measurement where the user says nothing.
    pub tuner: Option<Arc<dyn Tuner>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            target: "cpu".to_string(),
            routes: Vec::new(),
            rewrites: Vec::new(),
            deny: Vec::new(),
            strict: false,
            check: false,
            emulate_eager_casts: false,
            chunked_loss: None,
            memory_budget: 1.0,
            limits: Limits::CPU,
            tuner: None,
        }
    }
}

/// Why there is no program.
#[derive(Clone, Debug)]
pub enum Error {
    /// The text is no graph.
    Parse(ParseError),
    /// The options name something that does not exist.
    Options(String),
    /// A decision that the options forbid.
    Forbidden(Forbidden),
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
            Error::Forbidden(e) => write!(f, "{e}"),
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
    /// What it was lowered from.
    pub graph: Graph,
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
    let (mut graph, mut records) = front(text, options, &mut timing)?;
    if matches!(graph.kind, GraphKind::Joint { .. }) {
        return Err(Error::Options("a joint graph is compiled by compile_joint".to_string()));
    }
    if let Some(chunks) = chunks(&graph, options, &mut timing)? {
        let (cut, made) = timing.pass("rewrite", || chunks.apply(&graph));
        (graph, records) = (cut, [records, made].concat());
        check("rewrite", &graph, options, &mut timing)?;
    }
    let program = lower(&graph, options, &mut timing)?;
    Ok(Compiled { program, graph, records, timing })
}

/// Compiles a joint graph, cut included.
pub fn compile_joint(text: &str, options: &Options) -> Result<CompiledJoint, Error> {
    let mut timing = Timing::default();
    let Front { given, graph, mut records, made } = front_with_input(text, options, &mut timing)?;
    let types: HashMap<&str, &TensorType, MixHash> = given.values().map(|(_, v)| (&*v.name, &*v.ty)).collect();
    // PyTorch must be told the type of what is saved: one with symbolic sizes can only be pointed at, or described by
    // sizes it knows.
    let known = |name: &str| types.contains_key(name) || made.contains(name);
    let chunks = chunks(&graph, options, &mut timing)?;
    let budget = options.memory_budget;
    let mut cut = match &chunks {
        Some(chunks) => {
            let (cut, made) =
                timing.pass("partition", || chunks.partition(&graph, &known, budget)).map_err(Error::Partition)?;
            records.extend(made);
            cut
        }
        None => timing.pass("partition", || partition(&graph, &known, &|_| false, budget)).map_err(Error::Partition)?,
    };
    let saved = cut.saved.iter().map(|(name, ty)| saved(name, ty, types.get(&**name).copied())).collect();
    // What is no longer read makes room for what comes: memory that is used again is in the caches.
    timing.pass("release", || drop((graph, given)));
    if chunks.is_none() {
        cut.forward = timing.pass("simplify", || simplify(&cut.forward));
        cut.backward = timing.pass("simplify", || simplify(&cut.backward));
    }
    for g in [&cut.forward, &cut.backward] {
        check("partition", g, options, &mut timing)?;
    }
    let forward = lower(&cut.forward, options, &mut timing)?;
    let backward = lower(&cut.backward, options, &mut timing)?;
    Ok(CompiledJoint { forward, backward, cut, saved, records, timing })
}

/// The programs of a graph: forward and backward of a joint one.
pub fn programs(text: &str, options: &Options) -> Result<Vec<Program>, Error> {
    if is_joint(text)? {
        return compile_joint(text, options).map(|c| vec![c.forward, c.backward]);
    }
    compile_graph(text, options).map(|c| vec![c.program])
}

/// Whether a graph's text is of a joint graph.
pub fn is_joint(text: &str) -> Result<bool, Error> {
    Ok(matches!(Graph::parse(text).map_err(Error::Parse)?.kind, GraphKind::Joint { .. }))
}

fn saved(name: &str, ty: &TensorType, given: Option<&TensorType>) -> Saved {
    let dense = |t: &TensorType| t.strides.clone().unwrap_or_else(|| contiguous_strides(&t.shape));
    let same = given.is_some_and(|g| g.dtype == ty.dtype && g.shape == ty.shape && dense(g) == dense(ty));
    let text = || format!("{}{} strides={} @{}", ty.dtype, shape_text(&ty.shape), shape_text(&dense(ty)), ty.device);
    Saved { name: name.to_string(), ty: (!same).then(text) }
}

/// Text to a routed, clean graph.
pub fn front(text: &str, options: &Options, timing: &mut Timing) -> Result<(Graph, Vec<Record>), Error> {
    front_with_input(text, options, timing).map(|f| (f.graph, f.records))
}

struct Front {
    given: Graph,
    graph: Graph,
    records: Vec<Record>,
    /// Names of values that a rewrite made and a backward may need.
    made: BTreeSet<Arc<str>>,
}

fn front_with_input(text: &str, options: &Options, timing: &mut Timing) -> Result<Front, Error> {
    let (mut decide, deny) = (route_options(options)?, denied(options)?);
    let rewrites = rewrite_options(options)?;
    let given = timing.pass("parse", || Graph::parse(text)).map_err(Error::Parse)?;
    timing
        .pass("verify", || permalloy_ir::verify(&given))
        .map_err(|e| Error::Verify { stage: "input", message: e.to_string() })?;
    let held = timing.pass("rewrite", || held(&given, &rewrites, &decide.overrides));
    let own_overrides = decide.overrides.len();
    decide.overrides.extend(held.iter().cloned());
    let Routed { mut graph, mut records, settled } = timing.pass("route", || route(&given, &decide));
    check("route", &graph, options, timing)?;
    let mut made = BTreeSet::new();
    // Patterns are found in a clean graph. Most graphs have no softmax and no masked attention: nothing is sought in them,
    // and they are cleaned once, at the end.
    if timing.pass("rewrite", || rewrites_apply(&given, &rewrites, &held)) {
        let clean = timing.pass("simplify", || simplify(&graph));
        timing.pass("release", || drop(graph));
        check("simplify", &clean, options, timing)?;
        let mut rewritten = timing.pass("rewrite", || rewrite(clean, &rewrites, &held));
        check("rewrite", &rewritten.graph, options, timing)?;
        let mut last = vec![];
        if !held.is_empty() {
            // What was held gets its route now.
            decide.overrides.truncate(own_overrides);
            decide.settled = settled;
            let again = timing.pass("route", || route(&rewritten.graph, &decide));
            check("route", &again.graph, options, timing)?;
            (rewritten.graph, last) = (again.graph, again.records);
        }
        records = merge_records(records, &held, &rewritten, last);
        made.extend(rewritten.made);
        graph = rewritten.graph;
    }
    let equal = timing.pass("algebra", || algebra(&graph));
    timing.pass("release", || drop(graph));
    check("algebra", &equal, options, timing)?;
    let graph = timing.pass("simplify", || simplify(&equal));
    timing.pass("release", || drop(equal));
    check("simplify", &graph, options, timing)?;
    forbid::check(&records, &graph, &deny, options.strict).map_err(Error::Forbidden)?;
    Ok(Front { given, graph, records, made })
}

/// A verified graph with every operator on its route, or the decision that the options forbid.
pub fn routed(graph: &Graph, options: &Options) -> Result<Routed, Error> {
    let (decide, deny) = (route_options(options)?, denied(options)?);
    let routed = route(graph, &decide);
    forbid::check(&routed.records, &routed.graph, &deny, options.strict).map_err(Error::Forbidden)?;
    Ok(routed)
}

/// The logits to be made in pieces, if the options ask for that.
fn chunks(graph: &Graph, options: &Options, timing: &mut Timing) -> Result<Option<Chunks>, Error> {
    let on = rewrite_options(options)?.is_on("chunked_loss");
    let found = options.chunked_loss.filter(|_| on).map(|bytes| timing.pass("rewrite", || Chunks::of(graph, bytes)));
    Ok(found)
}

/// What the user says of a rewrite counts last.
fn rewrite_options(options: &Options) -> Result<RewriteOptions, Error> {
    // Attention by one kernel keeps scores and probabilities in f32.
    let exact = options.emulate_eager_casts.then(|| ("attention".to_string(), "off".to_string()));
    let lines: Vec<_> = exact.into_iter().chain(options.rewrites.iter().cloned()).collect();
    RewriteOptions::of(&lines).map_err(Error::Options)
}

fn route_options(options: &Options) -> Result<RouteOptions, Error> {
    let policy = Policy::of(&options.target).ok_or_else(|| {
        let known = permalloy_ops::policy::TARGETS.join(", ");
        Error::Options(format!("no policy for target {}; targets: {known}", options.target))
    })?;
    let overrides = permalloy_passes::parse_overrides(&options.routes).map_err(Error::Options)?;
    Ok(RouteOptions { tuner: options.tuner.clone(), ..RouteOptions::of(policy, overrides) })
}

fn denied(options: &Options) -> Result<Vec<Deny>, Error> {
    options.deny.iter().map(|d| Deny::parse(d)).collect::<Result<_, _>>().map_err(Error::Options)
}

fn check(stage: &'static str, graph: &Graph, options: &Options, timing: &mut Timing) -> Result<(), Error> {
    if !options.check {
        return Ok(());
    }
    timing.pass("verify", || permalloy_ir::verify(graph)).map_err(|e| Error::Verify { stage, message: e.to_string() })
}

fn lower(graph: &Graph, options: &Options, timing: &mut Timing) -> Result<Program, Error> {
    let how = permalloy_loops::Options { limits: options.limits, emulate_eager_casts: options.emulate_eager_casts };
    timing.pass("lower", || permalloy_loops::lower(graph, how)).map_err(Error::Lower)
}
