//! What AOTAutograd calls: a list of arguments in, a list of results out.

use crate::errors;
use crate::pipeline::{Executable, InputKind, Output, RawTensor};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use std::ffi::c_void;

/// An executable with PyTorch's boxed calling convention: it empties the list of its arguments, so that a tensor can be
/// freed as soon as it has been read. The interpreter lock is free while it runs.
#[pyclass(frozen, module = "permalloy._core")]
pub struct Callable {
    executable: Box<dyn Executable>,
    integers: usize,
}

impl Callable {
    pub fn new(py: Python<'_>, executable: Box<dyn Executable>) -> PyResult<Callable> {
        Bridge::get(py)?; // so that a torch without these functions is found out here
        let integers = executable.inputs().iter().filter(|k| **k == InputKind::Int).count();
        Ok(Callable { executable, integers })
    }
}

#[pymethods]
impl Callable {
    fn __call__<'py>(&self, py: Python<'py>, args: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
        let (tensors, ints) = self.split(py, args)?;
        let results = py
            // SAFETY: `split` made the handles from live tensors, in the order and number that `inputs` tells.
            .detach(|| errors::guarded(|| unsafe { self.executable.run(tensors, ints) }))
            .map_err(|e| errors::run_error(py, e))?;
        join(py, &results)
    }

    /// Decisions made when this was compiled, as JSON.
    fn records(&self) -> String {
        self.executable.records()
    }

    /// How kernels compared with their unfused graphs since the last call, as JSON.
    fn kernel_checks(&self) -> String {
        self.executable.kernel_checks()
    }

    fn __repr__(&self) -> String {
        let tensors = self.executable.inputs().len() - self.integers;
        format!("<compiled graph of {tensors} tensors and {} integers>", self.integers)
    }
}

impl Callable {
    /// Empties the argument list into tensor handles and integers.
    fn split<'py>(&self, py: Python<'py>, args: &Bound<'py, PyList>) -> PyResult<(Vec<RawTensor>, Vec<i64>)> {
        let kinds = self.executable.inputs();
        if args.len() != kinds.len() {
            return Err(PyTypeError::new_err(format!("expected {} arguments, got {}", kinds.len(), args.len())));
        }
        let bridge = Bridge::get(py)?;
        let mut ints = Vec::with_capacity(self.integers);
        let handles = if self.integers == 0 {
            bridge.to_handles.bind(py).call1((args,))?
        } else {
            let tensors = PyList::empty(py);
            for (arg, kind) in args.iter().zip(kinds) {
                match kind {
                    InputKind::Tensor => tensors.append(arg)?,
                    InputKind::Int => ints.push(arg.extract()?),
                }
            }
            bridge.to_handles.bind(py).call1((tensors,))?
        };
        // SAFETY: deletes all items of a list that we hold.
        if unsafe { ffi::PyList_SetSlice(args.as_ptr(), 0, args.len() as isize, std::ptr::null_mut()) } != 0 {
            return Err(PyErr::fetch(py));
        }
        let handles = handles.cast_into::<PyList>()?;
        let mut tensors = Vec::with_capacity(handles.len());
        for capsule in handles.iter() {
            // SAFETY: libtorch's bindings wrap each `AtenTensorHandle` in a capsule without a name.
            let handle = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
            if handle.is_null() {
                return Err(PyErr::fetch(py));
            }
            tensors.push(RawTensor(handle));
        }
        Ok((tensors, ints))
    }
}

/// The list of results: tensors in one call, then the rest put between them.
fn join<'py>(py: Python<'py>, results: &[Output]) -> PyResult<Bound<'py, PyList>> {
    let mut handles = Vec::with_capacity(results.len());
    for output in results {
        if let Output::Tensor(RawTensor(handle)) = output {
            handles.push(capsule(py, *handle)?);
        }
    }
    let all_tensors = handles.len() == results.len();
    let tensors = Bridge::get(py)?.from_handles.bind(py).call1((handles,))?.cast_into::<PyList>()?;
    if all_tensors {
        return Ok(tensors);
    }
    let out = PyList::empty(py);
    let mut tensors = tensors.iter();
    for output in results {
        match output {
            Output::Tensor(_) => out.append(tensors.next())?,
            Output::Int(i) => out.append(i)?,
            Output::None => out.append(py.None())?,
        }
    }
    Ok(out)
}

/// A capsule without a name around an `AtenTensorHandle`.
pub fn capsule<'py>(py: Python<'py>, handle: *mut c_void) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: a new reference or null with an exception set, which is what this constructor expects.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(handle, std::ptr::null(), None)) }
}

/// PyTorch's functions between Python tensors and C handles, looked up once.
pub struct Bridge {
    pub to_handles: Py<PyAny>,
    pub from_handles: Py<PyAny>,
}

impl Bridge {
    pub fn get(py: Python<'_>) -> PyResult<&Bridge> {
        static BRIDGE: PyOnceLock<Bridge> = PyOnceLock::new();
        BRIDGE.get_or_try_init(py, || {
            let aoti = py.import("torch._C._aoti")?;
            Ok(Bridge {
                to_handles: aoti.getattr("unsafe_alloc_void_ptrs_from_tensors")?.unbind(),
                from_handles: aoti.getattr("alloc_tensors_by_stealing_from_void_ptrs")?.unbind(),
            })
        })
    }
}
