//! Memory that a thread keeps between tasks, so that registers stay in its caches.

use std::cell::Cell;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

thread_local! {
    static MEMORY: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with at least `bytes` bytes, aligned to 64, of unspecified content.
pub(crate) fn with_worker_memory<R>(bytes: usize, f: impl FnOnce(*mut u8) -> R) -> R {
    let mut memory = MEMORY.take();
    let lines = bytes.div_ceil(64);
    if memory.len() < lines {
        memory.clear();
        memory.resize(lines, Line([0; 64]));
    }
    let result = f(memory.as_mut_ptr().cast());
    MEMORY.set(memory);
    result
}
