//! Scatter with summation: `out[.., index, ..] += src`, without races and in an order that depends on sizes alone.
//!
//! Axes of the nest fall into three groups. *Batch* axes: both the index and the output address vary; each batch has an
//! output of its own. *Tokens*: the output address does not vary, so tokens of a batch meet. The *run*: the index does not
//! vary, so a token moves a whole run. A task owns rows of the output (all tokens of some indices in some batch) or pieces
//! of the run, and adds its tokens in their order. Tokens are brought into the order of their indices first, by counting.

use crate::class::Class;
use crate::concrete::{Access, buffer_of, check_bounds, eval_access, extent};
use crate::copy::{self, Rect};
use crate::error::{CompileError, RunError};
use crate::exec::{Fault, fault_error};
use crate::fold::{self, Join};
use crate::isa::IsaLevel;
use crate::pointwise;
use crate::pool::ParallelFor;
use crate::regs::lines;
use crate::run::{Shared, Used, check_memory};
use crate::worker_memory::with_worker_memory;
use permalloy_ir::{DType, SymbolValues};
use permalloy_loops::kernel::{Buffer, Scatter};
use std::sync::Mutex;

/// Elements of a run that are summed at a time.
const PIECE: usize = 1024;
/// Rows summed in the class before they are added to a total.
const BLOCK: usize = 32;
/// Element-operations worth a task.
const TASK: usize = 32 * 1024;

/// One axis: size and strides in the source, the index and the output.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: usize,
    src: i64,
    index: i64,
    out: i64,
}

/// A view of a buffer.
#[derive(Clone, Copy, Debug)]
struct View {
    buffer: usize,
    dtype: DType,
    offset: i64,
}

/// A scatter ready to run for one choice of sizes.
pub struct CompiledScatter {
    name: String,
    level: IsaLevel,
    batch: Vec<Axis>,
    tokens: Vec<Axis>,
    run: Vec<Axis>,
    batches: usize,
    token_count: usize,
    run_length: usize,
    src: View,
    index: View,
    out: View,
    /// Of the output per index; indices below this many.
    stride: i64,
    size: usize,
    /// Nothing is added, the output is zeroed alone.
    empty: bool,
    used: Vec<Used>,
    bytes_read: usize,
    bytes_written: usize,
}

fn malformed<T>(name: &str, what: &str) -> Result<T, CompileError> {
    Err(CompileError::Malformed(format!("scatter {name}: {what}")))
}

/// Merges neighbours that all three views walk as one; drops axes of one point.
fn merged(axes: Vec<Axis>) -> Vec<Axis> {
    let mut out: Vec<Axis> = Vec::new();
    for a in axes.into_iter().filter(|a| a.size != 1) {
        match out.last_mut() {
            Some(o)
                if o.src == a.src.wrapping_mul(a.size as i64)
                    && o.index == a.index.wrapping_mul(a.size as i64)
                    && o.out == a.out.wrapping_mul(a.size as i64) =>
            {
                *o = Axis { size: o.size * a.size, ..a };
            }
            _ => out.push(a),
        }
    }
    out
}

fn total(axes: &[Axis]) -> usize {
    axes.iter().map(|a| a.size).product()
}

/// Offsets of a flat position in the source, the index and the output.
fn at(axes: &[Axis], mut flat: usize) -> (i64, i64, i64) {
    if let [a] = axes {
        let i = flat as i64;
        return (i * a.src, i * a.index, i * a.out);
    }
    let mut sum = (0, 0, 0);
    for a in axes.iter().rev() {
        let i = (flat % a.size) as i64;
        flat /= a.size;
        sum = (sum.0 + i * a.src, sum.1 + i * a.index, sum.2 + i * a.out);
    }
    sum
}

/// Compiles a scatter for concrete sizes.
pub fn compile_scatter(
    scatter: &Scatter,
    buffers: &[Buffer],
    symbols: &SymbolValues,
    level: IsaLevel,
) -> Result<CompiledScatter, CompileError> {
    let name = &scatter.name;
    let sizes = scatter.axes.iter().map(|a| a.eval(symbols)).collect::<Result<Vec<_>, _>>()?;
    let (stride, size) = (scatter.stride.eval(symbols)?, scatter.size.eval(symbols)?);
    if sizes.iter().any(|n| *n < 0) || size < 0 {
        return malformed(name, "a size is negative");
    }
    let empty = sizes.contains(&0);
    let reach = (size - 1).max(0).checked_mul(stride).ok_or(permalloy_ir::EvalError::Overflow)?;
    let view = |(b, access): &(permalloy_loops::kernel::BufferId, permalloy_loops::kernel::Access)| {
        let buffer = buffer_of(buffers, *b, name)?;
        let access: Access = eval_access(access, sizes.len(), name, symbols)?;
        match access.masks.is_empty() {
            true => Ok((View { buffer, dtype: buffers[buffer].dtype, offset: access.offset }, access)),
            false => malformed(name, "an access has masks"),
        }
    };
    let (src, src_access) = view(&scatter.src)?;
    let (index, index_access) = view(&scatter.index)?;
    let (out, out_access) = view(&scatter.out)?;
    let check = |v: View, access: &Access, sizes: &[i64], reach: i64| {
        let b = &buffers[v.buffer];
        check_bounds(b, extent(b, symbols)?, access, sizes, (reach.min(0), reach.max(0)))
    };
    if !empty {
        check(src, &src_access, &sizes, 0)?;
        check(index, &index_access, &sizes, 0)?;
    }
    // With no token at all the output is zeroed all the same.
    let reached = sizes.iter().zip(&out_access.strides).all(|(n, s)| *n > 0 || *s == 0);
    if size > 0 && reached {
        let sizes: Vec<i64> = sizes.iter().map(|n| (*n).max(1)).collect();
        check(out, &out_access, &sizes, reach)?;
    }
    let class = |d: DType| Class::of(d).ok_or(CompileError::DType(d));
    class(src.dtype)?;
    class(out.dtype)?;
    if class(index.dtype)? != Class::I64 {
        return malformed(name, "the index is no integer");
    }
    let (mut batch, mut tokens, mut run) = (vec![], vec![], vec![]);
    for (a, n) in sizes.iter().enumerate() {
        let axis = Axis {
            size: *n as usize,
            src: src_access.strides[a],
            index: index_access.strides[a],
            out: out_access.strides[a],
        };
        match (axis.index != 0, axis.out != 0) {
            (_, false) => tokens.push(axis),
            (true, true) => batch.push(axis),
            (false, true) => run.push(axis),
        }
    }
    // The run walks the output in order of its memory.
    run.sort_by_key(|a| std::cmp::Reverse(a.out.abs()));
    let (batch, tokens, run) = (merged(batch), merged(tokens), merged(run));
    let (batches, token_count, run_length) = (total(&batch), total(&tokens), total(&run));
    if token_count >= u32::MAX as usize || size >= i64::from(u32::MAX) {
        return malformed(name, "more than 2^32 indices");
    }
    let mut used = Vec::new();
    for (v, written) in [(src, false), (index, false), (out, true)] {
        let b = &buffers[v.buffer];
        let bytes = if empty && !written { 0 } else { extent(b, symbols)?.max(0) as usize * b.dtype.size() };
        let align = b.dtype.size();
        used.push(Used { buffer: v.buffer, name: b.name.clone(), align, bytes, read: !written, written });
    }
    let points = batches * token_count * run_length;
    Ok(CompiledScatter {
        name: name.clone(),
        level: level.min(IsaLevel::best()),
        bytes_read: points * src.dtype.size() + batches * token_count * index.dtype.size(),
        bytes_written: batches * run_length * size as usize * out.dtype.size(),
        batch,
        tokens,
        run,
        batches,
        token_count,
        run_length,
        src,
        index,
        out,
        stride,
        size: size as usize,
        empty,
        used,
    })
}

/// Tokens in the order of their indices: those of index `i` are `order[starts[i]..starts[i + 1]]`.
#[derive(Clone, Copy)]
struct Sorted {
    starts: *mut u32,
    order: *mut u32,
}

impl CompiledScatter {
    /// Bytes of scratch memory that [`CompiledScatter::run`] needs.
    pub fn scratch_bytes(&self) -> usize {
        if self.by_batch() { 0 } else { lines((self.size + 2) * 4) + lines(self.token_count * 4) }
    }

    /// Bytes of memory read, each once.
    pub fn bytes_read(&self) -> usize {
        self.bytes_read
    }

    pub fn bytes_written(&self) -> usize {
        self.bytes_written
    }

    /// Batches are many or small: each is one task's. Otherwise tasks share one batch after the other.
    fn by_batch(&self) -> bool {
        self.batches >= 8 || self.token_count * self.run_length < 1024
    }

    /// Few of a batch's rows get anything: the rest are zeroed at once, and tokens are sorted by comparison.
    fn is_sparse(&self) -> bool {
        self.token_count * 4 < self.size
    }

    /// Bytes a task needs for its sorted tokens, where it sorts itself.
    fn sort_bytes(&self) -> usize {
        let starts = if self.is_sparse() { 0 } else { lines((self.size + 2) * 4) };
        starts + lines(self.token_count * 4)
    }

    /// Runs the scatter.
    ///
    /// # Safety
    /// As for [`CompiledKernel::run`](crate::CompiledKernel::run), except that the output shares no memory with the others.
    pub unsafe fn run(&self, memory: &[*mut u8], scratch: *mut u8, pool: &dyn ParallelFor) -> Result<(), RunError> {
        check_memory(&self.name, &self.used, memory)?;
        let fault: Fault = Mutex::new(None);
        let shared = Shared((memory, scratch));
        let per_batch = (self.token_count + self.size) * self.run_length;
        // SAFETY: tasks own disjoint rows of the output, or disjoint pieces of them.
        unsafe {
            if self.by_batch() {
                let group = (TASK / per_batch.max(1)).clamp(1, self.batches.max(1));
                pool.run(self.batches.div_ceil(group), &|task| {
                    let (memory, _) = shared.get();
                    let batches = task * group..((task + 1) * group).min(self.batches);
                    with_worker_memory(self.sort_bytes() + work_bytes(), |own| {
                        let work = own.add(self.sort_bytes());
                        for batch in batches {
                            if self.is_sparse() {
                                self.sparse(memory, batch, own, work, &fault, task);
                            } else {
                                let sorted = self.sorted(own);
                                self.sort(memory, batch, sorted, &fault, task);
                                self.rows(memory, batch, sorted, (0, self.size), (0, self.run_length), work);
                            }
                        }
                    });
                });
            } else {
                // The run is cut first, as no balance of indices matters to that; then the rows, into equal work.
                let tasks = (per_batch / TASK).clamp(1, 256);
                let pieces = tasks.min(self.run_length.div_ceil(256)).max(1);
                let piece = self.run_length.div_ceil(pieces).div_ceil(64) * 64;
                let pieces = self.run_length.div_ceil(piece);
                let ranges = (tasks / pieces).clamp(1, self.size.max(1));
                let sorted = self.sorted(scratch);
                for batch in 0..self.batches {
                    self.sort(memory, batch, sorted, &fault, 0);
                    if fault.lock().unwrap_or_else(|e| e.into_inner()).is_some() {
                        break;
                    }
                    let shared = Shared((memory, sorted));
                    pool.run(pieces * ranges, &|task| {
                        let (memory, sorted) = shared.get();
                        let (range, part) = (task / pieces, task % pieces);
                        let rows = (self.bound(sorted, range, ranges), self.bound(sorted, range + 1, ranges));
                        let run = (part * piece, ((part + 1) * piece).min(self.run_length));
                        with_worker_memory(work_bytes(), |work| self.rows(memory, batch, sorted, rows, run, work));
                    });
                }
            }
        }
        fault_error(fault, &self.name, |b| {
            self.used.iter().find(|u| u.buffer == b).map_or_else(|| "?".into(), |u| u.name.clone())
        })
    }

    unsafe fn sorted(&self, memory: *mut u8) -> Sorted {
        // SAFETY: the caller gives `sort_bytes` bytes.
        Sorted { starts: memory.cast(), order: unsafe { memory.add(lines((self.size + 2) * 4)) }.cast() }
    }

    /// First index of a range, such that ranges hold about as many tokens and rows each.
    unsafe fn bound(&self, sorted: Sorted, range: usize, ranges: usize) -> usize {
        let goal = (self.token_count + self.size) * range / ranges;
        let (mut low, mut high) = (0, self.size);
        while low < high {
            let middle = (low + high) / 2;
            // SAFETY: starts has size + 1 entries.
            if (unsafe { sorted.starts.add(middle).read() } as usize + middle) < goal {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Brings the tokens of a batch into the order of their indices, keeping the order of equals.
    unsafe fn sort(&self, memory: &[*mut u8], batch: usize, s: Sorted, fault: &Fault, task: usize) {
        let tokens = if self.empty { 0 } else { self.token_count };
        // SAFETY: the access was checked against the buffer; tables are as large as `scratch_bytes` says.
        unsafe {
            s.starts.write_bytes(0, self.size + 2);
            let base = if tokens == 0 { 0 } else { self.index.offset + at(&self.batch, batch).1 };
            let read = |t: usize| self.index_of(memory, base, t);
            let valid = |i: i64| (0..self.size as i64).contains(&i);
            for t in 0..tokens {
                let i = read(t);
                if valid(i) {
                    *s.starts.add(i as usize + 2) += 1;
                } else {
                    self.report(fault, task, i);
                }
            }
            for i in 2..self.size + 2 {
                *s.starts.add(i) += s.starts.add(i - 1).read();
            }
            // starts[i + 1] is where the next token of index i goes; afterwards it is where index i ends.
            for t in 0..tokens {
                let i = read(t);
                if valid(i) {
                    let next = s.starts.add(i as usize + 1);
                    s.order.add(next.read() as usize).write(t as u32);
                    *next += 1;
                }
            }
        }
    }

    fn report(&self, fault: &Fault, task: usize, index: i64) {
        let mut f = fault.lock().unwrap_or_else(|e| e.into_inner());
        if f.is_none_or(|f| f.0 > task) {
            *f = Some((task, self.index.buffer, index, self.size as i64));
        }
    }

    /// Index of a token, `base` being the address of the batch's first.
    unsafe fn index_of(&self, memory: &[*mut u8], base: i64, token: usize) -> i64 {
        let address = (base + at(&self.tokens, token).1) as isize;
        let from = memory[self.index.buffer];
        // SAFETY: the access was checked against the buffer.
        unsafe {
            match self.index.dtype {
                DType::I64 => from.cast::<i64>().offset(address).read(),
                DType::I32 => from.cast::<i32>().offset(address).read().into(),
                DType::I16 => from.cast::<i16>().offset(address).read().into(),
                DType::I8 => from.cast::<i8>().offset(address).read().into(),
                _ => from.offset(address).read().into(),
            }
        }
    }

    /// A batch of which few rows get anything.
    unsafe fn sparse(
        &self,
        memory: &[*mut u8],
        batch: usize,
        order: *mut u8,
        work: *mut u8,
        fault: &Fault,
        task: usize,
    ) {
        let order: *mut u32 = order.cast();
        let (src_batch, index_batch, out_batch) = at(&self.batch, batch);
        let class = Class::of(self.src.dtype).unwrap_or(Class::F32);
        let mut found = 0;
        // SAFETY: every valid index was checked against the buffers; `order` has room for all tokens.
        unsafe {
            let index = |t: usize| self.index_of(memory, self.index.offset + index_batch, t);
            for t in 0..if self.empty { 0 } else { self.token_count } {
                let i = index(t);
                if (0..self.size as i64).contains(&i) {
                    order.add(found).write(t as u32);
                    found += 1;
                } else {
                    self.report(fault, task, i);
                }
            }
            let tokens = std::slice::from_raw_parts_mut(order, found);
            tokens.sort_by_key(|t| index(*t as usize));
            let mut start = 0;
            while start < self.run_length {
                let n = self.straight(start, self.run_length);
                let (src_run, _, out_run) = at(&self.run, start);
                let steps = self.run.last().map_or((0, 0), |a| (a.src, a.out));
                let (src, out) = (self.src.offset + src_batch + src_run, self.out.offset + out_batch + out_run);
                let to = memory[self.out.buffer].offset(out as isize * self.out.dtype.size() as isize);
                let to_o = self.stride as isize;
                let rect = Rect { n_o: self.size, n_i: n, from_o: 0, from_i: 0, to_o, to_i: steps.1 as isize };
                copy::store(self.level, self.out.dtype, to, 0u64.to_le_bytes().as_ptr(), rect);
                let s = Sorted { starts: std::ptr::null_mut(), order };
                let mut first = 0;
                while first < found {
                    let row = index(order.add(first).read() as usize);
                    let same = (first..found).take_while(|k| index(order.add(*k).read() as usize) == row).count();
                    let to = out + row * self.stride;
                    self.row(memory, s, (first, first + same), class, n, (src, steps.0), (to, steps.1), work);
                    first += same;
                }
                start += n;
            }
        }
    }

    /// Makes rows `rows` of a batch's output, positions `run` of each.
    unsafe fn rows(
        &self,
        memory: &[*mut u8],
        batch: usize,
        s: Sorted,
        rows: (usize, usize),
        run: (usize, usize),
        work: *mut u8,
    ) {
        let class = Class::of(self.src.dtype).unwrap_or(Class::F32);
        let (src_batch, _, out_batch) = at(&self.batch, batch);
        let mut start = run.0;
        while start < run.1 {
            let n = self.straight(start, run.1);
            let (src_run, _, out_run) = at(&self.run, start);
            let src = self.src.offset + src_batch + src_run;
            let out = self.out.offset + out_batch + out_run;
            let steps = self.run.last().map_or((0, 0), |a| (a.src, a.out));
            for row in rows.0..rows.1 {
                // SAFETY: every valid index was checked against the buffers; work has room for four pieces.
                unsafe {
                    let (first, last) = (s.starts.add(row).read() as usize, s.starts.add(row + 1).read() as usize);
                    let to = out + row as i64 * self.stride;
                    self.row(memory, s, (first, last), class, n, (src, steps.0), (to, steps.1), work);
                }
            }
            start += n;
        }
    }

    /// Length of the straight piece of the run from `start`, at most `PIECE`.
    fn straight(&self, start: usize, end: usize) -> usize {
        let last = self.run.last().map_or(1, |a| a.size);
        (last - start % last).min(end - start).min(PIECE)
    }

    /// Sums the source's pieces of some tokens, and stores the sum.
    #[allow(clippy::too_many_arguments, reason = "a row of the output")]
    unsafe fn row(
        &self,
        memory: &[*mut u8],
        s: Sorted,
        (first, last): (usize, usize),
        class: Class,
        n: usize,
        (src, src_step): (i64, i64),
        (out, out_step): (i64, i64),
        work: *mut u8,
    ) {
        let level = self.level;
        let out_class = Class::of(self.out.dtype).unwrap_or(class);
        // SAFETY: by `rows`; the four pieces of `work` do not overlap.
        unsafe {
            let (sum, total, held) = (work, work.add(PIECE * 8), work.add(PIECE * 16));
            let wide = Join::Sum.accumulator(class);
            sum.write_bytes(0, n * class.size());
            let long = last - first > BLOCK && wide != class;
            if long {
                total.write_bytes(0, n * wide.size());
            }
            for k in first..last {
                let token = s.order.add(k).read() as usize;
                let address = src + at(&self.tokens, token).0;
                let from = memory[self.src.buffer].offset(address as isize * self.src.dtype.size() as isize);
                let x = if self.src.dtype == class.dtype() && (src_step == 1 || n == 1) {
                    from.cast_const()
                } else {
                    let rect = Rect { n_o: 1, n_i: n, from_o: 0, from_i: src_step as isize, to_o: 0, to_i: 1 };
                    copy::load(level, self.src.dtype, held, from, rect);
                    held.cast_const()
                };
                let join = if class == Class::U8 { Join::Max } else { Join::Sum };
                fold::outer(level, class, join, x, (1, n), sum, std::ptr::null_mut());
                if long && (k + 1 - first).is_multiple_of(BLOCK) {
                    fold::merge(level, class, Join::Sum, total, sum, n);
                    sum.write_bytes(0, n * class.size());
                }
            }
            let (result, result_class) = if long {
                fold::merge(level, class, Join::Sum, total, sum, n);
                (total, wide)
            } else {
                (sum, class)
            };
            let result = if result_class == out_class {
                result
            } else {
                pointwise::cast(level, result_class, out_class.dtype(), held, result, n);
                held
            };
            let to = memory[self.out.buffer].offset(out as isize * self.out.dtype.size() as isize);
            let rect = Rect { n_o: 1, n_i: n, from_o: 0, from_i: 1, to_o: 0, to_i: out_step as isize };
            copy::store(level, self.out.dtype, to, result, rect);
        }
    }
}

fn work_bytes() -> usize {
    PIECE * 8 * 4 + 64
}
