//! Data-dependent addresses: gathers, embedding tables, and the sums that transpose them.

use super::emit::{
    as_result, at_most, binary, broadcast, dim_value, expand, full, iota_along, one, op, operand, prim, reshape,
    result_dtype, result_shape, select, zeros,
};
use crate::decl::{Call, Decline, OpDecl, RuleResult};
use permalloy_ir::{Arg, DType, Dim, Op, PrimOp, ValueId};

pub const DECLS: &[OpDecl] = &[
    op!(Indexing "aten.index_select.default", "index_select" => index_select, "x[index] along dim"),
    op!(Indexing "aten.index_select_backward.default", "index_select_backward" => index_select_backward, "dx[index[j]] += dy[j] along dim"),
    op!(Indexing "aten.gather.default", "gather" => gather, "x[index[..], ..] elementwise along dim"),
    op!(Indexing "aten.gather_backward.default", "gather_backward" => gather_backward, "dx[index[..], ..] += dy"),
    op!(Indexing "aten.take_along_dim.default", "take_along_dim" => take_along_dim, "gather, index and tensor broadcast to each other"),
    op!(Indexing "aten.take.default", "take" => take, "elements of the flattened tensor"),
    op!(Indexing "aten.index.Tensor", "index" => index, "x[i0, i1, …], index tensors broadcast to each other"),
    op!(Indexing "aten._unsafe_index.Tensor", "_unsafe_index" => index, "index whose bounds the tracer knows"),
    op!(Indexing "aten.index_put.default", "index_put" => index_put, "x[i0, i1, …] = values, or += with accumulate"),
    op!(Indexing "aten._unsafe_index_put.default", "_unsafe_index_put" => index_put, "index_put whose bounds the tracer knows"),
    op!(Indexing "aten._index_put_impl.default", "_index_put_impl" => index_put, "index_put"),
    op!(Indexing "aten.index_add.default", "index_add" => index_add, "x[index[j]] += alpha·source[j] along dim"),
    op!(Indexing "aten.scatter_add.default", "scatter_add" => scatter_add, "x[index[..], ..] += src"),
    op!(Indexing "aten.embedding.default", "embedding" => embedding, "weight[indices]"),
    op!(Indexing "aten.embedding_backward.default", "embedding_backward" => embedding_backward, "embedding_dense_backward or its sparse form"),
    op!(Indexing "aten.embedding_dense_backward.default", "embedding_dense_backward" => embedding_dense_backward,
        "dw[indices[j]] += dy[j]; row padding_idx is 0; scale_grad_by_freq divides by the row's count"),
    op!(Pointwise "aten.one_hot.default", "one_hot" => one_hot, "1 where class = x, else 0"),
    op!(Indexing "aten._embedding_bag.default", "rows of a table reduced by bags").reads_rows(),
    op!(Indexing "aten._embedding_bag_forward_only.default", "rows of a table reduced by bags").reads_rows(),
    op!(Indexing "aten._embedding_bag_backward.default", "gradient of _embedding_bag").reads_rows(),
    op!(Indexing "aten._embedding_bag_dense_backward.default", "gradient of _embedding_bag").reads_rows(),
    op!(Indexing "aten._embedding_bag_per_sample_weights_backward.default", "gradient of _embedding_bag by its weights").reads_rows(),
    op!(Indexing "aten.embedding_sparse_backward.default", "the gradient of a table as a sparse tensor"),
    op!(Indexing "aten.embedding_renorm.default", "rows scaled down to a norm"),
    op!(Indexing "aten.scatter.src", "scatter.src" => scatter, "x[index[..], ..] = src"),
    op!(Indexing "aten.scatter.value", "scatter.value" => scatter, "x[index[..], ..] = value"),
    op!(Indexing "aten.scatter.reduce", "x[index[..], ..] op= src"),
    op!(Indexing "aten.scatter.value_reduce", "x[index[..], ..] op= value"),
    op!(Indexing "aten.scatter_reduce.two", "x[index[..], ..] folded with src"),
    op!(Indexing "aten.index_reduce.default", "x[index[j]] folded with source[j]"),
    op!(Indexing "aten.index_copy.default", "x[index[j]] = source[j] along dim"),
    op!(Indexing "aten.index_fill.int_Scalar", "x[index[j]] = value along dim"),
    op!(Indexing "aten.index_fill.int_Tensor", "x[index[j]] = value along dim"),
    op!(Indexing "aten.put.default", "put" => put, "elements of the flattened tensor replaced, or added to with accumulate"),
    op!(Indexing "aten.masked_scatter.default", "elements under the mask replaced by those of source in order"),
    op!(Indexing "aten.masked_scatter_backward.default", "gradient of masked_scatter by its source"),
    op!(Indexing "aten.masked_select.default", "elements under the mask; the size depends on data"),
    op!(Indexing "aten._unsafe_masked_index.default", "index where the mask is on, else fill"),
    op!(Indexing "aten._unsafe_masked_index_put_accumulate.default", "transpose of _unsafe_masked_index"),
    op!(Opaque "aten.nonzero.default", "positions of x != 0; the size depends on data"),
    op!(Opaque "aten.nonzero_static.default", "positions of x != 0, cut or filled to a size"),
    op!(Opaque "aten.bucketize.Tensor", "interval of each element among sorted boundaries"),
    op!(Opaque "aten.bucketize.Scalar", "interval of a number among sorted boundaries"),
    op!(Opaque "aten.searchsorted.Tensor", "insertion points in sorted rows"),
    op!(Opaque "aten.searchsorted.Scalar", "insertion point in a sorted vector"),
    op!(Opaque "aten.topk.default", "the k largest along dim, and where"),
    op!(Opaque "aten.sort.default", "sorted along dim, and the permutation"),
    op!(Opaque "aten.sort.stable", "sorted along dim, and the permutation"),
    op!(Opaque "aten.argsort.default", "the permutation that sorts"),
    op!(Opaque "aten.argsort.stable", "the permutation that sorts"),
    op!(Opaque "aten.kthvalue.default", "the k-th smallest along dim, and where"),
    op!(Opaque "aten.unique_consecutive.default", "runs of equal elements"),
    op!(Opaque "aten._unique.default", "distinct elements"),
    op!(Opaque "aten._unique2.default", "distinct elements"),
    op!(Indexing "aten.isin.Tensor_Tensor", "whether each element is among others"),
    op!(Opaque "aten.unique_dim.default", "distinct slices"),
    op!(Opaque "aten.bincount.default", "how often each integer occurs"),
    op!(Opaque "aten.histc.default", "histogram"),
    op!(Opaque "aten.repeat_interleave.Tensor", "each index repeated; the size depends on data"),
    op!(Opaque "aten.repeat_interleave.self_int", "each element repeated"),
    op!(Opaque "aten.repeat_interleave.self_Tensor", "each element repeated; the size depends on data"),
];

/// A 0-d tensor as one element of a vector, since indexing wants a dim.
fn at_least_1d(c: &mut Call<'_, '_>, x: ValueId) -> Result<ValueId, Decline> {
    if c.b.rank(x) == 0 { reshape(c, x, &[Dim::ONE]) } else { Ok(x) }
}

/// An index tensor as i64 or i32, else the rule declines (masks select by data).
fn indices(c: &Call<'_, '_>, position: usize, name: &str) -> Result<ValueId, Decline> {
    integer(c, operand(c, position, name)?)
}

fn integer(c: &Call<'_, '_>, v: ValueId) -> Result<ValueId, Decline> {
    match c.b.dtype(v) {
        DType::I64 | DType::I32 => Ok(v),
        d => Err(format!("an index of dtype {d} selects by data").into()),
    }
}

/// `i < 0 ? i + size : i`, in i64.
fn wrap_index(c: &mut Call<'_, '_>, index: ValueId, size: &Dim) -> Result<ValueId, Decline> {
    let index = c.b.cast(index, DType::I64);
    let zero = zeros(c, &[], DType::I64)?;
    let negative = binary(c, PrimOp::Lt, index, zero)?;
    let size = dim_value(c, size, DType::I64)?;
    let moved = binary(c, PrimOp::Add, index, size)?;
    select(c, negative, moved, index)
}

/// `prim.take`; declines on what the prim does not take.
fn take_along(c: &mut Call<'_, '_>, x: ValueId, index: ValueId, dim: usize) -> Result<ValueId, Decline> {
    prim(c, PrimOp::Take, &[x, index], vec![("dim", Arg::Int(Dim::from(dim as i64)))])
}

fn summing(
    c: &mut Call<'_, '_>,
    op: PrimOp,
    src: ValueId,
    index: ValueId,
    dim: usize,
    size: &Dim,
) -> Result<ValueId, Decline> {
    if !matches!(c.b.dtype(src), d if d.is_float() || d.is_int()) {
        return Err("a sum of bool".into());
    }
    let attrs = vec![("dim", Arg::Int(Dim::from(dim as i64))), ("size", Arg::Int(size.clone()))];
    prim(c, op, &[src, index], attrs)
}

fn index_select(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let x = at_least_1d(c, x)?;
    let dim = Call::wrap(c.i64(1, "dim", 0)?, c.b.rank(x))?;
    let index = indices(c, 2, "index")?;
    let index = at_least_1d(c, index)?;
    let y = take_along(c, x, index, dim)?;
    one(c, y)
}

fn index_select_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let grad = operand(c, 0, "grad")?;
    let grad = at_least_1d(c, grad)?;
    let sizes = c.dims(1, "self_sizes")?.ok_or("self_sizes is absent")?;
    let dim = Call::wrap(c.i64(2, "dim", 0)?, sizes.len())?;
    let index = indices(c, 3, "index")?;
    let index = at_least_1d(c, index)?;
    let size = sizes.get(dim).cloned().unwrap_or(Dim::ONE);
    let y = summing(c, PrimOp::IndexSum, grad, index, dim, &size)?;
    one(c, y)
}

/// Cuts `x` to the sizes of `to`, dim `dim` aside.
fn cut_to(c: &mut Call<'_, '_>, x: ValueId, to: &[Dim], dim: Option<usize>) -> Result<ValueId, Decline> {
    if c.b.rank(x) != to.len() {
        return Err("index and tensor differ in rank".into());
    }
    let mut y = x;
    for (d, size) in to.iter().enumerate() {
        if Some(d) != dim && c.b.shape(y)[d] != *size {
            y = c.b.slice(y, d, &Dim::ZERO, size, 1);
        }
    }
    Ok(y)
}

/// The index may be shorter than x in the other dims: x is cut to it.
fn gather(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dim = Call::wrap(c.i64(1, "dim", 0)?, c.b.rank(x))?;
    let index = indices(c, 2, "index")?;
    if c.b.ty(index).numel().is_const(0) {
        let (shape, dtype) = (result_shape(c, 0)?, result_dtype(c, 0)?);
        let y = zeros(c, &shape, dtype)?;
        return one(c, y);
    }
    let y = gathered(c, x, index, dim)?;
    one(c, y)
}

fn gathered(c: &mut Call<'_, '_>, x: ValueId, index: ValueId, dim: usize) -> Result<ValueId, Decline> {
    let (x, index) = (at_least_1d(c, x)?, at_least_1d(c, index)?);
    let shape = c.b.shape(index);
    let x = cut_to(c, x, &shape, Some(dim))?;
    prim(c, PrimOp::Gather, &[x, index], vec![("dim", Arg::Int(Dim::from(dim as i64)))])
}

/// `take_along_dim` broadcasts all dims but `dim`; without a dim it reads the flattened tensor.
fn take_along_dim(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, index) = (operand(c, 0, "self")?, indices(c, 1, "indices")?);
    if c.arg(2, "dim").is_none() {
        let (n, m) = (c.b.ty(x).numel(), c.b.ty(index).numel());
        let (x, index) = (reshape(c, x, &[n])?, reshape(c, index, &[m])?);
        let y = take_along(c, x, index, 0)?;
        return one(c, y);
    }
    let dim = Call::wrap(c.i64(2, "dim", 0)?, c.b.rank(x))?;
    let (mut of_x, mut of_index) = (c.b.shape(x), c.b.shape(index));
    if of_x.len() != of_index.len() || of_x.is_empty() {
        return Err("index and tensor differ in rank".into());
    }
    let (n, m) = (std::mem::replace(&mut of_x[dim], Dim::ONE), std::mem::replace(&mut of_index[dim], Dim::ONE));
    let mut shape = broadcast(&[of_x, of_index])?;
    shape[dim] = m;
    let index = expand(c, index, &shape)?;
    shape[dim] = n;
    let x = expand(c, x, &shape)?;
    let y = gathered(c, x, index, dim)?;
    one(c, y)
}

fn gather_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (grad, x) = (operand(c, 0, "grad")?, operand(c, 1, "self")?);
    let dim = Call::wrap(c.i64(2, "dim", 0)?, c.b.rank(x))?;
    if c.bool(4, "sparse_grad", false)? {
        return Err("a sparse gradient".into());
    }
    let index = indices(c, 3, "index")?;
    let to = c.b.shape(x);
    let y = scattered_sum(c, grad, index, dim, &to)?;
    one(c, y)
}

/// `out[index[..], ..] += src` in zeros of shape `to`; src may be longer than the index, the index shorter than `to`.
fn scattered_sum(
    c: &mut Call<'_, '_>,
    src: ValueId,
    index: ValueId,
    dim: usize,
    to: &[Dim],
) -> Result<ValueId, Decline> {
    let (src, index) = (at_least_1d(c, src)?, at_least_1d(c, index)?);
    let vector = [Dim::ONE];
    let to = if to.is_empty() { &vector[..] } else { to };
    let shape = c.b.shape(index);
    let src = cut_to(c, src, &shape, None)?;
    let y = summing(c, PrimOp::ScatterSum, src, index, dim, &to[dim])?;
    let (low, high): (Vec<Dim>, Vec<Dim>) =
        c.b.shape(y).iter().zip(to).map(|(from, to)| (Dim::ZERO, to - from)).unzip();
    if high.iter().all(|h| h.is_const(0)) {
        return Ok(y);
    }
    prim(c, PrimOp::Pad, &[y], vec![("low", Arg::dims(&low)), ("high", Arg::dims(&high))])
}

fn take(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, index) = (operand(c, 0, "self")?, indices(c, 1, "index")?);
    let n = c.b.ty(x).numel();
    let flat = reshape(c, x, std::slice::from_ref(&n))?;
    let index = wrap_index(c, index, &n)?;
    let y = take_along(c, flat, index, 0)?;
    one(c, y)
}

/// Advanced indexing brought to one index over one dim.
struct Advanced {
    /// Brings the indexed dims together: in place when they are adjacent, else to the front.
    perm: Vec<usize>,
    /// Where they stand after that, and how many there are.
    at: usize,
    count: usize,
    /// Shape after the permutation.
    shape: Vec<Dim>,
    /// Product of their sizes.
    size: Dim,
    /// `Σ i_k·stride_k`, of the broadcast shape of the index tensors; −1 where one of several is out of range (the `_unsafe`
    /// operators promise that none is).
    index: ValueId,
}

fn advanced(c: &mut Call<'_, '_>, x: ValueId) -> Result<Advanced, Decline> {
    let items = c.arg(1, "indices").and_then(Arg::as_list).ok_or("indices is not a list")?.to_vec();
    let from = c.b.shape(x);
    let mut given = Vec::new();
    for (d, item) in items.iter().enumerate() {
        if let Some(v) = item.as_value() {
            given.push((d, integer(c, v)?));
        }
    }
    if given.is_empty() || items.len() > from.len() {
        return Err("no index tensor".into());
    }
    let dims: Vec<usize> = given.iter().map(|(d, _)| *d).collect();
    let adjacent = dims.windows(2).all(|w| w[1] == w[0] + 1);
    let at = if adjacent { dims[0] } else { 0 };
    let rest: Vec<usize> = (0..from.len()).filter(|d| !dims.contains(d)).collect();
    let perm: Vec<usize> = rest[..at].iter().chain(&dims).chain(&rest[at..]).copied().collect();
    let shape: Vec<Dim> = perm.iter().map(|p| from[*p].clone()).collect();
    let shapes: Vec<Vec<Dim>> = given.iter().map(|(_, v)| c.b.shape(*v)).collect();
    let to = broadcast(&shapes)?;
    let unchecked = c.node.op.external().is_some_and(|name| name.starts_with("aten._unsafe"));
    let (mut linear, mut in_range): (Option<ValueId>, Option<ValueId>) = (None, None);
    for (d, v) in &given {
        let size = &from[*d];
        let i = wrap_index(c, *v, size)?;
        if given.len() > 1 && !unchecked {
            let ok = lies_within(c, i, size)?;
            in_range = Some(match in_range {
                None => ok,
                Some(so_far) => binary(c, PrimOp::And, so_far, ok)?,
            });
        }
        linear = Some(match linear {
            None => i,
            Some(so_far) => {
                let size = dim_value(c, size, DType::I64)?;
                let row = binary(c, PrimOp::Mul, so_far, size)?;
                binary(c, PrimOp::Add, row, i)?
            }
        });
    }
    let mut index = linear.ok_or("no index tensor")?;
    if let Some(ok) = in_range {
        let outside = full(c, &Arg::Int(Dim::from(-1)), &[], DType::I64)?;
        index = select(c, ok, index, outside)?;
    }
    let index = expand(c, index, &to)?;
    let size = Dim::product(dims.iter().map(|d| &from[*d]));
    Ok(Advanced { perm, at, count: dims.len(), shape, size, index })
}

/// `0 <= i < size`.
fn lies_within(c: &mut Call<'_, '_>, i: ValueId, size: &Dim) -> Result<ValueId, Decline> {
    let zero = zeros(c, &[], DType::I64)?;
    let low = binary(c, PrimOp::Ge, i, zero)?;
    let size = dim_value(c, size, DType::I64)?;
    let high = binary(c, PrimOp::Lt, i, size)?;
    binary(c, PrimOp::And, low, high)
}

/// `take(x with the indexed dims merged, Σ i_k·stride_k)`.
fn index(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let a = advanced(c, x)?;
    let y = c.b.permute(x, &a.perm);
    let mut merged = a.shape.clone();
    merged.splice(a.at..a.at + a.count, [a.size.clone()]);
    let y = reshape(c, y, &merged)?;
    let y = take_along(c, y, a.index, a.at)?;
    one(c, y)
}

/// accumulate: `x + index_sum(values)`, just the sum on zeros; a mask with one value: `where(mask, value, x)`.
fn index_put(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, values) = (operand(c, 0, "self")?, operand(c, 2, "values")?);
    let accumulate = c.bool(3, "accumulate", false)?;
    if !accumulate {
        return masked_put(c, x, values);
    }
    let a = advanced(c, x)?;
    let mut src_shape = a.shape.clone();
    src_shape.splice(a.at..a.at + a.count, c.b.shape(a.index));
    let src = expand(c, values, &src_shape)?;
    let y = summing_onto(c, x, src, |c, src| {
        let y = summing(c, PrimOp::IndexSum, src, a.index, a.at, &a.size)?;
        let y = reshape(c, y, &a.shape)?;
        let back: Vec<usize> = (0..a.perm.len()).map(|i| a.perm.iter().position(|p| *p == i).unwrap_or(i)).collect();
        Ok(c.b.permute(y, &back))
    })?;
    one(c, y)
}

/// `x + f(src)`: f alone where x is zeros. A 16-bit sum is added in f32 and rounded once.
fn summing_onto(
    c: &mut Call<'_, '_>,
    x: ValueId,
    src: ValueId,
    f: impl FnOnce(&mut Call<'_, '_>, ValueId) -> Result<ValueId, Decline>,
) -> Result<ValueId, Decline> {
    if is_zeros(c, x) {
        let dtype = c.b.dtype(x);
        let src = c.b.cast(src, dtype);
        return f(c, src);
    }
    let dtype = c.b.dtype(x).compute();
    let (x, src) = (c.b.cast(x, dtype), c.b.cast(src, dtype));
    let y = f(c, src)?;
    binary(c, PrimOp::Add, x, y)
}

/// The value is a constant 0, seen through views.
fn is_zeros(c: &Call<'_, '_>, x: ValueId) -> bool {
    let Some(node) = c.b.graph.producer(x) else { return false };
    match &node.op {
        Op::Prim(PrimOp::Full) => {
            matches!(node.kwarg("value"), Some(v) if v.as_f64() == Some(0.0))
        }
        Op::Prim(PrimOp::Reshape | PrimOp::Expand | PrimOp::Permute | PrimOp::Cast) => {
            node.operand(0).is_some_and(|v| is_zeros(c, v))
        }
        Op::Prim(_) => false,
        Op::External(name) => {
            matches!(&**name, "aten.zeros.default" | "aten.new_zeros.default" | "aten.zeros_like.default")
        }
    }
}

/// `x[mask] = one value`; any other overwrite depends on the order of writes and stays native.
fn masked_put(c: &mut Call<'_, '_>, x: ValueId, values: ValueId) -> RuleResult {
    let items = c.arg(1, "indices").and_then(Arg::as_list).ok_or("indices is not a list")?;
    let [Arg::Value(mask)] = items else { return Err("an overwrite by index".into()) };
    let mask = *mask;
    if c.b.dtype(mask) != DType::Bool || !c.b.ty(values).numel().is_const(1) {
        return Err("an overwrite by index".into());
    }
    let (mut line, shape) = (c.b.shape(mask), c.b.shape(x));
    if line.len() > shape.len() || line[..] != shape[..line.len()] {
        return Err("the mask does not fit".into());
    }
    line.resize(shape.len(), Dim::ONE);
    let mask = reshape(c, mask, &line)?;
    let value = reshape(c, values, &[])?;
    let y = select(c, mask, value, x)?;
    one(c, y)
}

fn index_add(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, src) = (operand(c, 0, "self")?, operand(c, 3, "source")?);
    let dim = Call::wrap(c.i64(1, "dim", 0)?, c.b.rank(x))?;
    let alpha = c.f64(4, "alpha", 1.0)?;
    let (flat, src) = (at_least_1d(c, x)?, at_least_1d(c, src)?);
    let index = indices(c, 2, "index")?;
    let index = at_least_1d(c, index)?;
    let size = c.b.shape(flat)[dim].clone();
    let y = summing_onto(c, flat, src, |c, src| {
        let src = if alpha == 1.0 { src } else { c.b.mul_scalar(src, alpha) };
        summing(c, PrimOp::IndexSum, src, index, dim, &size)
    })?;
    one(c, y)
}

fn scatter_add(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, src) = (operand(c, 0, "self")?, operand(c, 3, "src")?);
    let dim = Call::wrap(c.i64(1, "dim", 0)?, c.b.rank(x))?;
    let index = indices(c, 2, "index")?;
    if c.b.ty(index).numel().is_const(0) {
        return one(c, x);
    }
    let to = c.b.shape(x);
    let flat = at_least_1d(c, x)?;
    let y = summing_onto(c, flat, src, |c, src| scattered_sum(c, src, index, dim, &to))?;
    one(c, y)
}

/// One index along dim writes one element of each row: `where(i = index, src, x)`. With more than one the order of writes
/// may matter.
fn scatter(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dim = Call::wrap(c.i64(1, "dim", 0)?, c.b.rank(x))?;
    let index = indices(c, 2, "index")?;
    let dtype = c.b.dtype(x);
    let src = match c.arg(3, "src").or_else(|| c.arg(3, "value")).cloned().ok_or("there is nothing to write")? {
        Arg::Value(_) => operand(c, 3, "src")?,
        number => full(c, &number, &[], dtype)?,
    };
    let (x, index) = (at_least_1d(c, x)?, at_least_1d(c, index)?);
    let (shape, mut row) = (c.b.shape(x), c.b.shape(x));
    row[dim] = Dim::ONE;
    if c.b.shape(index) != row {
        return Err("an overwrite by several indices".into());
    }
    let src = if c.b.rank(src) == 0 { src } else { cut_to(c, src, &row, None)? };
    let index = checked(c, index, &shape[dim])?;
    let i = iota_along(c, &shape, dim);
    let here = binary(c, PrimOp::Eq, i, index)?;
    let y = select(c, here, src, x)?;
    one(c, y)
}

/// The index in i64 as `take(0..size, index)`, so that one out of range stays an error where only its value is compared.
fn checked(c: &mut Call<'_, '_>, index: ValueId, size: &Dim) -> Result<ValueId, Decline> {
    let all = c.b.iota(size.clone());
    take_along(c, all, index, 0)
}

/// accumulate: `x + index_sum(source)` over the flattened tensor.
fn put(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, index, src) = (operand(c, 0, "self")?, indices(c, 1, "index")?, operand(c, 2, "source")?);
    if !c.bool(3, "accumulate", false)? {
        return Err("an overwrite by index".into());
    }
    let (n, k) = (c.b.ty(x).numel(), c.b.ty(index).numel());
    let (flat, index) = (reshape(c, x, std::slice::from_ref(&n))?, reshape(c, index, std::slice::from_ref(&k))?);
    let src = reshape(c, src, &[k])?;
    let index = wrap_index(c, index, &n)?;
    let y = summing_onto(c, flat, src, |c, src| summing(c, PrimOp::IndexSum, src, index, 0, &n))?;
    one(c, y)
}

fn embedding(c: &mut Call<'_, '_>) -> RuleResult {
    let (weight, index) = (operand(c, 0, "weight")?, indices(c, 1, "indices")?);
    let y = take_along(c, weight, index, 0)?;
    one(c, y)
}

fn embedding_backward(c: &mut Call<'_, '_>) -> RuleResult {
    if c.bool(5, "sparse", false)? {
        return Err("a sparse gradient".into());
    }
    embedding_dense_backward(c)
}

/// `index_sum(dy, indices)`: masked by `indices = padding_idx`, divided by the count of each row. Indices stay as they are, so
/// that one out of range is an error.
fn embedding_dense_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let grad = operand(c, 0, "grad_output")?;
    let index = indices(c, 1, "indices")?;
    let rows = c.dim(2, "num_weights")?;
    let padding = c.dim(3, "padding_idx")?;
    let by_frequency = c.bool(4, "scale_grad_by_freq", false)?;
    let mut column = c.b.shape(index);
    let trailing = c.b.rank(grad).saturating_sub(column.len());
    column.resize(column.len() + trailing, Dim::ONE);
    let mut dy = grad;
    if by_frequency {
        // The count of a row that occurs is at least 1.
        let dtype = c.b.dtype(grad).compute();
        dy = c.b.cast(dy, dtype);
        let index_shape = c.b.shape(index);
        let ones = full(c, &Arg::Int(Dim::ONE), &index_shape, DType::I64)?;
        let counts = summing(c, PrimOp::IndexSum, ones, index, 0, &rows)?;
        let counts = take_along(c, counts, index, 0)?;
        let counts = c.b.cast(counts, dtype);
        let counts = reshape(c, counts, &column)?;
        dy = binary(c, PrimOp::Div, dy, counts)?;
    }
    if at_most(c, &Dim::ZERO, &padding) {
        let dtype = c.b.dtype(index);
        let row = dim_value(c, &padding, dtype)?;
        let hit = binary(c, PrimOp::Eq, index, row)?;
        let hit = reshape(c, hit, &column)?;
        let dtype = c.b.dtype(dy);
        let zero = zeros(c, &[], dtype)?;
        dy = select(c, hit, zero, dy)?;
    }
    let y = summing(c, PrimOp::IndexSum, dy, index, 0, &rows)?;
    one(c, y)
}

/// `class = x` along a new last dim.
fn one_hot(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    if !at_most(c, &Dim::ONE, &c.dim(1, "num_classes")?) {
        return Err("the number of classes depends on data".into());
    }
    let shape = result_shape(c, 0)?;
    let mut column = c.b.shape(x);
    column.push(Dim::ONE);
    let x = reshape(c, x, &column)?;
    let x = checked(c, x, &shape[column.len() - 1])?;
    let class = iota_along(c, &shape, column.len() - 1);
    let y = binary(c, PrimOp::Eq, x, class)?;
    Ok(vec![as_result(c, y, 0)?])
}
