//! Where intermediates lie in the arena: lifetimes, interval packing, reuse in place.

use crate::arena::ALIGN;
use crate::gaps::Gaps;
use permalloy_loops::kernel::{
    Access, BufferId, Group, Kernel, NativeArg, OpKind, Program, ProgramOutput, Step, TensorRef,
};
use std::collections::BTreeMap;

/// First and last step that touches each buffer; None for one that no step touches.
pub struct Lifetimes {
    pub spans: Vec<Option<(usize, usize)>>,
    /// Steps that write the buffer.
    pub writers: Vec<Vec<usize>>,
    /// An output of the program is a view of it.
    pub returned: Vec<bool>,
}

impl Lifetimes {
    pub fn of(program: &Program) -> Lifetimes {
        let n = program.buffers.len();
        let mut l = Lifetimes { spans: vec![None; n], writers: vec![Vec::new(); n], returned: vec![false; n] };
        for (s, step) in program.steps.iter().enumerate() {
            for b in reads(step) {
                l.touch(b, s);
            }
            for b in writes(step) {
                l.touch(b, s);
                l.writers[b.0 as usize].push(s);
            }
        }
        for output in &program.outputs {
            if let ProgramOutput::Tensor(t) = output {
                l.returned[t.buffer.0 as usize] = true;
            }
        }
        l
    }

    fn touch(&mut self, b: BufferId, step: usize) {
        let span = &mut self.spans[b.0 as usize];
        *span = Some(span.map_or((step, step), |(first, _)| (first, step)));
    }
}

/// Buffers a step reads (and operands a native call may write).
pub fn reads(step: &Step) -> Vec<BufferId> {
    match step {
        Step::Kernel(k) => k.reads(),
        Step::Group(g) => g.kernels.iter().flat_map(Kernel::reads).collect(),
        Step::Scatter(s) => vec![s.src.0, s.index.0],
        Step::Native(c) => {
            let mut out = Vec::new();
            for a in c.args.iter().chain(c.kwargs.iter().map(|(_, a)| a)) {
                for_each_tensor(a, &mut |t| out.push(t.buffer));
            }
            out
        }
    }
}

/// Buffers a step makes, or part of them.
pub fn writes(step: &Step) -> Vec<BufferId> {
    match step {
        Step::Kernel(k) => k.writes(),
        Step::Group(g) => g.kernels.iter().flat_map(Kernel::writes).collect(),
        Step::Scatter(s) => vec![s.out.0],
        Step::Native(c) => c.results.iter().flatten().copied().collect(),
    }
}

/// Tensor operands in order, inside of lists too.
pub fn for_each_tensor<'a>(arg: &'a NativeArg, f: &mut impl FnMut(&'a TensorRef)) {
    match arg {
        NativeArg::Tensor(t) => f(t),
        NativeArg::List(items) => items.iter().for_each(|a| for_each_tensor(a, f)),
        _ => {}
    }
}

/// Pairs (output, input) of a kernel that may lie at the same place: every load of the input has the address of the
/// output's only store, and no two points of the nest store to the same address, so that each address is read by none
/// but the point that writes it.
pub fn in_place_pairs(kernel: &Kernel) -> Vec<(BufferId, BufferId)> {
    /// What is known of one buffer: its only access so far, and how it is used.
    struct Seen<'a> {
        access: Option<&'a Access>,
        loads: bool,
        stores: usize,
    }
    let mut seen: BTreeMap<BufferId, Seen<'_>> = BTreeMap::new();
    for op in &kernel.ops {
        let (buffer, access, is_store) = match &op.kind {
            OpKind::Load { buffer, access } => (*buffer, Some(access).filter(|a| a.masks.is_empty()), false),
            OpKind::LoadAt { buffer, .. } => (*buffer, None, false),
            OpKind::Store { buffer, access, .. } => (*buffer, Some(access).filter(|a| a.masks.is_empty()), true),
            _ => continue,
        };
        let s = seen.entry(buffer).or_insert(Seen { access, loads: false, stores: 0 });
        s.access = s.access.filter(|a| Some(*a) == access);
        s.loads |= !is_store;
        s.stores += usize::from(is_store);
    }
    let mut pairs = Vec::new();
    for (out, o) in seen.iter().filter(|(_, s)| s.stores == 1 && !s.loads) {
        let Some(access) = o.access else { continue };
        if access.strides.iter().zip(&kernel.axes).any(|(s, axis)| s.is_const(0) && !axis.size.is_const(1)) {
            continue;
        }
        let fits = |s: &Seen<'_>| s.stores == 0 && s.access == Some(access);
        pairs.extend(seen.iter().filter(|(_, s)| fits(s)).map(|(input, _)| (*out, *input)));
    }
    pairs
}

/// As [`in_place_pairs`], for a group: what several kernels read none of them may overwrite.
pub fn in_place_pairs_of(group: &Group) -> Vec<(BufferId, BufferId)> {
    let mut readers: BTreeMap<BufferId, usize> = BTreeMap::new();
    group.kernels.iter().flat_map(Kernel::reads).for_each(|b| *readers.entry(b).or_default() += 1);
    group.kernels.iter().flat_map(in_place_pairs).filter(|(_, input)| readers.get(input) == Some(&1)).collect()
}

/// Intermediates from this size on are tensors of their own where the provider has no pool of ours: a device's memory is
/// scarce, and an arena takes what its worst moment needs for the whole of the run.
pub const OWN_MEMORY: usize = 8 << 20;

/// Offsets of the buffers that live in the arena, and its size.
#[derive(Clone, PartialEq, Debug)]
pub struct ArenaPlan {
    pub offsets: Vec<Option<usize>>,
    pub bytes: usize,
    /// Outputs that took over an input's place.
    pub in_place: usize,
}

/// Packs buffers by best fit in order of their first step. `sizes` is None for buffers that live elsewhere;
/// `spans` are first and last step; `pairs` gives each step's (output, input) that may share a place.
pub fn pack(
    steps: usize,
    sizes: &[Option<usize>],
    spans: &[Option<(usize, usize)>],
    pairs: &[Vec<(BufferId, BufferId)>],
) -> ArenaPlan {
    let (mut births, mut deaths) = (vec![Vec::new(); steps], vec![Vec::new(); steps]);
    for (b, (size, span)) in sizes.iter().zip(spans).enumerate() {
        if let (Some(_), Some((first, last))) = (size, span) {
            births[*first].push(b);
            deaths[*last].push(b);
        }
    }
    let rounded = |b: usize| sizes[b].unwrap_or(0).next_multiple_of(ALIGN);
    let mut plan = ArenaPlan { offsets: vec![None; sizes.len()], bytes: 0, in_place: 0 };
    let mut free = Gaps::new();
    let mut taken_over = vec![false; sizes.len()];
    for step in 0..steps {
        for &b in &births[step] {
            let heir = pairs[step].iter().find(|(out, input)| {
                let i = input.0 as usize;
                out.0 as usize == b
                    && !taken_over[i]
                    && sizes[i] == sizes[b]
                    && spans[i].is_some_and(|(first, last)| first < step && last == step)
            });
            plan.offsets[b] = match heir {
                Some((_, input)) => {
                    taken_over[input.0 as usize] = true;
                    plan.in_place += 1;
                    plan.offsets[input.0 as usize]
                }
                None => Some(take(&mut free, rounded(b), &mut plan.bytes)),
            };
        }
        for &b in deaths[step].iter().filter(|b| !taken_over[**b]) {
            if let Some(offset) = plan.offsets[b] {
                free.put(offset, rounded(b));
            }
        }
    }
    plan
}

/// The smallest gap that fits, or the end of the arena (with the gap before it).
fn take(free: &mut Gaps, size: usize, end: &mut usize) -> usize {
    if size == 0 {
        return 0;
    }
    if let Some(offset) = free.take(size) {
        return offset;
    }
    let offset = match free.last().filter(|(offset, gap)| offset + gap == *end) {
        Some((offset, gap)) => {
            free.remove(offset, gap);
            offset
        }
        None => *end,
    };
    *end = offset + size;
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_pairs(steps: usize) -> Vec<Vec<(BufferId, BufferId)>> {
        vec![Vec::new(); steps]
    }

    /// Buffers alive at the same step do not overlap.
    fn check(plan: &ArenaPlan, sizes: &[Option<usize>], spans: &[Option<(usize, usize)>], shared_step: bool) {
        for a in 0..sizes.len() {
            for b in 0..a {
                let (Some((af, al)), Some((bf, bl))) = (spans[a], spans[b]) else { continue };
                let overlap = if shared_step { af < bl && bf < al } else { af <= bl && bf <= al };
                if !overlap {
                    continue;
                }
                let range = |i: usize| (plan.offsets[i].unwrap(), plan.offsets[i].unwrap() + sizes[i].unwrap());
                let ((a0, a1), (b0, b1)) = (range(a), range(b));
                assert!(a1 <= b0 || b1 <= a0, "{a} and {b} overlap");
                assert!(a1 <= plan.bytes && a0.is_multiple_of(ALIGN));
            }
        }
    }

    #[test]
    fn a_chain_needs_two_places() {
        let sizes = vec![Some(1000); 6];
        let spans: Vec<_> = (0..6).map(|i| Some((i, i + 1))).collect();
        let plan = pack(7, &sizes, &spans, &no_pairs(7));
        check(&plan, &sizes, &spans, false);
        assert_eq!(plan.bytes, 2048);
    }

    #[test]
    fn a_chain_in_place_needs_one() {
        let sizes = vec![Some(1000); 6];
        let spans: Vec<_> = (0..6).map(|i| Some((i, i + 1))).collect();
        let pairs: Vec<_> =
            (0..7u32).map(|s| if s == 0 { vec![] } else { vec![(BufferId(s), BufferId(s - 1))] }).collect();
        let plan = pack(7, &sizes, &spans, &pairs);
        check(&plan, &sizes, &spans, true);
        assert_eq!((plan.bytes, plan.in_place), (1024, 5));
    }

    #[test]
    fn random_lifetimes_never_overlap() {
        let mut seed = 12345u64;
        let mut random = move |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        for _ in 0..50 {
            let steps = 40;
            let n = 60;
            let sizes: Vec<_> = (0..n).map(|_| Some(random(5000))).collect();
            let spans: Vec<_> = (0..n)
                .map(|_| {
                    let first = random(steps);
                    Some((first, first + random(steps - first)))
                })
                .collect();
            let plan = pack(steps, &sizes, &spans, &no_pairs(steps));
            check(&plan, &sizes, &spans, false);
            let alive = |s: usize| -> usize {
                (0..n).filter(|&b| spans[b].is_some_and(|(f, l)| f <= s && s <= l)).map(|b| sizes[b].unwrap()).sum()
            };
            let peak = (0..steps).map(alive).max().unwrap_or(0);
            assert!(plan.bytes <= peak * 2 + n * ALIGN, "{} for a peak of {peak}", plan.bytes);
        }
    }
}
