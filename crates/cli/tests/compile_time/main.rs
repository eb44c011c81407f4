//! Own compile time grows with the graph, not faster: twice the nodes take about twice the time, in every shape of graph
//! that has hurt compilers.
//!
//! Two measures. What the compiler allocates is the same in every run and shows work that grows; but on a large graph the
//! same work may take longer, since it misses the caches, and that only a clock shows. Times are of the thread's own work and
//! the best of several runs of both sizes in turn, so that a busy machine changes little.

mod adamw;
mod families;

use families::{Family, fibonacci, gru, joint, transformer, wide};
use permalloy_alloc::{Allocated, Counting, Mimalloc, allocated};
use permalloy_cli::compare::compare;
use permalloy_cli::execute::{Machine, load};
use permalloy_driver::{Options, compile_graph, compile_joint, report};
use permalloy_ir::{Graph, GraphKind};
use permalloy_passes::Timing;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The allocator of the product, since its behaviour on large graphs counts too.
#[global_allocator]
static ALLOCATOR: Counting<Mimalloc> = Counting(Mimalloc);

static ALONE: Mutex<()> = Mutex::new(());

/// Growth of time that a doubling may have: n·log n is 2.15 at these sizes.
const GROWTH: f64 = 2.3;
/// Growth of what is allocated: tables that double make steps.
const ALLOCATED_GROWTH: f64 = 2.1;
/// Runs of both sizes in turn; more than the least only while the growth looks too large.
const RUNS: std::ops::Range<usize> = 3..25;

/// A graph with what compiling it took.
struct Measured {
    text: String,
    nodes: usize,
    /// The best run's.
    ms: f64,
    timing: Timing,
    allocated: Allocated,
}

impl Measured {
    fn of(family: Family, nodes: usize) -> Measured {
        let graph = joint(family, nodes);
        let (text, nodes) = (graph.to_string(), graph.node_count());
        Measured { text, nodes, ms: f64::INFINITY, timing: Timing::default(), allocated: Allocated::default() }
    }

    fn run(&mut self) {
        let (before, start) = (allocated(), Instant::now());
        let worked_before = worked(start);
        let compiled = compile_joint(&self.text, &Options::default()).expect("a legal graph compiles");
        let ms = (worked(start) - worked_before).as_secs_f64() * 1e3;
        if ms < self.ms {
            (self.ms, self.timing) = (ms, compiled.timing);
        }
        let after = allocated();
        self.allocated = Allocated { blocks: after.blocks - before.blocks, bytes: after.bytes - before.bytes };
    }

    /// How much more of something this graph takes than one of half its size.
    fn growth(&self, half: &Measured, of: impl Fn(&Measured) -> f64) -> f64 {
        of(self) / of(half) * 2.0 * half.nodes as f64 / self.nodes as f64
    }
}

/// Time this thread has worked, where the system tells; else the clock.
fn worked(start: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = text.and_then(|t| t.split_whitespace().next()?.parse().ok());
    nanos.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

fn grows_linearly(name: &str, family: Family) {
    // One after the other: they would push each other out of the caches.
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let (mut small, mut large) = (Measured::of(family, 10_000), Measured::of(family, 20_000));
    assert!(small.nodes > 5_000, "{}", small.nodes);
    for run in 0..RUNS.end {
        small.run();
        large.run();
        if run >= RUNS.start && large.growth(&small, |m| m.ms) <= GROWTH {
            break;
        }
    }
    let time = large.growth(&small, |m| m.ms);
    let blocks = large.growth(&small, |m| m.allocated.blocks as f64);
    let bytes = large.growth(&small, |m| m.allocated.bytes as f64);
    let mut table = format!("{name}: {} and {} nodes\n", small.nodes, large.nodes);
    let mut row = |what: &str, a: f64, b: f64, growth: f64| {
        table += &format!("  {what:<10} {a:>9.1} {b:>9.1}  {growth:.2}\n");
    };
    let ms = |d: &Duration| d.as_secs_f64() * 1e3;
    for ((pass, a), (_, b)) in small.timing.passes().iter().zip(large.timing.passes()) {
        row(pass, ms(a), ms(b), ms(b) / ms(a));
    }
    row("all, ms", small.ms, large.ms, time);
    let (a, b) = (small.allocated, large.allocated);
    row("blocks, k", a.blocks as f64 / 1e3, b.blocks as f64 / 1e3, blocks);
    row("MB", a.bytes as f64 / 1e6, b.bytes as f64 / 1e6, bytes);
    println!("{table}");
    assert!(blocks <= ALLOCATED_GROWTH && bytes <= ALLOCATED_GROWTH, "the work grows faster than the graph\n{table}");
    assert!(time <= GROWTH, "compile time grows faster than the graph\n{table}");
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

#[test]
fn an_optimizer_over_1354_parameters_is_a_few_launches() {
    let text = adamw::adamw(1354);
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let start = Instant::now();
    let before = worked(start);
    let compiled = compile_graph(&text, &Options::default()).expect("a legal graph compiles");
    let launches = compiled.program.steps.len();
    let timing = format!("{:?}", compiled.timing.passes());
    let exe = load(compiled.program, Machine::default()).expect("kernels compile");
    let took = worked(start) - before;
    println!("{launches} launches, {took:?}: {timing}");
    assert!(launches <= 5, "{launches} launches");
    assert!(took < Duration::from_secs(3), "{took:?}: {timing}");
    assert_eq!(exe.program().steps.len(), launches);
    let shown = report::explain(&adamw::adamw(40), &Options::default()).expect("a legal graph compiles");
    assert!(shown.contains("2 fused kernels, 0 native calls") && shown.contains("kernels in one launch"), "{shown}");
}

#[test]
fn an_optimizers_launches_compute_what_the_interpreter_does() {
    for threads in [1, 3] {
        let done = compare(&adamw::adamw(30), Machine { threads, ..Machine::default() }).expect("they agree");
        // Each parameter with its two moments and its step.
        assert!(done.elements > 30 * 4 && done.uncertain * 1000 < done.elements, "{done:?}");
    }
}

#[test]
fn a_shared_graph_of_depth_30_compiles_in_no_time() {
    let mut graph = Graph::new("shared", GraphKind::Inference);
    let outputs = fibonacci(&mut graph, 60);
    families::finish(&mut graph, &outputs);
    let start = Instant::now();
    let before = worked(start);
    let compiled = compile_joint(&graph.to_string(), &Options::default()).expect("a legal graph compiles");
    let took = worked(start) - before;
    // Inlined it would be a million operations.
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(compiled.forward.steps.len() <= 2, "{}", compiled.forward);
}
