//! `permalloy explain` and `permalloy run`: what the compiler does with a graph, and what the graph computes.
//! Files are graphs in their text form, such as `PERMALLOY_DUMP` and internal errors leave.

use crate::CliError;
use crate::compare::{Disagreement, compare_with, execute};
use crate::execute::Machine;
use crate::values::print_outputs;
use lexopt::{Arg, Parser, ValueExt};
use permalloy_driver::{Options, compile_graph, compile_joint, report};
use permalloy_ir::{Graph, GraphKind};
use std::io::Read;
use std::path::{Path, PathBuf};

const EXPLAIN: &str = "\
usage: permalloy explain [--json] [--target cpu] FILE

  Compiles the graph in FILE (`-` is standard input) and prints the route of each operator with its reason, the fused
  kernels with the bytes they move, what is saved for the backward, and the time of each pass.
  A `// options: {…}` line, as reproducers have it, gives target and routes.
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
    let mut options = options_of(&text).map_err(failed)?.unwrap_or_default();
    options.check = true;
    options.target = target.unwrap_or(options.target);
    let report =
        if json { report::explain_json(&text, &options).map(|t| t + "\n") } else { report::explain(&text, &options) };
    report.map_err(|e| failed(e.to_string()))
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

/// The compiler options in a text's `// options: {…}` line.
pub fn options_of(text: &str) -> Result<Option<Options>, String> {
    let Some(line) = text.lines().find_map(|l| l.strip_prefix("// options:")) else { return Ok(None) };
    let bad = |what: &str| format!("the line `// options:` {what}");
    let json: serde_json::Value = serde_json::from_str(line).map_err(|e| bad(&format!("is no JSON: {e}")))?;
    let mut options = Options::default();
    if let Some(target) = json.get("target") {
        options.target = target.as_str().ok_or_else(|| bad("has a target that is no text"))?.to_string();
    }
    for (key, into) in [("routes", &mut options.routes), ("rewrites", &mut options.rewrites)] {
        for pair in json.get(key).and_then(|r| r.as_array()).into_iter().flatten() {
            let part = |i: usize| pair.get(i).and_then(|v| v.as_str()).map(str::to_string);
            let (Some(first), Some(second)) = (part(0), part(1)) else {
                return Err(bad(&format!("has in {key} what is no pair of texts")));
            };
            into.push((first, second));
        }
    }
    Ok(Some(options))
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
