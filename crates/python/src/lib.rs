//! `permalloy._core`: hands graphs to the compiler and tensors to what it made.
//!
//! This crate knows Python and the facade in [`pipeline`]; it decides nothing. Panics stop here: each entry point turns
//! one into `permalloy.InternalError`.

mod callable;
pub mod callbacks;
mod errors;
pub mod pipeline;
mod target;
mod tuning;

use callable::Callable;
use pipeline::Options;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::fmt::Write;

// Compiling makes many small short-lived objects; the C library's allocator spends a third of the time on them, and more
// than its share on large graphs.
#[global_allocator]
static ALLOCATOR: permalloy_alloc::Mimalloc = permalloy_alloc::Mimalloc;

/// A compiled joint graph: a forward and a backward.
#[pyclass(frozen, module = "permalloy._core")]
struct Joint {
    /// What the forward returns after its own outputs, and the backward takes before the tangents: pairs of a value's
    /// name and its type (None where the graph's text has the value under that name and with that type).
    #[pyo3(get)]
    saved: Vec<(String, Option<String>)>,
    /// Size expressions that the forward returns last, and the backward takes first.
    #[pyo3(get)]
    saved_ints: Vec<String>,
    #[pyo3(get)]
    forward: Py<Callable>,
    #[pyo3(get)]
    backward: Py<Callable>,
    /// Decisions made on the way, as JSON: a list of objects.
    #[pyo3(get)]
    records: String,
}

/// Compiles a joint graph, cut included. `options` are the attributes of `permalloy.config`.
#[pyfunction]
fn compile_joint(py: Python<'_>, text: &str, options: Options) -> PyResult<Joint> {
    let made = py.detach(|| errors::guarded(|| pipeline::compile_joint(text, &options)));
    let joint = made.map_err(|e| errors::compile_error(py, e))?;
    Ok(Joint {
        saved: joint.saved.into_iter().map(|s| (s.name, s.ty)).collect(),
        saved_ints: joint.saved_ints,
        forward: Py::new(py, Callable::new(py, joint.forward)?)?,
        backward: Py::new(py, Callable::new(py, joint.backward)?)?,
        records: joint.records,
    })
}

/// Compiles a forward, backward or inference graph.
#[pyfunction]
fn compile_graph(py: Python<'_>, text: &str, options: Options) -> PyResult<Callable> {
    let made = py.detach(|| errors::guarded(|| pipeline::compile_graph(text, &options)));
    Callable::new(py, made.map_err(|e| errors::compile_error(py, e))?)
}

/// The Triton form of a graph for a device (`cuda-sm90`, `ascend-a2`, …), as JSON.
#[pyfunction]
#[pyo3(signature = (text, device, deterministic = false, tile = None))]
fn triton_sources(
    py: Python<'_>,
    text: &str,
    device: &str,
    deterministic: bool,
    tile: Option<(u32, u32, u32)>,
) -> PyResult<String> {
    py.detach(|| errors::guarded(|| pipeline::triton_sources(text, device, deterministic, tile)))
        .map_err(|e| errors::compile_error(py, e))
}

/// Compiles a graph's kernels for a CUDA device that need not be there; what was made, as JSON.
#[pyfunction]
fn device_kernels(py: Python<'_>, text: &str, options: Options) -> PyResult<String> {
    py.detach(|| errors::guarded(|| pipeline::device_kernels(text, &options))).map_err(|e| errors::compile_error(py, e))
}

/// Returns its arguments at the given positions. For measuring what a call costs.
#[pyfunction]
fn passthrough(py: Python<'_>, integers: Vec<bool>, outputs: Vec<Option<usize>>) -> PyResult<Callable> {
    Callable::new(py, pipeline::passthrough(integers, outputs))
}

/// The operator table as JSON: a list of objects.
#[pyfunction]
fn ops_json() -> String {
    let mut out = String::from("[");
    for (i, op) in permalloy_ops::table().values().enumerate() {
        let rules: Vec<String> = op.rules.iter().map(|r| json_string(r.name)).collect();
        let _ = write!(
            out,
            "{}{{\"name\": {}, \"cost\": \"{:?}\", \"effect\": \"{:?}\", \"rules\": [{}], \"native\": {}, \"doc\": {}}}",
            if i == 0 { "" } else { ",\n " },
            json_string(op.name),
            op.cost,
            op.effect,
            rules.join(", "),
            op.native,
            json_string(op.doc),
        );
    }
    out.push(']');
    out
}

fn json_string(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Reads `config.routes` and `config.rewrites` (pairs) and `config.deny` as a compile would. Returns operator patterns of `deny` that match nothing
/// in the operator table. A mistake raises `ValueError` with the nearest names.
#[pyfunction]
fn check_options(
    routes: Vec<(String, String)>,
    rewrites: Vec<(String, String)>,
    deny: Vec<String>,
) -> PyResult<Vec<String>> {
    pipeline::check_options(&routes, &rewrites, &deny).map_err(PyValueError::new_err)
}

/// The entry of `config.deny` that forbids an operator to run as PyTorch's own kernel, if one does.
#[pyfunction]
fn denies_native(deny: Vec<String>, operator: &str) -> Option<String> {
    pipeline::denies_native(&deny, operator)
}

/// The `permalloy` command: exit status, and what to print (to standard output when the status is 0, else to standard error).
#[pyfunction]
fn command(py: Python<'_>, arguments: Vec<String>) -> (u8, String) {
    py.detach(|| permalloy_cli::outcome(arguments))
}

/// Times of kernels and native operators so far; None unless `PERMALLOY_PROFILE` is set.
#[pyfunction]
fn profile() -> Option<String> {
    permalloy_runtime::profile::enabled().then(permalloy_runtime::profile::table)
}

/// Version of the compiler.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Joint>()?;
    m.add_class::<Callable>()?;
    m.add_function(wrap_pyfunction!(compile_joint, m)?)?;
    m.add_function(wrap_pyfunction!(compile_graph, m)?)?;
    m.add_function(wrap_pyfunction!(triton_sources, m)?)?;
    m.add_function(wrap_pyfunction!(device_kernels, m)?)?;
    m.add_function(wrap_pyfunction!(passthrough, m)?)?;
    m.add_function(wrap_pyfunction!(ops_json, m)?)?;
    m.add_function(wrap_pyfunction!(check_options, m)?)?;
    m.add_function(wrap_pyfunction!(denies_native, m)?)?;
    m.add_function(wrap_pyfunction!(command, m)?)?;
    m.add_function(wrap_pyfunction!(profile, m)?)?;
    m.add_function(wrap_pyfunction!(version, m)?)?;
    Ok(())
}
