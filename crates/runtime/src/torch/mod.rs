//! PyTorch as provider: tensors and operators through libtorch's stable C interface, no Python on the way.
//!
//! An operator goes, in this order, through its own C function ([`shims`]), through the dispatcher ([`dispatcher`]), or
//! into Python through [`PythonOp`]; which one, and why, is its [`NativeRoute`]. Autograd is off while a program runs.

mod api;
mod cuda;
mod dispatcher;
mod parallel;
mod schema;
mod shim_table;
mod shims;
mod tensor;

pub use api::{Api, LoadError, RawTensor};
pub use cuda::CudaApi;
pub use parallel::TorchParallel;
pub use schema::{Schema, SchemaArg, SchemaType};
pub use tensor::TorchTensor;

use crate::output_memory::OutputBlock;
use crate::parallel::ParallelFor;
use crate::provider::{NativeRoute, PreparedCall, Provider, PythonOp, ResolvedArg, ResolvedCall};
use crate::tensor::{TensorHandle, same_layout};
use dispatcher::DispatcherCall;
use permalloy_ir::{DType, Device};
use shims::Shim;
pub(crate) use shims::writes_into;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// PyTorch's operators and memory.
pub struct TorchProvider {
    api: &'static Api,
    parallel: TorchParallel,
    python: Arc<dyn PythonOp>,
    calls_python: bool,
    device: Device,
    /// Set where tensors are on a CUDA device.
    cuda: Option<(CudaApi, i32)>,
}

impl TorchProvider {
    /// On the libtorch of this process, or else the library at `path`. `python` gives schemas, and runs what C cannot.
    pub fn new(path: Option<&Path>, python: Arc<dyn PythonOp>) -> Result<TorchProvider, LoadError> {
        let api = Api::load(path)?;
        let parallel = TorchParallel::new(api);
        Ok(TorchProvider { api, parallel, python, calls_python: true, device: Device::Cpu, cuda: None })
    }

    /// The same for tensors of a CUDA device.
    pub fn on_cuda(mut self, index: u8) -> Result<TorchProvider, String> {
        self.device = Device::Cuda(index);
        self.cuda = Some((CudaApi::of(self.api)?, i32::from(index)));
        Ok(self)
    }

    /// The same, but never calling into Python: an operator that C cannot reach is an error, and torch's own messages
    /// go to stderr.
    pub fn without_python_calls(mut self) -> TorchProvider {
        self.calls_python = false;
        self
    }

    pub fn api(&self) -> &'static Api {
        self.api
    }

    /// The way without Python, or why there is none.
    fn shim_or_dispatcher(&self, call: &ResolvedCall) -> Result<(Way, NativeRoute), String> {
        let text = self.python.schema(&call.op).ok_or("PyTorch has no such operator")?;
        let schema = Schema::parse(&text)?;
        let reason = match Shim::prepare(self.api, self.device, &schema, call) {
            Ok(shim) => {
                fits_result(call, shim.writes_into)?;
                let route = NativeRoute::Shim { symbol: shim.symbol.clone() };
                return Ok((Way::Shim(shim), route));
            }
            Err(reason) => reason,
        };
        match DispatcherCall::prepare(self.api, &schema, call) {
            Ok(call) => Ok((Way::Dispatcher(call), NativeRoute::Dispatcher { reason })),
            Err(e) => Err(format!("{reason}; {e}")),
        }
    }
}

/// Memory given for the result of a matrix product must have the shape that PyTorch expects, or it would resize it.
fn fits_result(call: &ResolvedCall, writes_into: bool) -> Result<(), String> {
    let gemm =
        matches!(&*call.op, "aten.mm.default" | "aten.bmm.default" | "aten.addmm.default" | "aten.baddbmm.default");
    if !writes_into || !gemm {
        return Ok(());
    }
    let [.., a, b] = call.tensors.as_slice() else { return Err("a matrix product needs two matrices".into()) };
    let expected = match (a.shape.as_slice(), b.shape.as_slice()) {
        ([m, _], [_, n]) => vec![*m, *n],
        ([batch, m, _], [_, _, n]) => vec![*batch, *m, *n],
        _ => return Err("a matrix product of tensors that are no matrices".into()),
    };
    match call.results.as_slice() {
        [Some(r)] if r.shape == expected => Ok(()),
        _ => Err(format!("the result of a matrix product has shape {expected:?}, the program says otherwise")),
    }
}

impl Provider for TorchProvider {
    fn name(&self) -> &'static str {
        "torch"
    }

    fn parallel(&self) -> &dyn ParallelFor {
        &self.parallel
    }

    fn prepare(&self, call: Arc<ResolvedCall>) -> Result<Box<dyn PreparedCall>, String> {
        let python = self.calls_python.then(|| self.python.clone());
        let (way, route) = match self.shim_or_dispatcher(&call) {
            Ok(found) => found,
            Err(reason) if python.is_some() => (Way::Python, NativeRoute::Python { reason }),
            Err(reason) => return Err(reason),
        };
        let laid_out = laid_out(&call);
        Ok(Box::new(TorchCall { api: self.api, way, route, python, call, laid_out, failed: AtomicBool::new(false) }))
    }

    fn empty(&self, dtype: DType, shape: &[i64], strides: &[i64]) -> Result<TensorHandle, String> {
        TorchTensor::empty_on(self.api, self.device, dtype, shape, strides).map(TensorHandle::Torch)
    }

    fn empty_on_host(&self, dtype: DType, count: i64) -> Result<TensorHandle, String> {
        TorchTensor::empty(self.api, dtype, &[count], &[1]).map(TensorHandle::Torch)
    }

    unsafe fn over_memory(
        &self,
        data: *mut u8,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
    ) -> Result<TensorHandle, String> {
        // SAFETY: the caller's promise.
        unsafe { TorchTensor::from_memory(self.api, self.device, data, dtype, shape, strides) }.map(TensorHandle::Torch)
    }

    fn in_block(
        &self,
        block: OutputBlock<'static>,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
    ) -> Result<TensorHandle, String> {
        TorchTensor::in_block(self.api, block, dtype, shape, strides).map(TensorHandle::Torch)
    }

    fn uses_pools(&self) -> bool {
        self.device == Device::Cpu
    }

    fn reaches(&self, tensor: &TensorHandle) -> bool {
        matches!(tensor, TensorHandle::Torch(t) if t.is_plain_on(self.device))
    }

    fn alignment(&self, dtype: DType) -> usize {
        match self.device {
            Device::Cpu => dtype.size().min(8),
            // Kernels are compiled for vector accesses.
            _ => 16,
        }
    }

    /// The token is the address of a guard of the current device, and in its last bit whether autograd was on.
    fn enter(&self) -> u64 {
        let guard = self.cuda.map_or(0, |(cuda, index)| cuda.guard(index).expose_provenance() as u64);
        // SAFETY: reads and sets a flag of this thread.
        unsafe {
            let was = (self.api.grad_mode_is_enabled)();
            if was {
                (self.api.grad_mode_set_enabled)(false);
            }
            guard | u64::from(was)
        }
    }

    fn leave(&self, token: u64) {
        if token & 1 != 0 {
            // SAFETY: sets a flag of this thread.
            unsafe { (self.api.grad_mode_set_enabled)(true) };
        }
        let guard = token & !1;
        if let (Some((cuda, _)), true) = (self.cuda, guard != 0) {
            // SAFETY: `enter` made the guard on this thread; it is given back once.
            unsafe { cuda.release(std::ptr::with_exposed_provenance_mut(guard as usize)) };
        }
    }
}

/// An operand that has to have other strides than the program gives it, and which.
///
/// PyTorch keeps cuDNN's plans for attention by the layout of queries, keys and values. A plan takes the gradient of the result
/// to lie as it did when the plan was made: with eager as the result does, so it must for us, or the gradients are wrong.
fn laid_out(call: &ResolvedCall) -> Option<(usize, Vec<i64>)> {
    if &*call.op != "aten._scaled_dot_product_cudnn_attention_backward.default" {
        return None;
    }
    let operand = |i: usize| match call.args.get(i)? {
        ResolvedArg::Tensor(t) => Some((*t, call.tensors.get(*t)?)),
        _ => None,
    };
    let ((position, gradient), (_, result)) = (operand(0)?, operand(4)?);
    let differs = gradient.shape == result.shape && !same_layout(&gradient.shape, &gradient.strides, &result.strides);
    differs.then(|| (position, result.strides.clone()))
}

enum Way {
    Shim(Shim),
    Dispatcher(DispatcherCall),
    Python,
}

/// An operator of PyTorch's, ready.
struct TorchCall {
    api: &'static Api,
    way: Way,
    route: NativeRoute,
    python: Option<Arc<dyn PythonOp>>,
    call: Arc<ResolvedCall>,
    /// See [`laid_out`].
    laid_out: Option<(usize, Vec<i64>)>,
    /// C failed once where Python did not: C is not tried again.
    failed: AtomicBool,
}

impl PreparedCall for TorchCall {
    fn route(&self) -> &NativeRoute {
        &self.route
    }

    fn writes_into(&self) -> bool {
        matches!(&self.way, Way::Shim(s) if s.writes_into)
    }

    fn call(&self, tensors: &[&TensorHandle], out: Option<&TensorHandle>) -> Result<Vec<Option<TensorHandle>>, String> {
        let Some((position, strides)) = &self.laid_out else { return self.call_as_is(tensors, out) };
        let mut tensors = tensors.to_vec();
        let (spec, given) = (&self.call.tensors[*position], tensors[*position]);
        let device = self.call.devices[*position];
        let copy = TorchTensor::empty_on(self.api, device, spec.dtype, &spec.shape, strides)?;
        let copy = TensorHandle::Torch(copy);
        copy.copy_from(given)?;
        tensors[*position] = &copy;
        self.call_as_is(&tensors, out)
    }
}

impl TorchCall {
    fn call_as_is(
        &self,
        tensors: &[&TensorHandle],
        out: Option<&TensorHandle>,
    ) -> Result<Vec<Option<TensorHandle>>, String> {
        if self.failed.load(Ordering::Relaxed) {
            return self.in_python(tensors, out);
        }
        let mut results = Vec::new();
        // With Python at hand the message comes from there, and C++ need not print its trace.
        let silence = self.python.is_some().then(|| self.api.silence());
        let done = match &self.way {
            Way::Shim(shim) => shim.call(self.api, tensors, out, &mut results)?,
            Way::Dispatcher(call) => call.call(self.api, tensors, &mut results)?,
            Way::Python => return self.in_python(tensors, out),
        };
        drop(silence);
        if done {
            return Ok(results);
        }
        if let Some(said) = self.api.last_error() {
            return Err(said);
        }
        if self.python.is_none() {
            return Err("PyTorch reported an error; its message is on stderr".into());
        }
        let results = self.in_python(tensors, out)?;
        self.failed.store(true, Ordering::Relaxed);
        Ok(results)
    }

    fn in_python(
        &self,
        tensors: &[&TensorHandle],
        out: Option<&TensorHandle>,
    ) -> Result<Vec<Option<TensorHandle>>, String> {
        let python = self.python.as_ref().ok_or("no way to call the operator")?;
        let results = python.call(&self.call, tensors)?;
        match (out, results.first()) {
            (None, _) => Ok(results),
            (Some(out), Some(Some(r))) => {
                out.copy_from(r)?;
                Ok(Vec::new())
            }
            (Some(_), _) => Err("the operator returned no tensor".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::TensorSpec;

    #[test]
    fn the_gradient_of_attention_lies_as_the_result_does() {
        let spec =
            |strides: &[i64]| TensorSpec { dtype: DType::BF16, shape: vec![2, 3, 5, 8], strides: strides.to_vec() };
        let (dense, swapped) = (spec(&[120, 40, 8, 1]), spec(&[120, 8, 24, 1]));
        let mut call = ResolvedCall {
            op: "aten._scaled_dot_product_cudnn_attention_backward.default".into(),
            loc: None,
            args: (0..6).map(ResolvedArg::Tensor).collect(),
            kwargs: vec![],
            tensors: vec![dense.clone(), dense.clone(), dense.clone(), dense.clone(), swapped.clone(), dense],
            results: vec![],
            devices: vec![Device::Cuda(0); 6],
        };
        assert_eq!(laid_out(&call), Some((0, swapped.strides.clone())));
        call.tensors[0] = swapped;
        assert_eq!(laid_out(&call), None);
    }
}
