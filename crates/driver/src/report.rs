//! What was decided, for people and for programs.

use crate::{Error, Options, compile_graph, compile_joint};
use permalloy_ir::{Graph, GraphKind};
use permalloy_loops::kernel::{BufferId, Kernel, Program, Step};
use permalloy_passes::{Record, Timing};
use serde_json::{Value, json};
use std::fmt::Write;

/// Records of one compile as a JSON list of objects: `operator`, `route`, `reason`, `detail`, `location`,
/// `alternatives`, and for native operators `way` (how PyTorch is reached; `natives` gives it by operator).
pub fn records_json(records: &[Record], natives: &[(String, String)]) -> String {
    Value::Array(records.iter().map(|r| record(r, natives)).collect()).to_string()
}

fn record(r: &Record, natives: &[(String, String)]) -> Value {
    let way = natives.iter().find(|(op, _)| **op == *r.op).map(|(_, way)| way.clone());
    json!({
        "operator": &*r.op,
        "route": r.route_name(),
        "reason": r.reason.name(),
        "detail": r.detail,
        "location": r.loc.as_deref(),
        "alternatives": r.alternatives,
        "way": way,
    })
}

/// One compiled graph, ready to be shown.
struct Shown<'a> {
    programs: Vec<(&'static str, &'a Program)>,
    records: &'a [Record],
    timing: &'a Timing,
    saved: Option<(usize, i64)>,
}

/// The plan for a graph as a table: routes, kernels with what was fused and the bytes they move, pass times, totals.
pub fn explain(text: &str, options: &Options) -> Result<String, Error> {
    with_plan(text, options, |s| s.table())
}

/// The same as JSON.
pub fn explain_json(text: &str, options: &Options) -> Result<Value, Error> {
    with_plan(text, options, |s| s.json())
}

fn with_plan<T>(text: &str, options: &Options, show: impl Fn(&Shown<'_>) -> T) -> Result<T, Error> {
    let graph = Graph::parse(text).map_err(Error::Parse)?;
    if matches!(graph.kind, GraphKind::Joint { .. }) {
        let c = compile_joint(text, options)?;
        Ok(show(&Shown {
            programs: vec![("forward", &c.forward), ("backward", &c.backward)],
            records: &c.records,
            timing: &c.timing,
            saved: Some((c.saved.len(), c.cut.saved_bytes)),
        }))
    } else {
        let c = compile_graph(text, options)?;
        Ok(show(&Shown { programs: vec![("graph", &c.program)], records: &c.records, timing: &c.timing, saved: None }))
    }
}

impl Shown<'_> {
    fn counts(&self) -> (usize, usize, usize, usize) {
        let steps = || self.programs.iter().flat_map(|(_, p)| &p.steps);
        let kernels = steps().filter(|s| !matches!(s, Step::Native(_))).count();
        let native = steps().filter(|s| matches!(s, Step::Native(_))).count();
        let decomposed = self.records.iter().filter(|r| r.route_name() != "native").count();
        (kernels, native, decomposed, self.records.len() - decomposed)
    }

    fn table(&self) -> String {
        let mut out = String::new();
        let (kernels, native, decomposed, kept) = self.counts();
        let _ = writeln!(
            out,
            "operators: {decomposed} decomposed, {kept} native; steps: {kernels} fused kernels, {native} native calls"
        );
        if let Some((values, bytes)) = self.saved {
            let _ =
                writeln!(out, "saved for backward: {values} values, {:.2} MB beside the inputs", bytes as f64 / 1e6);
        }
        let _ = writeln!(out, "\n{:<44} {:>5}  {:<36} {:<14} location", "operator", "count", "route", "reason");
        for (r, count) in grouped(self.records) {
            let loc = r.loc.as_deref().unwrap_or("");
            let _ = writeln!(out, "{:<44} {:>5}  {:<36} {:<14} {}", r.op, count, r.route_name(), r.reason.name(), loc);
            if !r.detail.is_empty() {
                let _ = writeln!(out, "{:<52}{}", "", r.detail);
            }
        }
        for (part, p) in &self.programs {
            let _ = writeln!(out, "\n{part}\n{:<40} {:>12} {:>12}  what", "kernel", "bytes read", "written");
            for s in &p.steps {
                let (name, read, written, what) = step_row(p, s);
                let _ = writeln!(out, "{name:<40} {read:>12} {written:>12}  {what}");
            }
        }
        let _ = writeln!(out, "\npass          ms");
        for (name, took) in self.timing.passes() {
            let _ = writeln!(out, "{name:<10} {:>7.2}", took.as_secs_f64() * 1e3);
        }
        let _ = writeln!(out, "{:<10} {:>7.2}", "total", self.timing.total().as_secs_f64() * 1e3);
        out
    }

    fn json(&self) -> Value {
        let (kernels, native, decomposed, kept) = self.counts();
        let part = |(name, p): &(&str, &Program)| {
            let rows: Vec<Value> = p
                .steps
                .iter()
                .map(|s| {
                    let (kernel, read, written, what) = step_row(p, s);
                    json!({"kernel": kernel, "bytes_read": read, "bytes_written": written, "what": what})
                })
                .collect();
            json!({"part": name, "steps": rows})
        };
        json!({
            "totals": {"fused": kernels, "native": native, "decomposed": decomposed, "native_operators": kept},
            "saved": self.saved.map(|(values, bytes)| json!({"values": values, "bytes": bytes})),
            "operators": self.records.iter().map(|r| record(r, &[])).collect::<Vec<_>>(),
            "programs": self.programs.iter().map(part).collect::<Vec<_>>(),
            "passes": self.timing.passes().iter().map(|(n, d)| json!({"pass": n, "ms": d.as_secs_f64() * 1e3})).collect::<Vec<_>>(),
        })
    }
}

/// Records that say the same of the same operator, counted; in order of first appearance.
fn grouped(records: &[Record]) -> Vec<(&Record, usize)> {
    let mut out: Vec<(&Record, usize)> = Vec::new();
    for r in records {
        let same = |x: &&mut (&Record, usize)| {
            x.0.op == r.op && x.0.route == r.route && x.0.reason == r.reason && x.0.detail == r.detail
        };
        match out.iter_mut().find(same) {
            Some((_, n)) => *n += 1,
            None => out.push((r, 1)),
        }
    }
    out
}

/// Name, bytes read, bytes written (by hint where sizes are symbolic), and what the step does.
fn step_row(p: &Program, s: &Step) -> (String, i64, i64, String) {
    let hints = permalloy_ir::hints(&p.symbols);
    let bytes = |ids: &[BufferId]| -> i64 {
        let one = |b: &BufferId| {
            let b = p.buffer(*b);
            b.shape.iter().map(|d| d.eval(&hints).unwrap_or(1)).product::<i64>() * b.dtype.size() as i64
        };
        ids.iter().map(one).sum()
    };
    match s {
        Step::Kernel(k) => {
            let mut fused: Vec<&str> = Vec::new();
            for f in &k.fused {
                if !fused.contains(&&*f.op) {
                    fused.push(&f.op);
                }
            }
            let axes: Vec<String> = k.axes.iter().map(|a| format!("{}{:?}", a.size, a.role)).collect();
            let what = format!("[{}] {} operations: {}", axes.join(" "), k.fused.len(), fused.join(" "));
            (k.name.clone(), bytes(&k.reads()), bytes(&k.writes()), what)
        }
        Step::Group(g) => {
            let total = |of: fn(&Kernel) -> Vec<BufferId>| g.kernels.iter().map(|k| bytes(&of(k))).sum();
            let operations: usize = g.kernels.iter().map(|k| k.fused.len()).sum();
            let what = format!("{} kernels in one launch, {operations} operations", g.kernels.len());
            (g.name.clone(), total(Kernel::reads), total(Kernel::writes), what)
        }
        Step::Scatter(s) => {
            (s.name.clone(), bytes(&[s.src.0, s.index.0]), bytes(&[s.out.0]), "scatter with summation".to_string())
        }
        Step::Native(n) => {
            let written: Vec<BufferId> = n.results.iter().flatten().copied().collect();
            (n.op.to_string(), 0, bytes(&written), format!("native {}", n.loc.as_deref().unwrap_or("")))
        }
    }
}
