//! Windows into a tensor and their transposes: slice, select, split, diagonal, unfold, constant padding, and the
//! gradients and `_scatter` forms that put a window back.

use super::emit::{
    as_result, bound, full, larger, one, op, operand, position, prim, reshape, result_dtype, result_shape, select,
    smaller, zeros,
};
use crate::decl::{Call, Decline, OpDecl, RuleResult};
use permalloy_ir::{Arg, DType, Dim, PrimOp, ValueId};

pub const DECLS: &[OpDecl] = &[
    op!(View "aten.slice.Tensor", "slice" => slice, "x[start:end:step] along dim"),
    op!(View "aten.slice_copy.Tensor", "slice_copy" => slice, "slice, as a new tensor"),
    op!(View "aten.narrow.default", "narrow" => narrow, "x[start:start+length] along dim"),
    op!(View "aten.narrow_copy.default", "narrow_copy" => narrow, "narrow, as a new tensor"),
    op!(View "aten.select.int", "select" => select_int, "x[index] along dim; the dim vanishes"),
    op!(View "aten.select_copy.int", "select_copy" => select_int, "select, as a new tensor"),
    op!(View "aten.split.Tensor", "split" => split, "consecutive pieces of split_size, the last one shorter"),
    op!(View "aten.split_copy.Tensor", "split_copy" => split, "split, as new tensors"),
    op!(View "aten.unsafe_split.Tensor", "unsafe_split" => split, "split"),
    op!(View "aten.split.sizes", "split.sizes" => split_with_sizes, "consecutive pieces of the given sizes"),
    op!(View "aten.split_with_sizes.default", "split_with_sizes" => split_with_sizes, "consecutive pieces of the given sizes"),
    op!(View "aten.split_with_sizes_copy.default", "split_with_sizes_copy" => split_with_sizes, "split_with_sizes, as new tensors"),
    op!(View "aten.unsafe_split_with_sizes.default", "unsafe_split_with_sizes" => split_with_sizes, "split_with_sizes"),
    op!(View "aten.chunk.default", "chunk" => chunk, "consecutive pieces of ceil(n / chunks)"),
    op!(View "aten.unsafe_chunk.default", "unsafe_chunk" => chunk, "chunk"),
    op!(View "aten.tensor_split.sections", "tensor_split" => promised_pieces, "pieces whose sizes differ by at most one"),
    op!(View "aten.unbind.int", "unbind" => unbind, "every x[i] along dim"),
    op!(View "aten.unbind_copy.int", "unbind_copy" => unbind, "unbind, as new tensors"),
    op!(View "aten.diagonal.default", "diagonal" => diagonal, "x[.., i, i + offset] as last dim"),
    op!(View "aten.diagonal_copy.default", "diagonal_copy" => diagonal, "diagonal, as a new tensor"),
    op!(View "aten.unfold.default", "unfold" => unfold, "windows x[i·step + j], j as last dim"),
    op!(View "aten.unfold_copy.default", "unfold_copy" => unfold, "unfold, as a new tensor"),
    op!(Pointwise "aten.diag_embed.default", "diag_embed" => diag_embed, "the last dim on a diagonal of zeros"),
    op!(Pointwise "aten.constant_pad_nd.default", "constant_pad_nd" => constant_pad_nd, "`value` around; negative padding cuts"),
    op!(Pointwise "aten.slice_backward.default", "slice_backward" => slice_backward, "dx[start:end:step] = dy, else 0"),
    op!(Pointwise "aten.select_backward.default", "select_backward" => select_backward, "dx[index] = dy, else 0"),
    op!(Pointwise "aten.diagonal_backward.default", "diagonal_backward" => diagonal_backward, "dx[i, i + offset] = dy, else 0"),
    op!(Indexing "aten.unfold_backward.default", "unfold_backward" => unfold_backward, "dx[k] = Σ over i·step + j = k of dy[i, j]"),
    op!(Pointwise "aten.slice_scatter.default", "slice_scatter" => slice_scatter, "x with x[start:end:step] = src"),
    op!(Pointwise "aten.select_scatter.default", "select_scatter" => select_scatter, "x with x[index] = src"),
    op!(Pointwise "aten.diagonal_scatter.default", "diagonal_scatter" => diagonal_scatter, "x with its diagonal = src"),
];

/// A window of one dim: elements `start, start + step, …`, `len` of them.
struct Window {
    dim: usize,
    start: Dim,
    len: Dim,
    step: i64,
}

/// An integer argument that may be left out.
fn optional_dim(c: &Call<'_, '_>, at: usize, name: &str) -> Result<Option<Dim>, Decline> {
    match c.arg(at, name) {
        None => Ok(None),
        Some(a) => a.as_dim().map(Some).ok_or_else(|| format!("argument {name} is not an integer").into()),
    }
}

/// The window that arguments `at..at + 4` (dim, start, end, step) cut out of a tensor of `shape`.
/// `len` is what the traced operator says, where it is known: it spares minima of sizes.
fn window(c: &Call<'_, '_>, at: usize, shape: &[Dim], len: Option<Dim>) -> Result<Window, Decline> {
    let dim = Call::wrap(c.i64(at, "dim", 0)?, shape.len())?;
    let size = shape.get(dim).cloned().unwrap_or(Dim::ONE);
    let step = c.i64(at + 3, "step", 1)?;
    if step < 1 {
        return Err("step is not positive".into());
    }
    let start = optional_dim(c, at + 1, "start")?.unwrap_or(Dim::ZERO);
    let start = bound(c, &start, &size)?;
    let len = match len {
        Some(len) => len,
        None => {
            let end = optional_dim(c, at + 2, "end")?.map_or(Ok(size.clone()), |e| bound(c, &e, &size))?;
            let span = larger(c, &(&end - &start), &Dim::ZERO);
            (&span + &Dim::from(step - 1)).floor_div(&Dim::from(step))
        }
    };
    Ok(Window { dim, start, len, step })
}

/// `x[start + i·step]`, i < len.
fn cut(c: &mut Call<'_, '_>, x: ValueId, w: &Window) -> Result<ValueId, Decline> {
    let size = c.b.shape(x)[w.dim].clone();
    let end = if w.step == 1 {
        &w.start + &w.len
    } else if let Some(n) = w.len.as_const() {
        // The last element read is the last of the window, so that the end never passes the size.
        if n == 0 { w.start.clone() } else { &w.start + &Dim::from((n - 1) * w.step + 1) }
    } else {
        smaller(c, &(&w.start + &(&w.len * &Dim::from(w.step))), &size)
    };
    if w.start.is_const(0) && end == size && w.step == 1 {
        return Ok(x);
    }
    let attrs = vec![
        ("dim", Arg::Int(Dim::from(w.dim as i64))),
        ("start", Arg::Int(w.start.clone())),
        ("end", Arg::Int(end)),
        ("step", Arg::Int(Dim::from(w.step))),
    ];
    prim(c, PrimOp::Slice, &[x], attrs)
}

/// Transpose of [`cut`]: `x` (of size `len` along the dim) in zeros of size `size`.
/// A step is made by padding a new dim behind it: `[n] -> [n, 1] -> [n, step] -> [n·step]`, cut to what fits.
fn place(c: &mut Call<'_, '_>, x: ValueId, w: &Window, size: &Dim) -> Result<ValueId, Decline> {
    let mut y = x;
    let mut len = w.len.clone();
    if w.step > 1 && !w.len.is_const(0) {
        y = c.b.unsqueeze(y, w.dim + 1);
        let rank = c.b.rank(y);
        let (low, mut high) = (vec![Dim::ZERO; rank], vec![Dim::ZERO; rank]);
        high[w.dim + 1] = Dim::from(w.step - 1);
        y = c.b.pad(y, &low, &high);
        let mut shape = c.b.shape(x);
        shape[w.dim] = &w.len * &Dim::from(w.step);
        y = reshape(c, y, &shape)?;
        let fits = match w.len.as_const() {
            Some(n) => Dim::from((n - 1) * w.step + 1),
            None => smaller(c, &shape[w.dim], &(size - &w.start)),
        };
        y = cut(c, y, &Window { dim: w.dim, start: Dim::ZERO, len: fits.clone(), step: 1 })?;
        len = fits;
    }
    let rank = c.b.rank(y);
    let (mut low, mut high) = (vec![Dim::ZERO; rank], vec![Dim::ZERO; rank]);
    low[w.dim] = w.start.clone();
    high[w.dim] = &(size - &w.start) - &len;
    if low.iter().chain(&high).all(|p| p.is_const(0)) {
        return Ok(y);
    }
    prim(c, PrimOp::Pad, &[y], vec![("low", Arg::dims(&low)), ("high", Arg::dims(&high))])
}

/// `x` with the window replaced by `src`: `where(place(true), place(src), x)`.
fn replace(c: &mut Call<'_, '_>, x: ValueId, src: ValueId, w: &Window) -> Result<ValueId, Decline> {
    let dtype = c.b.dtype(x);
    let src = c.b.cast(src, dtype);
    let size = c.b.shape(x)[w.dim].clone();
    let placed = place(c, src, w, &size)?;
    let shape = c.b.shape(x);
    let placed = reshape(c, placed, &shape)?;
    let mut line = vec![Dim::ONE; shape.len()];
    line[w.dim] = w.len.clone();
    let mask = full(c, &Arg::Bool(true), &line, DType::Bool)?;
    let mask = place(c, mask, w, &size)?;
    line[w.dim] = size;
    let mask = reshape(c, mask, &line)?;
    select(c, mask, placed, x)
}

fn slice(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let shape = c.b.shape(x);
    let dim = Call::wrap(c.i64(1, "dim", 0)?, shape.len())?;
    let len = result_shape(c, 0)?.get(dim).cloned();
    let w = window(c, 1, &shape, len)?;
    let y = cut(c, x, &w)?;
    one(c, y)
}

fn narrow(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let shape = c.b.shape(x);
    let dim = Call::wrap(c.i64(1, "dim", 0)?, shape.len())?;
    let (start, len) = (c.dim(2, "start")?, c.dim(3, "length")?);
    let start = position_in(c, &start, &shape, dim)?;
    let y = cut(c, x, &Window { dim, start, len, step: 1 })?;
    one(c, y)
}

fn position_in(c: &Call<'_, '_>, at: &Dim, shape: &[Dim], dim: usize) -> Result<Dim, Decline> {
    let size = shape.get(dim).ok_or("a 0-d tensor has no dim to index")?;
    position(c, at, size)
}

fn select_int(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let shape = c.b.shape(x);
    let dim = Call::wrap(c.i64(1, "dim", 0)?, shape.len())?;
    let start = position_in(c, &c.dim(2, "index")?, &shape, dim)?;
    let y = cut(c, x, &Window { dim, start, len: Dim::ONE, step: 1 })?;
    one(c, y)
}

/// Consecutive windows of the given lengths, each brought to its promised shape.
fn pieces(c: &mut Call<'_, '_>, dim: i64, lens: impl Fn(usize) -> Dim) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dim = Call::wrap(dim, c.b.rank(x))?;
    let (mut start, mut out) = (Dim::ZERO, Vec::new());
    for i in 0..c.results.len() {
        let len = c.results[i].as_ref().and_then(|t| t.shape.get(dim).cloned()).unwrap_or_else(|| lens(i));
        if c.results[i].is_some() {
            let y = cut(c, x, &Window { dim, start: start.clone(), len: len.clone(), step: 1 })?;
            out.push(as_result(c, y, i)?);
        } else {
            out.push(None);
        }
        start = &start + &len;
    }
    Ok(out)
}

/// Every piece but the last has the given size, so that a piece nobody reads need not be typed.
fn split(c: &mut Call<'_, '_>) -> RuleResult {
    let size = c.dim(1, "split_size")?;
    pieces(c, c.i64(2, "dim", 0)?, |_| size.clone())
}

fn split_with_sizes(c: &mut Call<'_, '_>) -> RuleResult {
    let sizes = c.dims(1, "split_sizes")?.or(c.dims(1, "split_size")?).ok_or("split_sizes is absent")?;
    pieces(c, c.i64(2, "dim", 0)?, |i| sizes.get(i).cloned().unwrap_or(Dim::ZERO))
}

fn chunk(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let (chunks, dim) = (c.i64(1, "chunks", 1)?, c.i64(2, "dim", 0)?);
    let at = Call::wrap(dim, c.b.rank(x))?;
    let n = c.b.shape(x).get(at).cloned().ok_or("a 0-d tensor has no dim to split")?;
    if chunks < 1 {
        return Err("chunks is not positive".into());
    }
    let each = (&n + &Dim::from(chunks - 1)).floor_div(&Dim::from(chunks));
    pieces(c, dim, |_| each.clone())
}

/// Piece sizes as traced.
fn promised_pieces(c: &mut Call<'_, '_>) -> RuleResult {
    if c.results.iter().any(Option::is_none) {
        return Err("the size of a piece is not known".into());
    }
    pieces(c, c.i64(2, "dim", 0)?, |_| Dim::ZERO)
}

fn unbind(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dim = Call::wrap(c.i64(1, "dim", 0)?, c.b.rank(x))?;
    let mut out = Vec::new();
    for i in 0..c.results.len() {
        if c.results[i].is_none() {
            out.push(None);
            continue;
        }
        let y = cut(c, x, &Window { dim, start: Dim::from(i as i64), len: Dim::ONE, step: 1 })?;
        out.push(as_result(c, y, i)?);
    }
    Ok(out)
}

/// A diagonal of an `[n, m]` matrix as a window of its `n·m` elements: step m + 1.
struct Diagonal {
    /// Brings the two dims to the end.
    perm: Vec<usize>,
    flat: Dim,
    window: Window,
}

fn diagonal_of(c: &Call<'_, '_>, shape: &[Dim], offset: i64, dim1: i64, dim2: i64) -> Result<Diagonal, Decline> {
    let rank = shape.len();
    let (d1, d2) = (Call::wrap(dim1, rank)?, Call::wrap(dim2, rank)?);
    if rank < 2 || d1 == d2 {
        return Err("a diagonal needs two dims".into());
    }
    let perm: Vec<usize> = (0..rank).filter(|d| *d != d1 && *d != d2).chain([d1, d2]).collect();
    let (n, m) = (shape[d1].clone(), shape[d2].clone());
    let Some(columns) = m.as_const() else { return Err("the row length is symbolic".into()) };
    let rows_left = if offset < 0 { &n - &Dim::from(-offset) } else { n.clone() };
    let columns_left = if offset > 0 { columns - offset } else { columns };
    let len = larger(c, &smaller(c, &rows_left, &Dim::from(columns_left)), &Dim::ZERO);
    let start = if len.is_const(0) { 0 } else { offset.max(0) + (-offset).max(0) * columns };
    let window = Window { dim: rank - 2, start: Dim::from(start), len, step: columns + 1 };
    Ok(Diagonal { perm, flat: &n * &m, window })
}

fn flat_pair(c: &mut Call<'_, '_>, x: ValueId, d: &Diagonal) -> Result<ValueId, Decline> {
    let y = c.b.permute(x, &d.perm);
    let mut shape = c.b.shape(y);
    let lead = shape.len() - 2;
    shape.truncate(lead);
    shape.push(d.flat.clone());
    reshape(c, y, &shape)
}

/// Undoes [`flat_pair`] for a tensor of `shape`.
fn unflat_pair(c: &mut Call<'_, '_>, y: ValueId, d: &Diagonal, shape: &[Dim]) -> Result<ValueId, Decline> {
    let permuted: Vec<Dim> = d.perm.iter().map(|p| shape[*p].clone()).collect();
    let y = reshape(c, y, &permuted)?;
    let back: Vec<usize> = (0..shape.len()).map(|i| d.perm.iter().position(|p| *p == i).unwrap_or(i)).collect();
    Ok(c.b.permute(y, &back))
}

fn diagonal(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let shape = c.b.shape(x);
    let d = diagonal_of(c, &shape, c.i64(1, "offset", 0)?, c.i64(2, "dim1", 0)?, c.i64(3, "dim2", 1)?)?;
    let flat = flat_pair(c, x, &d)?;
    let y = cut(c, flat, &d.window)?;
    one(c, y)
}

fn diagonal_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let grad = operand(c, 0, "grad_output")?;
    let shape = c.dims(1, "input_sizes")?.ok_or("input_sizes is absent")?;
    let d = diagonal_of(c, &shape, c.i64(2, "offset", 0)?, c.i64(3, "dim1", 0)?, c.i64(4, "dim2", 1)?)?;
    let y = place(c, grad, &d.window, &d.flat)?;
    let y = unflat_pair(c, y, &d, &shape)?;
    one(c, y)
}

/// `diagonal_backward` into the promised shape.
fn diag_embed(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let shape = result_shape(c, 0)?;
    let d = diagonal_of(c, &shape, c.i64(1, "offset", 0)?, c.i64(2, "dim1", -2)?, c.i64(3, "dim2", -1)?)?;
    let y = place(c, x, &d.window, &d.flat)?;
    let y = unflat_pair(c, y, &d, &shape)?;
    one(c, y)
}

fn diagonal_scatter(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, src) = (operand(c, 0, "self")?, operand(c, 1, "src")?);
    let shape = c.b.shape(x);
    let d = diagonal_of(c, &shape, c.i64(2, "offset", 0)?, c.i64(3, "dim1", 0)?, c.i64(4, "dim2", 1)?)?;
    let flat = flat_pair(c, x, &d)?;
    let y = replace(c, flat, src, &d.window)?;
    let y = unflat_pair(c, y, &d, &shape)?;
    one(c, y)
}

/// Window starts and offsets as one index tensor: `i·step + j`, `[count, size]`.
fn window_index(c: &mut Call<'_, '_>, count: &Dim, size: &Dim, step: i64) -> Result<ValueId, Decline> {
    let i = c.b.iota(count.clone());
    let i = c.b.mul_scalar(i, step as f64);
    let i = reshape(c, i, &[count.clone(), Dim::ONE])?;
    let j = c.b.iota(size.clone());
    super::emit::binary(c, PrimOp::Add, i, j)
}

fn unfold(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dim = Call::wrap(c.i64(1, "dimension", 0)?, c.b.rank(x))?;
    let (size, step) = (c.dim(2, "size")?, c.i64(3, "step", 1)?);
    if c.b.rank(x) == 0 {
        return one(c, x);
    }
    let count = result_shape(c, 0)?.get(dim).cloned().ok_or("the result has no such dim")?;
    let attrs = vec![
        ("dim", Arg::Int(Dim::from(dim as i64))),
        ("count", Arg::Int(count)),
        ("size", Arg::Int(size)),
        ("step", Arg::Int(Dim::from(step))),
    ];
    let y = prim(c, PrimOp::Window, &[x], attrs)?;
    one(c, y)
}

/// Transpose of [`unfold`]: `index_sum` over the windows' index.
fn unfold_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let grad = operand(c, 0, "grad_in")?;
    let sizes = c.dims(1, "input_sizes")?.ok_or("input_sizes is absent")?;
    let dim = Call::wrap(c.i64(2, "dim", 0)?, sizes.len())?;
    let (size, step) = (c.dim(3, "size")?, c.i64(4, "step", 1)?);
    if sizes.is_empty() {
        return one(c, grad);
    }
    let rank = c.b.rank(grad);
    let perm: Vec<usize> = (0..=dim).chain([rank - 1]).chain(dim + 1..rank - 1).collect();
    let src = c.b.permute(grad, &perm);
    let count = c.b.shape(src)[dim].clone();
    let index = window_index(c, &count, &size, step)?;
    let attrs = vec![("dim", Arg::Int(Dim::from(dim as i64))), ("size", Arg::Int(sizes[dim].clone()))];
    let y = prim(c, PrimOp::IndexSum, &[src, index], attrs)?;
    one(c, y)
}

/// Cuts by the negative paddings, pads by the positive ones, and fills `value` outside of the operand.
fn constant_pad_nd(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let pads = c.dims(1, "pad")?.unwrap_or_default();
    let value = c.arg(2, "value").cloned().unwrap_or(Arg::Int(Dim::ZERO));
    let dtype = result_dtype(c, 0)?;
    let rank = c.b.rank(x);
    if pads.len() % 2 != 0 || pads.len() / 2 > rank {
        return Err("padding does not fit the rank".into());
    }
    let (mut low, mut high) = (vec![Dim::ZERO; rank], vec![Dim::ZERO; rank]);
    let mut y = x;
    for (i, pair) in pads.chunks(2).enumerate() {
        let dim = rank - 1 - i;
        let size = c.b.shape(x)[dim].clone();
        let cut_of = |p: &Dim| larger(c, &(&Dim::ZERO - p), &Dim::ZERO);
        let (start, end) = (cut_of(&pair[0]), &size - &cut_of(&pair[1]));
        low[dim] = larger(c, &pair[0], &Dim::ZERO);
        high[dim] = larger(c, &pair[1], &Dim::ZERO);
        if (&end - &start).as_const().is_some_and(|len| len < 0) {
            // A cut longer than the dim eats into the other side's padding.
            return Err("negative padding beyond the size".into());
        }
        let len = &end - &start;
        y = cut(c, y, &Window { dim, start, len, step: 1 })?;
    }
    let inner = c.b.shape(y);
    let pad = |c: &mut Call<'_, '_>, v: ValueId| {
        if low.iter().chain(&high).all(|p| p.is_const(0)) {
            return Ok(v);
        }
        prim(c, PrimOp::Pad, &[v], vec![("low", Arg::dims(&low)), ("high", Arg::dims(&high))])
    };
    let padded = pad(c, y)?;
    let unpadded = padded == y;
    if unpadded || value.as_f64() == Some(0.0) {
        return one(c, padded);
    }
    let inside = full(c, &Arg::Bool(true), &inner, DType::Bool)?;
    let inside = pad(c, inside)?;
    let fill = full(c, &value, &[], dtype)?;
    let y = select(c, inside, padded, fill)?;
    one(c, y)
}

fn slice_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let grad = operand(c, 0, "grad_output")?;
    let sizes = c.dims(1, "input_sizes")?.ok_or("input_sizes is absent")?;
    let dim = Call::wrap(c.i64(2, "dim", 0)?, sizes.len())?;
    let len = c.b.shape(grad).get(dim).cloned();
    let w = window(c, 2, &sizes, len)?;
    if w.len.is_const(0) {
        let dtype = result_dtype(c, 0)?;
        let y = zeros(c, &sizes, dtype)?;
        return one(c, y);
    }
    let y = place(c, grad, &w, &sizes[w.dim])?;
    one(c, y)
}

fn select_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let grad = operand(c, 0, "grad_output")?;
    let sizes = c.dims(1, "input_sizes")?.ok_or("input_sizes is absent")?;
    let dim = Call::wrap(c.i64(2, "dim", 0)?, sizes.len())?;
    let start = position_in(c, &c.dim(3, "index")?, &sizes, dim)?;
    let row = c.b.unsqueeze(grad, dim);
    let y = place(c, row, &Window { dim, start, len: Dim::ONE, step: 1 }, &sizes[dim])?;
    one(c, y)
}

fn slice_scatter(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, src) = (operand(c, 0, "self")?, operand(c, 1, "src")?);
    let shape = c.b.shape(x);
    let dim = Call::wrap(c.i64(2, "dim", 0)?, shape.len())?;
    let mut to = shape.clone();
    let mut w = window(c, 2, &shape, None)?;
    // src broadcasts to the window; where it has the window's size, that spelling is the simpler one.
    match c.b.shape(src).get(dim) {
        Some(n) if c.b.rank(src) == shape.len() && !n.is_const(1) => w.len = n.clone(),
        _ => {}
    }
    to[dim] = w.len.clone();
    let src = super::emit::expand(c, src, &to)?;
    if w.len.is_const(0) {
        return one(c, x);
    }
    let y = replace(c, x, src, &w)?;
    one(c, y)
}

fn select_scatter(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, src) = (operand(c, 0, "self")?, operand(c, 1, "src")?);
    let shape = c.b.shape(x);
    let dim = Call::wrap(c.i64(2, "dim", 0)?, shape.len())?;
    let start = position_in(c, &c.dim(3, "index")?, &shape, dim)?;
    let mut row = shape.clone();
    row.remove(dim);
    let src = super::emit::expand(c, src, &row)?;
    let src = c.b.unsqueeze(src, dim);
    let y = replace(c, x, src, &Window { dim, start, len: Dim::ONE, step: 1 })?;
    one(c, y)
}
