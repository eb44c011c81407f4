//! Runs a graph both ways, through the whole compiler and in the reference interpreter, and compares.
//!
//! An element may be off by its running error bound (`permalloy_interp::bounds`), integers and bools not at all; where
//! rounding decides a comparison, and all that follows from it, nothing is compared.

use crate::execute::{Machine, arguments, load, results, tensor};
use crate::values::Arguments;
use permalloy_driver::{Options, compile_graph, compile_joint, front};
use permalloy_interp::bounds::{Bounded, BoundedRun, run_bounded};
use permalloy_interp::{Data, InputValue, OutputValue, Tensor};
use permalloy_ir::{
    Def, Dim, Graph, GraphKind, Input, Output, PrimKind, PrimOp, Role, SymbolValues, ValueId, contiguous_strides,
};
use permalloy_runtime::{RunInput, RunOutput, TensorHandle};

/// How much was compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compared {
    pub elements: usize,
    /// Elements that rounding leaves open.
    pub uncertain: usize,
}

/// Why two runs cannot be said to agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Disagreement {
    /// The graph or its arguments are illegal: the reference gives no results either.
    NoReference(String),
    /// The compiler or the executable failed.
    Failed(String),
    /// A result differs.
    Differs(String),
}

impl std::fmt::Display for Disagreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Disagreement::NoReference(m) => write!(f, "no reference: {m}"),
            Disagreement::Failed(m) | Disagreement::Differs(m) => f.write_str(m),
        }
    }
}

/// What the compiled graph gives, in the terms of the given one.
#[derive(Debug)]
pub struct Results {
    pub outputs: Vec<OutputValue>,
    /// Strides of tensor outputs.
    strides: Vec<Option<Vec<i64>>>,
    /// The inputs after the run.
    inputs: Vec<Option<Tensor>>,
}

/// Compiles and runs a graph, a joint one in two pieces; `seed` is for arguments that no comment gives.
pub fn execute(text: &str, seed: Option<u64>, machine: Machine) -> Result<Results, String> {
    let graph = Graph::parse(text).map_err(|e| e.to_string())?;
    let mut given = Arguments::read(text)?;
    given.seed = seed.unwrap_or(given.seed);
    // Without an `// options:` line the defaults hold.
    let options = crate::plan::options_of(text)?.unwrap_or_default();
    execute_graph(&graph, &given, &options, machine)
}

pub(crate) fn execute_graph(
    graph: &Graph,
    given: &Arguments<'_>,
    options: &Options,
    machine: Machine,
) -> Result<Results, String> {
    let (values, symbols) = prepare(graph, given)?;
    run_compiled(graph, &values, &symbols, options, machine)
}

/// Compares on the arguments that the comments of the text give.
pub fn compare(text: &str, machine: Machine) -> Result<Compared, Disagreement> {
    compare_with(text, &Options { check: true, ..Options::default() }, machine)
}

/// As `compare`, with options of the compiler's.
pub fn compare_with(text: &str, options: &Options, machine: Machine) -> Result<Compared, Disagreement> {
    let none = Disagreement::NoReference;
    let graph = Graph::parse(text).map_err(|e| none(e.to_string()))?;
    compare_graph(&graph, &Arguments::read(text).map_err(none)?, options, machine)
}

pub(crate) fn compare_graph(
    graph: &Graph,
    given: &Arguments<'_>,
    options: &Options,
    machine: Machine,
) -> Result<Compared, Disagreement> {
    let none = Disagreement::NoReference;
    let (values, symbols) = prepare(graph, given).map_err(none)?;
    let (routed, _) =
        front(&graph.to_string(), options, &mut Default::default()).map_err(|e| Disagreement::Failed(e.to_string()))?;
    let reference = run_bounded(&routed, &values).map_err(|e| none(e.to_string()))?;
    let got = run_compiled(graph, &values, &symbols, options, machine).map_err(Disagreement::Failed)?;
    check(graph, &symbols, &reference, &got).map_err(Disagreement::Differs)
}

/// Arguments (as memory can hold them) and the values of the size symbols.
fn prepare(graph: &Graph, given: &Arguments<'_>) -> Result<(Vec<InputValue>, SymbolValues), String> {
    permalloy_ir::verify(graph).map_err(|e| e.to_string())?;
    let values = given.inputs(graph)?;
    let symbols = given.symbols(graph)?;
    // Elements that share memory are one.
    let inputs = arguments(graph, &values, &symbols)?;
    let values = inputs.iter().map(argument_value).collect::<Result<_, _>>()?;
    Ok((values, symbols))
}

fn argument_value(input: &RunInput) -> Result<InputValue, String> {
    match input {
        RunInput::Int(i) => Ok(InputValue::Int(*i)),
        RunInput::Tensor(TensorHandle::Plain(t)) => tensor(t).map(InputValue::Tensor),
        RunInput::Tensor(TensorHandle::Torch(_)) => Err("an argument is not in plain memory".to_string()),
    }
}

fn run_compiled(
    graph: &Graph,
    values: &[InputValue],
    symbols: &SymbolValues,
    options: &Options,
    machine: Machine,
) -> Result<Results, String> {
    let inputs = arguments(graph, values, symbols)?;
    let kept: Vec<Option<TensorHandle>> = inputs.iter().map(share).collect::<Result<_, _>>()?;
    let outputs = if let GraphKind::Joint { forward_outputs } = graph.kind {
        run_joint(graph, inputs, forward_outputs, options, machine)?
    } else {
        let compiled = compile_graph(&graph.to_string(), options).map_err(|e| e.to_string())?;
        load(compiled.program, machine)?.run(inputs).map_err(|e| e.to_string())?
    };
    let strides = |o: &RunOutput| match o {
        RunOutput::Tensor(t) => Some(t.strides().to_vec()),
        _ => None,
    };
    let after = |t: &Option<TensorHandle>| match t {
        Some(TensorHandle::Plain(t)) => tensor(t).map(Some),
        _ => Ok(None),
    };
    Ok(Results {
        outputs: results(&outputs)?,
        strides: outputs.iter().map(strides).collect(),
        inputs: kept.iter().map(after).collect::<Result<_, _>>()?,
    })
}

fn share(input: &RunInput) -> Result<Option<TensorHandle>, String> {
    match input {
        RunInput::Tensor(t) => t.share().map(Some),
        RunInput::Int(_) => Ok(None),
    }
}

/// Forward, then backward on what it saved.
fn run_joint(
    graph: &Graph,
    inputs: Vec<RunInput>,
    forward_outputs: usize,
    options: &Options,
    machine: Machine,
) -> Result<Vec<RunOutput>, String> {
    let compiled = compile_joint(&graph.to_string(), options).map_err(|e| e.to_string())?;
    let (mut primals, mut tangents) = (Vec::new(), Vec::new());
    for (input, value) in graph.inputs.iter().zip(inputs) {
        let tangent = matches!(input, Input::Tensor { role: Role::Tangent, .. });
        if tangent { tangents.push(value) } else { primals.push(value) }
    }
    let forward = load(compiled.forward, machine)?;
    let backward = load(compiled.backward, machine)?;
    let mut outputs = forward.run(primals).map_err(|e| format!("forward: {e}"))?;
    let saved = outputs.split_off(forward_outputs);
    let (mut ints, mut tensors) = (Vec::new(), Vec::new());
    for s in saved {
        match s {
            RunOutput::Tensor(t) => tensors.push(RunInput::Tensor(t)),
            RunOutput::Int(i) => ints.push(RunInput::Int(i)),
            RunOutput::None => return Err("forward: a saved value is absent".to_string()),
        }
    }
    let arguments = ints.into_iter().chain(tensors).chain(tangents).collect();
    outputs.extend(backward.run(arguments).map_err(|e| format!("backward: {e}"))?);
    Ok(outputs)
}

fn check(graph: &Graph, symbols: &SymbolValues, reference: &BoundedRun, got: &Results) -> Result<Compared, String> {
    let mut total = Compared::default();
    if reference.outputs.len() != got.outputs.len() {
        return Err(format!("{} outputs, not {}", got.outputs.len(), reference.outputs.len()));
    }
    for (i, (want, got)) in reference.outputs.iter().zip(&got.outputs).enumerate() {
        // A view of an input that is overwritten shows the new contents, in eager too.
        if let Output::Value(v) = &graph.outputs[i]
            && let Some(Def::Input(x)) = viewed_input(graph, *v)
            && reference.overwritten.iter().any(|(j, _)| *j == x as usize)
        {
            continue;
        }
        same(want, got, &mut total).map_err(|e| format!("output {i}: {e}"))?;
    }
    for (i, want) in &reference.overwritten {
        let got = got.inputs.get(*i).cloned().flatten().map_or(OutputValue::None, OutputValue::Tensor);
        same(want, &got, &mut total).map_err(|e| format!("input {i} after the run: {e}"))?;
    }
    for (i, (o, strides)) in graph.outputs.iter().zip(&got.strides).enumerate() {
        let (Output::Value(v), Some(strides)) = (o, strides) else { continue };
        // A view of an input has the input's strides.
        let ty = graph.ty(*v);
        let promised = ty.strides.clone().unwrap_or_else(|| contiguous_strides(&ty.shape));
        let eval = |d: &Dim| d.eval(symbols).map_err(|e| e.to_string());
        let shape = ty.shape.iter().map(eval).collect::<Result<Vec<_>, _>>()?;
        let promised = promised.iter().map(eval).collect::<Result<Vec<_>, _>>()?;
        let same = (0..shape.len()).all(|d| shape[d] < 2 || promised[d] == strides[d]) || shape.contains(&0);
        if !same && viewed_input(graph, *v).is_none() {
            return Err(format!("output {i} has strides {strides:?}, promised are {promised:?}"));
        }
    }
    Ok(total)
}

/// The input that a value is a view of.
fn viewed_input(graph: &Graph, mut v: ValueId) -> Option<Def> {
    loop {
        let Some(node) = graph.producer(v) else { return Some(graph.value(v).def) };
        // An operator that changes nothing for these types passes its operand on.
        let passes = |p: PrimOp| p.kind() == PrimKind::View || p == PrimOp::Cast;
        v = node.prim().filter(|p| passes(*p)).and(node.operand(0))?;
    }
}

/// Every element lies within its bound.
fn same(want: &Bounded, got: &OutputValue, total: &mut Compared) -> Result<(), String> {
    let (w, g) = match (&want.value, got) {
        (OutputValue::Tensor(w), OutputValue::Tensor(g)) => (w, g),
        (w, g) if w == g => return Ok(()),
        (w, g) => return Err(format!("{g:?}, not {w:?}")),
    };
    if (w.dtype, &w.shape) != (g.dtype, &g.shape) {
        return Err(format!("{}{:?}, not {}{:?}", g.dtype, g.shape, w.dtype, w.shape));
    }
    let error = |i: usize| want.error.as_ref().map_or(0.0, |e| e[i]);
    for i in 0..w.numel() {
        total.elements += 1;
        let bound = error(i);
        if bound.is_infinite() {
            total.uncertain += 1;
            continue;
        }
        let differs = |w: String, g: String| Err(format!("element {i} is {g}, not {w}; {bound:e} off are allowed"));
        match (&w.data, &g.data) {
            (Data::F(w), Data::F(g)) => {
                let fits = w[i] == g[i] || w[i].is_nan() && g[i].is_nan() || (w[i] - g[i]).abs() <= bound;
                if !fits {
                    return differs(format!("{:?}", w[i]), format!("{:?}", g[i]));
                }
            }
            (Data::I(w), Data::I(g)) if w[i] == g[i] => {}
            (Data::I(w), Data::I(g)) => return differs(w[i].to_string(), g[i].to_string()),
            _ => return Err("the elements are of different kinds".to_string()),
        }
    }
    Ok(())
}
