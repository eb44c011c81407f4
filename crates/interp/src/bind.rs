//! Checks the arguments of a run and finds the values of the size symbols.

use crate::InputValue;
use permalloy_ir::{Dim, Graph, Input, SymbolValues};

/// Values of the symbols under which the arguments are what the graph declares.
pub(crate) fn bind(graph: &Graph, inputs: &[InputValue]) -> Result<SymbolValues, String> {
    if graph.inputs.len() != inputs.len() {
        return Err(format!("the graph takes {} inputs, got {}", graph.inputs.len(), inputs.len()));
    }
    // What must hold: this expression, found here, has this value.
    let mut equations: Vec<(String, &Dim, i64)> = Vec::new();
    for (i, (input, given)) in graph.inputs.iter().zip(inputs).enumerate() {
        match (input, given) {
            (Input::Int(d), InputValue::Int(x)) => equations.push((format!("input {i}"), d, *x)),
            (Input::Tensor { value, .. }, InputValue::Tensor(t)) => {
                let value = graph.value(*value);
                let (name, ty) = (&value.name, &value.ty);
                t.check().map_err(|e| format!("input %{name}: {e}"))?;
                if t.dtype != ty.dtype || t.shape.len() != ty.rank() {
                    return Err(format!("input %{name}: got {}{:?} for {ty}", t.dtype, t.shape));
                }
                for (dim, (d, size)) in ty.shape.iter().zip(&t.shape).enumerate() {
                    equations.push((format!("input %{name}, dim {dim}"), d, *size as i64));
                }
            }
            (Input::Int(d), _) => return Err(format!("input {i} is the integer {d}, got a tensor")),
            (Input::Tensor { value, .. }, _) => {
                return Err(format!("input {i} is the tensor %{}, got an integer", graph.value(*value).name));
            }
        }
    }
    let mut symbols = SymbolValues::new();
    for (_, d, x) in &equations {
        if let Some(s) = d.as_symbol() {
            symbols.entry(s.clone()).or_insert(*x);
        }
    }
    for (place, d, x) in &equations {
        let expected = d.eval(&symbols).map_err(|e| format!("{place}: {e}"))?;
        if expected != *x {
            return Err(format!("{place}: got {x}, expected {d} = {expected}"));
        }
    }
    for s in &graph.symbols {
        if let Some(x) = symbols.get(&s.name)
            && !(s.min..=s.max).contains(x)
        {
            return Err(format!("size symbol {} = {x} lies outside of its range [{}, {}]", s.name, s.min, s.max));
        }
    }
    Ok(symbols)
}
