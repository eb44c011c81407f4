//! A provider without PyTorch: plain memory, and the few operators that a test of a whole program needs.

mod gemm;
mod tensor;

pub use tensor::PlainTensor;

use crate::output_memory::OutputBlock;
use crate::parallel::{ParallelFor, Serial, Threads};
use crate::provider::{NativeRoute, PreparedCall, Provider, ResolvedArg, ResolvedCall};
use crate::tensor::TensorHandle;
use gemm::Gemm;
use permalloy_ir::DType;
use std::sync::Arc;

/// Plain memory, matrix products in Rust, threads of the standard library.
pub struct EmbeddedProvider {
    parallel: Box<dyn ParallelFor + Send>,
}

impl EmbeddedProvider {
    /// With one thread everything runs on the caller's.
    pub fn new(threads: usize) -> EmbeddedProvider {
        EmbeddedProvider { parallel: if threads <= 1 { Box::new(Serial) } else { Box::new(Threads(threads)) } }
    }
}

impl Provider for EmbeddedProvider {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn parallel(&self) -> &dyn ParallelFor {
        &*self.parallel
    }

    fn prepare(&self, call: Arc<ResolvedCall>) -> Result<Box<dyn PreparedCall>, String> {
        let number = |name: &str| match call.kwargs.iter().find(|(n, _)| &**n == name) {
            None => Ok(1.0),
            Some((_, ResolvedArg::Float(x))) => Ok(*x),
            Some((_, ResolvedArg::Int(i))) => Ok(*i as f64),
            Some((_, other)) => Err(format!("{name} is {other:?}")),
        };
        let added = matches!(&*call.op, "aten.addmm.default" | "aten.baddbmm.default");
        if !added && !matches!(&*call.op, "aten.mm.default" | "aten.bmm.default") {
            return Err(format!("{} needs PyTorch: the embedded provider does not have it", call.op));
        }
        let operands: Option<Vec<usize>> = (call.args.iter())
            .map(|a| match a {
                ResolvedArg::Tensor(i) => Some(*i),
                _ => None,
            })
            .collect();
        let operands = operands.ok_or("operands must be tensors")?;
        let gemm = match (added, operands.as_slice()) {
            (false, [a, b]) => Gemm { c: None, a: *a, b: *b, alpha: 1.0, beta: 0.0 },
            (true, [c, a, b]) => Gemm { c: Some(*c), a: *a, b: *b, alpha: number("alpha")?, beta: number("beta")? },
            _ => return Err(format!("{} got {} operands", call.op, operands.len())),
        };
        gemm.check(&call)?;
        Ok(Box::new(gemm))
    }

    fn empty(&self, dtype: DType, shape: &[i64], strides: &[i64]) -> Result<TensorHandle, String> {
        PlainTensor::empty(dtype, shape, strides).map(TensorHandle::Plain)
    }

    unsafe fn over_memory(
        &self,
        data: *mut u8,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
    ) -> Result<TensorHandle, String> {
        // SAFETY: the caller's promise.
        Ok(TensorHandle::Plain(unsafe { PlainTensor::from_memory(data, dtype, shape, strides) }))
    }

    fn in_block(
        &self,
        block: OutputBlock<'static>,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
    ) -> Result<TensorHandle, String> {
        Ok(TensorHandle::Plain(PlainTensor::in_block(block, dtype, shape, strides)))
    }
}

impl PreparedCall for Gemm {
    fn route(&self) -> &NativeRoute {
        &NativeRoute::Embedded
    }

    fn writes_into(&self) -> bool {
        true
    }

    fn call(&self, tensors: &[&TensorHandle], out: Option<&TensorHandle>) -> Result<Vec<Option<TensorHandle>>, String> {
        let plain = |t: &TensorHandle| match t {
            TensorHandle::Plain(t) => Ok(t.clone()),
            TensorHandle::Torch(_) => Err("the embedded provider got a tensor of PyTorch's".to_string()),
        };
        let operands = tensors.iter().map(|t| plain(t)).collect::<Result<Vec<_>, _>>()?;
        self.run(&operands, &plain(out.ok_or("no memory for the result")?)?)?;
        Ok(Vec::new())
    }
}
