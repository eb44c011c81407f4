//! Values of the size symbols, from the arguments of a run.

use crate::error::RunError;
use crate::tensor::TensorHandle;
use permalloy_ir::{Symbol, SymbolValues};
use permalloy_loops::kernel::{Program, ProgramInput};

/// An argument of a run.
#[derive(Debug)]
pub enum RunInput {
    Tensor(TensorHandle),
    Int(i64),
}

/// Where each size symbol is read from.
pub struct Binder {
    sources: Vec<(Source, usize)>,
    names: Vec<Symbol>,
    ranges: Vec<(i64, i64)>,
    hints: Vec<i64>,
}

enum Source {
    Int(usize),
    Size(usize, usize),
    Stride(usize, usize),
}

impl Binder {
    pub fn new(program: &Program) -> Binder {
        let mut binder = Binder { sources: vec![], names: vec![], ranges: vec![], hints: vec![] };
        let mut add = |symbol: Option<&Symbol>, source: Source| {
            let Some(info) = symbol.and_then(|s| program.symbols.iter().find(|i| i.name == *s)) else { return };
            if !binder.names.contains(&info.name) {
                binder.sources.push((source, binder.names.len()));
                binder.names.push(info.name.clone());
                binder.ranges.push((info.min, info.max));
                binder.hints.push(info.hint);
            }
        };
        for (i, input) in program.inputs.iter().enumerate() {
            if let ProgramInput::Int(d) = input {
                add(d.as_symbol(), Source::Int(i));
            }
        }
        for (i, input) in program.inputs.iter().enumerate() {
            if let ProgramInput::Tensor { buffer, .. } = input {
                let b = program.buffer(*buffer);
                b.shape.iter().enumerate().for_each(|(d, n)| add(n.as_symbol(), Source::Size(i, d)));
                b.strides.iter().enumerate().for_each(|(d, n)| add(n.as_symbol(), Source::Stride(i, d)));
            }
        }
        binder
    }

    /// Values in the order of the binder's symbols; checks their ranges, not yet whether the arguments agree.
    pub fn values(&self, inputs: &[RunInput]) -> Result<Vec<i64>, RunError> {
        let mut values = vec![0; self.sources.len()];
        for (source, slot) in &self.sources {
            let value = match (source, inputs) {
                (Source::Int(i), inputs) => match &inputs[*i] {
                    RunInput::Int(v) => Some(*v),
                    RunInput::Tensor(_) => None,
                },
                (Source::Size(i, d), inputs) => tensor(&inputs[*i]).and_then(|t| t.shape().get(*d).copied()),
                (Source::Stride(i, d), inputs) => tensor(&inputs[*i]).and_then(|t| t.strides().get(*d).copied()),
            };
            let name = &self.names[*slot];
            let value = value.ok_or_else(|| {
                RunError::Symbol(format!("no value for size symbol {name}: its argument is not what the graph says"))
            })?;
            let (min, max) = self.ranges[*slot];
            if value < min || value > max {
                return Err(RunError::Symbol(format!(
                    "size symbol {name} is {value}, but the graph was compiled for {min} to {max}"
                )));
            }
            values[*slot] = value;
        }
        Ok(values)
    }

    /// The values the symbols had when the graph was traced.
    pub fn hints(&self) -> &[i64] {
        &self.hints
    }

    pub fn symbols(&self, values: &[i64]) -> SymbolValues {
        self.names.iter().cloned().zip(values.iter().copied()).collect()
    }
}

fn tensor(input: &RunInput) -> Option<&TensorHandle> {
    match input {
        RunInput::Tensor(t) => Some(t),
        RunInput::Int(_) => None,
    }
}
