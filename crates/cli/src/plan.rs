//! `permalloy explain` and `permalloy run`: what the compiler does with a graph, and what the graph computes.
//! Files are graphs in their text form, such as `PERMALLOY_DUMP` and internal errors leave.

use crate::CliError;
use crate::compare::{Disagreement, compare_with, execute};
use crate::execute::Machine;
use crate::memory;
use crate::values::print_outputs;
use lexopt::{Arg, Parser, ValueExt};
use permalloy_driver::{Options, compile_graph, compile_joint, programs, report};
use permalloy_ir::{Graph, GraphKind};
use std::io::Read;
use std::path::{Path, PathBuf};

const EXPLAIN: &str = "\
usage: permalloy explain [--json] [--target cpu] FILE

  Compiles the graph in FILE (`-` is standard input) and prints the route of each operator with its reason, the fused
  kernels with the bytes they move, what is saved for the backward, the time of each pass, and the memory that each
  program takes at its peak.
  A `// options: {…}` line, as reproducers have it, gives the compiler's options: target, routes, rewrites, deny,
  strict.
";

const RUN: &str = "\
usage: permalloy run [--seed N] [--threads N] FILE

  Compiles the graph in FILE (`-` is standard input), runs it without PyTorch and prints its outputs; a joint graph runs
  forward and then backward. Comments give the arguments (`// input %x = [1.0, 2.0]`, `// symbol s0 = 3`, `// seed 7`);
  the others are random, by seed and name.
";

pub fn explain(mut parser: Parser) -> Result<String, CliError> {
    let (mut json, mut target, mut path) = (false, None, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("json") => json = true,
            Arg::Long("target") => target = Some(parser.value()?.string()?),
            Arg::Long("help") | Arg::Short('h') => return Ok(EXPLAIN.to_string()),
            Arg::Value(v) if path.is_none() => path = Some(PathBuf::from(v)),
            other => return Err(other.unexpected().into()),
        }
    }
    let path = path.ok_or_else(|| CliError::Usage(format!("explain needs a file\n{EXPLAIN}")))?;
    let text = read(&path)?;
    let failed = |e: String| CliError::Failed(format!("{}: {e}", path.display()));
    // Without such a line the defaults hold.
    let mut options = options_of(&text).map_err(failed)?.unwrap_or_default();
    options.check = true;
    options.target = target.unwrap_or(options.target);
    // For any CUDA device the newest that is described in full.
    let device = if options.target == "cuda" { "cuda-sm90" } else { &options.target };
    if let Some(device) = permalloy_triton::Device::of(device) {
        options.limits = device.limits();
    }
    let failed = |e: permalloy_driver::Error| CliError::Failed(format!("{}: {e}", path.display()));
    let planned = programs(&text, &options).map_err(failed)?;
    if json {
        let mut report = report::explain_json(&text, &options).map_err(failed)?;
        report["memory"] = memory::json(&planned);
        return Ok(format!("{report}\n"));
    }
    Ok(report::explain(&text, &options).map_err(failed)? + &memory::table(&planned))
}

pub fn run(mut parser: Parser) -> Result<String, CliError> {
    let (mut seed, mut path, mut machine) = (None, None, Machine::default());
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("seed") => seed = Some(parser.value()?.parse()?),
            Arg::Long("threads") => machine.threads = parser.value()?.parse()?,
            Arg::Long("help") | Arg::Short('h') => return Ok(RUN.to_string()),
            Arg::Value(v) if path.is_none() => path = Some(PathBuf::from(v)),
            other => return Err(other.unexpected().into()),
        }
    }
    let path = path.ok_or_else(|| CliError::Usage(format!("run needs a file\n{RUN}")))?;
    let text = read(&path)?;
    let results = execute(&text, seed, machine).map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))?;
    Ok(print_outputs(&results.outputs))
}

/// Text of a file, or of standard input for `-`.
pub fn read(path: &Path) -> Result<String, CliError> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))
}

/// The compiler options in a text's `// options: {…}` line: `target`, `routes` and `rewrites` (pairs), `deny`, `strict`,
/// `emulate_eager_casts` and `memory_budget`; what it leaves out has its default.
pub fn options_of(text: &str) -> Result<Option<Options>, String> {
    let Some(line) = text.lines().find_map(|l| l.strip_prefix("// options:")) else { return Ok(None) };
    let bad = |what: &str| format!("the line `// options:` {what}");
    let json: serde_json::Value = serde_json::from_str(line).map_err(|e| bad(&format!("is no JSON: {e}")))?;
    let fields = json.as_object().ok_or_else(|| bad("is no JSON object"))?;
    let mut options = Options::default();
    for (name, value) in fields {
        match name.as_str() {
            "target" => options.target = value.as_str().ok_or_else(|| bad("has a target that is no text"))?.to_string(),
            "strict" => options.strict = value.as_bool().ok_or_else(|| bad("has a strict that is no bool"))?,
            "check" => options.check = value.as_bool().ok_or_else(|| bad("has a check that is no bool"))?,
            "emulate_eager_casts" => {
                options.emulate_eager_casts =
                    value.as_bool().ok_or_else(|| bad("has an emulate_eager_casts that is no bool"))?;
            }
            "chunked_loss" => {
                let bad = || bad("has a chunked_loss that is no number of bytes");
                options.chunked_loss = if value.is_null() { None } else { Some(value.as_i64().ok_or_else(bad)?) };
            }
            "memory_budget" => {
                options.memory_budget = value.as_f64().ok_or_else(|| bad("has a memory_budget that is no number"))?;
            }
            // How a graph runs, not how it is compiled.
            "pool_outputs" | "check_kernels" | "device" | "capability" | "deterministic" | "tuning" => {}
            "deny" => options.deny = texts(value).ok_or_else(|| bad("has a deny that is no list of texts"))?,
            "routes" => options.routes = pairs(value).ok_or_else(|| bad("has routes that are no pairs of texts"))?,
            "rewrites" => {
                options.rewrites = pairs(value).ok_or_else(|| bad("has rewrites that are no pairs of texts"))?;
            }
            _ => {
                let known = [
                    "target",
                    "routes",
                    "rewrites",
                    "deny",
                    "strict",
                    "check",
                    "emulate_eager_casts",
                    "chunked_loss",
                    "memory_budget",
                ];
                let hint = permalloy_ir::did_you_mean(name, known);
                return Err(bad(&format!("has an unknown option `{name}`{hint}")));
            }
        }
    }
    Ok(Some(options))
}

fn pairs(value: &serde_json::Value) -> Option<Vec<(String, String)>> {
    let pair = |v: &serde_json::Value| <[String; 2]>::try_from(texts(v)?).ok().map(|[first, second]| (first, second));
    value.as_array()?.iter().map(pair).collect()
}

fn texts(value: &serde_json::Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|v| v.as_str().map(str::to_string)).collect()
}

/// Compiles a reproducer with its own options, and runs it if the embedded provider has its operators.
pub fn replay(text: &str, options: &Options) -> Result<String, String> {
    let options = Options { check: true, ..options.clone() };
    let graph = Graph::parse(text).map_err(|e| e.to_string())?;
    let fail = |e: permalloy_driver::Error| format!("still fails: {e}");
    let steps = if matches!(graph.kind, GraphKind::Joint { .. }) {
        let c = compile_joint(text, &options).map_err(fail)?;
        c.forward.steps.len() + c.backward.steps.len()
    } else {
        compile_graph(text, &options).map_err(fail)?.program.steps.len()
    };
    Ok(match compare_with(text, &options, Machine::default()) {
        Ok(c) => {
            format!("compiles to {steps} steps; {} elements agree with the interpreter\n", c.elements - c.uncertain)
        }
        Err(Disagreement::Differs(e)) => return Err(format!("compiles to {steps} steps, but {e}")),
        Err(e) => format!("compiles to {steps} steps; not run: {e}\n"),
    })
}
