//! Scatter with summation in a fixed order: results are the same on every run, and a row that all tokens meet in costs no more
//! than others.
//!
//! Tokens are sorted by their index first, stably, by whoever runs the launches. A program then adds up a chunk of tokens in
//! their new order. Runs of equal indices that lie within a chunk are finished there; of one that crosses chunks every chunk
//! leaves a part (`heads` where it came in from before or began with the chunk, `tails` where it began later), and a second
//! launch adds the parts. Every row of the output is written at most once, so 16-bit floats are rounded once.

use crate::address;
use crate::emit::{Emitter, Memories, Value};
use crate::error::{Missing, Part, construct};
use crate::kernel::{Generator, memory_of, zero};
use crate::launch::Launch;
use crate::schedule::{Schedule, TileDim, Walk};
use permalloy_ir::{DType, Dim, PrimOp};
use permalloy_loops::kernel::{
    Access, Axis, AxisRole, BufferId, Fused, Kernel, KernelOp, OpId, OpKind, Scalar, Scatter,
};

/// Tokens of a chunk, and chunks whose parts are added at a time, unless the caller chooses.
const CHUNK: i64 = 32;

/// The memories of the sorted form.
struct Parts {
    sorted: BufferId,
    order: BufferId,
    heads: BufferId,
    tails: BufferId,
    tokens: Dim,
    /// Tokens of a chunk.
    chunk: i64,
    chunks: Dim,
    /// Elements of a row.
    run: Dim,
    sums: DType,
}

/// Appends the launches of a scatter.
pub(crate) fn sorted(g: &mut Generator<'_>, s: &Scatter) -> Part<()> {
    let out = s.out.0;
    let dtype = g.buffers[out.0 as usize].dtype;
    let sums = dtype.compute();
    if !sums.is_float() || g.device.forbidden_dtypes.contains(&dtype) {
        return Err(Missing::Operation { op: PrimOp::IndexSum, dtype });
    }
    let axes: Vec<usize> = (0..s.axes.len()).filter(|a| !s.axes[*a].is_const(1)).collect();
    let zero_stride = |access: &Access, a: usize| access.strides[a].is_const(0);
    let (tokens, run): (Vec<usize>, Vec<usize>) = axes.iter().partition(|a| zero_stride(&s.out.1, **a));
    if run.iter().any(|a| !zero_stride(&s.index.1, *a)) {
        return construct("a scatter whose rows depend on their batch is not sorted");
    }
    let size = |list: &[usize]| Dim::product(list.iter().map(|a| &s.axes[*a]));
    let (n, length) = (size(&tokens), size(&run));
    let chunk = g.options.tile.map_or(CHUNK, |t| i64::from(t.outer.next_power_of_two()));
    let chunks = match n.as_const() {
        Some(n) => Dim::from((n + chunk - 1) / chunk),
        None => (&n + &Dim::from(chunk - 1)).floor_div(&Dim::from(chunk)),
    };
    let keys = g.scratch("keys", DType::I32, n.clone());
    let parts = Parts {
        sorted: g.scratch("sorted", DType::I32, n.clone()),
        order: g.scratch("order", DType::I64, n.clone()),
        heads: g.scratch("heads", sums, &chunks * &length),
        tails: g.scratch("tails", sums, &chunks * &length),
        tokens: n.clone(),
        chunk,
        chunks,
        run: length,
        sums,
    };
    g.launches.push(zero(g, out));
    let of_keys = key_kernel(g, s, &tokens, keys);
    g.kernel(&of_keys, true)?;
    let sort = Launch::Sort {
        keys: memory_of(g, keys),
        sorted: memory_of(g, parts.sorted),
        order: memory_of(g, parts.order),
        elements: n,
    };
    g.launches.push(sort);
    let k = summed(g, s, &tokens, &run);
    for second in [false, true] {
        let launch = written(g, s, &k, tokens.len(), &parts, second)?;
        g.launches.push(launch);
    }
    Ok(())
}

/// The index of every token, dense; -1 where it is out of range.
fn key_kernel(g: &Generator<'_>, s: &Scatter, tokens: &[usize], keys: BufferId) -> Kernel {
    let (index, access) = &s.index;
    let dtype = g.buffers[index.0 as usize].dtype;
    let strides = tokens.iter().map(|a| access.strides[*a].clone()).collect();
    let load = Access { offset: access.offset.clone(), strides, masks: vec![] };
    let sizes: Vec<Dim> = tokens.iter().map(|a| s.axes[*a].clone()).collect();
    let dense = Access { offset: Dim::ZERO, strides: permalloy_ir::contiguous_strides(&sizes), masks: vec![] };
    let op = |kind, dtype| KernelOp { kind, dtype };
    let ops = vec![
        op(OpKind::Load { buffer: *index, access: load }, dtype),
        op(OpKind::Const(Scalar::Int(0)), dtype),
        op(OpKind::Binary(PrimOp::Ge, OpId(0), OpId(1)), DType::Bool),
        op(OpKind::Size(s.size.clone()), dtype),
        op(OpKind::Binary(PrimOp::Lt, OpId(0), OpId(3)), DType::Bool),
        op(OpKind::Binary(PrimOp::And, OpId(2), OpId(4)), DType::Bool),
        op(OpKind::Const(Scalar::Int(-1)), dtype),
        op(OpKind::Where(OpId(5), OpId(0), OpId(6)), dtype),
        op(OpKind::Cast(OpId(7)), DType::I32),
        op(OpKind::Store { buffer: keys, access: dense, value: OpId(8) }, DType::I32),
    ];
    let axes = sizes.into_iter().map(|size| Axis { size, role: AxisRole::Batch }).collect();
    let what = Fused { op: "keys of the tokens".into(), loc: None };
    Kernel { name: format!("{}_keys", s.name), axes, ops, fused: vec![what] }
}

/// What is summed: the source over token and run axes, stored to the output.
fn summed(g: &Generator<'_>, s: &Scatter, tokens: &[usize], run: &[usize]) -> Kernel {
    let order: Vec<usize> = tokens.iter().chain(run).copied().collect();
    let over = |access: &Access| Access {
        offset: access.offset.clone(),
        strides: order.iter().map(|a| access.strides[*a].clone()).collect(),
        masks: vec![],
    };
    let from = g.buffers[s.src.0.0 as usize].dtype;
    let ops = vec![
        KernelOp { kind: OpKind::Load { buffer: s.src.0, access: over(&s.src.1) }, dtype: from },
        KernelOp {
            kind: OpKind::Store { buffer: s.out.0, access: over(&s.out.1), value: OpId(0) },
            dtype: g.buffers[s.out.0.0 as usize].dtype,
        },
    ];
    let axes = order.iter().map(|a| Axis { size: s.axes[*a].clone(), role: AxisRole::Batch }).collect();
    Kernel { name: s.name.clone(), axes, ops, fused: s.fused.clone() }
}

fn written(g: &Generator<'_>, s: &Scatter, k: &Kernel, tokens: usize, p: &Parts, second: bool) -> Part<Launch> {
    let run = p.run.eval(&g.hints).unwrap_or(256).clamp(1, 256) as u32;
    let dim = |name, axes: Vec<usize>, block, walk, position| TileDim {
        name,
        size: Dim::product(axes.iter().map(|a| &k.axes[*a].size)),
        axes,
        block,
        walk,
        position,
    };
    let block = run.next_power_of_two();
    let schedule = Schedule {
        dims: vec![
            dim("t", (0..tokens).collect(), 1, Walk::Loop, None),
            dim("x", (tokens..k.axes.len()).collect(), block, Walk::Grid, Some(0)),
        ],
        rank: 1,
        num_warps: if second { 4 } else { (block / 128).clamp(1, 4) },
        num_stages: 1,
        cols: vec![],
        rows: vec![],
        all: vec![],
    };
    let wide = g.is_wide(k);
    let mut named = k.clone();
    named.name = format!("{}_{}", s.name, if second { "parts" } else { "chunks" });
    let memories = Memories { buffers: &g.buffers, own: g.own };
    let mut e = Emitter::new(&named, &memories, g.device, schedule.clone(), wide);
    let blocks = e.tile_count(1);
    let programs = &p.chunks * &blocks;
    let tile = if wide { "tl.program_id(0).to(tl.int64)" } else { "tl.program_id(0)" };
    if blocks.is_const(1) {
        e.line(0, format!("chunk = {tile}"));
        e.open_dim(1, None);
    } else {
        let n = e.size(&blocks);
        e.line(0, format!("chunk = {tile} // {n}"));
        e.open_dim(1, Some(&format!("({tile} % {n}) * X_BLOCK")));
    }
    let pointers = Pointers {
        sorted: e.pointer(p.sorted),
        heads: e.pointer(p.heads),
        tails: e.pointer(p.tails),
        tokens: e.size(&p.tokens),
        run: e.size(&p.run),
    };
    if second {
        let chunks = e.size(&p.chunks);
        add_parts(&mut e, s, p, &pointers, &chunks)?;
    } else {
        add_chunk(&mut e, s, p, &pointers)?;
    }
    Ok(Launch::Kernel(Box::new(g.launch(&named, &schedule, e, programs, wide))))
}

struct Pointers {
    sorted: String,
    heads: String,
    tails: String,
    tokens: String,
    run: String,
}

/// `a & b & ix_in`.
fn with_bounds(e: &Emitter<'_>, condition: &str) -> String {
    let mut all = vec![condition.to_string()];
    all.extend(e.bounds(1 << 1));
    all.join(" & ")
}

/// The row of the output that `key` names gets `total`.
fn store_row(e: &mut Emitter<'_>, s: &Scatter, p: &Parts, condition: &str) -> Part<()> {
    let OpKind::Store { access, .. } = e.k.op(OpId(1)).kind.clone() else { return construct("no store") };
    let step = e.size(&s.stride);
    let key = if e.wide { "key.to(tl.int64)" } else { "key" };
    let text = if s.stride.is_const(1) { key.to_string() } else { format!("{step} * {key}") };
    let row = Value { text, dims: 0, depth: e.depth(), literal: false };
    let total = Value { text: "total".to_string(), dims: 1 << 1, depth: e.depth(), literal: false };
    address::store_where(e, s.out.0, &access, &row, condition, &total, p.sums)
}

/// Adds up one chunk.
fn add_chunk(e: &mut Emitter<'_>, s: &Scatter, p: &Parts, at: &Pointers) -> Part<()> {
    let Pointers { sorted, heads, tails, tokens: n, run } = at;
    let chunk = p.chunk;
    let order = e.pointer(p.order);
    let held = crate::expression::held(p.sums)?;
    e.line(0, format!("first = chunk * {chunk}"));
    e.line(0, format!("before = tl.load({sorted} + first - 1, mask=first > 0, other=-1)"));
    e.line(0, format!("came_in = before == tl.load({sorted} + first)"));
    e.line(0, "head = first >= 0".to_string());
    e.line(0, format!("total = tl.zeros([X_BLOCK], {held})"));
    e.open_scope(format!("for step in range(0, {chunk}):"));
    let d = e.depth();
    e.line(d, "position = first + step".to_string());
    e.line(d, format!("there = position < {n}"));
    e.line(d, format!("key = tl.load({sorted} + position, mask=there, other=-1)"));
    e.line(d, format!("following = tl.load({sorted} + position + 1, mask=position + 1 < {n}, other=-1)"));
    let token = format!("tl.load({order} + position, mask=there, other=0)");
    let token = if e.wide { token } else { format!("{token}.to(tl.int32)") };
    e.open_dim(0, Some(&token));
    let message = format!("index out of range of {}", e.buffer(s.out.0).name);
    e.fault("there & (key < 0)", 0, d, message);
    let value = e.tensor(OpId(0))?;
    let text = crate::expression::convert(&value.text, e.k.op(OpId(0)).dtype, p.sums, false)?;
    e.line(d, format!("total = total + tl.where(there, {text}, 0.0)"));
    e.line(d, format!("ends = (key != following) | (step == {})", chunk - 1));
    e.line(d, "whole = (key != following) & ((head & came_in) == 0)".to_string());
    store_row(e, s, p, "ends & whole & (key >= 0)")?;
    for (pointer, which) in [(heads, "head"), (tails, "(head == 0)")] {
        let mask = with_bounds(e, &format!("ends & (whole == 0) & {which}"));
        e.line(d, format!("tl.store({pointer} + (chunk * {run} + ix), total, mask={mask})"));
    }
    e.line(d, "total = tl.where(ends, 0.0, total)".to_string());
    e.line(d, "head = head & (ends == 0)".to_string());
    e.close_scope();
    Ok(())
}

/// Adds the parts of a run of equal indices that begins in this chunk and goes on in the next.
fn add_parts(e: &mut Emitter<'_>, s: &Scatter, p: &Parts, at: &Pointers, chunks: &str) -> Part<()> {
    let Pointers { sorted, heads, tails, tokens: n, run } = at;
    let chunk = p.chunk;
    e.line(0, format!("last = chunk * {chunk} + {}", chunk - 1));
    e.line(0, format!("key = tl.load({sorted} + last, mask=last < {n}, other=-1)"));
    e.line(0, format!("following = tl.load({sorted} + last + 1, mask=last + 1 < {n}, other=-2)"));
    e.line(0, format!("before = tl.load({sorted} + chunk * {chunk} - 1, mask=chunk > 0, other=-1)"));
    e.line(0, format!("later = key != tl.load({sorted} + chunk * {chunk})"));
    e.line(0, "begins = (key == following) & (later | (before != key)) & (key >= 0)".to_string());
    let (in_tails, in_heads) = (with_bounds(e, "begins & later"), with_bounds(e, "begins & (later == 0)"));
    e.line(0, format!("total = tl.load({tails} + (chunk * {run} + ix), mask={in_tails}, other=0.0)"));
    e.line(0, format!("total = total + tl.load({heads} + (chunk * {run} + ix), mask={in_heads}, other=0.0)"));
    e.line(0, "next_chunk = chunk + 1".to_string());
    e.line(0, "goes_on = begins".to_string());
    e.open_scope("while goes_on:".to_string());
    let bound = if e.masked[1] { " & ix_in[None, :]" } else { "" };
    e.line(1, format!("some = next_chunk + tl.arange(0, {chunk})"));
    e.line(1, format!("keys = tl.load({sorted} + some * {chunk}, mask=some < {chunks}, other=-1)"));
    e.line(1, "ours = keys == key".to_string());
    e.line(1, format!("place = some[:, None] * {run} + ix[None, :]"));
    e.line(1, format!("parts = tl.load({heads} + place, mask=ours[:, None]{bound}, other=0.0)"));
    e.line(1, "total = total + tl.sum(parts, 0)".to_string());
    e.line(1, format!("next_chunk = next_chunk + {chunk}"));
    let more = format!("tl.load({sorted} + next_chunk * {chunk}, mask=next_chunk < {chunks}, other=-1)");
    e.line(1, format!("goes_on = {more} == key"));
    e.close_scope();
    store_row(e, s, p, "begins")
}
