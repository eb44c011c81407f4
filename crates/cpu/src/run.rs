//! Compiled kernels: how the nest is cut into tasks, and how partial results are joined.
//!
//! The cut depends on sizes alone, and partial results are joined in a fixed order, so results are bitwise the same
//! whatever runs the tasks.

use crate::access::Span;
use crate::cache::last_level_cache;
use crate::class::Class;
use crate::compile::compile;
use crate::concrete::{Access, Concrete, Node, concrete, extent};
use crate::error::{CompileError, RunError};
use crate::exec::{Fault, RowState, Worker, fault_error};
use crate::fold::{self, NOWHERE};
use crate::isa::IsaLevel;
use crate::jit::{Width, fence, fuse};
use crate::layout::{FUSED_TILE, LEAST_FUSED_TILE, Layout, TILE, layout};
use crate::pointwise;
use crate::pool::ParallelFor;
use crate::program::{Fold, Program};
use crate::regs::lines;
use crate::worker_memory::with_worker_memory;
use permalloy_ir::SymbolValues;
use permalloy_loops::kernel::{Buffer, Kernel};
use std::sync::{Arc, Mutex, OnceLock};

/// Element-operations that are worth a task of their own.
const TASK: usize = 128 * 1024;
/// Most tasks of a kernel, and most pieces that a reduction over rows is cut into.
const MOST_TASKS: usize = 256;
const MOST_SPLITS: usize = 64;
/// Rows summed in the class before they are added to the totals.
const BLOCK: usize = 64;
/// Rows that are worth a split of their own.
const SPLIT_ROWS: usize = 32;
/// Columns of a reduction over rows that one task handles.
const RANGE: usize = 4096;

/// Tasks that tiles should leave a small kernel.
const FEW_TASKS: usize = 8;

/// A buffer the kernel touches.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    pub buffer: usize,
    pub name: Arc<str>,
    pub align: usize,
    pub bytes: usize,
    pub read: bool,
    pub written: bool,
}

/// How the nest is cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Groups of batches.
    groups: usize,
    batches_per_group: usize,
    /// Pieces of a batch's rows.
    splits: usize,
    rows_per_split: usize,
    /// Pieces of the columns.
    ranges: usize,
    cols_per_range: usize,
}

/// Places of the state of row accumulators within the block of one task.
#[derive(Clone, Copy, Debug)]
struct StatePlace {
    total: usize,
    index: usize,
}

/// A kernel ready to run for one choice of sizes.
pub struct CompiledKernel {
    name: String,
    level: IsaLevel,
    concrete: Concrete,
    layout: Layout,
    row_axes: usize,
    /// For buffers that share no memory, and for those that do.
    exclusive: Program,
    shared: OnceLock<Program>,
    cut: Cut,
    places: Vec<StatePlace>,
    /// Bytes of the totals of one task; of the sums that come before them.
    state_bytes: usize,
    part_bytes: usize,
    used: Vec<Used>,
    bytes_read: usize,
    bytes_written: usize,
}

/// Buffers that the nodes touch, with their extents.
fn used_buffers(k: &Concrete, buffers: &[Buffer], symbols: &SymbolValues) -> Result<Vec<Used>, CompileError> {
    let mut used: Vec<Used> = Vec::new();
    for v in &k.values {
        let (buffer, written) = match v.node {
            Node::Load { buffer, .. } | Node::LoadAt { buffer, .. } => (buffer, false),
            Node::Store { buffer, .. } => (buffer, true),
            _ => continue,
        };
        let i = match used.iter().position(|u| u.buffer == buffer) {
            Some(i) => i,
            None => {
                let b = &buffers[buffer];
                let bytes = extent(b, symbols)?.max(0) as usize * b.dtype.size();
                let align = b.dtype.size();
                used.push(Used { buffer, name: b.name.clone(), align, bytes, read: false, written: false });
                used.len() - 1
            }
        };
        used[i].read |= !written;
        used[i].written |= written;
    }
    Ok(used)
}

/// Bytes moved by loads and by stores; what is read again because it is broadcast counts once.
fn traffic(k: &Concrete) -> (usize, usize) {
    let mut seen: Vec<(usize, bool, usize)> = Vec::new();
    for v in &k.values {
        let (buffer, written) = match v.node {
            Node::Load { buffer, .. } | Node::LoadAt { buffer, .. } => (buffer, false),
            Node::Store { buffer, .. } => (buffer, true),
            _ => continue,
        };
        let Some(access) = v.node.access() else { continue };
        let points: usize = (0..k.axes.len()).filter(|a| !access.ignores(*a)).map(|a| k.axes[a].size).product();
        let bytes = points * v.dtype.size();
        match seen.iter_mut().find(|s| s.0 == buffer && s.1 == written) {
            Some(s) => s.2 = s.2.max(bytes),
            None => seen.push((buffer, written, bytes)),
        }
    }
    let sum = |w: bool| seen.iter().filter(|s| s.1 == w).map(|s| s.2).sum();
    (sum(false), sum(true))
}

/// Elements of a tile. Where most operations will be fused, many, so that row-level work and calls are shared, but no more
/// than leave a few tasks; otherwise each operation is a pass over the tile, which must stay in the first-level cache.
fn tile_for(k: &Concrete, level: IsaLevel) -> usize {
    let whole = |a: &Access| (0..k.axes.len()).all(|i| !a.ignores(i));
    let fused = k.values.iter().all(|v| match v.class {
        Class::F32 | Class::U8 => true,
        Class::I64 => matches!(v.node, Node::Index(_)) || !v.node.access().is_some_and(whole),
        Class::F64 => false,
    });
    if Width::of(level).is_none() || !fused {
        return TILE;
    }
    let points = k.axes.iter().map(|a| a.size).fold(1, usize::saturating_mul);
    (points / FEW_TASKS).clamp(LEAST_FUSED_TILE, FUSED_TILE)
}

/// Compiles a kernel for concrete sizes.
pub fn compile_kernel(
    kernel: &Kernel,
    buffers: &[Buffer],
    symbols: &SymbolValues,
    level: IsaLevel,
) -> Result<CompiledKernel, CompileError> {
    let level = level.min(IsaLevel::best());
    let mut k = concrete(kernel, buffers, symbols)?;
    let used = used_buffers(&k, buffers, symbols)?;
    let (bytes_read, bytes_written) = traffic(&k);
    let tile = tile_for(&k, level);
    let (layout, row_axes) = layout(&mut k, tile)?;
    let mut exclusive = compile(&k, &layout, row_axes, true)?;
    if let Some(width) = Width::of(level) {
        let (read, written) = traffic(&k);
        // What fits into the cache is better left there for the next reader; what takes most of it drives out what that
        // reader needs besides, and to fetch the lines before they are written costs as much as to read them again.
        let stream = read + written > last_level_cache() / 2;
        fuse(&mut exclusive, &layout, width, true, stream);
    }
    let cut = cut(&layout, &exclusive);
    let mut state_bytes = 0;
    let mut part_bytes = 0;
    let mut places = Vec::new();
    for acc in &exclusive.row_accs {
        let n = if acc.wide { cut.cols_per_range } else { 1 };
        let total = state_bytes;
        state_bytes += lines(n * acc.total().size());
        let index = state_bytes;
        state_bytes += if matches!(acc.fold, Fold::Arg(_)) { lines(n * 8) } else { 0 };
        places.push(StatePlace { total, index });
        part_bytes += if acc.two_levels() { lines(n * acc.class.size()) } else { 0 };
    }
    Ok(CompiledKernel {
        name: kernel.name.clone(),
        level,
        concrete: k,
        layout,
        row_axes,
        exclusive,
        shared: OnceLock::new(),
        cut,
        places,
        state_bytes,
        part_bytes,
        used,
        bytes_read,
        bytes_written,
    })
}

fn cut(layout: &Layout, program: &Program) -> Cut {
    let batches = layout.batches.max(1);
    let rows = layout.rows.total / batches;
    let cols = layout.cols.total;
    let folds_cols = !program.col_accs.is_empty();
    let folds_rows = !program.row_accs.is_empty();
    let all = program.row_accs.iter().any(|a| a.all);
    let work = layout.rows.total.saturating_mul(cols).saturating_mul(program.cost);
    let most = if folds_rows { MOST_SPLITS.max(batches.min(MOST_TASKS)) } else { MOST_TASKS };
    let tasks = (work / TASK).clamp(1, most);

    // Columns: only where no row must be seen whole.
    let chunks = cols.div_ceil(layout.col_block);
    let mut ranges = 1;
    if !folds_cols && !all {
        let row_blocks = rows.div_ceil(layout.row_block);
        if folds_rows {
            ranges = cols.div_ceil(RANGE.max(layout.col_block));
            if ranges * batches * (rows / SPLIT_ROWS).max(1) < tasks {
                ranges = (tasks / (batches * (rows / SPLIT_ROWS).max(1))).clamp(1, chunks);
            }
        } else if row_blocks < tasks {
            ranges = (tasks / row_blocks).clamp(1, chunks);
        }
    }
    let cols_per_range = chunks.div_ceil(ranges) * layout.col_block;
    let ranges = cols.div_ceil(cols_per_range).max(1);

    let groups = (tasks / ranges).clamp(1, batches);
    let batches_per_group = batches.div_ceil(groups);
    let groups = batches.div_ceil(batches_per_group);
    // With several batches in a task none of them is split.
    let splits = if batches_per_group > 1 { 1 } else { (tasks / (ranges * groups)).max(1) };
    let splits = if folds_rows { splits.min((rows / SPLIT_ROWS).max(1)) } else { splits };
    let rows_per_split = rows.div_ceil(splits).div_ceil(layout.row_block) * layout.row_block;
    let splits = rows.div_ceil(rows_per_split).max(1);
    Cut { groups, batches_per_group, splits, rows_per_split, ranges, cols_per_range }
}

/// Checks that each buffer has memory, aligned to its dtype.
pub(crate) fn check_memory(kernel: &str, used: &[Used], memory: &[*mut u8]) -> Result<(), RunError> {
    for u in used.iter().filter(|u| u.bytes > 0) {
        let given = memory.get(u.buffer).copied().unwrap_or(std::ptr::null_mut());
        if given.is_null() || given.addr() % u.align != 0 {
            return Err(RunError::Memory { kernel: kernel.to_string(), buffer: u.name.clone() });
        }
    }
    Ok(())
}

/// A pointer that tasks share.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub T);
// SAFETY: tasks write disjoint parts of what is behind it; each use says which.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    pub(crate) fn get(&self) -> T {
        self.0
    }
}

impl CompiledKernel {
    /// Bytes of scratch memory that [`CompiledKernel::run`] needs: partial results of reductions over rows.
    pub fn scratch_bytes(&self) -> usize {
        if self.cut.splits > 1 { self.layout.batches * self.cut.splits * self.cut.ranges * self.state_bytes } else { 0 }
    }

    /// Bytes of memory read, each once.
    pub fn bytes_read(&self) -> usize {
        self.bytes_read
    }

    pub fn bytes_written(&self) -> usize {
        self.bytes_written
    }

    /// Passes over each block of rows: reductions over columns part them, but where one function runs all of a row's there is
    /// one.
    pub fn passes(&self) -> usize {
        self.exclusive.phases.len()
    }

    /// Tasks a run consists of; it depends on sizes alone.
    pub fn tasks(&self) -> usize {
        self.cut.groups * self.cut.splits * self.cut.ranges
    }

    /// Some stored buffer shares memory with another buffer of the kernel.
    fn is_shared(&self, memory: &[*mut u8]) -> bool {
        let range = |u: &Used| (memory[u.buffer].addr(), memory[u.buffer].addr() + u.bytes);
        let used: Vec<&Used> = self.used.iter().filter(|u| u.bytes > 0).collect();
        used.iter().any(|w| {
            let (start, end) = range(w);
            w.written
                && (w.read
                    || used.iter().any(|u| {
                        let (s, e) = range(u);
                        u.buffer != w.buffer && s < end && start < e
                    }))
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn used(&self) -> &[Used] {
        &self.used
    }

    /// What runs on memory that was checked.
    pub(crate) fn program_for(&self, memory: &[*mut u8]) -> &Program {
        if !self.is_shared(memory) {
            return &self.exclusive;
        }
        // It compiled without sharing, and nothing that can fail depends on that.
        self.shared.get_or_init(|| {
            let shared = compile(&self.concrete, &self.layout, self.row_axes, false);
            let mut shared = shared.unwrap_or_else(|_| self.exclusive.clone());
            if let Some(width) = Width::of(self.level) {
                fuse(&mut shared, &self.layout, width, false, false);
            }
            shared
        })
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// `memory[b]` is the first element of buffer `b` for each buffer the kernel touches: as many elements as its shape and
    /// strides span, readable, those stored writable, and not touched by anyone else meanwhile. A stored buffer may share
    /// memory with a loaded one only if each address is read by no other point of the nest than the one that stores it.
    /// `scratch` has [`CompiledKernel::scratch_bytes`] bytes, aligned to 64.
    pub unsafe fn run(&self, memory: &[*mut u8], scratch: *mut u8, pool: &dyn ParallelFor) -> Result<(), RunError> {
        check_memory(&self.name, &self.used, memory)?;
        let program = self.program_for(memory);
        let fault: Fault = Mutex::new(None);
        let tasks = self.tasks();
        let shared = Shared((memory, scratch));
        let body = |task: usize| {
            let (memory, scratch) = shared.get();
            // SAFETY: tasks store to disjoint addresses and have scratch blocks of their own.
            unsafe { self.task(program, memory, scratch, task, &fault) }
        };
        if tasks == 1 {
            body(0);
        } else {
            pool.run(tasks, &body);
        }
        if self.cut.splits > 1 && !program.row_accs.is_empty() {
            let joins = self.layout.batches * self.cut.ranges;
            let join = |task: usize| {
                let (memory, scratch) = shared.get();
                // SAFETY: each task joins the blocks of one batch and range, and stores that part of the results.
                unsafe { self.join(program, memory, scratch, task, &fault) }
            };
            if joins == 1 {
                join(0);
            } else {
                pool.run(joins, &join);
            }
        }
        fault_error(fault, &self.name, |b| {
            self.used.iter().find(|u| u.buffer == b).map_or_else(|| "?".into(), |u| u.name.clone())
        })
    }

    /// Scratch block of a batch's split and range.
    fn block(&self, batch: usize, split: usize, range: usize) -> usize {
        ((batch * self.cut.splits + split) * self.cut.ranges + range) * self.state_bytes
    }

    fn worker<'a>(
        &self,
        program: &'a Program,
        buffers: &'a [*mut u8],
        registers: *mut u8,
        fault: &'a Fault,
        task: usize,
        first_col: usize,
    ) -> Worker<'a> {
        Worker {
            program,
            level: self.level,
            buffers,
            registers,
            values: vec![std::ptr::null(); program.slots.len()],
            pointers: Vec::new(),
            steps: Vec::new(),
            rows_inner: self.layout.rows_inner,
            first_col,
            cols: self.layout.cols.total,
            batch_row: 0,
            states: Vec::with_capacity(program.row_accs.len()),
            fault,
            task,
        }
    }

    /// Columns of a range.
    fn columns(&self, range: usize) -> (usize, usize) {
        let first = range * self.cut.cols_per_range;
        (first, (first + self.cut.cols_per_range).min(self.layout.cols.total))
    }

    /// One of the kernel's tasks.
    ///
    /// # Safety
    /// As for [`CompiledKernel::run`], for this task's part of the nest; `program` is of [`CompiledKernel::program_for`].
    pub(crate) unsafe fn task(
        &self,
        program: &Program,
        memory: &[*mut u8],
        scratch: *mut u8,
        task: usize,
        fault: &Fault,
    ) {
        let cut = &self.cut;
        let (rest, range) = (task / cut.ranges, task % cut.ranges);
        let (group, split) = (rest / cut.splits, rest % cut.splits);
        let (first_col, last_col) = self.columns(range);
        let (layout, rows_per_batch) = (&self.layout, self.layout.rows.total / self.layout.batches.max(1));
        let bytes = program.registers + self.part_bytes + self.state_bytes + cut.cols_per_range * 8 + 64;
        with_worker_memory(bytes, |registers| {
            // SAFETY: registers, sums, totals and the space for finishing follow each other in the worker's memory; the
            // rest is by the contract of `run`.
            unsafe {
                let parts = registers.add(program.registers);
                let own = parts.add(self.part_bytes);
                let finish = own.add(self.state_bytes);
                let mut w = self.worker(program, memory, registers, fault, task, first_col);
                let first_batch = group * cut.batches_per_group;
                let last_batch = (first_batch + cut.batches_per_group).min(layout.batches);
                let first_row = first_batch * rows_per_batch + split * cut.rows_per_split;
                w.exec(&program.once, w.span((first_row, 1), (first_col, 1)), 0);
                for batch in first_batch..last_batch {
                    w.batch_row = batch * rows_per_batch;
                    let block = match cut.splits {
                        1 => own,
                        _ => scratch.add(self.block(batch, split, range)),
                    };
                    self.start(program, &mut w, block, parts, last_col - first_col);
                    let begin = split * cut.rows_per_split;
                    let end = (begin + cut.rows_per_split).min(rows_per_batch);
                    self.rows(&mut w, (begin, end), (first_col, last_col));
                    if cut.splits == 1 {
                        self.finish(&w, block, batch, range, finish);
                    }
                }
                if program.code.is_some() {
                    fence();
                }
            }
        });
    }

    /// Runs rows `begin..end` of the worker's batch.
    unsafe fn rows(&self, w: &mut Worker<'_>, (begin, end): (usize, usize), (first_col, last_col): (usize, usize)) {
        let (layout, program) = (&self.layout, w.program);
        let mut since_flush = 0;
        let mut row = begin;
        // SAFETY: as `run`'s.
        unsafe {
            while row < end {
                let rows = layout.row_block.min(end - row);
                let at = (w.batch_row + row, rows);
                for phase in &program.phases {
                    w.exec(&phase.rows, w.span(at, (first_col, 1)), 0);
                    if phase.body.is_empty() {
                        continue;
                    }
                    w.start_cols(&phase.accs, rows);
                    let (mut col, mut chunk) = (first_col, 0);
                    while col < last_col {
                        let cols = layout.col_block.min(last_col - col);
                        w.exec(&phase.body, w.span(at, (col, cols)), chunk);
                        col += cols;
                        chunk += 1;
                    }
                }
                row += rows;
                since_flush += rows;
                if since_flush >= BLOCK || row >= end {
                    self.flush(w, last_col - first_col);
                    since_flush = 0;
                }
            }
        }
    }

    /// Sets the worker's row accumulators to their identities.
    unsafe fn start(&self, program: &Program, w: &mut Worker<'_>, block: *mut u8, parts: *mut u8, cols: usize) {
        w.states.clear();
        let mut part_at = 0;
        for (acc, place) in program.row_accs.iter().zip(&self.places) {
            let n = if acc.wide { cols } else { 1 };
            // SAFETY: places lie in the block, sums in the parts.
            unsafe {
                let state = RowState {
                    total: block.add(place.total),
                    index: block.add(place.index).cast(),
                    part: parts.add(part_at),
                };
                pointwise::splat(acc.total().size(), state.total, acc.start_total.to_le_bytes().as_ptr(), n);
                if acc.two_levels() {
                    let whole = if acc.wide { self.cut.cols_per_range } else { 1 };
                    part_at += lines(whole * acc.class.size());
                    pointwise::splat(acc.class.size(), state.part, acc.start.to_le_bytes().as_ptr(), n);
                }
                if let Fold::Arg(_) = acc.fold {
                    (0..n).for_each(|i| state.index.add(i).write(NOWHERE));
                }
                w.states.push(state);
            }
        }
    }

    /// Adds the sums of the last few rows to the totals.
    unsafe fn flush(&self, w: &Worker<'_>, cols: usize) {
        for (acc, state) in w.program.row_accs.iter().zip(&w.states) {
            let Fold::Join(join) = acc.fold else { continue };
            if acc.wide && acc.two_levels() {
                // SAFETY: both hold one value a column.
                unsafe {
                    fold::merge(self.level, acc.class, join, state.total, state.part, cols);
                    pointwise::splat(acc.class.size(), state.part, acc.start.to_le_bytes().as_ptr(), cols);
                }
            }
        }
    }

    /// Stores the results of one batch and range.
    unsafe fn finish(&self, w: &Worker<'_>, block: *mut u8, batch: usize, range: usize, tmp: *mut u8) {
        let rows_per_batch = self.layout.rows.total / self.layout.batches.max(1);
        let row = (batch * rows_per_batch, 1);
        for (acc, place) in w.program.row_accs.iter().zip(&self.places) {
            if !acc.wide && range != 0 {
                continue;
            }
            let (first, last) = if acc.wide { self.columns(range) } else { (0, self.layout.cols.total) };
            let n = if acc.wide { last - first } else { 1 };
            // SAFETY: totals lie in the block; `tmp` has room for a range of columns.
            unsafe {
                let (class, from) = match acc.fold {
                    Fold::Arg(_) => (Class::I64, block.add(place.index)),
                    Fold::Join(_) => (acc.total(), block.add(place.total)),
                };
                let span: Span = w.span(row, (first, last - first));
                for memory in &acc.stores {
                    w.finish(*memory, class, from, n, span, tmp);
                }
            }
        }
    }

    /// Joins the splits of one batch and range, in order, and stores the results.
    unsafe fn join(&self, program: &Program, memory: &[*mut u8], scratch: *mut u8, task: usize, fault: &Fault) {
        let (batch, range) = (task / self.cut.ranges, task % self.cut.ranges);
        let (first_col, last_col) = self.columns(range);
        with_worker_memory(self.cut.cols_per_range * 8 + 64, |tmp| {
            // SAFETY: blocks lie in the scratch memory and belong to this task alone.
            unsafe {
                let w = self.worker(program, memory, tmp, fault, task, first_col);
                let into = scratch.add(self.block(batch, 0, range));
                for split in 1..self.cut.splits {
                    let from = scratch.add(self.block(batch, split, range));
                    for (acc, place) in program.row_accs.iter().zip(&self.places) {
                        let n = if acc.wide { last_col - first_col } else { 1 };
                        let (total, other) = (into.add(place.total), from.add(place.total));
                        match acc.fold {
                            Fold::Join(join) => fold::merge(self.level, acc.total(), join, total, other, n),
                            Fold::Arg(max) => {
                                let index = (into.add(place.index).cast(), from.add(place.index).cast());
                                fold::arg_merge(acc.class, max, (total, index.0), (other, index.1), n);
                            }
                        }
                    }
                }
                self.finish(&w, into, batch, range, tmp);
            }
        });
    }
}
