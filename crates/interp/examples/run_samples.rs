//! Runs many graphs of one operator each: what `tests/python/test_rules.py` compares PyTorch with.
//!
//! Standard input is a sequence of samples: a graph in text form, one line `input DTYPE [SIZES] VALUES…` for each of its
//! inputs, and a line `run` or, for floats rounded to their dtypes, `run rounded`. Each gives one line `output VALUES…` or `output none` an output, or one line `error TEXT`,
//! and a line `end`. The node is decomposed by its operator's first rule that accepts it, sizes left symbolic, and the
//! result is run. With the argument `--list` it prints the operators that have rules, topic by topic, instead.

use permalloy_interp::{Data, InputValue, Options, OutputValue, Tensor, run};
use permalloy_ir::{DType, Graph, GraphKind, Input, Output, TensorType};
use permalloy_ops::{RuleError, apply_rules};
use std::io::{self, BufRead, Write};

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if std::env::args().nth(1).as_deref() == Some("--list") {
        for (topic, decls) in permalloy_ops::rules::TOPICS {
            for decl in decls.iter().filter(|d| !d.rules.is_empty()) {
                writeln!(out, "{topic} {}", decl.name)?;
            }
        }
        return out.flush();
    }
    let (mut text, mut inputs) = (String::new(), Vec::new());
    for line in io::stdin().lock().lines() {
        let line = line?;
        if let Some(rest) = line.strip_prefix("input ") {
            inputs.push(rest.to_string());
        } else if line == "run" || line == "run rounded" {
            match sample(&text, &inputs, Options { round: line == "run rounded" }) {
                Ok(outputs) => outputs.iter().try_for_each(|o| writeln!(out, "output {o}"))?,
                Err(e) => writeln!(out, "error {}", e.replace('\n', " "))?,
            }
            writeln!(out, "end")?;
            text.clear();
            inputs.clear();
        } else {
            text.push_str(&line);
            text.push('\n');
        }
    }
    out.flush()
}

fn sample(text: &str, inputs: &[String], options: Options) -> Result<Vec<String>, String> {
    let graph = decompose(&Graph::parse(text).map_err(|e| e.to_string())?)?;
    let inputs = inputs.iter().map(|i| tensor(i).map(InputValue::Tensor)).collect::<Result<Vec<_>, _>>()?;
    let outputs = run(&graph, &inputs, options).map_err(|e| e.to_string())?;
    Ok(outputs.iter().map(show).collect())
}

/// The graph with its only node replaced by what the rule emits.
fn decompose(graph: &Graph) -> Result<Graph, String> {
    let mut out = Graph::new(&graph.name, GraphKind::Inference);
    out.symbols.clone_from(&graph.symbols);
    for input in &graph.inputs {
        if let Input::Tensor { value, role } = input {
            out.add_input(&graph.value(*value).name, graph.ty(*value).clone(), *role);
        }
    }
    let (_, node) = graph.nodes().next().ok_or("a sample has one node")?;
    let results: Vec<Option<TensorType>> = node.results.iter().map(|r| r.map(|v| graph.ty(v).clone())).collect();
    let decl = permalloy_ops::lookup(&node.op.name()).ok_or("not declared")?;
    let (_, made) = apply_rules(&mut out, node, &results, decl.rules).map_err(RuleError::message)?;
    let wanted = made.iter().zip(&results).map(|(v, ty)| v.filter(|_| ty.is_some()));
    out.outputs = wanted.map(|v| v.map_or(Output::None, Output::Value)).collect();
    Ok(out)
}

/// `f32 [2,3] 1 2 3 4 5 6`
fn tensor(text: &str) -> Result<Tensor, String> {
    let bad = || format!("input `{text}`");
    let mut words = text.split(' ').filter(|w| !w.is_empty());
    let dtype: DType = words.next().and_then(|w| w.parse().ok()).ok_or_else(bad)?;
    let sizes = words.next().and_then(|w| w.strip_prefix('[')?.strip_suffix(']')).ok_or_else(bad)?;
    let sizes = sizes.split(',').filter(|s| !s.is_empty());
    let shape: Vec<usize> = sizes.map(|s| s.parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
    if dtype.is_float() {
        let data = words.map(|w| w.parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
        Ok(Tensor::floats(dtype, &shape, data))
    } else {
        let data = words.map(|w| w.parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
        Ok(Tensor::ints(dtype, &shape, data))
    }
}

fn show(output: &OutputValue) -> String {
    match output {
        OutputValue::Tensor(Tensor { data: Data::F(v), .. }) => join(v.iter().map(|x| format!("{x:?}"))),
        OutputValue::Tensor(Tensor { data: Data::I(v), .. }) => join(v.iter().map(i64::to_string)),
        OutputValue::Int(i) => i.to_string(),
        OutputValue::None => "none".to_string(),
    }
}

fn join(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" ")
}
