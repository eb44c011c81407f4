//! A program's Triton form as JSON: for the run time's Python side, and for tests that run it.

use crate::device::Device;
use crate::launch::{ArgKind, Generated, KernelLaunch, Launch, Memory};
use crate::{Options, generate, generate_scatter};
use permalloy_ir::Dim;
use permalloy_loops::kernel::{Buffer, BufferKind, Kernel, Program, ProgramInput, ProgramOutput, Step, TensorRef};
use serde_json::{Value, json};

/// Everything that running the program takes. Sizes are expressions in the text form of [`Dim`]. A step that has no Triton
/// form is `{"unsupported": reason}`; a native call is `{"native": operator}`.
pub fn program_json(p: &Program, device: &'static Device, options: &Options) -> Value {
    let kernel = |k: &Kernel| made(generate(k, &p.buffers, &p.symbols, device, options));
    let step = |s: &Step| match s {
        Step::Kernel(k) => vec![kernel(k)],
        Step::Group(g) => g.kernels.iter().map(kernel).collect(),
        Step::Scatter(s) => vec![made(generate_scatter(s, &p.buffers, &p.symbols, device, options))],
        Step::Native(n) => vec![json!({"native": &*n.op})],
    };
    json!({
        "name": &*p.name,
        "device": {"name": device.name, "arch": device.arch},
        "symbols": p.symbols.iter().map(|s| json!([&*s.name, s.hint])).collect::<Vec<_>>(),
        "buffers": p.buffers.iter().map(buffer).collect::<Vec<_>>(),
        "inputs": p.inputs.iter().map(|i| match i {
            ProgramInput::Tensor { buffer, .. } => json!({"buffer": buffer.0}),
            ProgramInput::Int(d) => json!({"int": d.to_string()}),
        }).collect::<Vec<_>>(),
        "outputs": p.outputs.iter().map(|o| match o {
            ProgramOutput::Tensor(t) => view(t),
            ProgramOutput::Int(d) => json!({"int": d.to_string()}),
            ProgramOutput::None => Value::Null,
        }).collect::<Vec<_>>(),
        "steps": p.steps.iter().flat_map(step).collect::<Vec<_>>(),
    })
}

fn dims(list: &[Dim]) -> Vec<String> {
    list.iter().map(Dim::to_string).collect()
}

fn buffer(b: &Buffer) -> Value {
    let kind = match b.kind {
        BufferKind::Input(_) => "input",
        BufferKind::Output => "output",
        BufferKind::Intermediate => "intermediate",
        BufferKind::Native => "native",
    };
    json!({"name": &*b.name, "dtype": b.dtype.name(), "shape": dims(&b.shape), "strides": dims(&b.strides), "kind": kind})
}

fn view(t: &TensorRef) -> Value {
    json!({"buffer": t.buffer.0, "shape": dims(&t.shape), "strides": dims(&t.strides), "offset": t.offset.to_string()})
}

fn made(result: Result<Generated, crate::Unsupported>) -> Value {
    match result {
        Ok(g) => json!({
            "launches": g.launches.iter().map(launch).collect::<Vec<_>>(),
            "scratch": g.scratch.iter()
                .map(|s| json!({"dtype": s.dtype.name(), "elements": s.elements.to_string()})).collect::<Vec<_>>(),
        }),
        Err(e) => json!({"unsupported": e.to_string()}),
    }
}

fn memory(m: &Memory) -> Value {
    match m {
        Memory::Buffer(b) => json!({"buffer": b.0}),
        Memory::Scratch(i) => json!({"scratch": i}),
        Memory::Fault => json!({"fault": true}),
    }
}

fn launch(l: &Launch) -> Value {
    match l {
        Launch::Zero(m) => json!({"zero": memory(m)}),
        Launch::Kernel(k) => kernel(k),
        Launch::Sort { keys, sorted, order, elements } => json!({"sort": {
            "keys": memory(keys), "sorted": memory(sorted), "order": memory(order), "elements": elements.to_string(),
        }}),
    }
}

fn kernel(k: &KernelLaunch) -> Value {
    let args = k.args.iter().map(|a| match &a.kind {
        ArgKind::Pointer { memory: m, aligned, .. } => {
            json!({"name": a.name, "type": a.signature(), "memory": memory(m), "aligned": aligned})
        }
        ArgKind::Size { value, multiple_of_16, .. } => json!({
            "name": a.name, "type": a.signature(), "value": value.to_string(), "multiple_of_16": multiple_of_16,
        }),
    });
    json!({
        "kernel": k.name,
        "source": k.source,
        "args": args.collect::<Vec<_>>(),
        "constants": k.constants.iter().map(|(n, v)| json!([n, v])).collect::<Vec<_>>(),
        "programs": k.programs.to_string(),
        "num_warps": k.num_warps,
        "num_stages": k.num_stages,
        "requires": k.requires.iter().map(|(d, n)| json!([d.to_string(), n])).collect::<Vec<_>>(),
        "faults": k.faults,
    })
}
