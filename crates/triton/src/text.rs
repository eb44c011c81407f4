//! A program's Triton form for people and for tests.

use crate::device::Device;
use crate::launch::{ArgKind, Generated, KernelLaunch, Launch, Memory};
use crate::{Options, Unsupported, generate, generate_scatter};
use permalloy_loops::kernel::{Program, Step};
use std::fmt::Write;

/// The sources of all steps, each followed by its launch; what has no Triton form is named with the reason.
pub fn program_text(p: &Program, device: &'static Device, options: &Options) -> String {
    let mut out = String::new();
    for step in &p.steps {
        match step {
            Step::Kernel(k) => add(&mut out, p, generate(k, &p.buffers, &p.symbols, device, options)),
            Step::Group(g) => {
                for k in &g.kernels {
                    add(&mut out, p, generate(k, &p.buffers, &p.symbols, device, options));
                }
            }
            Step::Scatter(s) => add(&mut out, p, generate_scatter(s, &p.buffers, &p.symbols, device, options)),
            // Writing to a string cannot fail.
            Step::Native(n) => {
                let _ = writeln!(out, "# native: {}", n.op);
            }
        }
    }
    out
}

fn add(out: &mut String, p: &Program, made: Result<Generated, Unsupported>) {
    let g = match made {
        Ok(g) => g,
        Err(e) => {
            let _ = writeln!(out, "# unsupported: {e}");
            return;
        }
    };
    for (i, s) in g.scratch.iter().enumerate() {
        let _ = writeln!(out, "# scratch {i}: {} of {}", s.elements, s.dtype);
    }
    for launch in &g.launches {
        match launch {
            Launch::Zero(m) => {
                let _ = writeln!(out, "# zero {}", memory(p, m));
            }
            Launch::Sort { keys, sorted, order, elements } => {
                let (keys, sorted, order) = (memory(p, keys), memory(p, sorted), memory(p, order));
                let _ = writeln!(out, "# sort {elements} of {keys} to {sorted}, order to {order}\n");
            }
            Launch::Kernel(k) => {
                out.push_str(&k.source);
                launch_text(out, p, k);
            }
        }
    }
}

fn memory(p: &Program, m: &Memory) -> String {
    match m {
        Memory::Buffer(b) => format!("%{}", p.buffer(*b).name),
        Memory::Scratch(i) => format!("scratch {i}"),
        Memory::Fault => "fault".to_string(),
    }
}

fn launch_text(out: &mut String, p: &Program, k: &KernelLaunch) {
    let args = k.args.iter().map(|a| match &a.kind {
        ArgKind::Pointer { memory: m, aligned, .. } => {
            format!("{}={}{}", a.name, memory(p, m), if *aligned { " aligned" } else { "" })
        }
        ArgKind::Size { value, multiple_of_16, .. } => {
            format!("{}={value}{}", a.name, if *multiple_of_16 { " multiple of 16" } else { "" })
        }
    });
    let args: Vec<String> = args.chain(k.constants.iter().map(|(n, v)| format!("{n}={v}"))).collect();
    let _ = writeln!(out, "# launch {} programs, {} warps: {}", k.programs, k.num_warps, args.join(", "));
    for (d, n) in &k.requires {
        let _ = writeln!(out, "# requires {d} <= {n}");
    }
    for (i, f) in k.faults.iter().enumerate() {
        let _ = writeln!(out, "# fault {}: {f}", i + 1);
    }
    out.push('\n');
}
