//! Arguments of a run from the comments of a graph's text, and its outputs as text.
//!
//! | comment | meaning |
//! |---|---|
//! | `// input %x = [1, 2.5, nan]` | elements in row-major order; inner brackets are for the reader |
//! | `// symbol s0 = 3` | value of a size symbol; its hint when absent |
//! | `// seed 7` | another set of random elements for the inputs without a line |
//! | `// round` | round floats to their dtype after each operator |

use permalloy_interp::{InputValue, OutputValue, Tensor, round_to, wrap};
use permalloy_ir::{DType, Graph, Input, SymbolValues, float_text};
use std::fmt::Write;

/// What the comments say.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Arguments<'t> {
    /// Name of an input with the text of its elements.
    inputs: Vec<(&'t str, &'t str)>,
    symbols: Vec<(&'t str, i64)>,
    pub seed: u64,
    pub round: bool,
}

impl<'t> Arguments<'t> {
    pub fn read(text: &'t str) -> Result<Arguments<'t>, String> {
        let mut arguments = Arguments::default();
        for (i, line) in text.lines().enumerate() {
            let Some(comment) = line.trim().strip_prefix("//").map(str::trim) else { continue };
            let bad = |what: &str| format!("line {}: {what}: `{comment}`", i + 1);
            if let Some(rest) = comment.strip_prefix("input %") {
                let (name, list) = rest.split_once('=').ok_or_else(|| bad("expected `input %name = [elements]`"))?;
                arguments.inputs.push((name.trim(), list.trim()));
            } else if let Some((name, value)) = comment.strip_prefix("symbol ").and_then(|rest| rest.split_once('=')) {
                let value = value.trim().parse().map_err(|_| bad("expected `symbol name = integer`"))?;
                arguments.symbols.push((name.trim(), value));
            } else if let Some(seed) = comment.strip_prefix("seed ") {
                arguments.seed = seed.trim().parse().map_err(|_| bad("expected `seed number`"))?;
            } else if comment == "round" {
                arguments.round = true;
            }
        }
        Ok(arguments)
    }

    /// Values of the graph's size symbols.
    pub fn symbols(&self, graph: &Graph) -> Result<SymbolValues, String> {
        let mut symbols = permalloy_ir::hints(&graph.symbols);
        for (name, value) in &self.symbols {
            let slot = symbols.get_mut(*name).ok_or_else(|| format!("the graph has no symbol {name}"))?;
            *slot = *value;
        }
        Ok(symbols)
    }

    /// One value an input of a verified graph.
    pub fn inputs(&self, graph: &Graph) -> Result<Vec<InputValue>, String> {
        let symbols = self.symbols(graph)?;
        let is_input = |name: &str| {
            graph.inputs.iter().any(|i| matches!(i, Input::Tensor { value, .. } if *graph.value(*value).name == *name))
        };
        if let Some((name, _)) = self.inputs.iter().find(|(name, _)| !is_input(name)) {
            return Err(format!("the graph has no input %{name}"));
        }
        let one = |input: &Input| match input {
            Input::Int(d) => d.eval(&symbols).map(InputValue::Int).map_err(|e| e.to_string()),
            Input::Tensor { value, .. } => {
                let v = graph.value(*value);
                let size = |d: &permalloy_ir::Dim| {
                    let n = d.eval(&symbols).map_err(|e| e.to_string())?;
                    usize::try_from(n)
                        .ok()
                        .filter(|n| *n <= 1 << 20)
                        .ok_or_else(|| format!("%{}: {n} is no size for a test", v.name))
                };
                let shape = v.ty.shape.iter().map(size).collect::<Result<Vec<_>, _>>()?;
                let numel = shape.iter().try_fold(1usize, |n, s| n.checked_mul(*s)).filter(|n| *n <= 1 << 24);
                let numel = numel.ok_or_else(|| format!("%{}: {shape:?} is too large for a test", v.name))?;
                let given = self.inputs.iter().rev().find(|(name, _)| *name == &*v.name);
                let elements = match given {
                    Some((_, list)) => elements(list, numel).map_err(|e| format!("input %{}: {e}", v.name))?,
                    None => random(self.seed, &v.name, v.ty.dtype, numel),
                };
                Ok(InputValue::Tensor(tensor(v.ty.dtype, &shape, &elements)))
            }
        };
        graph.inputs.iter().map(one).collect()
    }
}

/// One line an output: `output 0: f32[2, 2] [[1.0, 2.0], [3.0, 4.0]]`, floats to seven digits.
pub fn print_outputs(outputs: &[OutputValue]) -> String {
    let mut text = String::new();
    for (i, o) in outputs.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = match o {
            OutputValue::None => writeln!(text, "output {i}: none"),
            OutputValue::Int(x) => writeln!(text, "output {i}: {x}"),
            OutputValue::Tensor(t) => {
                let elements: Vec<String> = match (t.as_floats(), t.as_ints()) {
                    (Some(v), _) => v.iter().map(|x| digits(*x)).collect(),
                    (_, Some(v)) if t.dtype == DType::Bool => v.iter().map(|x| (*x != 0).to_string()).collect(),
                    (_, v) => v.unwrap_or(&[]).iter().map(i64::to_string).collect(),
                };
                writeln!(text, "output {i}: {}{:?} {}", t.dtype, t.shape, nested(&t.shape, &elements))
            }
        };
    }
    text
}

/// A tensor's elements as an `// input` comment has them, every digit of them.
pub(crate) fn list_text(t: &Tensor) -> String {
    let elements: Vec<String> = match t.as_floats() {
        Some(v) => v.iter().map(|x| float_text(*x)).collect(),
        None => t.as_ints().unwrap_or(&[]).iter().map(i64::to_string).collect(),
    };
    nested(&t.shape, &elements)
}

/// A number to seven significant digits: enough to tell results apart, too few to see the last bit of a sine.
fn digits(x: f64) -> String {
    float_text(format!("{x:.6e}").parse().unwrap_or(x))
}

fn nested(shape: &[usize], elements: &[String]) -> String {
    let Some((size, inner)) = shape.split_first() else { return elements.concat() };
    let stride: usize = inner.iter().product();
    let rows: Vec<String> = (0..*size).map(|i| nested(inner, &elements[i * stride..(i + 1) * stride])).collect();
    format!("[{}]", rows.join(", "))
}

fn tensor(dtype: DType, shape: &[usize], elements: &[f64]) -> Tensor {
    if dtype.is_float() {
        Tensor::floats(dtype, shape, elements.iter().map(|x| round_to(dtype, *x)).collect())
    } else {
        Tensor::ints(dtype, shape, elements.iter().map(|x| wrap(dtype, *x as i64)).collect())
    }
}

/// The numbers of a list, inner brackets aside.
fn elements(list: &str, numel: usize) -> Result<Vec<f64>, String> {
    let number = |word: &str| match word {
        "true" => Ok(1.0),
        "false" => Ok(0.0),
        word => word.parse::<f64>().map_err(|_| format!("`{word}` is not a number")),
    };
    let words = list.split(|c: char| c.is_whitespace() || "[],".contains(c)).filter(|w| !w.is_empty());
    let numbers = words.map(number).collect::<Result<Vec<_>, _>>()?;
    if numbers.len() == numel { Ok(numbers) } else { Err(format!("{} elements given, {numel} needed", numbers.len())) }
}

/// Multiples of 1/64 in -1..1, which every float dtype holds exactly; integers 0 to 3; bools. By seed and name, so that
/// another input changes nothing.
fn random(seed: u64, name: &str, dtype: DType, numel: usize) -> Vec<f64> {
    let mut state =
        name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut next = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let range = if dtype.is_float() {
        128
    } else if dtype == DType::Bool {
        2
    } else {
        4
    };
    let scale = |n: u64| if dtype.is_float() { (n as f64 - 64.0) / 64.0 } else { n as f64 };
    (0..numel).map(|_| scale(next() % range)).collect()
}
