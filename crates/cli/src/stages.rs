//! The stages a filetest may run. A later pass joins by one entry in [`STAGES`].

use crate::compare::{compare_graph, execute_graph};
use crate::decompose::decompose;
use crate::execute::Machine;
use crate::plan::options_of;
use crate::values::{Arguments, print_outputs};
use permalloy_interp::{Options, run};
use permalloy_ir::{Graph, did_you_mean, verify};
use permalloy_loops::Limits;
use permalloy_loops::kernel::Program;
use permalloy_ops::policy::Policy;
use permalloy_passes::{
    Chunks, Record, RewriteOptions, RouteOptions, algebra, held, parse_overrides, partition, rewrite, route, simplify,
};
use permalloy_triton::device::{DEVICES, Device};
use permalloy_triton::program_text;
use std::fmt::Write;

/// One step on the way of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// What a file's `// run:` line and `--stage` call it.
    pub name: &'static str,
    /// One line for `permalloy opt --stages`.
    pub doc: &'static str,
    pub apply: fn(&mut Work<'_>) -> Result<(), String>,
}

/// Every stage, in the order of the pipeline.
pub const STAGES: &[Stage] = &[
    Stage { name: "parse", doc: "read the text; prints the graph in canonical form", apply: parse },
    Stage { name: "verify", doc: "check that the graph is legal; prints its size", apply: check },
    Stage {
        name: "decompose",
        doc: "replace every operator by its first rule that accepts it; prints the graph",
        apply: decompose_all,
    },
    Stage {
        name: "route",
        doc: "give every operator its route (`// options:` may override); prints the graph",
        apply: route_all,
    },
    Stage {
        name: "estimate",
        doc: "print what each route of an operator with several costs by the model, and the call that would be timed",
        apply: estimate,
    },
    Stage {
        name: "rewrite",
        doc: "route all but what patterns are found by, clean, rewrite, clean; prints the graph and what was decided",
        apply: rewrite_patterns,
    },
    Stage { name: "algebra", doc: "apply the equations of prims; prints the graph", apply: algebraic },
    Stage {
        name: "simplify",
        doc: "merge equal nodes, fold views, drop what nobody reads; prints the graph",
        apply: clean,
    },
    Stage {
        name: "partition",
        doc: "cut a joint graph; prints what is saved, the forward and the backward",
        apply: cut,
    },
    Stage {
        name: "chunk",
        doc: "cut logits over a large vocabulary into pieces (`// options:` says how large); prints graph and decisions",
        apply: chunk,
    },
    Stage { name: "lower", doc: "lower to loops and fuse; prints the program (both, after `partition`)", apply: lower },
    Stage {
        name: "triton",
        doc: "write Triton source for `--target` (or `// target: NAME`); prints it with its launches",
        apply: triton,
    },
    Stage { name: "run", doc: "compile and run without PyTorch; prints the outputs", apply: run_compiled },
    Stage {
        name: "compare",
        doc: "compile, run, and compare with the interpreter; prints how many agree",
        apply: agree,
    },
    Stage { name: "interp", doc: "run in the reference interpreter; prints the outputs", apply: interpret },
];

/// What the stages of one run work on.
#[derive(Debug)]
pub struct Work<'t> {
    pub text: &'t str,
    /// What the comments of the text say of the arguments of a run.
    pub arguments: Arguments<'t>,
    /// The compiler's options: those of an `// options:` line, or the defaults.
    pub options: permalloy_driver::Options,
    /// There as soon as `parse` has run.
    pub graph: Option<Graph>,
    /// Forward and backward, once `partition` has run; the graph stays joint.
    pub pieces: Vec<Graph>,
    /// The device that `triton` writes for.
    pub target: Option<&'t str>,
    /// What the last stage prints.
    pub printed: String,
}

impl Work<'_> {
    /// The graph as it now is.
    pub fn graph(&self) -> Result<&Graph, String> {
        self.graph.as_ref().ok_or_else(|| "no graph has been read".to_string())
    }
}

/// The stages of these names; the message of an unknown one says which exist.
pub fn stages_named<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Vec<&'static Stage>, String> {
    let find = |name: &str| {
        STAGES.iter().find(|s| s.name == name).ok_or_else(|| {
            let known: Vec<&str> = STAGES.iter().map(|s| s.name).collect();
            let hint = did_you_mean(name, known.iter().copied());
            format!("there is no stage `{name}`{hint} (stages: {})", known.join(", "))
        })
    };
    names.into_iter().map(find).collect()
}

/// Runs the stages on a text and gives what the last one prints; an error starts with the stage's name.
/// The text is parsed first, whether the list says so or not.
pub fn run_stages(text: &str, stages: &[&Stage]) -> Result<String, String> {
    run_stages_for(text, stages, None)
}

/// As [`run_stages`], for a device; without one the text's `// target:` line counts.
pub fn run_stages_for(text: &str, stages: &[&Stage], target: Option<&str>) -> Result<String, String> {
    let arguments = Arguments::read(text)?;
    let options = options_of(text)?.unwrap_or_default();
    let target = target.or_else(|| text.lines().find_map(|l| l.strip_prefix("// target:")).map(str::trim));
    let mut work = Work { text, arguments, options, graph: None, pieces: vec![], target, printed: String::new() };
    let implied = stages.first().is_none_or(|s| s.name != "parse").then_some(&STAGES[0]);
    for stage in implied.into_iter().chain(stages.iter().copied()) {
        (stage.apply)(&mut work).map_err(|e| format!("{}: {e}", stage.name))?;
    }
    Ok(work.printed)
}

fn parse(work: &mut Work<'_>) -> Result<(), String> {
    let graph = Graph::parse(work.text).map_err(|e| e.to_string())?;
    work.printed = graph.to_string();
    work.graph = Some(graph);
    Ok(())
}

fn check(work: &mut Work<'_>) -> Result<(), String> {
    let g = work.graph()?;
    verify(g).map_err(|e| e.to_string())?;
    work.printed = format!("legal: {} inputs, {} nodes, {} outputs\n", g.inputs.len(), g.node_count(), g.outputs.len());
    Ok(())
}

fn decompose_all(work: &mut Work<'_>) -> Result<(), String> {
    let graph = decompose(work.graph()?)?;
    work.printed = graph.to_string();
    work.graph = Some(graph);
    Ok(())
}

fn interpret(work: &mut Work<'_>) -> Result<(), String> {
    let graph = work.graph()?;
    // First, so that the arguments are made for a legal graph.
    verify(graph).map_err(|e| e.to_string())?;
    let inputs = work.arguments.inputs(graph)?;
    let outputs = run(graph, &inputs, Options { round: work.arguments.round }).map_err(|e| e.to_string())?;
    work.printed = print_outputs(&outputs);
    Ok(())
}

fn route_all(work: &mut Work<'_>) -> Result<(), String> {
    verify(work.graph()?).map_err(|e| e.to_string())?;
    let graph = permalloy_driver::routed(work.graph()?, &work.options).map_err(|e| e.to_string())?.graph;
    work.printed = graph.to_string();
    work.graph = Some(graph);
    Ok(())
}

/// Without the seconds, which are no more than the order of things.
fn estimate(work: &mut Work<'_>) -> Result<(), String> {
    verify(work.graph()?).map_err(|e| e.to_string())?;
    let calls = permalloy_passes::isolated_calls(work.graph()?);
    let mut text = String::new();
    for call in calls {
        text.push_str(&call.graph.to_string());
        for e in permalloy_tune::estimates(&call, &work.options) {
            let w = e.work;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{}: {} bytes, {} operations, {} of products, {} kernels, {} natives",
                e.route, w.bytes, w.operations, w.products, w.kernels, w.natives
            );
        }
    }
    work.printed = text;
    Ok(())
}

fn algebraic(work: &mut Work<'_>) -> Result<(), String> {
    verify(work.graph()?).map_err(|e| e.to_string())?;
    let graph = algebra(work.graph()?);
    work.printed = graph.to_string();
    work.graph = Some(graph);
    Ok(())
}

/// Attention is rewritten whether it pays or not, unless `// options:` says otherwise.
fn rewrite_patterns(work: &mut Work<'_>) -> Result<(), String> {
    verify(work.graph()?).map_err(|e| e.to_string())?;
    let target = &work.options.target;
    let policy = Policy::of(target).ok_or_else(|| format!("there is no policy for target {target}"))?;
    let always = ("attention".to_string(), "always".to_string());
    let lines: Vec<_> = std::iter::once(always).chain(work.options.rewrites.iter().cloned()).collect();
    let options = RewriteOptions::of(&lines)?;
    let mut overrides = parse_overrides(&work.options.routes)?;
    let held = held(work.graph()?, &options, &overrides);
    overrides.extend(held.iter().cloned());
    let routed = simplify(&route(work.graph()?, &RouteOptions::of(policy, overrides)).graph);
    let rewritten = rewrite(routed, &options, &held);
    verify(&rewritten.graph).map_err(|e| e.to_string())?;
    let graph = simplify(&rewritten.graph);
    work.printed = graph.to_string() + &decisions(&rewritten.records);
    work.graph = Some(graph);
    Ok(())
}

fn clean(work: &mut Work<'_>) -> Result<(), String> {
    verify(work.graph()?).map_err(|e| e.to_string())?;
    let graph = simplify(work.graph()?);
    work.printed = graph.to_string();
    work.graph = Some(graph);
    Ok(())
}

/// As the driver cuts: values with symbolic sizes can be saved when the text names them.
fn cut(work: &mut Work<'_>) -> Result<(), String> {
    verify(work.graph()?).map_err(|e| e.to_string())?;
    let given = Graph::parse(work.text).map_err(|e| e.to_string())?;
    let names: std::collections::BTreeSet<&str> = given.values().map(|(_, v)| &*v.name).collect();
    let known = |name: &str| names.contains(name);
    let budget = work.options.memory_budget;
    let (cut, records) = match work.options.chunked_loss {
        Some(bytes) => {
            Chunks::of(work.graph()?, bytes).partition(work.graph()?, &known, budget).map_err(|e| e.to_string())?
        }
        None => (partition(work.graph()?, &known, &|_| false, budget).map_err(|e| e.to_string())?, vec![]),
    };
    let mut text = decisions(&records);
    for (name, ty) in &cut.saved {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "saved %{name}: {ty}");
    }
    for d in &cut.saved_ints {
        let _ = writeln!(text, "saved {d}");
    }
    let _ = writeln!(text, "{} bytes saved beside the inputs", cut.saved_bytes);
    work.pieces = vec![simplify(&cut.forward), simplify(&cut.backward)];
    work.pieces.iter().for_each(|g| text.push_str(&g.to_string()));
    work.printed = text;
    Ok(())
}

/// A line for each.
fn decisions(records: &[Record]) -> String {
    records.iter().map(|r| format!("{} {}: {}\n", r.op, r.route_name(), r.detail)).collect()
}

/// For a graph that is not joint; `partition` does it for one that is.
fn chunk(work: &mut Work<'_>) -> Result<(), String> {
    verify(work.graph()?).map_err(|e| e.to_string())?;
    let bytes = work.options.chunked_loss.ok_or("the line `// options:` has no chunked_loss")?;
    let (graph, records) = Chunks::of(work.graph()?, bytes).apply(work.graph()?);
    work.printed = graph.to_string() + &decisions(&records);
    work.graph = Some(graph);
    Ok(())
}

fn lower(work: &mut Work<'_>) -> Result<(), String> {
    let graphs = if work.pieces.is_empty() { std::slice::from_ref(work.graph()?) } else { &work.pieces[..] };
    let emulate_eager_casts = work.options.emulate_eager_casts;
    let how = permalloy_loops::Options { limits: Limits::CPU, emulate_eager_casts };
    let one = |g: &Graph| -> Result<Program, String> {
        verify(g).map_err(|e| e.to_string())?;
        permalloy_loops::lower(g, how).map_err(|e| e.to_string())
    };
    let programs = graphs.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    work.printed = programs.iter().map(Program::to_string).collect();
    Ok(())
}

fn triton(work: &mut Work<'_>) -> Result<(), String> {
    let name = work.target.unwrap_or("cuda-sm90");
    let device = Device::of(name).ok_or_else(|| {
        let known = DEVICES.iter().map(|d| d.name);
        format!(
            "there is no device `{name}`{} (devices: {})",
            did_you_mean(name, known.clone()),
            known.collect::<Vec<_>>().join(", ")
        )
    })?;
    let graphs = if work.pieces.is_empty() { std::slice::from_ref(work.graph()?) } else { &work.pieces[..] };
    let mut printed = String::new();
    for g in graphs {
        verify(g).map_err(|e| e.to_string())?;
        let program = permalloy_loops::lower(g, device.limits()).map_err(|e| e.to_string())?;
        printed.push_str(&program_text(&program, device, &permalloy_triton::Options::default()));
    }
    work.printed = printed;
    Ok(())
}

fn run_compiled(work: &mut Work<'_>) -> Result<(), String> {
    let results = execute_graph(work.graph()?, &work.arguments, &work.options, Machine::default())?;
    work.printed = print_outputs(&results.outputs);
    Ok(())
}

fn agree(work: &mut Work<'_>) -> Result<(), String> {
    let done = compare_graph(work.graph()?, &work.arguments, &work.options, Machine::default());
    let done = done.map_err(|e| e.to_string())?;
    work.printed = format!("{} elements agree\n", done.elements - done.uncertain);
    if done.uncertain > 0 {
        // Writing to a string cannot fail.
        let _ = writeln!(work.printed, "{} elements are open to rounding", done.uncertain);
    }
    Ok(())
}
