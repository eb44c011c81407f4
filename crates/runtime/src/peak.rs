//! How much memory a program takes, from its plan alone: nothing runs, and no provider is asked.

use crate::plan::{Lifetimes, OWN_MEMORY, in_place_pairs, in_place_pairs_of, pack};
use crate::torch::writes_into;
use permalloy_ir::Device;
use permalloy_loops::kernel::{BufferKind, Program, Step};

/// Bytes at the moment of a run that takes most (by hint where sizes are symbolic), without the scratch memory of kernels
/// and what PyTorch's operators take for themselves.
#[derive(Clone, PartialEq, Debug)]
pub struct Peak {
    /// Everything below together.
    pub bytes: usize,
    /// Intermediates that share one block for the whole of the run.
    pub arena: usize,
    /// What of it is in use at that moment.
    pub arena_alive: usize,
    /// Arguments that nobody else holds, outputs, results of PyTorch's operators, intermediates with memory of their own.
    pub tensors: usize,
    /// The step of that moment; None for a program without steps.
    pub step: Option<usize>,
    /// What is alive then, largest first: name of the buffer, its bytes.
    pub alive: Vec<(String, usize)>,
}

/// The peak of a program on PyTorch's operators. `held`: the caller keeps the argument of this name during the run, so that
/// it counts for nothing.
pub fn peak(program: &Program, held: &dyn Fn(&str) -> bool) -> Peak {
    let hints = permalloy_ir::hints(&program.symbols);
    let bytes = |b: usize| {
        let buffer = &program.buffers[b];
        buffer.extent().eval(&hints).unwrap_or(0).max(0) as usize * buffer.dtype.size()
    };
    let lifetimes = Lifetimes::of(program);
    let on_device = program.buffers.iter().any(|b| b.device != Device::Cpu);
    let in_place = |s: &Step| match s {
        Step::Kernel(k) if !on_device => in_place_pairs(k),
        Step::Group(g) if !on_device => in_place_pairs_of(g),
        _ => Vec::new(),
    };
    let pairs: Vec<_> = program.steps.iter().map(in_place).collect();
    let in_arena = |b: usize| {
        let made_by_op = lifetimes.writers[b].iter().any(|s| match &program.steps[*s] {
            Step::Native(c) => !writes_into(&c.op),
            _ => false,
        });
        let kind = program.buffers[b].kind;
        let own = on_device && bytes(b) >= OWN_MEMORY;
        !own && matches!(kind, BufferKind::Intermediate | BufferKind::Native) && !made_by_op && !lifetimes.returned[b]
    };
    let n = program.buffers.len();
    let sizes: Vec<_> = (0..n).map(|b| in_arena(b).then(|| bytes(b))).collect();
    let arena = pack(program.steps.len(), &sizes, &lifetimes.spans, &pairs).bytes;
    let input = |b: usize| matches!(program.buffers[b].kind, BufferKind::Input(_));
    // From when on and until when each buffer takes memory.
    let last_step = program.steps.len().saturating_sub(1);
    let span = |b: usize| {
        let (first, last) = lifetimes.spans[b].unwrap_or((0, 0));
        match (input(b), lifetimes.returned[b]) {
            (true, _) if held(&program.buffers[b].name) => None,
            (true, returned) => Some((0, if returned { last_step } else { last })),
            (false, _) if lifetimes.spans[b].is_none() => None,
            (false, returned) => Some((first, if returned { last_step } else { last })),
        }
    };
    let spans: Vec<_> = (0..n).map(span).collect();
    let mut change = vec![0isize; program.steps.len() + 1];
    for b in (0..n).filter(|b| sizes[*b].is_none()) {
        if let Some((first, last)) = spans[b] {
            change[first] += bytes(b) as isize;
            change[last + 1] -= bytes(b) as isize;
        }
    }
    let mut now = 0;
    let totals: Vec<isize> = change
        .iter()
        .map(|c| {
            now += c;
            now
        })
        .collect();
    let step = (0..program.steps.len()).max_by_key(|s| (totals[*s], usize::MAX - s));
    let here = |b: &usize| step.is_some_and(|s| spans[*b].is_some_and(|(first, last)| first <= s && s <= last));
    let mut alive: Vec<(String, usize)> =
        (0..n).filter(here).map(|b| (program.buffers[b].name.to_string(), bytes(b))).collect();
    alive.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let tensors = step.map_or(0, |s| totals[s] as usize);
    let arena_alive = (0..n).filter(here).filter_map(|b| sizes[b]).sum();
    Peak { bytes: arena + tensors, arena, arena_alive, tensors, step, alive }
}
