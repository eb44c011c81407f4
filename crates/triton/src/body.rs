//! The body of a kernel under a schedule: grid, loops, phases, and what reductions leave behind.

use crate::address;
use crate::emit::{Emitter, Key, Value, bits, block_name, start_name};
use crate::error::{Part, construct};
use crate::expression;
use crate::online;
use crate::schedule::Walk;
use permalloy_ir::{DType, Dim, PrimOp};
use permalloy_loops::kernel::{Access, BufferId, KernelOp, OpId, OpKind, Over};

/// Where the result of a reduction that exists after the nest goes.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// The reduction.
    pub reduce: OpId,
    pub op: PrimOp,
    pub x: OpId,
    pub dtype: DType,
    /// Dims folded, as bits.
    pub folded: u32,
    /// Scratch of one slot a program, or None where one program has all of it and stores it itself.
    pub partial: Option<(BufferId, Access)>,
    /// Elements of a slot.
    pub length: Dim,
}

/// Writes the whole body; returns the number of programs.
pub(crate) fn write(e: &mut Emitter<'_>, tails: &[Tail]) -> Part<Dim> {
    for d in 0..e.s.dims.len() {
        if e.s.dims[d].walk == Walk::Whole {
            // Of the kernel, not of a tile: its index never changes.
            e.open_dim(d, None);
        }
    }
    let programs = open_grid(e);
    let is_loop = |d: &usize| matches!(e.s.dims[*d].walk, Walk::Loop | Walk::Divided { .. });
    let loops: Vec<usize> = (0..e.s.dims.len()).filter(is_loop).collect();
    let of_columns = |d: &usize| e.s.cols.contains(d);
    match loops.iter().any(of_columns) {
        true if loops.iter().all(of_columns) => phases(e, tails, &loops)?,
        true => return construct("loops over rows and over columns in one program"),
        false => nest(e, tails, &loops)?,
    }
    Ok(programs)
}

/// As `write`, for a body that the caller writes; returns the number of programs.
pub(crate) fn grid(e: &mut Emitter<'_>) -> Dim {
    open_grid(e)
}

/// Indices of the blocks of this program; on a device whose programs walk tiles, in a loop over them.
fn open_grid(e: &mut Emitter<'_>) -> Dim {
    let walked: Vec<usize> = e.grid_dims();
    let counts: Vec<Dim> = walked.iter().map(|d| e.tile_count(*d)).collect();
    let tiles = Dim::product(&counts);
    let wide = if e.wide { ".to(tl.int64)" } else { "" };
    let mut programs = tiles.clone();
    let pid = format!("tl.program_id(0){wide}");
    if e.device.walks_tiles && !tiles.is_const(1) {
        let total = e.size(&tiles);
        e.open_scope(format!("for tile in range({pid}, {total}, tl.num_programs(0)):"));
        programs = Dim::min(&tiles, &Dim::from(i64::from(e.device.cores)));
    } else if !tiles.is_const(1) {
        e.line(0, format!("tile = {pid}"));
    }
    let mut rest = "tile".to_string();
    let many: Vec<usize> = (0..walked.len()).filter(|i| !counts[*i].is_const(1)).collect();
    for i in (0..walked.len()).rev() {
        let d = walked[i];
        let name = e.s.dims[d].name;
        if counts[i].is_const(1) {
            e.tiles[d] = None;
        } else if many.first() == Some(&i) {
            e.tiles[d] = Some(rest.clone());
        } else {
            let n = e.size(&counts[i]);
            let depth = e.depth();
            let (at, over) = (e.name(&format!("{name}_tile")), e.name("tiles"));
            e.line(depth, format!("{at} = {rest} % {n}"));
            e.line(depth, format!("{over} = {rest} // {n}"));
            rest = over;
            e.tiles[d] = Some(at);
        }
    }
    for d in walked {
        if e.s.dims[d].walk == Walk::Grid {
            let first = e.tiles[d].clone();
            let first = match (first, e.s.dims[d].position) {
                (Some(t), Some(_)) => Some(format!("{t} * {}", block_name(e.s.dims[d].name))),
                (first, _) => first,
            };
            e.open_dim(d, first.as_deref());
        }
    }
    programs
}

/// The `for` line of a loop over a dim.
fn loop_header(e: &mut Emitter<'_>, d: usize) -> String {
    let dim = e.s.dims[d].clone();
    let size = e.size(&dim.size);
    let block = block_name(dim.name);
    let (name, start) = (dim.name, start_name(dim.name));
    match &dim.walk {
        Walk::Divided { chunk, .. } => {
            let chunk = e.size(chunk);
            let part = e.tiles[d].clone().unwrap_or_else(|| "0".to_string());
            let depth = e.depth();
            let first = e.name(&format!("{name}_first"));
            e.line(depth, format!("{first} = {part} * {chunk}"));
            format!("for {start} in range({first}, tl.minimum({first} + {chunk}, {size}), {block}):")
        }
        _ if dim.position.is_none() => format!("for {start} in range(0, {size}):"),
        _ => format!("for {start} in range(0, {size}, {block}):"),
    }
}

/// Opens the loops over these dims, the first outermost.
fn open_loops(e: &mut Emitter<'_>, loops: &[usize]) {
    for d in loops {
        let header = loop_header(e, *d);
        e.open_scope(header);
        let first = start_name(e.s.dims[*d].name);
        e.open_dim(*d, Some(&first));
    }
}

fn close_loops(e: &mut Emitter<'_>, loops: &[usize]) {
    loops.iter().for_each(|_| e.close_scope());
}

/// A total that a loop adds to.
pub(crate) struct Total {
    pub name: String,
    pub dims: u32,
}

/// Dims of every value, before anything is written.
pub(crate) fn dims_of_values(e: &Emitter<'_>) -> Vec<u32> {
    let mut out: Vec<u32> = Vec::with_capacity(e.k.ops.len());
    for op in &e.k.ops {
        let mut dims = op.operands().iter().fold(0, |d, x| d | out[x.0 as usize]);
        match &op.kind {
            OpKind::Load { access, .. }
            | OpKind::LoadAt { access, .. }
            | OpKind::AxisIndex { access }
            | OpKind::Store { access, .. } => dims |= e.dims_of(access),
            OpKind::Reduce { over, .. } => e.s.folded(*over).iter().for_each(|d| dims &= !(1 << d)),
            _ => {}
        }
        out.push(dims);
    }
    out
}

pub(crate) fn open_total(e: &mut Emitter<'_>, wish: &str, op: PrimOp, dtype: DType, dims: u32) -> Part<Total> {
    let name = e.name(wish);
    let (shape, start, held) = (e.shape(dims), expression::identity(op, dtype)?, expression::held(dtype)?);
    let depth = e.depth();
    e.line(depth, format!("{name} = tl.full({shape}, {start}, {held})"));
    Ok(Total { name, dims })
}

/// Adds a value of the loop's body to a total.
fn add_to(e: &mut Emitter<'_>, total: &Total, op: PrimOp, x: OpId, dtype: DType, folded: u32) -> Part<()> {
    let v = e.tensor(x)?;
    let text = expression::convert(&e.spread(&v, total.dims), e.k.op(x).dtype, dtype, false)?;
    let text = e.neutral(op, text, dtype, folded)?;
    let text = expression::combined(op, &total.name, &text, dtype)?;
    let depth = e.depth();
    let back = expression::held(dtype)?;
    // Sums of narrow integers come back wider.
    let text = if dtype.is_int() && dtype.size() < 4 { format!("({text}).to({back})") } else { text };
    e.line(depth, format!("{} = {text}", total.name));
    Ok(())
}

/// Stores of values, in order; those of results after the nest are the tails'.
fn stores<'k>(e: &Emitter<'k>) -> Vec<(usize, &'k KernelOp)> {
    let k = e.k;
    let after = |v: OpId| matches!(k.op(v).kind, OpKind::Reduce { over, .. } if over != Over::Cols);
    k.ops.iter().enumerate().filter(|(_, o)| matches!(&o.kind, OpKind::Store { value, .. } if !after(*value))).collect()
}

/// Writes a store. What the kernel reads of the same memory before it is read first, although it may be needed later.
fn write_store(e: &mut Emitter<'_>, at: usize, op: &KernelOp) -> Part<()> {
    let OpKind::Store { buffer, access, value } = &op.kind else { return construct("no store") };
    let k = e.k;
    for (i, before) in k.ops[..at].iter().enumerate() {
        if matches!(&before.kind, OpKind::Load { buffer: b, .. } if b == buffer) {
            e.value(OpId(i as u32))?;
        }
    }
    let from = e.k.op(*value).dtype;
    let v = e.tensor(*value)?;
    address::store(e, *buffer, access, &v, from)
}

/// One pass over everything, in a loop or not.
fn nest(e: &mut Emitter<'_>, tails: &[Tail], loops: &[usize]) -> Part<()> {
    let dims = dims_of_values(e);
    let mut totals = Vec::new();
    if !loops.is_empty() {
        for t in tails {
            let over = dims[t.x.0 as usize] | t.folded;
            totals.push(open_total(e, &format!("{}_{}", t.op.name(), t.reduce.0), t.op, t.dtype, over)?);
        }
        open_loops(e, loops);
    }
    for (i, op) in stores(e) {
        write_store(e, i, op)?;
    }
    if loops.is_empty() {
        for t in tails {
            let v = e.tensor(t.x)?;
            finish_tail(e, t, &v, e.k.op(t.x).dtype)?;
        }
        return Ok(());
    }
    for (t, total) in tails.iter().zip(&totals) {
        add_to(e, total, t.op, t.x, t.dtype, t.folded)?;
    }
    close_loops(e, loops);
    for (t, total) in tails.iter().zip(totals) {
        finish_total(e, t, &total)?;
    }
    Ok(())
}

/// Folds what a loop has gathered, elements out of bounds being neutral already.
fn finish_total(e: &mut Emitter<'_>, t: &Tail, total: &Total) -> Part<()> {
    let folded: Vec<usize> = bits(t.folded).collect();
    let text = e.fold(t.op, total.name.clone(), t.dtype, total.dims, &folded)?;
    let value = Value { text, dims: total.dims & !t.folded, depth: e.depth(), literal: false };
    place_tail(e, t, value)
}

/// Folds a value of the nest and stores the result.
fn finish_tail(e: &mut Emitter<'_>, t: &Tail, v: &Value, from: DType) -> Part<()> {
    let folded: Vec<usize> = bits(t.folded).collect();
    let (text, dims, depth) = e.reduced(t.op, v, from, t.dtype, &folded)?;
    let value = Value { text, dims, depth, literal: false };
    place_tail(e, t, value)
}

fn place_tail(e: &mut Emitter<'_>, t: &Tail, mut value: Value) -> Part<()> {
    let name = e.name(&format!("{}_{}", t.op.name(), t.reduce.0));
    let depth = e.depth();
    e.line(depth, format!("{name} = {}", value.text));
    value.text = name;
    value.depth = depth;
    if let Some((b, access)) = &t.partial {
        let slot = slot_number(e, t.folded);
        let length = e.size(&t.length);
        let slot = if t.length.is_const(1) { slot } else { format!("{slot} * {length}") };
        return address::store_slot(e, *b, access, &slot, &value, t.dtype);
    }
    let k = e.k;
    for op in &k.ops {
        if let OpKind::Store { buffer, access, value: v } = &op.kind
            && *v == t.reduce
        {
            address::store(e, *buffer, access, &value, t.dtype)?;
        }
    }
    Ok(())
}

/// Number of this program among those that hold parts of the same result.
fn slot_number(e: &mut Emitter<'_>, folded: u32) -> String {
    let mut text: Option<String> = None;
    for d in bits(folded) {
        let Some(tile) = e.tiles[d].clone() else { continue };
        let n = e.tile_count(d);
        let n = e.size(&n);
        text = Some(match text {
            None => tile,
            Some(t) => format!("({t} * {n} + {tile})"),
        });
    }
    text.unwrap_or_else(|| "0".to_string())
}

/// Slots that such programs fill.
pub(crate) fn slots(e: &Emitter<'_>, folded: u32) -> Dim {
    Dim::product(&bits(folded).map(|d| e.tile_count(d)).collect::<Vec<_>>())
}

/// A pass over the folded dims for each level of reductions that build on each other.
fn phases(e: &mut Emitter<'_>, tails: &[Tail], loops: &[usize]) -> Part<()> {
    let cols = e.s.cols.clone();
    let col_bits = cols.iter().fold(0u32, |m, d| m | 1 << d);
    let (k, dims) = (e.k, dims_of_values(e));
    let varies = |i: usize| dims[i] & col_bits != 0;
    let folds = |t: &Tail| t.folded & col_bits != 0;
    let mut phase = vec![0usize; k.ops.len()];
    for (i, op) in k.ops.iter().enumerate() {
        phase[i] = op.operands().iter().map(|x| phase[x.0 as usize]).max().unwrap_or(0);
        phase[i] += usize::from(matches!(op.kind, OpKind::Reduce { over: Over::Cols, .. }));
    }
    let last = phase.iter().copied().max().unwrap_or(0);
    let online = online::pairs(e);
    let paired = |i: usize| online.iter().any(|o| o.max == i || o.sum == i);
    // What is overwritten must not be read again in a later phase.
    let in_place = k.reads().iter().any(|b| k.writes().contains(b));
    let store_phase = |i: usize| if in_place { last } else { phase[i] };
    for p in 0..=last {
        let here: Vec<(usize, &KernelOp)> = stores(e).into_iter().filter(|(i, _)| store_phase(*i) == p).collect();
        for (i, op) in here.iter().filter(|(i, _)| !varies(*i)) {
            write_store(e, *i, op)?;
        }
        let reduces: Vec<(usize, PrimOp, OpId, DType)> = k
            .ops
            .iter()
            .enumerate()
            .filter_map(|(i, op)| match op.kind {
                OpKind::Reduce { op: r, over: Over::Cols, x } if phase[x.0 as usize] == p && !paired(i) => {
                    Some((i, r, x, op.dtype))
                }
                _ => None,
            })
            .collect();
        let pairs: Vec<&online::Online> = online.iter().filter(|o| phase[o.x.0 as usize] == p).collect();
        let of_phase = |t: &&Tail| phase[t.x.0 as usize] == p;
        let in_loop: Vec<&Tail> =
            tails.iter().filter(of_phase).filter(|t| varies(t.x.0 as usize) || folds(t)).collect();
        let outside = |t: &&Tail| !varies(t.x.0 as usize) && !folds(t);
        for t in tails.iter().filter(of_phase).filter(outside) {
            let v = e.tensor(t.x)?;
            finish_tail(e, t, &v, k.op(t.x).dtype)?;
        }
        let inner: Vec<(usize, &KernelOp)> = here.into_iter().filter(|(i, _)| varies(*i)).collect();
        if inner.is_empty() && reduces.is_empty() && pairs.is_empty() && in_loop.is_empty() {
            continue;
        }
        let lanes =
            (pairs.iter()).map(|o| Ok((*o, o.open(e, dims[o.x.0 as usize] | col_bits)?))).collect::<Part<Vec<_>>>()?;
        let mut totals = Vec::new();
        for (i, r, x, dtype) in &reduces {
            let over = dims[x.0 as usize] | col_bits;
            totals.push(open_total(e, &format!("{}_{i}_parts", r.name()), *r, *dtype, over)?);
        }
        let mut tail_totals = Vec::new();
        for t in in_loop.iter().filter(|t| folds(t)) {
            let over = dims[t.x.0 as usize] | t.folded;
            tail_totals.push(open_total(e, &format!("{}_{}_parts", t.op.name(), t.reduce.0), t.op, t.dtype, over)?);
        }
        open_loops(e, loops);
        for (i, op) in inner {
            write_store(e, i, op)?;
        }
        for (pair, lanes) in &lanes {
            pair.add(e, lanes, col_bits)?;
        }
        for ((_, r, x, dtype), total) in reduces.iter().zip(&totals) {
            add_to(e, total, *r, *x, *dtype, col_bits)?;
        }
        let mut of_loop = tail_totals.iter();
        for t in &in_loop {
            if !folds(t) {
                let v = e.tensor(t.x)?;
                finish_tail(e, t, &v, k.op(t.x).dtype)?;
            } else if let Some(total) = of_loop.next() {
                add_to(e, total, t.op, t.x, t.dtype, t.folded)?;
            }
        }
        close_loops(e, loops);
        for (pair, lanes) in &lanes {
            pair.close(e, lanes, &cols, col_bits)?;
        }
        for ((i, r, _, dtype), total) in reduces.iter().zip(&totals) {
            let text = e.fold(*r, total.name.clone(), *dtype, total.dims, &cols)?;
            let depth = e.depth();
            e.define(Key::Op(*i as u32), &format!("{}_{i}", r.name()), text, total.dims & !col_bits, depth);
        }
        let folded: Vec<&&Tail> = in_loop.iter().filter(|t| folds(t)).collect();
        for (t, total) in folded.into_iter().zip(&tail_totals) {
            finish_total(e, t, total)?;
        }
    }
    Ok(())
}
