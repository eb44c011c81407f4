//! Each fused kernel beside its unfused graph, on the same inputs: `config.check = "kernels"`.
//!
//! While a compiled program runs, the buffers that a kernel reads and writes are copied. The part of the graph that the
//! kernel computes, taken out by the names of those buffers, runs in the interpreter with error bounds.

use crate::execute::tensor;
use crate::values::list_text;
use permalloy_interp::bounds::run_bounded;
use permalloy_interp::{Data, InputValue, OutputValue, Tensor};
use permalloy_ir::{
    Dim, Graph, GraphKind, Input, Output, Rebuild, Role, SymbolValues, TensorType, ValueId, needed, verify,
};
use permalloy_loops::kernel::{Buffer, BufferId, BufferKind, Kernel, Program, Step};
use permalloy_runtime::embedded::PlainTensor;
use permalloy_runtime::watch::Watch;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Inputs with more elements are left out of a reproducer's text, and are random when it is run again.
const LONGEST: usize = 4096;

/// How a kernel compares with its unfused graph.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    pub kernel: String,
    pub elements: usize,
    pub worst_absolute: f64,
    /// Of elements that are not 0.
    pub worst_relative: f64,
    /// The first element beyond its error bound.
    pub wrong: Option<String>,
    /// Why nothing was compared.
    pub unchecked: Option<String>,
    /// The unfused graph with its arguments; empty when nothing was compared.
    pub reproducer: String,
}

/// Watches a program that was lowered from a graph.
pub struct KernelCheck {
    steps: Vec<Option<Watched>>,
    found: Mutex<Vec<Found>>,
}

/// The kernels of one step.
struct Watched {
    reads: Vec<BufferId>,
    writes: Vec<BufferId>,
    /// Sizes of the buffers read and written.
    shapes: (Vec<Vec<Dim>>, Vec<Vec<Dim>>),
    pieces: Vec<(String, Result<Piece, String>)>,
}

/// The unfused graph of a kernel.
struct Piece {
    graph: Graph,
    /// Positions among what the step reads, and writes.
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

impl KernelCheck {
    pub fn new(graph: &Graph, program: &Program) -> KernelCheck {
        let names = graph.values().map(|(v, info)| (info.name.to_string(), v)).collect();
        let watched = |step: &Step| {
            let kernels = match step {
                Step::Kernel(k) => std::slice::from_ref(k),
                Step::Group(g) => &g.kernels,
                Step::Scatter(_) | Step::Native(_) => return None,
            };
            let all = |of: fn(&Kernel) -> Vec<BufferId>| kernels.iter().flat_map(of).collect::<Vec<_>>();
            let (reads, writes) = (all(Kernel::reads), all(Kernel::writes));
            let shapes = |ids: &[BufferId]| ids.iter().map(|b| program.buffer(*b).shape.clone()).collect();
            let pieces =
                kernels.iter().map(|k| (k.name.clone(), piece(graph, program, &names, k, &reads, &writes))).collect();
            Some(Watched { shapes: (shapes(&reads), shapes(&writes)), reads, writes, pieces })
        };
        KernelCheck { steps: program.steps.iter().map(watched).collect(), found: Mutex::default() }
    }

    /// What was found since the last time.
    pub fn take(&self) -> Vec<Found> {
        std::mem::take(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watch for KernelCheck {
    fn wants(&self, step: usize) -> Option<(&[BufferId], &[BufferId])> {
        self.steps.get(step)?.as_ref().map(|w| (&w.reads[..], &w.writes[..]))
    }

    fn saw(&self, step: usize, before: Vec<Option<PlainTensor>>, after: Vec<Option<PlainTensor>>) {
        let Some(Some(w)) = self.steps.get(step) else { return };
        let mut sizes = SymbolValues::new();
        for (shapes, tensors) in [(&w.shapes.0, &before), (&w.shapes.1, &after)] {
            for (shape, t) in shapes.iter().zip(tensors) {
                let Some(t) = t else { continue };
                for (d, n) in shape.iter().zip(t.shape()) {
                    if let Some(s) = d.as_symbol() {
                        sizes.insert(s.clone(), *n);
                    }
                }
            }
        }
        for (name, piece) in &w.pieces {
            let done = piece.as_ref().map_err(String::clone).and_then(|p| p.compare(name, &before, &after, &sizes));
            let found = done.unwrap_or_else(|why| Found {
                kernel: name.clone(),
                elements: 0,
                worst_absolute: 0.0,
                worst_relative: 0.0,
                wrong: None,
                unchecked: Some(why),
                reproducer: String::new(),
            });
            self.found.lock().unwrap_or_else(PoisonError::into_inner).push(found);
        }
    }
}

/// Takes out of a graph what a kernel computes: from the values it loads to those it stores.
fn piece(
    graph: &Graph,
    program: &Program,
    names: &HashMap<String, ValueId>,
    k: &Kernel,
    reads: &[BufferId],
    writes: &[BufferId],
) -> Result<Piece, String> {
    let value = |b: &Buffer| {
        let v = names.get(&*b.name).copied().filter(|v| graph.shape(*v) == b.shape && graph.dtype(*v) == b.dtype);
        v.ok_or_else(|| format!("%{} is no value of the graph, but a copy or a part of one", b.name))
    };
    let (loads, stores) = (k.reads(), k.writes());
    let place = |ids: &[BufferId], b: &BufferId| ids.iter().position(|x| x == b).ok_or("a buffer is not watched");
    let mut new = Rebuild::part_of(graph, &k.name, GraphKind::Inference);
    let (mut given, mut inputs) = (vec![false; graph.value_count()], Vec::new());
    for b in &loads {
        let v = value(program.buffer(*b))?;
        given[v.0 as usize] = true;
        new.input_for(v, TensorType { strides: None, ..graph.ty(v).clone() }, Role::Primal);
        inputs.push(place(reads, b)?);
    }
    let (mut wanted, mut outputs) = (Vec::new(), Vec::new());
    for b in &stores {
        let buffer = program.buffer(*b);
        let v = value(buffer)?;
        wanted.push(if matches!(buffer.kind, BufferKind::Input(_)) { overwriting(graph, v)? } else { v });
        outputs.push(place(writes, b)?);
    }
    let keep = needed(graph, wanted.iter().copied(), |v| given[v.0 as usize], |_, _| false);
    for (_, node) in graph.nodes().filter(|(id, _)| keep[id.0 as usize]) {
        if node.results.iter().flatten().all(|v| given[v.0 as usize]) {
            continue;
        }
        new.copy(node).map_err(|e| e.to_string())?;
    }
    new.graph.outputs =
        wanted.iter().map(|v| new.value(*v).map(Output::Value)).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let mut graph = new.graph;
    let mut symbols = Vec::new();
    graph.values().for_each(|(_, v)| v.ty.shape.iter().for_each(|d| d.collect_symbols(&mut symbols)));
    graph.symbols.retain(|s| symbols.contains(&s.name));
    let symbols: Vec<Dim> = graph.symbols.iter().map(|s| Dim::sym(&s.name)).collect();
    symbols.into_iter().for_each(|s| graph.add_int_input(s));
    verify(&graph).map_err(|e| e.to_string())?;
    Ok(Piece { graph, inputs, outputs })
}

/// The value that `copy_` writes to an input.
fn overwriting(graph: &Graph, input: ValueId) -> Result<ValueId, String> {
    let writes = |n: &permalloy_ir::Node| n.op.external() == Some("aten.copy_.default") && n.operand(0) == Some(input);
    let source = graph.nodes().find(|(_, n)| writes(n)).and_then(|(_, n)| n.operand(1));
    let ty = graph.ty(input);
    let same = source.filter(|s| graph.dtype(*s) == ty.dtype && graph.shape(*s) == ty.shape);
    same.ok_or_else(|| format!("%{} is overwritten by a value of another type", graph.value(input).name))
}

impl Piece {
    fn compare(
        &self,
        kernel: &str,
        before: &[Option<PlainTensor>],
        after: &[Option<PlainTensor>],
        sizes: &SymbolValues,
    ) -> Result<Found, String> {
        let read = |t: &Option<PlainTensor>| tensor(t.as_ref().ok_or("a buffer has no memory")?);
        let mut arguments = Vec::new();
        let mut tensors = self.inputs.iter();
        for input in &self.graph.inputs {
            arguments.push(match input {
                Input::Int(d) => InputValue::Int(d.eval(sizes).map_err(|e| e.to_string())?),
                Input::Tensor { .. } => {
                    let at = tensors.next().ok_or("an argument is missing")?;
                    InputValue::Tensor(read(&before[*at])?)
                }
            });
        }
        let reference = run_bounded(&self.graph, &arguments).map_err(|e| e.to_string())?;
        let mut found = Found {
            kernel: kernel.to_string(),
            elements: 0,
            worst_absolute: 0.0,
            worst_relative: 0.0,
            wrong: None,
            unchecked: None,
            reproducer: self.text(&arguments, sizes),
        };
        for (want, at) in reference.outputs.iter().zip(&self.outputs) {
            let OutputValue::Tensor(value) = &want.value else { continue };
            found.take(value, &read(&after[*at])?, want.error.as_deref());
        }
        Ok(found)
    }

    fn text(&self, arguments: &[InputValue], sizes: &SymbolValues) -> String {
        let mut text = format!("// kernel {}\n", self.graph.name);
        for s in &self.graph.symbols {
            if let Some(n) = sizes.get(&s.name) {
                text += &format!("// symbol {} = {n}\n", s.name);
            }
        }
        for (input, argument) in self.graph.inputs.iter().zip(arguments) {
            if let (Input::Tensor { value, .. }, InputValue::Tensor(t)) = (input, argument)
                && t.numel() <= LONGEST
            {
                text += &format!("// input %{} = {}\n", self.graph.value(*value).name, list_text(t));
            }
        }
        text + &self.graph.to_string()
    }
}

impl Found {
    fn take(&mut self, want: &Tensor, got: &Tensor, bounds: Option<&[f64]>) {
        for i in 0..want.numel() {
            let (w, g) = match (&want.data, &got.data) {
                (Data::F(w), Data::F(g)) => (w[i], g[i]),
                (Data::I(w), Data::I(g)) => (w[i] as f64, g[i] as f64),
                _ => continue,
            };
            let bound = bounds.map_or(0.0, |b| b[i]);
            // Rounding decides what it is, or both agree that it is no number.
            if bound.is_infinite() || w == g || w.is_nan() && g.is_nan() {
                self.elements += usize::from(!bound.is_infinite());
                continue;
            }
            self.elements += 1;
            let off = (w - g).abs();
            if off.is_nan() || off > bound {
                let what = || format!("element {i} is {g:?}, not {w:?}; {bound:e} off are allowed");
                self.wrong.get_or_insert_with(what);
            }
            self.worst_absolute = self.worst_absolute.max(off);
            if w != 0.0 {
                self.worst_relative = self.worst_relative.max(off / w.abs());
            }
        }
    }
}
