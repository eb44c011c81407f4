//! Horizontal fusion: kernels next to each other that depend on none of each other become one launch.
//!
//! An optimizer over a thousand parameters is a thousand small kernels of the same few operators. Each would cost a launch,
//! and most are too small for more than one thread. In a group all their tasks are handed out together.

use crate::kernel::{Buffer, BufferId, BufferKind, Group, Kernel, OpKind, Step};
use permalloy_ir::SymbolValues;
use std::collections::HashMap;

/// All that a group's kernels write is live at the same time: beyond this, by hint, intermediates keep kernels apart.
const MOST_INTERMEDIATE_BYTES: i64 = 64 * 1024;

/// The steps with pointwise kernels put together, at most `most` in one launch. Kernels move past each other only where no
/// other step lies between them.
pub(super) fn grouped(steps: Vec<Step>, buffers: &[Buffer], hints: &SymbolValues, most: usize) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len());
    let mut run = Run::default();
    for step in steps {
        match step {
            Step::Kernel(k) if is_pointwise(&k) => {
                let bytes = intermediate_bytes(&k, buffers, hints);
                run.add(k, bytes, most);
            }
            other => {
                out.extend(std::mem::take(&mut run).close());
                out.push(other);
            }
        }
    }
    out.extend(run.close());
    out
}

fn is_pointwise(k: &Kernel) -> bool {
    k.ops.iter().all(|o| !matches!(o.kind, OpKind::Reduce { .. } | OpKind::LoadAt { .. }))
}

fn intermediate_bytes(k: &Kernel, buffers: &[Buffer], hints: &SymbolValues) -> i64 {
    let bytes = |b: &Buffer| {
        b.shape.iter().map(|d| d.eval(hints).unwrap_or(1)).product::<i64>().saturating_mul(b.dtype.size() as i64)
    };
    let written = k.writes().into_iter().map(|b| &buffers[b.0 as usize]);
    written.filter(|b| b.kind == BufferKind::Intermediate).map(bytes).sum()
}

/// Pointwise kernels that follow each other, in launches.
#[derive(Default)]
struct Run {
    launches: Vec<Launch>,
    /// Number of launches up to the last one that reads a buffer, and that writes it.
    read: HashMap<BufferId, usize>,
    written: HashMap<BufferId, usize>,
}

#[derive(Default)]
struct Launch {
    kernels: Vec<Kernel>,
    intermediate_bytes: i64,
}

impl Launch {
    fn takes(&self, bytes: i64, most: usize) -> bool {
        let fits = self.kernels.len() < most && self.intermediate_bytes + bytes <= MOST_INTERMEDIATE_BYTES;
        fits || self.kernels.is_empty()
    }
}

impl Run {
    /// Puts a kernel into the first launch after all that it depends on.
    fn add(&mut self, k: Kernel, bytes: i64, most: usize) {
        let (reads, writes) = (k.reads(), k.writes());
        let after = |launches: &HashMap<BufferId, usize>, b: &BufferId| launches.get(b).copied().unwrap_or(0);
        let made = reads.iter().map(|b| after(&self.written, b));
        let used = writes.iter().map(|b| after(&self.written, b).max(after(&self.read, b)));
        let mut at = made.chain(used).max().unwrap_or(0);
        while self.launches.get(at).is_some_and(|l| !l.takes(bytes, most)) {
            at += 1;
        }
        if at == self.launches.len() {
            self.launches.push(Launch::default());
        }
        self.launches[at].intermediate_bytes += bytes;
        self.launches[at].kernels.push(k);
        for (launches, buffers) in [(&mut self.read, reads), (&mut self.written, writes)] {
            for b in buffers {
                let last = launches.entry(b).or_default();
                *last = (*last).max(at + 1);
            }
        }
    }

    fn close(self) -> impl Iterator<Item = Step> {
        self.launches.into_iter().filter_map(|mut l| {
            if l.kernels.len() > 1 {
                let name = format!("{}_x{}", l.kernels[0].name, l.kernels.len());
                return Some(Step::Group(Group { name, kernels: l.kernels }));
            }
            l.kernels.pop().map(Step::Kernel)
        })
    }
}
