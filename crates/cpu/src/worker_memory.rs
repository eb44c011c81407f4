//! Memory that a thread keeps between tasks, so that registers stay in its caches.

use std::cell::Cell;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

thread_local! {
    static MEMORY: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// What lies behind the registers: code that writes past them changes it, which tests see.
const BEHIND: Line = Line([0xa5; 64]);

/// Calls `f` with at least `bytes` bytes, aligned to 64, of unspecified content.
pub(crate) fn with_worker_memory<R>(bytes: usize, f: impl FnOnce(*mut u8) -> R) -> R {
    let mut memory = MEMORY.take();
    let lines = bytes.div_ceil(64);
    if memory.len() <= lines {
        memory.clear();
        memory.resize(lines + 1, Line([0; 64]));
    }
    if cfg!(debug_assertions) {
        memory[lines] = BEHIND;
    }
    let result = f(memory.as_mut_ptr().cast());
    debug_assert_eq!(memory[lines].0, BEHIND.0, "a kernel wrote past its registers");
    MEMORY.set(memory);
    result
}
