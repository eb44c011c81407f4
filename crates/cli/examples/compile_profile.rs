//! scratch
use permalloy_ir::Graph;
use permalloy_ops::policy::Policy;
use permalloy_passes::*;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
#[path = "../tests/compile_time/families.rs"]
mod families;
struct Counting;
static N: AtomicU64 = AtomicU64::new(0);
static B: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        if cfg!(feature = "count") {
            N.fetch_add(1, Relaxed);
            B.fetch_add(l.size() as u64, Relaxed);
            LIVE.fetch_add(l.size() as u64, Relaxed);
        }
        unsafe { mimalloc::MiMalloc.alloc(l) }
    }
    unsafe fn dealloc(&self, p: *mut u8, l: Layout) {
        if cfg!(feature = "count") {
            LIVE.fetch_sub(l.size() as u64, Relaxed);
        }
        unsafe { mimalloc::MiMalloc.dealloc(p, l) }
    }
    unsafe fn realloc(&self, p: *mut u8, l: Layout, n: usize) -> *mut u8 {
        if cfg!(feature = "count") {
            N.fetch_add(1, Relaxed);
            B.fetch_add(n as u64, Relaxed);
            LIVE.fetch_add(n as u64, Relaxed);
            LIVE.fetch_sub(l.size() as u64, Relaxed);
        }
        unsafe { mimalloc::MiMalloc.realloc(p, l, n) }
    }
}
#[global_allocator]
static A: Counting = Counting;
#[derive(Clone)]
struct Row(&'static str, f64, u64, u64, u64);
fn pass<T>(rows: &mut Vec<Row>, name: &'static str, f: impl FnOnce() -> T) -> T {
    let (n, b, t) = (N.load(Relaxed), B.load(Relaxed), Instant::now());
    let out = f();
    let ms = t.elapsed().as_secs_f64() * 1e3;
    rows.push(Row(name, ms, N.load(Relaxed) - n, B.load(Relaxed) - b, LIVE.load(Relaxed)));
    out
}
fn compile(text: &str) -> Vec<Row> {
    let r = &mut vec![];
    let policy = Policy::of("cpu").unwrap();
    let start = Instant::now();
    let given = pass(r, "parse", || Graph::parse(text)).unwrap();
    pass(r, "verify", || permalloy_ir::verify(&given)).unwrap();
    let routed = pass(r, "route", || route(&given, &RouteOptions { policy, overrides: vec![] }));
    let graph = pass(r, "simplify", || simplify(&routed.graph));
    let cut = pass(r, "partition", || partition(&graph, &|_| true)).unwrap();
    let f = pass(r, "simplify.f", || simplify(&cut.forward));
    let b = pass(r, "simplify.b", || simplify(&cut.backward));
    let pf = pass(r, "lower.f", || permalloy_loops::lower(&f, permalloy_loops::Limits::CPU)).unwrap();
    let pb = pass(r, "lower.b", || permalloy_loops::lower(&b, permalloy_loops::Limits::CPU)).unwrap();
    pass(r, "drop", || drop((given, routed, graph, cut, f, b)));
    pass(r, "drop program", || drop((pf, pb)));
    let ms = start.elapsed().as_secs_f64() * 1e3;
    r.push(Row("all", ms, r.iter().map(|x| x.2).sum(), r.iter().map(|x| x.3).sum(), 0));
    r.clone()
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let reps: usize = args[1].parse().unwrap();
    let texts: Vec<(usize, String)> = args[2..]
        .iter()
        .map(|a| match a.split_once(':') {
            Some((name, n)) => {
                let f: families::Family = match name {
                    "transformer" => families::transformer,
                    "wide" => families::wide,
                    "fibonacci" => families::fibonacci,
                    _ => families::gru,
                };
                let g = families::joint(f, n.parse().unwrap());
                (g.node_count(), g.to_string())
            }
            None => {
                let t = std::fs::read_to_string(a).unwrap();
                (Graph::parse(&t).unwrap().node_count(), t)
            }
        })
        .collect();
    let mut best: Vec<Option<Vec<Row>>> = vec![None; texts.len()];
    for _ in 0..reps {
        for (i, (_, t)) in texts.iter().enumerate() {
            let rows = compile(t);
            best[i] = Some(match best[i].take() {
                None => rows,
                Some(old) => old.into_iter().zip(rows).map(|(a, b)| if b.1 < a.1 { b } else { a }).collect(),
            });
        }
    }
    for (n, _) in &texts {
        print!("{n} nodes  ");
    }
    println!();
    let best: Vec<Vec<Row>> = best.into_iter().flatten().collect();
    for i in 0..best[0].len() {
        print!("{:<13}", best[0][i].0);
        for (k, b) in best.iter().enumerate() {
            let r = &b[i];
            print!(" {:>8.2} ms {:>8} k {:>7.1} MB {:>6.1} live", r.1, r.2 / 1000, r.3 as f64 / 1e6, r.4 as f64 / 1e6);
            if k > 0 {
                let p = &best[k - 1][i];
                let s = texts[k].0 as f64 / texts[k - 1].0 as f64 / 2.0;
                print!(" x{:.2}/{:.2}", r.1 / p.1 / s, r.2 as f64 / p.2 as f64 / s);
            }
            print!(" |");
        }
        println!();
    }
}
