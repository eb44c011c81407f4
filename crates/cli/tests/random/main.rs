//! Random graphs through the whole compiler against the reference interpreter, forward and through backward.
//!
//! `PERMALLOY_FUZZ_SEEDS=20000` runs more of them, `PERMALLOY_FUZZ_FROM` starts elsewhere. A failure prints the smallest
//! graph found that still fails, as a filetest for `tests/filetests/random/`.

mod generate;
mod rng;
mod statements;
mod vjp;

use permalloy_cli::compare::{Compared, Disagreement, compare};
use permalloy_cli::execute::Machine;
use permalloy_cli::reduce::{guarded, quietly};
use permalloy_cli::shrink::shrink;
use permalloy_cpu::isa::IsaLevel;
use permalloy_runtime::engine::TileEngine;
use std::fmt::Write;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

const SEEDS: usize = 2400;
/// Graphs to try when a failing one is made smaller.
const TRIES: usize = 600;

/// Seeds differ in how they run, too.
fn machine(seed: u64) -> Machine {
    let mut m = Machine::default();
    if seed % 5 == 1 {
        m.threads = 3;
    }
    if seed % 7 == 2 {
        m.engine = TileEngine::at(IsaLevel::Portable);
    }
    if seed % 7 == 3 {
        m.engine = TileEngine::at(IsaLevel::Avx2.min(IsaLevel::detect()));
    }
    m.in_place = seed % 6 != 4;
    m
}

/// The graph's text with values for its symbols.
fn text(graph: &permalloy_ir::Graph, sizes: &[(String, i64)]) -> String {
    let mut text = String::new();
    for (name, value) in sizes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "// symbol {name} = {value}");
    }
    let _ = write!(text, "{graph}");
    text
}

/// Runs one seed; on failure gives the report.
fn check(seed: u64, left: &AtomicIsize) -> Result<Compared, String> {
    let case = generate::case(seed);
    let mut total = Compared::default();
    for sizes in std::iter::once(&Vec::new()).chain(&case.sizes) {
        let text = text(&case.graph, sizes);
        let fails = |text: &str| guarded(|| compare(text, machine(seed))).err().filter(bad);
        match guarded(|| compare(&text, machine(seed))) {
            Ok(c) => {
                total.elements += c.elements;
                total.uncertain += c.uncertain;
            }
            Err(e) => {
                // Shrinking takes as long as a hundred graphs.
                let small = if bad(&e) && left.fetch_sub(1, Ordering::Relaxed) > 0 {
                    shrink(&text, TRIES, &fails)
                } else {
                    None
                };
                let (small, message) = small.unwrap_or((text, e));
                return Err(format!("seed {seed}: {message}\n// run: compare\n{small}"));
            }
        }
    }
    Ok(total)
}

fn bad(e: &Disagreement) -> bool {
    !matches!(e, Disagreement::NoReference(_))
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn every_graph_computes_what_the_interpreter_does() {
    let (from, count) = (number("PERMALLOY_FUZZ_FROM", 0), number("PERMALLOY_FUZZ_SEEDS", SEEDS));
    let shown = number("PERMALLOY_FUZZ_SHOW", 3);
    let (next, left) = (AtomicUsize::new(0), AtomicIsize::new(shown as isize));
    let work = || {
        let (mut failures, mut total) = (Vec::new(), Compared::default());
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return (failures, total);
            }
            match check((from + i) as u64, &left) {
                Ok(c) => {
                    total.elements += c.elements;
                    total.uncertain += c.uncertain;
                }
                Err(e) => failures.push((i, e)),
            }
        }
    };
    // Panics are caught and reported with their graph.
    let results: Vec<_> = quietly(|| {
        std::thread::scope(|s| {
            let threads: Vec<_> = (0..2).map(|_| s.spawn(work)).collect();
            threads.into_iter().map(|t| t.join().expect("failures are caught")).collect()
        })
    });
    let elements: usize = results.iter().map(|(_, c)| c.elements).sum();
    let uncertain: usize = results.iter().map(|(_, c)| c.uncertain).sum();
    let mut failures: Vec<(usize, String)> = results.into_iter().flat_map(|(f, _)| f).collect();
    failures.sort();
    println!("{count} graphs, {elements} elements compared, {uncertain} of them open to rounding");
    assert!(
        failures.is_empty(),
        "{} of {count} graphs fail\n\n{}",
        failures.len(),
        failures.iter().take(shown).map(|(_, e)| e.as_str()).collect::<Vec<_>>().join("\n\n")
    );
    // Where rounding decides, nothing is compared: that must stay the exception.
    assert!(count < 1000 || uncertain * 10 < elements, "{uncertain} of {elements} elements are open to rounding");
}
