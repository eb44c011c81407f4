//! Own compile time grows with the graph, not faster: twice the nodes take about twice the time, in every shape of graph
//! that has hurt compilers. Times are of the thread's own work, so that a busy machine changes little.

mod families;

use families::{Family, fibonacci, gru, joint, transformer, wide};
use permalloy_driver::{Options, compile_joint};
use permalloy_passes::Timing;
use std::sync::Mutex;
use std::time::{Duration, Instant};

static ALONE: Mutex<()> = Mutex::new(());

/// Growth that a doubling may have: n·log n is 2.15 at these sizes.
const GROWTH: f64 = 2.3;
/// Larger graphs miss the caches more often, on a busy machine above all; a quadratic pass doubles to 4.
const SLACK: f64 = 0.6;

/// Time this thread has worked, where the system tells; else the clock.
fn worked(start: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = text.and_then(|t| t.split_whitespace().next()?.parse().ok());
    nanos.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

/// Best of three compiles of the joint graph; nodes and times.
fn compile(family: Family, nodes: usize) -> (usize, f64, Timing) {
    let graph = joint(family, nodes);
    let text = graph.to_string();
    let start = Instant::now();
    let best = (0..3).map(|_| {
        let before = worked(start);
        let compiled = compile_joint(&text, &Options::default()).expect("a legal graph compiles");
        ((worked(start) - before).as_secs_f64() * 1e3, compiled.timing)
    });
    let (ms, timing) = best.min_by(|a, b| a.0.total_cmp(&b.0)).expect("three runs");
    (graph.node_count(), ms, timing)
}

fn grows_linearly(name: &str, family: Family) {
    // One after the other: they would push each other out of the caches.
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let (nodes, _, _) = compile(family, 2_000);
    assert!(nodes > 1_000, "{nodes}");
    let (mut small, mut large) = (compile(family, 10_000), compile(family, 20_000));
    let better = |old: &mut (usize, f64, Timing), new: (usize, f64, Timing)| {
        if new.1 < old.1 {
            *old = new;
        }
    };
    let growth = |small: &(usize, f64, Timing), large: &(usize, f64, Timing)| {
        large.1 / small.1 * 2.0 * small.0 as f64 / large.0 as f64
    };
    // A second look before noise counts as growth.
    for _ in 0..4 {
        if growth(&small, &large) > GROWTH {
            better(&mut large, compile(family, 20_000));
            better(&mut small, compile(family, 10_000));
        }
    }
    let growth = growth(&small, &large);
    let mut table = format!(
        "{name}: {} nodes {:.0} ms, {} nodes {:.0} ms, growth {growth:.2}\n",
        small.0, small.1, large.0, large.1
    );
    for ((pass, a), (_, b)) in small.2.passes().iter().zip(large.2.passes()) {
        let (a, b) = (a.as_secs_f64() * 1e3, b.as_secs_f64() * 1e3);
        table += &format!("  {pass:<10} {a:>8.1} {b:>8.1}  {:.2}\n", b / a);
    }
    println!("{table}");
    assert!(growth <= GROWTH + SLACK, "compile time grows faster than the graph\n{table}");
}

#[test]
fn transformers_compile_in_linear_time() {
    grows_linearly("transformer", transformer);
}

#[test]
fn wide_graphs_compile_in_linear_time() {
    grows_linearly("wide", wide);
}

#[test]
fn deep_shared_graphs_compile_in_linear_time() {
    grows_linearly("fibonacci", fibonacci);
}

#[test]
fn unrolled_recurrences_compile_in_linear_time() {
    grows_linearly("gru", gru);
}
