//! Parallel loops on PyTorch's own threads: a second pool would fight with its spinning workers.

use super::api::Api;
use crate::parallel::{ParallelFor, Serial};
use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

/// `at::parallel_for`
#[derive(Clone, Copy)]
pub struct TorchParallel {
    api: &'static Api,
}

impl TorchParallel {
    pub fn new(api: &'static Api) -> TorchParallel {
        TorchParallel { api }
    }
}

struct Loop<'a> {
    body: &'a (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl ParallelFor for TorchParallel {
    fn threads(&self) -> usize {
        let mut n = 1;
        match self.api.get_num_threads.zip(self.api.parallel_for) {
            // SAFETY: a writable result.
            Some((get, _)) if unsafe { get(&mut n) } == 0 => n.max(1) as usize,
            _ => 1,
        }
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        let Some(parallel_for) = self.api.parallel_for.filter(|_| tasks > 1) else {
            return Serial.run(tasks, body);
        };
        let mut state = Loop { body, panic: Mutex::new(None) };
        // SAFETY: `state` outlives the call, which returns only when every range is done; `range` never unwinds.
        let code = unsafe { parallel_for(0, tasks as i64, 1, range, (&raw mut state).cast()) };
        let panic = state.panic.get_mut().map_or(None, Option::take);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        assert_eq!(code, 0, "torch_parallel_for failed");
    }
}

/// Runs tasks `begin..end`; after a panic the remaining ones of the range are skipped.
unsafe extern "C" fn range(begin: i64, end: i64, state: *mut c_void) {
    // SAFETY: `run` passes its `Loop`, which is shared and lives until all ranges are done.
    let state = unsafe { &*state.cast::<Loop<'_>>() };
    let done = catch_unwind(AssertUnwindSafe(|| (begin..end).for_each(|i| (state.body)(i as usize))));
    if let (Err(panic), Ok(mut slot)) = (done, state.panic.lock()) {
        slot.get_or_insert(panic);
    }
}
