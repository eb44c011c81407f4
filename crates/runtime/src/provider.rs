//! Who runs the operators that we do not fuse, and who owns tensors.

use crate::output_memory::OutputBlock;
use crate::parallel::ParallelFor;
use crate::tensor::TensorHandle;
use permalloy_ir::{DType, Device};
use std::fmt;
use std::sync::Arc;

/// PyTorch, or the embedded set.
pub trait Provider: Send + Sync {
    fn name(&self) -> &'static str;

    /// The threads that kernels run on.
    fn parallel(&self) -> &dyn ParallelFor;

    /// Makes an operator ready to be called many times with operands of these types.
    fn prepare(&self, call: Arc<ResolvedCall>) -> Result<Box<dyn PreparedCall>, String>;

    /// An uninitialised tensor.
    fn empty(&self, dtype: DType, shape: &[i64], strides: &[i64]) -> Result<TensorHandle, String>;

    /// An uninitialised vector in main memory.
    fn empty_on_host(&self, dtype: DType, count: i64) -> Result<TensorHandle, String> {
        self.empty(dtype, &[count], &[1])
    }

    /// A tensor over memory that it does not own.
    ///
    /// # Safety
    /// The elements that shape and strides reach from `data` stay valid while the tensor or a view of it lives.
    unsafe fn over_memory(
        &self,
        data: *mut u8,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
    ) -> Result<TensorHandle, String>;

    /// A tensor in a block of the process's pool for outputs, which goes back there when the tensor's storage dies.
    fn in_block(
        &self,
        block: OutputBlock<'static>,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
    ) -> Result<TensorHandle, String>;

    /// Intermediates and large outputs live in this process's pools of main memory. Otherwise everything is a tensor of the
    /// provider's.
    fn uses_pools(&self) -> bool {
        true
    }

    /// Kernels can read and write the tensor's memory.
    fn reaches(&self, tensor: &TensorHandle) -> bool {
        tensor.is_plain_cpu()
    }

    /// What the address of a kernel's operand must be a multiple of.
    fn alignment(&self, dtype: DType) -> usize {
        dtype.size().min(8)
    }

    /// Called when a run begins; what it returns is handed to [`Provider::leave`] when the run ends, on the same thread.
    fn enter(&self) -> u64 {
        0
    }

    fn leave(&self, _token: u64) {}
}

/// An operator bound to one place in one program, sizes known.
pub trait PreparedCall: Send + Sync {
    fn route(&self) -> &NativeRoute;

    /// The operator writes its result into memory it is given; otherwise it allocates its results itself.
    fn writes_into(&self) -> bool {
        false
    }

    /// Runs. `tensors` are the operands in the order of [`ResolvedCall::tensors`].
    /// When the call [`writes_into`](Self::writes_into), `out` is the memory of its one result, and no results come back;
    /// otherwise as many come back as the operator has, None where it returned nothing.
    fn call(&self, tensors: &[&TensorHandle], out: Option<&TensorHandle>) -> Result<Vec<Option<TensorHandle>>, String>;
}

/// How an operator is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NativeRoute {
    /// A C function of its own.
    Shim { symbol: String },
    /// PyTorch's dispatcher, by name; the reason says why there is no faster way.
    Dispatcher { reason: String },
    /// A call into Python; the reason says why there is no other way.
    Python { reason: String },
    /// Our own code.
    Embedded,
}

impl fmt::Display for NativeRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NativeRoute::Shim { symbol } => write!(f, "shim {symbol}"),
            NativeRoute::Dispatcher { reason } => write!(f, "dispatcher ({reason})"),
            NativeRoute::Python { reason } => write!(f, "python ({reason})"),
            NativeRoute::Embedded => f.write_str("embedded"),
        }
    }
}

/// A native call with every size evaluated.
#[derive(Clone, PartialEq, Debug)]
pub struct ResolvedCall {
    /// `aten.mm.default`
    pub op: Arc<str>,
    pub loc: Option<Arc<str>>,
    pub args: Vec<ResolvedArg>,
    pub kwargs: Vec<(Arc<str>, ResolvedArg)>,
    /// Types of the tensor operands; [`ResolvedArg::Tensor`] counts through them.
    pub tensors: Vec<TensorSpec>,
    /// Promised types of the results; None where nobody reads them.
    pub results: Vec<Option<TensorSpec>>,
    /// Where each tensor operand is, as the graph has it.
    pub devices: Vec<Device>,
}

/// Type and layout of a tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorSpec {
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
}

/// An argument with every size evaluated.
#[derive(Clone, PartialEq, Debug)]
pub enum ResolvedArg {
    /// Position among the tensor operands.
    Tensor(usize),
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(Arc<str>),
    DType(DType),
    Device(Device),
    Layout(Arc<str>),
    MemoryFormat(Arc<str>),
    List(Vec<ResolvedArg>),
    None,
}

/// The way into Python for operators that PyTorch's C functions cannot reach; it takes the interpreter lock itself.
pub trait PythonOp: Send + Sync {
    /// The operator's schema as PyTorch prints it, such as `aten::mm(Tensor self, Tensor mat2) -> Tensor`.
    fn schema(&self, op: &str) -> Option<String>;

    /// Calls the operator; as many results as it has, None where it returned none.
    fn call(&self, call: &ResolvedCall, tensors: &[&TensorHandle]) -> Result<Vec<Option<TensorHandle>>, String>;
}
