//! Which micro-ops become one.

use super::chain::{Made, chain};
use super::code::Code;
use super::emit::{Section, emit};
use super::exec::LANES;
use super::lanes::{Lane, Op, Type, Value, has_binary, has_unary};
use super::{Argument, Fused, Width};
use crate::class::Class;
use crate::fold::Join;
use crate::layout::Layout;
use crate::program::{Fold, Kind, Micro, Place, Program, Shape, Slot};
use crate::regs::lines;
use permalloy_ir::{DType, PrimOp};
use std::sync::Arc;

/// Rows shorter than this are not worth a call each.
const SHORT: usize = 24;
/// Most memories asked for in advance, for reading and for writing.
const MOST_STREAMS: usize = 4;
/// Runs shorter than this are not cut further.
const LEAST_CUT: usize = 4;

/// Replaces runs of micro-ops by fused ones. `exclusive` as in `compile`; `stream`: results are too large to be found in the
/// caches later. Where code cannot be made, nothing changes.
pub(crate) fn fuse(program: &mut Program, layout: &Layout, width: Width, exclusive: bool, stream: bool) {
    let before = program.clone();
    let (mut bytes, mut made) = (Vec::new(), Made::new());
    let ahead = ahead(program, layout);
    for p in 0..program.phases.len() {
        for level in [Level::Rows, Level::Body] {
            let phase = &mut program.phases[p];
            let list = std::mem::take(if level == Level::Rows { &mut phase.rows } else { &mut phase.body });
            let mut f = Fuser {
                layout,
                width,
                exclusive,
                stream,
                phase: p,
                level,
                list: &list,
                program,
                bytes: &mut bytes,
                made: &mut made,
                ahead: Vec::new(),
                run: Vec::new(),
                after: Vec::new(),
            };
            if level == Level::Body {
                f.ahead = ahead.iter().filter(|a| a.phase == p).copied().collect();
            }
            let mut out = Vec::with_capacity(list.len());
            for at in 0..list.len() {
                f.next(at, &mut out);
            }
            f.flush(&mut out);
            let phase = &mut program.phases[p];
            *(if level == Level::Rows { &mut phase.rows } else { &mut phase.body }) = out;
        }
    }
    if bytes.is_empty() {
        return;
    }
    if exclusive {
        chain(program, &before, layout, width, &made, &mut bytes);
    }
    match Code::new(&bytes) {
        Some(code) => program.code = Some(Arc::new(code)),
        None => *program = before,
    }
}

/// A memory to ask for in advance.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    phase: usize,
    memory: usize,
    write: bool,
    /// Rows after those at work.
    rows: usize,
}

/// What to ask for in advance, and when. A kernel that needs a row several times reads it from memory in its first phase
/// and writes its results in the last: the next rows can come, and the lines of the results be made ready, while the phases
/// between compute.
fn ahead(program: &Program, layout: &Layout) -> Vec<Ahead> {
    let with_body = |p: &usize| !program.phases[*p].body.is_empty();
    let mut phases: Vec<usize> = (0..program.phases.len()).filter(with_body).collect();
    if phases.len() < 2 || layout.rows_inner || layout.rows.total <= layout.row_block {
        return Vec::new();
    }
    // The longest first; each stream in another one.
    phases.sort_by_key(|p| std::cmp::Reverse(program.phases[*p].body.len()));
    let fits = |a: &Ahead| {
        let m = &program.memories[a.memory];
        let moves = m.access.outer.flat.is_some_and(|s| s != 0) && m.access.inner.flat == Some(1);
        moves && !m.access.has_masks() && matches!(m.dtype.size(), 2 | 4)
    };
    let read = program.phases[0].body.iter().filter_map(|m| match m.kind {
        Kind::Load { memory, .. } => Some(Ahead { phase: 0, memory, write: false, rows: layout.row_block }),
        _ => None,
    });
    let written = (1..program.phases.len()).flat_map(|p| program.phases[p].body.iter().map(move |m| (p, m)));
    let written = written.filter_map(|(p, m)| match m.kind {
        Kind::Store { memory, .. } => Some(Ahead { phase: p - 1, memory, write: true, rows: 0 }),
        _ => None,
    });
    let read = read.filter(fits).take(MOST_STREAMS);
    let read = read.enumerate().map(|(i, a)| Ahead { phase: phases[i % phases.len()], ..a });
    read.chain(written.filter(fits).take(MOST_STREAMS)).collect()
}

/// What a list of micro-ops works on: one value a row, or tiles.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Level {
    Rows,
    Body,
}

struct Fuser<'a> {
    layout: &'a Layout,
    width: Width,
    exclusive: bool,
    stream: bool,
    phase: usize,
    level: Level,
    list: &'a [Micro],
    program: &'a mut Program,
    /// What to ask for in advance.
    ahead: Vec<Ahead>,
    /// Code made so far, and from what.
    bytes: &'a mut Vec<u8>,
    made: &'a mut Made,
    /// Micro-ops of the run, and those that wait for its end, by place in the list.
    run: Vec<usize>,
    after: Vec<usize>,
}

pub(super) fn operands(m: &Micro) -> [Option<Slot>; 3] {
    match &m.kind {
        Kind::Unary(_, x) | Kind::FoldCols { x, .. } | Kind::FoldRows { x, .. } => [Some(*x), None, None],
        Kind::Store { value: x, .. } | Kind::Cast(x) | Kind::Spread(x) => [Some(*x), None, None],
        Kind::LoadAt { index, .. } => [Some(*index), None, None],
        Kind::Binary(_, a, b) => [Some(*a), Some(*b), None],
        Kind::Select(c, a, b) => [Some(*c), Some(*a), Some(*b)],
        Kind::Const(_) | Kind::Load { .. } | Kind::Index(_) | Kind::Recall | Kind::FinishCols(_) => [None; 3],
        Kind::Fused(_) => [None; 3],
    }
}

fn reads(m: &Micro, s: Slot) -> bool {
    match &m.kind {
        Kind::Fused(f) => f.arguments.contains(&Argument::Slot(s)),
        _ => operands(m).contains(&Some(s)),
    }
}

/// A place of its own for the result of `m`.
pub(super) fn fresh(program: &mut Program, layout: &Layout, m: &Micro) -> Place {
    let info = program.slots[m.dst];
    let (o, i) =
        if layout.rows_inner { (layout.col_block, layout.row_block) } else { (layout.row_block, layout.col_block) };
    let n = if info.shape.outer { o } else { 1 } * if info.shape.inner { i } else { 1 };
    Place { offset: take(program, n * info.class.size()), step: 0 }
}

/// Bytes of the registers that nothing else uses.
pub(super) fn take(program: &mut Program, bytes: usize) -> usize {
    let at = program.registers;
    program.registers += lines(bytes);
    at
}

fn is_fold(m: &Micro) -> bool {
    matches!(m.kind, Kind::FoldCols { .. } | Kind::FoldRows { .. })
}

impl Fuser<'_> {
    fn ty(&self, s: Slot) -> Option<Type> {
        match self.program.slots[s].class {
            Class::F32 => Some(Type::F32),
            Class::U8 => Some(Type::Mask),
            Class::I64 => Some(Type::I64),
            Class::F64 => None,
        }
    }

    /// Tiles have one outer position only.
    fn one_row(&self) -> bool {
        (if self.layout.rows_inner { self.layout.cols.total } else { self.layout.rows.total }) == 1
    }

    /// Different lanes of the run hold different elements of it.
    fn varies(&self, s: Slot) -> bool {
        let shape = self.program.slots[s].shape;
        shape.inner || self.level == Level::Rows && shape.outer
    }

    /// Has an element for each point of the tile.
    fn full(&self, s: Slot) -> bool {
        let Shape { outer, inner } = self.program.slots[s].shape;
        match self.level {
            Level::Rows => outer || inner,
            Level::Body => inner && (outer || self.one_row()),
        }
    }

    fn made_in_run(&self, s: Slot) -> bool {
        self.run.iter().any(|r| self.list[*r].dst == s)
    }

    /// Can be an operand of the given type.
    fn readable(&self, s: Slot, ty: Type) -> bool {
        self.ty(s) == Some(ty) && (ty != Type::I64 || !self.varies(s) || self.made_in_run(s))
    }

    fn fusible(&self, m: &Micro) -> bool {
        match &m.kind {
            Kind::Unary(op, x) => {
                self.ty(*x).is_some_and(|ty| has_unary(*op, ty) && self.readable(*x, ty)) && self.full(m.dst)
            }
            Kind::Binary(op, a, b) => {
                let known =
                    self.ty(*a).is_some_and(|t| has_binary(*op, t) && self.readable(*a, t) && self.readable(*b, t));
                known && self.full(m.dst)
            }
            Kind::Select(c, a, b) => {
                self.full(m.dst)
                    && self.readable(*c, Type::Mask)
                    && self.readable(*a, Type::F32)
                    && self.readable(*b, Type::F32)
            }
            Kind::Cast(x) => {
                let to = self.program.slots[m.dst];
                let from = self.ty(*x);
                let plain = from == Some(Type::F32) && to.dtype == DType::F32;
                self.full(m.dst) && (plain || from == Some(Type::Mask) && to.class == Class::F32)
            }
            Kind::Index(access) => {
                self.level == Level::Body
                    && !access.has_masks()
                    && access.outer.flat.is_some()
                    && access.inner.flat == Some(1)
                    && self.varies(m.dst)
            }
            Kind::FoldCols { acc, x } => {
                self.full(*x)
                    && self.readable(*x, Type::F32)
                    && !self.layout.rows_inner
                    && self.level == Level::Body
                    && matches!(self.program.col_accs[*acc].fold, Fold::Join(Join::Sum | Join::Max | Join::Min))
            }
            Kind::FoldRows { acc, x } => {
                let acc = &self.program.row_accs[*acc];
                self.full(*x)
                    && self.readable(*x, Type::F32)
                    && !self.layout.rows_inner
                    && self.level == Level::Body
                    && acc.wide
                    && acc.fold == Fold::Join(Join::Sum)
                    && acc.two_levels()
            }
            _ => false,
        }
    }

    fn next(&mut self, at: usize, out: &mut Vec<Micro>) {
        let m = &self.list[at];
        let from_run = operands(m).into_iter().flatten().any(|s| self.made_in_run(s));
        match &m.kind {
            _ if self.fusible(m) => self.run.push(at),
            Kind::Store { .. } | Kind::FoldCols { .. } | Kind::FoldRows { .. } if from_run => self.after.push(at),
            // What reads nothing that the run makes comes before it, at a place that nothing else uses.
            Kind::Load { .. }
            | Kind::LoadAt { .. }
            | Kind::Recall
            | Kind::Index(_)
            | Kind::Unary(..)
            | Kind::Binary(..)
            | Kind::Select(..)
            | Kind::Cast(_)
            | Kind::Spread(_)
            | Kind::FinishCols(_)
                if !from_run && !self.run.is_empty() =>
            {
                let fixed = m.kind == Kind::Recall || m.at.step != 0 || self.level == Level::Rows;
                let at = if fixed { m.at } else { fresh(self.program, self.layout, m) };
                out.push(Micro { at, ..m.clone() });
            }
            _ => {
                self.flush(out);
                out.push(m.clone());
            }
        }
    }

    /// Ends the run.
    fn flush(&mut self, out: &mut Vec<Micro>) {
        let (run, after) = (std::mem::take(&mut self.run), std::mem::take(&mut self.after));
        let list = self.list;
        let mut fused = Vec::new();
        self.fuse(&run, &mut fused);
        if fused.iter().any(|m| matches!(m.kind, Kind::Fused(_))) {
            out.extend(fused);
            out.extend(after.into_iter().map(|at| list[at].clone()));
        } else {
            // In the old order, since places are used again.
            let mut all: Vec<usize> = run.into_iter().chain(after).collect();
            all.sort_unstable();
            out.extend(all.into_iter().map(|at| list[at].clone()));
        }
    }

    /// Emits the run as one micro-op, as several where it needs too many registers, or as it is where that is no gain: then
    /// results get places of their own, since what reads them may have to wait for the rest of the run.
    fn fuse(&mut self, run: &[usize], out: &mut Vec<Micro>) {
        let list = self.list;
        let slow = |m: &Micro| {
            let slow_unary = matches!(m.kind, Kind::Unary(PrimOp::Sqrt | PrimOp::Exp, _));
            slow_unary || matches!(m.kind, Kind::Binary(PrimOp::Div, ..) | Kind::FoldCols { .. })
        };
        let worth = run.len() > 1 || run.first().is_some_and(|r| slow(&list[*r]) && self.level == Level::Body);
        if worth {
            if let Some(fused) = self.fused(run) {
                out.push(Micro {
                    kind: Kind::Fused(Box::new(fused)),
                    dst: usize::MAX,
                    at: Place::default(),
                    direct: None,
                });
                return;
            }
            if run.len() >= 2 * LEAST_CUT {
                let (first, second) = run.split_at(run.len() / 2);
                self.fuse(first, out);
                self.fuse(second, out);
                return;
            }
        }
        for m in run.iter().map(|at| &list[*at]) {
            let movable = m.dst != usize::MAX && m.at.step == 0 && self.level == Level::Body && !self.recalled(m.dst);
            let at = if movable { fresh(self.program, self.layout, m) } else { m.at };
            out.push(Micro { at, ..m.clone() });
        }
    }

    /// Anything outside of the run reads the value.
    fn wanted(&self, run: &[usize], s: Slot) -> bool {
        if (0..self.list.len()).filter(|i| !run.contains(i)).any(|i| reads(&self.list[i], s)) {
            return true;
        }
        let program = &self.program;
        match self.level {
            Level::Rows => {
                let lists = program.phases.iter().flat_map(|p| [&p.rows, &p.body]);
                lists.flatten().any(|m| reads(m, s))
            }
            Level::Body => self.recalled(s),
        }
    }

    /// A later phase reads the value where this one leaves it.
    fn recalled(&self, s: Slot) -> bool {
        let later = &self.program.phases[self.phase + 1..];
        later.iter().any(|p| p.body.iter().any(|m| m.kind == Kind::Recall && m.dst == s))
    }

    fn fused(&mut self, run: &[usize]) -> Option<Fused> {
        let list = self.list;
        let (rows, cols) = (self.layout.row_block, self.layout.col_block);
        let (o, i) = if self.layout.rows_inner { (cols, rows) } else { (rows, cols) };
        let flat = self.level == Level::Rows
            || run.iter().all(|r| {
                let m = &list[*r];
                let whole = |s: Slot| {
                    let shape = self.program.slots[s].shape;
                    shape.outer == shape.inner || self.one_row()
                };
                let is_index = matches!(m.kind, Kind::Index(_));
                !is_fold(m) && (!is_index || self.one_row()) && operands(m).into_iter().flatten().all(whole)
            });
        if !flat && o > 1 && i < SHORT {
            return None;
        }
        let mut b = Builder::default();
        let (mut outs, mut sums, mut late) = (Vec::new(), Vec::new(), Vec::new());
        // Where memory may be shared, results are written straight to it after all else was read.
        let end = *run.last()?;
        let alone = (0..list.len()).filter(|i| *i > run[0] && !run.contains(i)).all(|i| match &list[i].kind {
            Kind::Store { value, .. } => run.iter().any(|r| list[*r].dst == *value),
            Kind::Load { .. } | Kind::Recall => i < end,
            _ => false,
        });
        let registers = self.program.registers;
        if !flat {
            for Ahead { memory, write, rows, .. } in std::mem::take(&mut self.ahead) {
                let size = self.program.memories[memory].dtype.size() as u8;
                let argument = b.argument(Argument::Ahead(memory, rows));
                b.push(Op::Prefetch { argument, write, size }, Type::F32);
            }
        }
        for r in run {
            let m = &list[*r];
            match &m.kind {
                Kind::Index(access) => {
                    let p = b.argument(Argument::Position(access.clone()));
                    let v = b.push(Op::Iota(p), Type::I64);
                    b.values.push((m.dst, v));
                }
                Kind::FoldCols { acc, x } => {
                    let Fold::Join(join) = self.program.col_accs[*acc].fold else { return None };
                    let (x, p) = (self.value(*x, &mut b)?, b.argument(Argument::Lanes(sums.len())));
                    b.push(Op::Fold(join, p, x), Type::F32);
                    sums.push((*acc, join));
                    continue;
                }
                Kind::FoldRows { acc, x } => {
                    let (x, p) = (self.value(*x, &mut b)?, b.argument(Argument::Rows(*acc)));
                    b.push(Op::AddInto(p, x), Type::F32);
                    continue;
                }
                kind => {
                    let v = self.operation(kind, m.dst, &mut b)?;
                    b.values.push((m.dst, v));
                }
            }
            if !self.wanted(run, m.dst) {
                continue;
            }
            let v = self.value(m.dst, &mut b)?;
            if b.lanes[v].ty == Type::I64 {
                self.program.registers = registers;
                return None;
            }
            let mut o = m.clone();
            if o.at.step == 0 && self.level == Level::Body && !self.recalled(m.dst) {
                o.at = fresh(self.program, self.layout, m);
            }
            if !self.exclusive && alone && self.level == Level::Body {
                o.direct = self.only_store(m.dst);
            }
            let p = b.argument(Argument::Out(outs.len()));
            if o.direct.is_some() && !self.exclusive {
                late.push((p, v));
            } else {
                let streamed = self.stream
                    && self.exclusive
                    && o.direct.is_some_and(|m| b.lanes[v].ty == Type::F32 && !self.is_read(m));
                b.push(if streamed { Op::Stream(p, v) } else { Op::Save(p, v) }, Type::F32);
            }
            outs.push(o);
        }
        late.into_iter().for_each(|(p, v)| {
            b.push(Op::Save(p, v), Type::F32);
        });
        let section = [Section { lanes: &b.lanes, once: false }];
        let Some((code, streaming)) = emit(&section, b.arguments.len(), self.width) else {
            self.program.registers = registers;
            return None;
        };
        let entry = self.bytes.len();
        self.bytes.extend(code);
        let streaming = streaming.map(|s| entry + s);
        let lanes = take(self.program, sums.len() * o * LANES);
        self.made.push((entry, b.lanes));
        Some(Fused { entry, streaming, arguments: b.arguments, outs, sums, flat, lanes })
    }

    fn operation(&self, kind: &Kind, dst: Slot, b: &mut Builder) -> Option<Value> {
        let ty = self.ty(dst)?;
        Some(match kind {
            Kind::Unary(op, x) => {
                let x = self.value(*x, b)?;
                b.push(Op::Unary(*op, x), ty)
            }
            Kind::Binary(op, x, y) => {
                let (x, y) = (self.value(*x, b)?, self.value(*y, b)?);
                b.push(Op::Binary(*op, x, y), ty)
            }
            Kind::Select(c, x, y) => {
                let (c, x, y) = (self.value(*c, b)?, self.value(*x, b)?, self.value(*y, b)?);
                b.push(Op::Select(c, x, y), ty)
            }
            Kind::Cast(x) => {
                let x = self.value(*x, b)?;
                if b.lanes[x].ty == Type::Mask { b.push(Op::Widen(x), ty) } else { x }
            }
            _ => return None,
        })
    }

    /// The value of a slot: made by the run, or from outside.
    fn value(&self, s: Slot, b: &mut Builder) -> Option<Value> {
        if let Some((_, v)) = b.values.iter().rev().find(|(x, _)| *x == s) {
            return Some(*v);
        }
        let ty = self.ty(s)?;
        let v = match self.program.constant(s) {
            Some(bits) => b.push(Op::Constant(bits), ty),
            None => {
                let p = b.argument(Argument::Slot(s));
                b.push(if self.varies(s) { Op::Vector(p) } else { Op::Scalar(p) }, ty)
            }
        };
        b.values.push((s, v));
        Some(v)
    }

    /// The kernel reads the buffer of a memory, too.
    fn is_read(&self, memory: usize) -> bool {
        let buffer = self.program.memories[memory].buffer;
        let lists = self.program.phases.iter().flat_map(|p| [&p.rows, &p.body]);
        let mut all = lists.flatten().chain(&self.program.once).chain(self.list);
        all.any(|m| {
            matches!(m.kind, Kind::Load { memory, .. } | Kind::LoadAt { memory, .. }
                if self.program.memories[memory].buffer == buffer)
        })
    }

    /// The memory that `slot` is stored to as it is, over the whole tile, if it is stored once.
    fn only_store(&self, slot: Slot) -> Option<usize> {
        let mut stores = self.list.iter().filter_map(|m| match m.kind {
            Kind::Store { memory, value } if value == slot => Some(memory),
            _ => None,
        });
        let memory = stores.next()?;
        let m = &self.program.memories[memory];
        let whole = (m.access.outer.varies || self.one_row()) && m.access.inner.varies && !m.access.has_masks();
        (stores.next().is_none() && whole && Class::of(m.dtype).map(Class::dtype) == Some(m.dtype)).then_some(memory)
    }
}

/// A program over lanes being written.
#[derive(Default)]
struct Builder {
    lanes: Vec<Lane>,
    arguments: Vec<Argument>,
    values: Vec<(Slot, Value)>,
}

impl Builder {
    fn push(&mut self, op: Op, ty: Type) -> Value {
        self.lanes.push(Lane { op, ty });
        self.lanes.len() - 1
    }

    fn argument(&mut self, a: Argument) -> usize {
        self.arguments.push(a);
        self.arguments.len() - 1
    }
}
