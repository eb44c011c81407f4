//! PyTorch as provider: tensors and operators through libtorch's stable C interface, no Python on the way.
//!
//! An operator goes, in this order, through its own C function ([`shims`]), through the dispatcher ([`dispatcher`]), or
//! into Python through [`PythonOp`]; which one, and why, is its [`NativeRoute`]. Autograd is off while a program runs.

mod api;
mod dispatcher;
mod parallel;
mod schema;
mod shim_table;
mod shims;
mod tensor;

pub use api::{Api, LoadError, RawTensor};
pub use parallel::TorchParallel;
pub use schema::{Schema, SchemaArg, SchemaType};
pub use tensor::TorchTensor;

use crate::output_memory::OutputBlock;
use crate::parallel::ParallelFor;
use crate::provider::{NativeRoute, PreparedCall, Provider, PythonOp, ResolvedCall};
use crate::tensor::TensorHandle;
use dispatcher::DispatcherCall;
use permalloy_ir::DType;
use shims::Shim;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// PyTorch's operators and memory.
pub struct TorchProvider {
    api: &'static Api,
    parallel: TorchParallel,
    python: Arc<dyn PythonOp>,
    calls_python: bool,
}

impl TorchProvider {
    /// On the libtorch of this process, or else the library at `path`. `python` gives schemas, and runs what C cannot.
    pub fn new(path: Option<&Path>, python: Arc<dyn PythonOp>) -> Result<TorchProvider, LoadError> {
        let api = Api::load(path)?;
        Ok(TorchProvider { api, parallel: TorchParallel::new(api), python, calls_python: true })
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
        let reason = match Shim::prepare(self.api, &schema, call) {
            Ok(shim) => {
                fits_result(call, shim.writes_into)?;
                let route = NativeRoute::Shim { symbol: shim.symbol };
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
        Ok(Box::new(TorchCall { api: self.api, way, route, python, call, failed: AtomicBool::new(false) }))
    }

    fn empty(&self, dtype: DType, shape: &[i64], strides: &[i64]) -> Result<TensorHandle, String> {
        TorchTensor::empty(self.api, dtype, shape, strides).map(TensorHandle::Torch)
    }

    unsafe fn over_memory(
        &self,
        data: *mut u8,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
    ) -> Result<TensorHandle, String> {
        // SAFETY: the caller's promise.
        unsafe { TorchTensor::from_memory(self.api, data, dtype, shape, strides) }.map(TensorHandle::Torch)
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

    fn enter(&self) -> u64 {
        // SAFETY: reads and sets a flag of this thread.
        unsafe {
            let was = (self.api.grad_mode_is_enabled)();
            if was {
                (self.api.grad_mode_set_enabled)(false);
            }
            u64::from(was)
        }
    }

    fn leave(&self, token: u64) {
        if token != 0 {
            // SAFETY: sets a flag of this thread.
            unsafe { (self.api.grad_mode_set_enabled)(true) };
        }
    }
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
}

impl TorchCall {
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
