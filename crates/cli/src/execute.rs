//! Runs compiled programs with the embedded provider, on tensors of the interpreter's.

use permalloy_interp::{Data, InputValue, OutputValue, Tensor, round_to};
use permalloy_ir::{DType, Dim, Graph, Input, SymbolValues, contiguous_strides};
use permalloy_loops::kernel::Program;
use permalloy_runtime::embedded::{EmbeddedProvider, PlainTensor};
use permalloy_runtime::engine::TileEngine;
use permalloy_runtime::{Executable, RunInput, RunOutput, TensorHandle};
use std::sync::Arc;

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub threads: usize,
    pub engine: TileEngine,
    /// Kernels may overwrite what they read last.
    pub in_place: bool,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { threads: 1, engine: TileEngine::new(), in_place: true }
    }
}

/// An executable of the program.
pub fn load(program: Program, machine: Machine) -> Result<Executable, String> {
    let provider = Arc::new(EmbeddedProvider::new(machine.threads));
    let exe = Executable::new(Arc::new(program), provider, Arc::new(machine.engine)).map_err(|e| e.to_string())?;
    Ok(if machine.in_place { exe } else { exe.without_in_place() })
}

/// Arguments in memory, laid out as the graph promises.
pub fn arguments(graph: &Graph, values: &[InputValue], symbols: &SymbolValues) -> Result<Vec<RunInput>, String> {
    let one = |(input, value): (&Input, &InputValue)| match (input, value) {
        (_, InputValue::Int(i)) => Ok(RunInput::Int(*i)),
        (Input::Tensor { value, .. }, InputValue::Tensor(t)) => {
            let ty = graph.ty(*value);
            let dims = ty.strides.clone().unwrap_or_else(|| contiguous_strides(&ty.shape));
            let eval = |d: &Dim| d.eval(symbols).map_err(|e| format!("%{}: {e}", graph.value(*value).name));
            let strides = dims.iter().map(eval).collect::<Result<Vec<_>, _>>()?;
            Ok(RunInput::Tensor(TensorHandle::Plain(plain(t, &strides)?)))
        }
        (Input::Int(d), _) => Err(format!("the integer {d} was given a tensor")),
    };
    graph.inputs.iter().zip(values).map(one).collect()
}

/// The same elements in strided memory. Where elements share memory the last one stays.
pub fn plain(t: &Tensor, strides: &[i64]) -> Result<PlainTensor, String> {
    let shape: Vec<i64> = t.shape.iter().map(|n| *n as i64).collect();
    let out = PlainTensor::empty(t.dtype, &shape, strides)?;
    let dense = match (&t.data, t.dtype) {
        (Data::F(v), DType::F64) => PlainTensor::from_values(t.dtype, &shape, v),
        (Data::F(v), DType::F32) => PlainTensor::from_values(t.dtype, &shape, &map(v, |x| x as f32)),
        (Data::F(v), DType::BF16) => PlainTensor::from_values(t.dtype, &shape, &map(v, bf16_bits)),
        (Data::F(v), DType::F16) => PlainTensor::from_values(t.dtype, &shape, &map(v, f16_bits)),
        (Data::I(v), DType::I64) => PlainTensor::from_values(t.dtype, &shape, v),
        (Data::I(v), DType::I32) => PlainTensor::from_values(t.dtype, &shape, &map(v, |x| x as i32)),
        (Data::I(v), DType::I16) => PlainTensor::from_values(t.dtype, &shape, &map(v, |x| x as i16)),
        (Data::I(v), DType::I8) => PlainTensor::from_values(t.dtype, &shape, &map(v, |x| x as i8)),
        (Data::I(v), DType::U8 | DType::Bool) => PlainTensor::from_values(t.dtype, &shape, &map(v, |x| x as u8)),
        (_, dtype) => return Err(format!("no tensor of {dtype} can be made")),
    };
    out.copy_from(&dense)?;
    Ok(out)
}

/// The elements of a tensor, row-major.
pub fn tensor(t: &PlainTensor) -> Result<Tensor, String> {
    let data = match t.dtype() {
        DType::F64 => Data::F(t.values::<f64>()),
        DType::F32 => Data::F(map(&t.values::<f32>(), f64::from)),
        DType::BF16 => Data::F(map(&t.values::<u16>(), |b| f64::from(f32::from_bits(u32::from(b) << 16)))),
        DType::F16 => Data::F(map(&t.values::<u16>(), f16_value)),
        DType::I64 => Data::I(t.values::<i64>()),
        DType::I32 => Data::I(map(&t.values::<i32>(), i64::from)),
        DType::I16 => Data::I(map(&t.values::<i16>(), i64::from)),
        DType::I8 => Data::I(map(&t.values::<i8>(), i64::from)),
        DType::U8 | DType::Bool => Data::I(map(&t.values::<u8>(), i64::from)),
        dtype => return Err(format!("a result of {dtype} cannot be read")),
    };
    Ok(Tensor { dtype: t.dtype(), shape: t.shape().iter().map(|n| *n as usize).collect(), data })
}

/// Results as values.
pub fn results(outputs: &[RunOutput]) -> Result<Vec<OutputValue>, String> {
    let one = |o: &RunOutput| match o {
        RunOutput::Tensor(TensorHandle::Plain(t)) => tensor(t).map(OutputValue::Tensor),
        RunOutput::Tensor(TensorHandle::Torch(_)) => Err("a result is not in plain memory".to_string()),
        RunOutput::Int(i) => Ok(OutputValue::Int(*i)),
        RunOutput::None => Ok(OutputValue::None),
    };
    outputs.iter().map(one).collect()
}

fn map<A: Copy, B>(v: &[A], f: impl Fn(A) -> B) -> Vec<B> {
    v.iter().map(|x| f(*x)).collect()
}

fn bf16_bits(x: f64) -> u16 {
    ((round_to(DType::BF16, x) as f32).to_bits() >> 16) as u16
}

fn f16_bits(x: f64) -> u16 {
    let x = round_to(DType::F16, x);
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    if x.is_nan() {
        return sign | 0x7e00;
    }
    let size = x.abs();
    if size.is_infinite() {
        return sign | 0x7c00;
    }
    // Subnormals count in steps of 2^-24; normal numbers keep ten bits of the fraction.
    if size < 2f64.powi(-14) {
        return sign | (size * 2f64.powi(24)) as u16;
    }
    let bits = size.to_bits();
    let exponent = (bits >> 52) as i32 - 1023 + 15;
    sign | (exponent as u16) << 10 | (bits >> 42 & 0x3ff) as u16
}

fn f16_value(b: u16) -> f64 {
    let (exponent, fraction) = (i32::from(b >> 10 & 0x1f), f64::from(b & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1024.0 + fraction) * 2f64.powi(e - 25),
    };
    if b & 0x8000 != 0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bit_floats_survive_memory() {
        for dtype in [DType::F16, DType::BF16] {
            let values: Vec<f64> =
                [0.0, -0.0, 1.0, -1.5, 6e-8, 3e-5, 65504.0, f64::INFINITY, 0.1].map(|x| round_to(dtype, x)).to_vec();
            let t = Tensor::floats(dtype, &[9], values);
            assert_eq!(tensor(&plain(&t, &[2]).unwrap()).unwrap(), t);
        }
        assert_eq!((f16_bits(1.0), f16_bits(-2.0), bf16_bits(1.0)), (0x3c00, 0xc000, 0x3f80));
    }
}
