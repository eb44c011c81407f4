//! What `permalloy explain` says of memory.

use permalloy_loops::kernel::{BufferKind, Program};
use permalloy_runtime::peak::{Peak, peak};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Buffers of a program's peak that are shown by name.
const SHOWN: usize = 8;

/// The peaks of a graph's programs, forward and backward of a joint one. Arguments are the caller's, but for what the
/// forward saves: the backward is its last holder.
pub fn peaks(programs: &[Program]) -> Vec<Peak> {
    let Some(first) = programs.first() else { return vec![] };
    let given = first.buffers.iter().filter(|b| matches!(b.kind, BufferKind::Input(_)));
    let given: BTreeSet<&str> = given.map(|b| &*b.name).collect();
    programs.iter().map(|p| peak(p, &|name| given.contains(name))).collect()
}

/// A table, a program a line, with what is alive at its peak.
pub fn table(programs: &[Program]) -> String {
    let mut out = format!(
        "\n{:<28} {:>9} {:>9} {:>9} {:>9}  at its peak, in MB\n",
        "planned memory", "peak", "arena", "in use", "tensors"
    );
    let mb = |bytes: usize| bytes as f64 / 1e6;
    for (program, p) in programs.iter().zip(peaks(programs)) {
        let alive: Vec<String> = p.alive.iter().take(SHOWN).map(|(n, b)| format!("{n} {:.1}", mb(*b))).collect();
        let step = p.step.map_or_else(String::new, |s| format!("step {s}: "));
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<28} {:>9.1} {:>9.1} {:>9.1} {:>9.1}  {step}{}",
            program.name,
            mb(p.bytes),
            mb(p.arena),
            mb(p.arena_alive),
            mb(p.tensors),
            alive.join(", ")
        );
    }
    out
}

pub fn json(programs: &[Program]) -> Value {
    let one = |(program, p): (&Program, Peak)| {
        let alive: Vec<Value> = p.alive.iter().map(|(name, bytes)| json!({"buffer": name, "bytes": bytes})).collect();
        json!({
            "program": &*program.name, "peak": p.bytes, "arena": p.arena, "arena_alive": p.arena_alive,
            "tensors": p.tensors, "step": p.step, "alive": alive,
        })
    };
    programs.iter().zip(peaks(programs)).map(one).collect()
}
