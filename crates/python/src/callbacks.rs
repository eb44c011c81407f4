//! What the compiler cannot do without Python: read an operator's schema, and call operators that PyTorch's C functions
//! cannot reach. Both take the interpreter lock; call them from threads that do not hold it, or that do.

use crate::callable::{Bridge, capsule};
use crate::pipeline::RawTensor;
use permalloy_runtime::device::Binary;
use permalloy_triton::CompileRequest;
use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};
use std::ffi::c_void;

/// An argument or a result of an operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Tensor(RawTensor),
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
    /// `bf16`: the name in the text form.
    DType(String),
    /// `cpu`, `cuda:0`
    Device(String),
    /// `strided`
    Layout(String),
    /// `contiguous_format`
    MemoryFormat(String),
    List(Vec<Value>),
    None,
}

/// `str(torch.ops.aten.mm.default._schema)`, or None for an operator that PyTorch does not know.
pub fn schema(op: &str) -> Option<String> {
    let found = Python::attach(|py| {
        let ask = || python(py, "schema")?.call1((op,))?.extract();
        ask().map_err(|e: PyErr| text_of(py, &e))
    });
    found.ok().flatten()
}

/// Calls an operator by its full name (`aten.mm.default`). Tensor arguments are consumed; the results are the caller's.
/// The error is the exception's text.
pub fn call_op(op: &str, args: &[Value], kwargs: &[(&str, Value)]) -> Result<Vec<Value>, String> {
    Python::attach(|py| call_in_python(py, op, args, kwargs).map_err(|e| text_of(py, &e)))
}

fn call_in_python(py: Python<'_>, op: &str, args: &[Value], kwargs: &[(&str, Value)]) -> PyResult<Vec<Value>> {
    let positional = PyList::empty(py);
    for a in args {
        positional.append(to_python(py, a)?)?;
    }
    let keywords = PyDict::new(py);
    for (name, a) in kwargs {
        keywords.set_item(name, to_python(py, a)?)?;
    }
    let results = python(py, "call_op")?.call1((op, positional, keywords))?;
    results.cast_into::<PyList>()?.iter().map(|r| from_python(py, &r)).collect()
}

/// A kernel's machine code, or why there is none.
pub type Compiled = Result<Binary, String>;

/// Compiles kernels for a CUDA device, each to its machine code or to why there is none. The error is the exception's text.
pub fn compile_kernels(requests: &[CompileRequest], capability: u32) -> Result<Vec<Compiled>, String> {
    Python::attach(|py| compile_in_python(py, requests, capability).map_err(|e| text_of(py, &e)))
}

fn compile_in_python(py: Python<'_>, requests: &[CompileRequest], capability: u32) -> PyResult<Vec<Compiled>> {
    let list = PyList::empty(py);
    for r in requests {
        let row = (&r.source, &r.signature, &r.constants, &r.aligned, r.num_warps, r.num_stages);
        list.append(row.into_pyobject(py)?)?;
    }
    let made = py.import("permalloy.kernels")?.getattr("compile_all")?.call1((list, capability))?;
    let binary = |item: Bound<'_, PyAny>| {
        if let Ok(error) = item.extract::<String>() {
            return Ok(Err(error));
        }
        let (key, image, entry, shared_bytes): (String, Vec<u8>, String, u32) = item.extract()?;
        Ok(Ok(Binary { image, entry, shared_bytes, key }))
    };
    made.cast_into::<PyList>()?.iter().map(binary).collect()
}

/// The text of an exception that goes no further. An interrupt by the user stays one: it is raised again by the next line of
/// Python, which is the caller's once the compiler or the step has returned.
fn text_of(py: Python<'_>, error: &PyErr) -> String {
    let text = error.to_string(); // first, since it looks for signals
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        // SAFETY: marks the signal as arrived, which may be done at any time.
        unsafe { pyo3::ffi::PyErr_SetInterrupt() };
    }
    text
}

/// A function of `permalloy.callbacks`, looked up once.
fn python<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || PyResult::Ok(py.import("permalloy.callbacks")?.into_any().unbind()))?;
    module.bind(py).getattr(name)
}

fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    let tagged = |kind: &str, text: &str| python(py, "constant")?.call1((kind, text));
    Ok(match value {
        Value::Tensor(RawTensor(handle)) => {
            let list = Bridge::get(py)?.from_handles.bind(py).call1((vec![capsule(py, *handle)?],))?;
            list.get_item(0)?
        }
        Value::Int(i) => i.into_pyobject(py)?.into_any(),
        Value::Float(x) => x.into_pyobject(py)?.into_any(),
        Value::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Value::Str(s) => s.into_pyobject(py)?.into_any(),
        Value::DType(s) => tagged("dtype", s)?,
        Value::Device(s) => tagged("device", s)?,
        Value::Layout(s) => tagged("layout", s)?,
        Value::MemoryFormat(s) => tagged("memory_format", s)?,
        Value::List(items) => {
            let out = PyList::empty(py);
            for item in items {
                out.append(to_python(py, item)?)?;
            }
            out.into_any()
        }
        Value::None => py.None().into_bound(py),
    })
}

fn from_python(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::None);
    }
    if let Ok(b) = value.cast::<pyo3::types::PyBool>() {
        return Ok(Value::Bool(b.is_true()));
    }
    if let Ok(i) = value.cast::<pyo3::types::PyInt>() {
        return Ok(Value::Int(i.extract()?));
    }
    if let Ok(x) = value.cast::<pyo3::types::PyFloat>() {
        return Ok(Value::Float(x.extract()?));
    }
    if let Ok(items) = value.cast::<PyList>() {
        return Ok(Value::List(items.iter().map(|i| from_python(py, &i)).collect::<PyResult<_>>()?));
    }
    let handles = Bridge::get(py)?.to_handles.bind(py).call1((vec![value],))?;
    let handle = handle_of(&handles.get_item(0)?).ok_or_else(|| PyTypeError::new_err("no tensor came back"))?;
    Ok(Value::Tensor(RawTensor(handle)))
}

fn handle_of(capsule: &Bound<'_, PyAny>) -> Option<*mut c_void> {
    // SAFETY: libtorch's bindings wrap each `AtenTensorHandle` in a capsule without a name.
    let handle = unsafe { pyo3::ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
    (!handle.is_null()).then_some(handle)
}
