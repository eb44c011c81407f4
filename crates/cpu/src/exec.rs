//! Runs micro-ops on one tile.

use crate::access::{Run, Span};
use crate::class::Class;
use crate::copy::{self, Rect};
use crate::error::RunError;
use crate::fold::{self, ArgShape, NOWHERE};
use crate::isa::IsaLevel;
use crate::layout::TILE;
use crate::pointwise::{self, Form};
use crate::program::{Fold, Kind, Micro, Program, Shape, Slot};
use permalloy_ir::{DType, PrimKind};
use std::sync::Mutex;

/// An index that was out of range: the task that met it, and which memory, index and size.
pub(crate) type Fault = Mutex<Option<(usize, usize, i64, i64)>>;

/// Where the running totals of row accumulators are, and what part of the rows they see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowState {
    /// Totals, positions (arg folds), sums of the last few rows (two-level folds).
    pub total: *mut u8,
    pub index: *mut i64,
    pub part: *mut u8,
}

/// A task at work.
pub(crate) struct Worker<'a> {
    pub program: &'a Program,
    pub level: IsaLevel,
    /// Address of each buffer, by buffer id.
    pub buffers: &'a [*mut u8],
    pub registers: *mut u8,
    /// Where each slot's value lies now.
    pub values: Vec<*const u8>,
    /// Memory for the arguments of fused micro-ops, and by how much they move from row to row.
    pub pointers: Vec<*mut u8>,
    pub steps: Vec<isize>,
    pub rows_inner: bool,
    /// First column of the task, and columns in all.
    pub first_col: usize,
    pub cols: usize,
    /// First row of the batch.
    pub batch_row: usize,
    pub states: Vec<RowState>,
    pub fault: &'a Fault,
    pub task: usize,
}

/// How an operand is walked in a tile: steps per outer and inner position.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub at: *const u8,
    pub size: usize,
    pub o: usize,
    pub i: usize,
}

impl Operand {
    /// # Safety
    /// The position must lie in the operand.
    unsafe fn row(self, o: usize) -> *const u8 {
        // SAFETY: by the contract.
        unsafe { self.at.add(o * self.o * self.size) }
    }
}

fn narrowed(span: Span, shape: Shape) -> Span {
    Span { outer: if shape.outer { span.outer } else { (0, 1) }, inner: if shape.inner { span.inner } else { (0, 1) } }
}

impl Worker<'_> {
    /// A pointer into the registers.
    ///
    /// # Safety
    /// `offset` must lie in the program's registers.
    pub(crate) unsafe fn register(&self, offset: usize) -> *mut u8 {
        // SAFETY: by the contract.
        unsafe { self.registers.add(offset) }
    }

    /// Address of an element of a buffer.
    ///
    /// # Safety
    /// The element must lie in the buffer.
    unsafe fn element(&self, buffer: usize, dtype: DType, at: i64) -> *mut u8 {
        // SAFETY: by the contract.
        unsafe { self.buffers[buffer].offset(at as isize * dtype.size() as isize) }
    }

    /// Rows and columns as outer and inner positions.
    pub(crate) fn span(&self, rows: (usize, usize), cols: (usize, usize)) -> Span {
        if self.rows_inner { Span { outer: cols, inner: rows } } else { Span { outer: rows, inner: cols } }
    }

    pub(crate) fn operand(&self, slot: Slot, span: Span) -> Operand {
        let info = self.program.slots[slot];
        let i = usize::from(info.shape.inner);
        let o = match (info.shape.outer, info.shape.inner) {
            (true, true) => span.inner.1,
            (true, false) => 1,
            _ => 0,
        };
        Operand { at: self.values[slot], size: info.class.size(), o, i }
    }

    /// Runs the micro-ops on the tile `span`, which is chunk number `chunk` of its rows.
    ///
    /// # Safety
    /// The program must fit the buffers: compiled for their sizes, every access checked against them; `registers` and
    /// `states` as large as the program says; the level one that this processor has.
    pub(crate) unsafe fn exec(&mut self, ops: &[Micro], span: Span, chunk: usize) {
        for m in ops {
            // SAFETY: places lie in the registers; slots read were set by earlier ops, of the sizes their shapes say.
            unsafe { self.micro(m, span, chunk) }
        }
    }

    /// Where a micro-op writes: straight to memory where the tile is dense there.
    ///
    /// # Safety
    /// As [`Worker::exec`].
    pub(crate) unsafe fn target(&self, m: &Micro, span: Span, chunk: usize) -> *mut u8 {
        if let Some(memory) = m.direct {
            let memory = &self.program.memories[memory];
            if let Some(at) = memory.access.dense(narrowed(span, self.program.slots[m.dst].shape)) {
                // SAFETY: the access was checked against the buffer.
                return unsafe { self.element(memory.buffer, memory.dtype, at) };
            }
        }
        // SAFETY: places lie in the registers.
        unsafe { self.register(m.at.offset + chunk * m.at.step) }
    }

    unsafe fn micro(&mut self, m: &Micro, span: Span, chunk: usize) {
        let level = self.level;
        // SAFETY: as `exec`'s.
        unsafe {
            match &m.kind {
                Kind::Store { memory, value } => return self.store(*memory, *value, span),
                Kind::FoldCols { acc, x } => return self.fold_cols(*acc, *x, span),
                Kind::FoldRows { acc, x } => return self.fold_rows(*acc, *x, span),
                Kind::Fused(f) => return self.fused(f, span, chunk),
                _ => {}
            }
            let info = self.program.slots[m.dst];
            let inside = narrowed(span, info.shape);
            let n = inside.outer.1 * inside.inner.1;
            let to = self.target(m, span, chunk);
            self.values[m.dst] = match &m.kind {
                Kind::Const(bits) => {
                    std::ptr::copy_nonoverlapping(bits.to_le_bytes().as_ptr(), to, info.class.size());
                    to
                }
                Kind::Recall => to,
                Kind::Load { memory, copy } => self.load(*memory, *copy, info.class, inside, to),
                Kind::LoadAt { memory, index, stride, size, copy } => {
                    self.load_at(*memory, *index, (*stride, *size), *copy, info.shape, inside, to)
                }
                Kind::Index(access) => {
                    if access.has_masks() {
                        to.write_bytes(0, n * 8);
                    }
                    let pitch = inside.inner.1;
                    access.runs(inside, |r| {
                        let rect = Rect {
                            n_o: r.n_o,
                            n_i: r.n_i,
                            from_o: r.step_o as isize,
                            from_i: r.step_i as isize,
                            to_o: pitch as isize,
                            to_i: 1,
                        };
                        copy::count(level, to.cast::<i64>().add(r.at_o * pitch + r.at_i), r.base, rect);
                    });
                    to
                }
                Kind::Unary(op, x) => {
                    pointwise::unary(level, self.program.slots[*x].class, *op, to, self.values[*x], n);
                    to
                }
                Kind::Cast(x) => {
                    pointwise::cast(level, self.program.slots[*x].class, info.dtype, to, self.values[*x], n);
                    to
                }
                Kind::Binary(op, a, b) => {
                    let class = self.program.slots[*a].class;
                    let size = if op.kind() == PrimKind::Compare { 1 } else { class.size() };
                    let operands = [self.operand(*a, span), self.operand(*b, span)];
                    self.rows(inside, operands, |o, [a, b], n| {
                        let form = match (a.i, b.i) {
                            (0, 1) => Form::OneVec,
                            (1, 0) => Form::VecOne,
                            _ => Form::VecVec,
                        };
                        pointwise::binary(level, class, *op, form, to.add(o * size), a.at, b.at, n);
                    });
                    to
                }
                Kind::Select(c, a, b) => {
                    let size = info.class.size();
                    let operands = [self.operand(*c, span), self.operand(*a, span), self.operand(*b, span)];
                    self.rows(inside, operands, |o, [c, a, b], n| {
                        let to = to.add(o * size);
                        if c.i == 0 && n > 1 {
                            let chosen = if c.at.read() != 0 { a } else { b };
                            match chosen.i {
                                0 => pointwise::splat(size, to, chosen.at, n),
                                _ => std::ptr::copy_nonoverlapping(chosen.at, to, n * size),
                            }
                        } else {
                            pointwise::select(level, info.class, (a.i == 0, b.i == 0), to, c.at, a.at, b.at, n);
                        }
                    });
                    to
                }
                Kind::Spread(x) => {
                    let x = self.operand(*x, span);
                    self.spread(x, inside, to);
                    to
                }
                Kind::FinishCols(acc) => {
                    let acc = &self.program.col_accs[*acc];
                    match acc.fold {
                        Fold::Arg(_) => {
                            std::ptr::copy_nonoverlapping(self.register(acc.index_at), to, n * 8);
                        }
                        Fold::Join(j) => {
                            let from = self.register(acc.value_at);
                            pointwise::cast(level, j.accumulator(acc.class), info.class.dtype(), to, from, n);
                        }
                    }
                    to
                }
                Kind::Store { .. } | Kind::FoldCols { .. } | Kind::FoldRows { .. } | Kind::Fused(_) => to,
            };
        }
    }

    /// Repeats an operand over a tile.
    unsafe fn spread(&self, x: Operand, span: Span, to: *mut u8) {
        let (no, ni) = (span.outer.1, span.inner.1);
        // SAFETY: the operand has what its steps say, the target a whole tile.
        unsafe {
            for o in 0..no {
                let row = to.add(o * ni * x.size);
                match x.i {
                    0 => pointwise::splat(x.size, row, x.row(o), ni),
                    _ => std::ptr::copy_nonoverlapping(x.row(o), row, ni * x.size),
                }
            }
        }
    }

    /// Walks a tile in the longest flat pieces in which each operand either is a vector or a single value.
    /// `f` gets the first element's place in the tile, the operands there (`i` says which kind), and the length.
    unsafe fn rows<const N: usize>(
        &self,
        span: Span,
        mut operands: [Operand; N],
        f: impl Fn(usize, [Operand; N], usize),
    ) {
        let (no, ni) = (span.outer.1, span.inner.1);
        let n = no * ni;
        let whole = |x: &Operand| (x.i == 1 && (no == 1 || x.o == ni)) || (x.i == 0 && (no == 1 || x.o == 0));
        if n == 1 {
            operands.iter_mut().for_each(|x| x.i = 1);
            return f(0, operands, 1);
        }
        if operands.iter().all(whole) {
            return f(0, operands, n);
        }
        if ni == 1 {
            operands.iter_mut().for_each(|x| x.i = usize::from(x.o != 0));
            return f(0, operands, n);
        }
        // SAFETY: rows lie in the operands; a spare tile serves each operand.
        unsafe {
            if ni < 24 && no > 2 {
                for (k, x) in operands.iter_mut().enumerate().filter(|(_, x)| !whole(x)) {
                    let spare = self.register(self.program.spare[k]);
                    self.spread(*x, span, spare);
                    *x = Operand { at: spare, size: x.size, o: ni, i: 1 };
                }
                return f(0, operands, n);
            }
            for o in 0..no {
                f(o * ni, operands.map(|x| Operand { at: x.row(o), ..x }), ni);
            }
        }
    }

    unsafe fn load(&self, memory: usize, copied: bool, class: Class, span: Span, to: *mut u8) -> *const u8 {
        let m = &self.program.memories[memory];
        let masked = m.access.has_masks();
        let inside = if masked { m.access.inside(span) } else { Some(true) };
        let (n, pitch, size) = (span.outer.1 * span.inner.1, span.inner.1, class.size());
        // SAFETY: the access was checked against the buffer; the target holds the tile.
        unsafe {
            if inside == Some(true)
                && !copied
                && m.dtype == class.dtype()
                && let Some(at) = m.access.dense(span)
            {
                return self.element(m.buffer, m.dtype, at);
            }
            if inside != Some(true) {
                to.write_bytes(0, n * size);
            }
            if inside != Some(false) {
                m.access.runs(span, |r| {
                    let from = self.element(m.buffer, m.dtype, r.base);
                    copy::load(
                        self.level,
                        m.dtype,
                        to.add((r.at_o * pitch + r.at_i) * size),
                        from,
                        load_rect(r, pitch),
                    );
                });
            }
        }
        to
    }

    fn report(&self, memory: usize, index: i64, size: i64) {
        let mut fault = self.fault.lock().unwrap_or_else(|e| e.into_inner());
        if fault.is_none_or(|f| f.0 > self.task) {
            *fault = Some((self.task, self.program.memories[memory].buffer, index, size));
        }
    }

    unsafe fn load_at(
        &self,
        memory: usize,
        index: Slot,
        (stride, size): (i64, i64),
        copy: bool,
        shape: Shape,
        span: Span,
        to: *mut u8,
    ) -> *const u8 {
        let m = &self.program.memories[memory];
        let masked = m.access.has_masks();
        let (no, ni) = (span.outer.1, span.inner.1);
        let class = Class::of(m.dtype).unwrap_or(Class::F32);
        let width = class.size();
        let ix = self.operand(index, span);
        let indices: *const i64 = ix.at.cast();
        let valid = |i: i64| (0..size).contains(&i);
        // SAFETY: the access plus any valid index was checked against the buffer; the target holds the tile.
        unsafe {
            if masked {
                to.write_bytes(0, no * ni * width);
            }
            if ix.i == 0 && shape.inner {
                // Whole runs: one index each.
                for o in 0..no {
                    let at = indices.add(o * ix.o).read();
                    let one = Span { outer: (span.outer.0 + o, 1), inner: span.inner };
                    if !masked
                        && !copy
                        && valid(at)
                        && no == 1
                        && m.dtype == class.dtype()
                        && let Some(address) = m.access.dense(one)
                    {
                        return self.element(m.buffer, m.dtype, address + at * stride);
                    }
                    let row = to.add(o * ni * width);
                    if !masked && !valid(at) {
                        row.write_bytes(0, ni * width);
                    }
                    m.access.runs(one, |r| {
                        if !valid(at) {
                            return self.report(memory, at, size);
                        }
                        let from = self.element(m.buffer, m.dtype, r.base + at * stride);
                        let to = row.add(r.at_i * width);
                        if r.step_i == 1 && m.dtype == class.dtype() {
                            std::ptr::copy_nonoverlapping(from, to, r.n_i * width);
                        } else {
                            copy::load(self.level, m.dtype, to, from, load_rect(r, ni));
                        }
                    });
                }
                return to;
            }
            // One index an element: addresses first.
            const NONE: i64 = i64::MIN;
            let addresses = self.register(self.program.spare[0]).cast::<i64>();
            (0..no * ni).for_each(|k| addresses.add(k).write(NONE));
            m.access.runs(span, |r| {
                let (n_o, step_o) = if m.access.outer.varies { (r.n_o, r.step_o) } else { (no, 0) };
                let (n_i, step_i) = if m.access.inner.varies { (r.n_i, r.step_i) } else { (ni, 0) };
                let rect =
                    Rect { n_o, n_i, from_o: step_o as isize, from_i: step_i as isize, to_o: ni as isize, to_i: 1 };
                copy::count(self.level, addresses.add(r.at_o * ni + r.at_i), r.base, rect);
            });
            let mut holes = false;
            for o in 0..no {
                for i in 0..ni {
                    let a = addresses.add(o * ni + i);
                    let base = a.read();
                    if base == NONE {
                        holes = true;
                        continue;
                    }
                    let at = indices.add(o * ix.o + i * ix.i).read();
                    if valid(at) {
                        a.write(base + at * stride);
                    } else {
                        a.write(NONE);
                        holes = true;
                        self.report(memory, at, size);
                    }
                }
            }
            let from = self.buffers[m.buffer];
            if holes {
                to.write_bytes(0, no * ni * width);
                for k in (0..no * ni).filter(|k| addresses.add(*k).read() != NONE) {
                    copy::gather(self.level, m.dtype, to.add(k * width), from, addresses.add(k), 1);
                }
            } else {
                copy::gather(self.level, m.dtype, to, from, addresses, no * ni);
            }
        }
        to
    }

    unsafe fn store(&self, memory: usize, value: Slot, span: Span) {
        let m = &self.program.memories[memory];
        let (outer, inner) = (m.access.outer.varies, m.access.inner.varies);
        // What does not vary is stored by the first of those that have it.
        if !outer && span.outer.0 != 0 || !inner && span.inner.0 != 0 {
            return;
        }
        let inside = narrowed(span, Shape { outer, inner });
        let x = self.operand(value, span);
        // SAFETY: the access was checked against the buffer.
        unsafe {
            let dense = if m.access.has_masks() { None } else { m.access.dense(inside) };
            if dense.is_some_and(|at| std::ptr::eq(self.element(m.buffer, m.dtype, at), x.at)) {
                return;
            }
            m.access.runs(inside, |r| {
                let to = self.element(m.buffer, m.dtype, r.base);
                let from = x.at.add((r.at_o * x.o + r.at_i * x.i) * x.size);
                copy::store(self.level, m.dtype, to, from, store_rect(r, x.o, x.i));
            });
        }
    }

    /// Sets the column accumulators of a phase to their identities.
    ///
    /// # Safety
    /// As [`Worker::exec`].
    pub(crate) unsafe fn start_cols(&self, accs: &[usize], rows: usize) {
        for acc in accs.iter().map(|a| &self.program.col_accs[*a]) {
            let class = match acc.fold {
                Fold::Join(j) => j.accumulator(acc.class),
                Fold::Arg(_) => acc.class,
            };
            // SAFETY: accumulators lie in the registers.
            unsafe {
                pointwise::splat(class.size(), self.register(acc.value_at), acc.start.to_le_bytes().as_ptr(), rows);
                if let Fold::Arg(_) = acc.fold {
                    let at = self.register(acc.index_at).cast::<i64>();
                    (0..rows).for_each(|r| at.add(r).write(NOWHERE));
                }
            }
        }
    }

    unsafe fn fold_cols(&self, acc: usize, x: Slot, span: Span) {
        let acc = &self.program.col_accs[acc];
        let (no, ni) = (span.outer.1, span.inner.1);
        let x = self.values[x];
        // SAFETY: `x` is a whole tile; accumulators and spares lie in the registers.
        unsafe {
            let value = self.register(acc.value_at);
            match acc.fold {
                Fold::Arg(max) => {
                    let s = if self.rows_inner {
                        let first = span.outer.0 as i64;
                        ArgShape { keep: ni, fold: no, step_keep: 1, step_fold: ni, first, step: 1 }
                    } else {
                        let first = span.inner.0 as i64;
                        ArgShape { keep: no, fold: ni, step_keep: ni, step_fold: 1, first, step: 1 }
                    };
                    fold::arg(self.level, acc.class, max, x, s, value, self.register(acc.index_at).cast());
                }
                Fold::Join(join) if self.rows_inner => {
                    let (tmp, sums) = (self.register(self.program.spare[0]), self.register(self.program.spare_row));
                    if join.accumulator(acc.class) == acc.class {
                        fold::outer(self.level, acc.class, join, x, (no, ni), value, tmp);
                    } else {
                        let start = if join == fold::Join::Prod { 1f32 } else { 0f32 };
                        pointwise::splat(4, sums, start.to_le_bytes().as_ptr(), ni);
                        fold::outer(self.level, acc.class, join, x, (no, ni), sums, tmp);
                        fold::merge(self.level, acc.class, join, value, sums, ni);
                    }
                }
                Fold::Join(join) => {
                    let sums = self.register(self.program.spare_row);
                    let tmp = self.register(self.program.spare[0]);
                    fold::inner(self.level, acc.class, join, x, (no, ni), sums, tmp);
                    fold::merge(self.level, acc.class, join, value, sums, no);
                }
            }
        }
    }

    unsafe fn fold_rows(&self, acc: usize, x: Slot, span: Span) {
        let state = self.states[acc];
        let acc = &self.program.row_accs[acc];
        let full = self.program.slots[x].shape == Shape::FULL;
        let x = self.values[x];
        let (rows, cols) = if self.rows_inner { (span.inner, span.outer) } else { (span.outer, span.inner) };
        let (row, first_col) = (rows.0 - self.batch_row, cols.0);
        // SAFETY: `x` is a whole tile, or one value a row; states are as large as the accumulators say.
        unsafe {
            if !acc.wide {
                if self.first_col != 0 && !acc.all {
                    return;
                }
                let n = if full { rows.1 * cols.1 } else { rows.1 };
                match acc.fold {
                    Fold::Join(join) => {
                        // In pieces, so that rounding errors do not pile up.
                        let (sum, size) = (self.register(self.program.spare_row), acc.class.size());
                        let mut at = 0;
                        while at < n {
                            let piece = TILE.min(n - at);
                            fold::inner(
                                self.level,
                                acc.class,
                                join,
                                x.add(at * size),
                                (1, piece),
                                sum,
                                std::ptr::null_mut(),
                            );
                            fold::merge(self.level, acc.class, join, state.total, sum, 1);
                            at += piece;
                        }
                    }
                    Fold::Arg(max) if !full => {
                        let s = ArgShape { keep: 1, fold: n, step_keep: 0, step_fold: 1, first: row as i64, step: 1 };
                        fold::arg(self.level, acc.class, max, x, s, state.total, state.index);
                    }
                    Fold::Arg(max) => {
                        let (step_row, step_col) = if self.rows_inner { (1, rows.1) } else { (cols.1, 1) };
                        for r in 0..rows.1 {
                            let first = ((row + r) * self.cols + first_col) as i64;
                            let s =
                                ArgShape { keep: 1, fold: cols.1, step_keep: 0, step_fold: step_col, first, step: 1 };
                            let from = x.add(r * step_row * acc.class.size());
                            fold::arg(self.level, acc.class, max, from, s, state.total, state.index);
                        }
                    }
                }
                return;
            }
            let at = first_col - self.first_col;
            match acc.fold {
                Fold::Arg(max) => {
                    let (step_keep, step_fold) = if self.rows_inner { (rows.1, 1) } else { (1, cols.1) };
                    let s = ArgShape { keep: cols.1, fold: rows.1, step_keep, step_fold, first: row as i64, step: 1 };
                    let best = state.total.add(at * acc.class.size());
                    fold::arg(self.level, acc.class, max, x, s, best, state.index.add(at));
                }
                Fold::Join(join) => {
                    let into = if acc.two_levels() { state.part } else { state.total };
                    let into = into.add(at * acc.class.size());
                    let tmp = self.register(self.program.spare[0]);
                    if self.rows_inner {
                        let sums = self.register(self.program.spare_row);
                        fold::inner(self.level, acc.class, join, x, (cols.1, rows.1), sums, tmp);
                        fold::outer(self.level, acc.class, join, sums, (1, cols.1), into, tmp);
                    } else {
                        fold::outer(self.level, acc.class, join, x, (rows.1, cols.1), into, tmp);
                    }
                }
            }
        }
    }

    /// Converts `n` values of `class` and stores them over the span.
    ///
    /// # Safety
    /// As [`Worker::exec`]; `n` is 1 or the number of columns of the span.
    pub(crate) unsafe fn finish(
        &self,
        memory: usize,
        class: Class,
        from: *const u8,
        n: usize,
        span: Span,
        tmp: *mut u8,
    ) {
        let m = &self.program.memories[memory];
        let to_class = Class::of(m.dtype).unwrap_or(class);
        // SAFETY: `tmp` has room for n values of any class; the access was checked against the buffer.
        unsafe {
            pointwise::cast(self.level, class, to_class.dtype(), tmp, from, n);
            let step = usize::from(n > 1);
            let (o, i) = if self.rows_inner { (step, 0) } else { (0, step) };
            let inside = narrowed(span, Shape { outer: m.access.outer.varies, inner: m.access.inner.varies });
            m.access.runs(inside, |r| {
                let to = self.element(m.buffer, m.dtype, r.base);
                let from = tmp.add((r.at_o * o + r.at_i * i) * to_class.size());
                copy::store(self.level, m.dtype, to, from, store_rect(r, o, i));
            });
        }
    }
}

fn load_rect(r: Run, pitch: usize) -> Rect {
    Rect { n_o: r.n_o, n_i: r.n_i, from_o: r.step_o as isize, from_i: r.step_i as isize, to_o: pitch as isize, to_i: 1 }
}

fn store_rect(r: Run, o: usize, i: usize) -> Rect {
    Rect {
        n_o: r.n_o,
        n_i: r.n_i,
        from_o: o as isize,
        from_i: i as isize,
        to_o: r.step_o as isize,
        to_i: r.step_i as isize,
    }
}

/// The error of a fault, if there was one.
pub(crate) fn fault_error(
    fault: Fault,
    kernel: &str,
    name: impl Fn(usize) -> std::sync::Arc<str>,
) -> Result<(), RunError> {
    match fault.into_inner().unwrap_or_else(|e| e.into_inner()) {
        None => Ok(()),
        Some((_, buffer, index, size)) => {
            Err(RunError::Index { kernel: kernel.to_string(), buffer: name(buffer), index, size })
        }
    }
}
