//! Fused micro-ops: runs of f32 arithmetic on whole tiles become straight-line code for a machine with one accumulator.
//!
//! The accumulator is a block of vectors that stays in registers of the processor, so an intermediate value that only the
//! next operation reads is never written; values read later are saved in blocks of scratch memory that stay in the
//! first-level cache. Sums over columns and rows are taken from the accumulator too.

mod exec;
mod machine;

pub(crate) use machine::{Instr, LANES, Op, run, sum};

use crate::class::Class;
use crate::fold::Join;
use crate::layout::Layout;
use crate::program::{Fold, Kind, Micro, Phase, Place, Program, Slot};
use crate::regs::lines;
use permalloy_ir::PrimOp;

/// Where a step finds its operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Source {
    None,
    /// A value from outside of the run.
    Slot(Slot),
    /// A block of scratch memory.
    Scratch(usize),
    /// The result of the micro-op of that number in `outs`.
    Out(usize),
    /// Lanes in which the column accumulator of that number in `sums` is summed.
    Lanes(usize),
    /// Sums of the last few rows of a row accumulator.
    Rows(usize),
    /// The accumulator's operation, for those that have no instruction of their own.
    Prim(PrimOp),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Step {
    pub op: Op,
    pub source: Source,
}

/// A run of micro-ops as one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Fused {
    pub steps: Vec<Step>,
    /// Results that others read.
    pub outs: Vec<Micro>,
    /// Column accumulators.
    pub sums: Vec<(usize, Join)>,
    /// The tile is one row as far as the operands are concerned.
    pub flat: bool,
    /// Places of the blocks of scratch memory, the lanes of the sums, and a block for operations without an instruction.
    pub scratch: usize,
    pub call: usize,
    pub lanes: usize,
}

/// Rows shorter than this are not worth a pass each.
const SHORT: usize = 64;

/// Replaces runs of micro-ops by fused ones, for machines with AVX-512. `exclusive` as in `compile`.
pub(crate) fn fuse(program: &mut Program, layout: &Layout, exclusive: bool) {
    for p in 0..program.phases.len() {
        let body = std::mem::take(&mut program.phases[p].body);
        let mut f = Fuser { layout, exclusive, phase: p, body: &body, program, run: Vec::new(), after: Vec::new() };
        let mut out = Vec::with_capacity(body.len());
        for at in 0..body.len() {
            f.next(at, &mut out);
        }
        f.flush(&mut out);
        program.phases[p].body = out;
    }
}

/// The instruction for a unary operation.
fn unary(op: PrimOp) -> Op {
    match op {
        PrimOp::Neg => Op::Neg,
        PrimOp::Abs => Op::Abs,
        PrimOp::Sqrt => Op::Sqrt,
        PrimOp::Rsqrt => Op::Rsqrt,
        PrimOp::Reciprocal => Op::Reciprocal,
        PrimOp::Exp => Op::Exp,
        _ => Op::Call,
    }
}

/// The instruction for a binary operation, with the accumulator as the left or the right operand; a vector operand.
fn binary(op: PrimOp, left: bool) -> Option<Op> {
    Some(match (op, left) {
        (PrimOp::Add, _) => Op::Add,
        (PrimOp::Mul, _) => Op::Mul,
        (PrimOp::Sub, true) => Op::Sub,
        (PrimOp::Sub, false) => Op::SubFrom,
        (PrimOp::Div, true) => Op::Div,
        (PrimOp::Div, false) => Op::DivInto,
        (PrimOp::Max, _) => Op::Max,
        (PrimOp::Min, _) => Op::Min,
        _ => return None,
    })
}

struct Fuser<'a> {
    layout: &'a Layout,
    exclusive: bool,
    phase: usize,
    body: &'a [Micro],
    program: &'a mut Program,
    /// Micro-ops of the run, and those that wait for its end, by place in the body.
    run: Vec<usize>,
    after: Vec<usize>,
}

impl Fuser<'_> {
    fn is_f32(&self, slot: Slot) -> bool {
        self.program.slots[slot].class == Class::F32
    }

    /// Tiles have one outer position only.
    fn one_row(&self) -> bool {
        (if self.layout.rows_inner { self.layout.cols.total } else { self.layout.rows.total }) == 1
    }

    fn fusible(&self, m: &Micro) -> bool {
        let full = |s: Slot| {
            let shape = self.program.slots[s].shape;
            shape.inner && (shape.outer || self.one_row()) && self.is_f32(s)
        };
        match &m.kind {
            Kind::Unary(_, x) => full(m.dst) && full(*x),
            Kind::Binary(op, a, b) => binary(*op, true).is_some() && full(m.dst) && self.is_f32(*a) && self.is_f32(*b),
            Kind::FoldCols { acc, x } => {
                full(*x)
                    && !self.layout.rows_inner
                    && matches!(self.program.col_accs[*acc].fold, Fold::Join(Join::Sum | Join::Max))
            }
            Kind::FoldRows { acc, x } => {
                let acc = &self.program.row_accs[*acc];
                full(*x) && !self.layout.rows_inner && acc.wide && acc.fold == Fold::Join(Join::Sum) && acc.two_levels()
            }
            _ => false,
        }
    }

    fn operands(m: &Micro) -> [Option<Slot>; 2] {
        match &m.kind {
            Kind::Unary(_, x) | Kind::FoldCols { x, .. } | Kind::FoldRows { x, .. } => [Some(*x), None],
            Kind::Store { value: x, .. } | Kind::Cast(x) | Kind::Spread(x) => [Some(*x), None],
            Kind::Binary(_, a, b) => [Some(*a), Some(*b)],
            _ => [None, None],
        }
    }

    /// Bytes of a place of its own for `m`.
    fn fresh(&mut self, m: &Micro) -> Place {
        let info = self.program.slots[m.dst];
        let (rows, cols) = (self.layout.row_block, self.layout.col_block);
        let (o, i) = if self.layout.rows_inner { (cols, rows) } else { (rows, cols) };
        let n = if info.shape.outer { o } else { 1 } * if info.shape.inner { i } else { 1 };
        Place { offset: self.take(n * info.class.size()), step: 0 }
    }

    fn take(&mut self, bytes: usize) -> usize {
        let at = self.program.registers;
        self.program.registers += lines(bytes);
        at
    }

    fn next(&mut self, at: usize, out: &mut Vec<Micro>) {
        let body = self.body;
        let m = &body[at];
        let in_run = |s: Slot, run: &[usize]| run.iter().any(|r| body[*r].dst == s);
        match &m.kind {
            _ if self.fusible(m) => self.run.push(at),
            // What reads nothing comes before the run, at a place that nothing else uses.
            Kind::Load { .. } | Kind::Recall if !self.run.is_empty() => {
                let at = if m.kind == Kind::Recall { m.at } else { self.fresh(m) };
                out.push(Micro { at, ..m.clone() });
            }
            Kind::Store { value, .. } if in_run(*value, &self.run) => self.after.push(at),
            Kind::FoldCols { x, .. } | Kind::FoldRows { x, .. } if in_run(*x, &self.run) => self.after.push(at),
            _ => {
                self.flush(out);
                out.push(m.clone());
            }
        }
    }

    /// Ends the run.
    fn flush(&mut self, out: &mut Vec<Micro>) {
        let (run, after) = (std::mem::take(&mut self.run), std::mem::take(&mut self.after));
        let body = self.body;
        if run.is_empty() {
            return;
        }
        let is_fold = |m: &Micro| matches!(m.kind, Kind::FoldCols { .. } | Kind::FoldRows { .. });
        let made_here = |s: Slot| run.iter().any(|r| body[*r].dst == s);
        let flat = run.iter().all(|r| {
            !is_fold(&body[*r])
                && Self::operands(&body[*r]).into_iter().flatten().all(|s| {
                    let shape = self.program.slots[s].shape;
                    shape.outer == shape.inner || self.one_row()
                })
        });
        let (rows, cols) = (self.layout.row_block, self.layout.col_block);
        let (o, i) = if self.layout.rows_inner { (cols, rows) } else { (rows, cols) };
        let slow = |m: &Micro| {
            matches!(m.kind, Kind::Binary(PrimOp::Div, ..) | Kind::Unary(PrimOp::Sqrt, _) | Kind::FoldCols { .. })
        };
        let few = run.len() < 2 && !slow(&body[run[0]]);
        if few || !flat && o > 1 && i < SHORT {
            let mut all: Vec<usize> = run.into_iter().chain(after).collect();
            all.sort_unstable();
            out.extend(all.into_iter().map(|at| body[at].clone()));
            return;
        }

        // How often each value is read within the run, and whether anything else reads it.
        let reads_within = |s: Slot| -> usize {
            run.iter().map(|r| Self::operands(&body[*r]).into_iter().flatten().filter(|x| *x == s).count()).sum()
        };
        let recalled = |p: &Phase, s: Slot| p.body.iter().any(|m| m.kind == Kind::Recall && m.dst == s);
        let reads = |m: &Micro, s: Slot| match &m.kind {
            Kind::Select(a, b, c) => [*a, *b, *c].contains(&s),
            Kind::LoadAt { index, .. } => *index == s,
            _ => Self::operands(m).contains(&Some(s)),
        };
        let wanted = |s: Slot| {
            let others = (0..body.len()).filter(|i| !run.contains(i));
            others.into_iter().any(|i| reads(&body[i], s))
                || self.program.phases[self.phase + 1..].iter().any(|p| recalled(p, s))
        };
        let is_wanted: Vec<bool> = run.iter().map(|r| !is_fold(&body[*r]) && wanted(body[*r].dst)).collect();
        let mut c = Coder { steps: Vec::new(), held: None, saved: Vec::new(), free: Vec::new(), blocks: 0 };
        let mut left: Vec<(Slot, usize)> =
            run.iter().filter(|r| !is_fold(&body[**r])).map(|r| (body[*r].dst, reads_within(body[*r].dst))).collect();
        let (mut outs, mut sums, mut late) = (Vec::new(), Vec::new(), Vec::new());
        // Where memory may be shared, results are written straight to it after all of the block was read.
        let end = *run.last().unwrap_or(&0);
        let alone = (0..body.len()).filter(|i| *i > run[0] && !run.contains(i)).all(|i| match &body[i].kind {
            Kind::Store { value, .. } => made_here(*value),
            Kind::Load { .. } | Kind::Recall => i < end,
            _ => false,
        });
        for (k, r) in run.iter().enumerate() {
            let m = &body[*r];
            let scalar = |s: Slot| !self.program.slots[s].shape.inner;
            match &m.kind {
                Kind::Unary(op, x) => {
                    c.load(*x, scalar(*x), &made_here);
                    let op_code = unary(*op);
                    let source = if op_code == Op::Call { Source::Prim(*op) } else { Source::None };
                    c.steps.push(Step { op: op_code, source });
                }
                Kind::Binary(PrimOp::Mul, a, b) if a == b => {
                    c.load(*a, scalar(*a), &made_here);
                    c.steps.push(Step { op: Op::Square, source: Source::None });
                }
                Kind::Binary(op, a, b) => {
                    let right_held = c.held == Some(*b) && a != b;
                    let (left_operand, right_operand) = if right_held { (*b, *a) } else { (*a, *b) };
                    c.load(left_operand, scalar(left_operand), &made_here);
                    let source = match made_here(right_operand) {
                        true => Source::Scratch(c.block_of(right_operand)),
                        false => Source::Slot(right_operand),
                    };
                    if let Some(op) = binary(*op, !right_held) {
                        let op = if source == Source::Slot(right_operand) && scalar(right_operand) {
                            op.scalar()
                        } else {
                            op
                        };
                        c.steps.push(Step { op, source });
                    }
                }
                Kind::FoldCols { acc, x } => {
                    c.load(*x, false, &made_here);
                    let lanes = Source::Lanes(sums.len());
                    let join = match self.program.col_accs[*acc].fold {
                        Fold::Join(join) => join,
                        Fold::Arg(_) => Join::Max,
                    };
                    let op = if join == Join::Max { Op::MaxLanes } else { Op::SumLanes };
                    c.steps.push(Step { op, source: lanes });
                    sums.push((*acc, join));
                }
                Kind::FoldRows { acc, x } => {
                    c.load(*x, false, &made_here);
                    c.steps.push(Step { op: Op::AddInto, source: Source::Rows(*acc) });
                }
                _ => {}
            }
            for s in Self::operands(m).into_iter().flatten() {
                if let Some(l) = left.iter_mut().find(|l| l.0 == s) {
                    l.1 -= 1;
                    if l.1 == 0 {
                        c.release(s);
                    }
                }
            }
            if is_fold(m) {
                continue;
            }
            c.held = Some(m.dst);
            let reads_left = left.iter().find(|l| l.0 == m.dst).map_or(0, |l| l.1);
            let next_reads = run.get(k + 1).map_or(0, |n| {
                let n = &body[*n];
                let both = matches!(n.kind, Kind::Binary(op, ..) if op != PrimOp::Mul);
                let count = Self::operands(n).into_iter().flatten().filter(|s| *s == m.dst).count();
                if count == 2 && both { 0 } else { count }
            });
            if is_wanted[k] {
                let number = outs.len();
                let mut o = m.clone();
                if o.at.step == 0 && !self.program.phases[self.phase + 1..].iter().any(|p| recalled(p, m.dst)) {
                    o.at = self.fresh(m);
                }
                if !self.exclusive && alone {
                    o.direct = self.only_store(m.dst);
                }
                if o.direct.is_some() && !self.exclusive {
                    late.push((m.dst, number));
                } else {
                    c.steps.push(Step { op: Op::Save, source: Source::Out(number) });
                }
                outs.push(o);
            }
            let is_late = late.iter().any(|l| l.0 == m.dst);
            // A fold leaves the accumulator as it is.
            if reads_left > next_reads || is_late && k + 1 < run.len() {
                c.save(m.dst);
            }
            if is_late {
                // Read once more, at the end.
                if let Some(l) = left.iter_mut().find(|l| l.0 == m.dst) {
                    l.1 += 1;
                }
            }
        }
        for (s, number) in late.into_iter().rev() {
            c.load(s, false, &made_here);
            c.steps.push(Step { op: Op::Save, source: Source::Out(number) });
        }
        let scratch = self.take((c.blocks + 2) * LANES * 4);
        let call = scratch + c.blocks * LANES * 4;
        let lanes = self.take(sums.len().max(1) * 64 * 4);
        let fused = Fused { steps: c.steps, outs, sums, flat, scratch, call, lanes };
        out.push(Micro { kind: Kind::Fused(Box::new(fused)), dst: usize::MAX, at: Place::default(), direct: None });
        out.extend(after.into_iter().map(|at| body[at].clone()));
    }

    /// The memory that `slot` is stored to as it is, over the whole tile, if it is stored once.
    fn only_store(&self, slot: Slot) -> Option<usize> {
        let mut stores = self.body.iter().filter_map(|m| match m.kind {
            Kind::Store { memory, value } if value == slot => Some(memory),
            _ => None,
        });
        let memory = stores.next()?;
        let m = &self.program.memories[memory];
        let whole = (m.access.outer.varies || self.one_row()) && m.access.inner.varies && !m.access.has_masks();
        (stores.next().is_none() && whole && Class::of(m.dtype).map(Class::dtype) == Some(m.dtype)).then_some(memory)
    }
}

/// Code being written.
struct Coder {
    steps: Vec<Step>,
    /// The value in the accumulator.
    held: Option<Slot>,
    saved: Vec<(Slot, usize)>,
    free: Vec<usize>,
    blocks: usize,
}

impl Coder {
    fn block_of(&mut self, s: Slot) -> usize {
        match self.saved.iter().find(|x| x.0 == s) {
            Some(x) => x.1,
            // It must be in the accumulator.
            None => self.save(s),
        }
    }

    /// Saves the accumulator, which holds `s`.
    fn save(&mut self, s: Slot) -> usize {
        debug_assert_eq!(self.held, Some(s));
        let block = self.free.pop().unwrap_or_else(|| {
            self.blocks += 1;
            self.blocks - 1
        });
        self.saved.push((s, block));
        self.steps.push(Step { op: Op::Save, source: Source::Scratch(block) });
        block
    }

    fn release(&mut self, s: Slot) {
        if let Some(i) = self.saved.iter().position(|x| x.0 == s) {
            self.free.push(self.saved.remove(i).1);
        }
    }

    fn load(&mut self, s: Slot, scalar: bool, made_here: &impl Fn(Slot) -> bool) {
        if self.held == Some(s) {
            return;
        }
        let source = if made_here(s) { Source::Scratch(self.block_of(s)) } else { Source::Slot(s) };
        self.steps.push(Step { op: if scalar { Op::LoadScalar } else { Op::Load }, source });
        self.held = Some(s);
    }
}
