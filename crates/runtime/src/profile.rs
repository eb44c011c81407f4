//! Where the time of a step goes: per kernel and per native operator, over all runs of the process.
//! For a device it is the host's time, which launches and does not wait.
//!
//! Off unless `PERMALLOY_PROFILE` is set to something other than `0`; then each step costs two clock reads more, and
//! [`table`] says what was measured.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Whether steps are timed.
pub fn enabled() -> bool {
    static ON: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("PERMALLOY_PROFILE").is_some_and(|v| v != "0" && !v.is_empty()));
    *ON
}

#[derive(Clone, Copy, Default)]
struct Entry {
    total: Duration,
    least: Duration,
    calls: u64,
}

static TIMES: Mutex<BTreeMap<(String, String), Entry>> = Mutex::new(BTreeMap::new());

/// Runs a step, timed when profiling is on. `program` and `step` name it.
pub fn timed<T>(program: &str, step: &str, run: impl FnOnce() -> T) -> T {
    if !enabled() {
        return run();
    }
    let start = Instant::now();
    let out = run();
    let took = start.elapsed();
    let mut times = TIMES.lock().unwrap_or_else(|e| e.into_inner());
    let e = times.entry((program.to_string(), step.to_string())).or_default();
    e.least = if e.calls == 0 { took } else { e.least.min(took) };
    e.total += took;
    e.calls += 1;
    out
}

/// Steps by total time, longest first; the mean and the least time of a call in microseconds.
pub fn table() -> String {
    let times = TIMES.lock().unwrap_or_else(|e| e.into_inner());
    let mut rows: Vec<_> = times.iter().collect();
    rows.sort_by_key(|(_, e)| std::cmp::Reverse(e.total));
    let all: Duration = rows.iter().map(|(_, e)| e.total).sum();
    let mut out = format!("{:>6} {:>8} {:>10} {:>10}  step\n", "%", "calls", "mean us", "least us");
    for ((program, step), e) in rows {
        let us = |d: Duration| d.as_secs_f64() * 1e6;
        let share = 100.0 * e.total.as_secs_f64() / all.as_secs_f64().max(1e-12);
        let mean = us(e.total) / e.calls.max(1) as f64;
        let _ = writeln!(out, "{share:>6.2} {:>8} {mean:>10.1} {:>10.1}  {program} {step}", e.calls, us(e.least));
    }
    out
}
