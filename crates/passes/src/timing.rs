//! Pass timing: each pass is named where it runs, and the table comes for free.

use std::time::{Duration, Instant};

/// Times of the passes of one compile, in the order they ran.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    passes: Vec<(&'static str, Duration)>,
}

impl Timing {
    /// Runs a pass and records how long it took; several runs of one name add up.
    pub fn pass<T>(&mut self, name: &'static str, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = run();
        let took = start.elapsed();
        match self.passes.iter_mut().find(|(n, _)| *n == name) {
            Some((_, total)) => *total += took,
            None => self.passes.push((name, took)),
        }
        out
    }

    pub fn passes(&self) -> &[(&'static str, Duration)] {
        &self.passes
    }

    pub fn total(&self) -> Duration {
        self.passes.iter().map(|(_, d)| *d).sum()
    }
}
