//! Who runs the tasks of a kernel.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs independent tasks, each once, and returns when all are done.
///
/// The caller decides on the threads; results of the engine do not depend on them.
pub trait ParallelFor: Sync {
    fn threads(&self) -> usize;
    /// Calls `body(i)` for every `i` in `0..tasks`, in any order and on any thread.
    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync));
}

/// Everything on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl ParallelFor for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(body);
    }
}

/// Scoped threads started for each call: for tests and tools, not for production.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub usize);

impl ParallelFor for Threads {
    fn threads(&self) -> usize {
        self.0.max(1)
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= tasks {
                    break;
                }
                body(i);
            }
        };
        std::thread::scope(|s| {
            for _ in 1..self.threads().min(tasks.max(1)) {
                s.spawn(work);
            }
            work();
        });
    }
}
