//! Parallel loops.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a kernel's tasks run. `body` is called once for each of `0..tasks`, in any order, on any thread;
/// the call returns when all are done. A panic inside of the body reaches the caller.
pub trait ParallelFor: Sync {
    /// How many tasks can run at the same time.
    fn threads(&self) -> usize;

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync));
}

/// One after the other, on the caller's thread.
#[derive(Clone, Copy, Default, Debug)]
pub struct Serial;

impl ParallelFor for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(body);
    }
}

/// Threads of the standard library, started for each loop: for runs without PyTorch.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub usize);

impl ParallelFor for Threads {
    fn threads(&self) -> usize {
        self.0.max(1)
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        let threads = self.threads().min(tasks);
        if threads <= 1 {
            return Serial.run(tasks, body);
        }
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    break;
                }
                body(task);
            }
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| {
                scope.spawn(work);
            });
            work();
        });
    }
}
