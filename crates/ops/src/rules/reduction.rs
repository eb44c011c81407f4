//! Reductions: folds over dims, their index forms, moments and norms.

use super::emit::{
    as_result, binary, dim_value, expand, full, iota_along, one, op, operand, reshape, result_dtype, result_shape,
    select, truth, zeros,
};
use crate::decl::{Call, Decline, OpDecl, RuleResult};
use permalloy_ir::{Arg, DType, Dim, PrimOp, ValueId};

pub const DECLS: &[OpDecl] = &[
    op!(Reduction "aten.sum.default", "sum" => |c| sum(c, ABSENT), "Σ x; integers and bool as i64"),
    op!(Reduction "aten.sum.dim_IntList", "sum.dim" => |c| sum(c, 1), "Σ x over dims; no dims: over all"),
    op!(Reduction "aten.nansum.default", "nansum" => nansum, "Σ x, NaN as 0"),
    op!(Reduction "aten.sum_to_size.default", "sum_to_size" => sum_to_size, "Σ over the dims that `size` broadcasts"),
    op!(Reduction "aten.mean.default", "mean" => |c| mean(c, ABSENT), "Σ x / n"),
    op!(Reduction "aten.mean.dim", "mean.dim" => |c| mean(c, 1), "Σ x / n over dims"),
    op!(Reduction "aten.amax.default", "amax" => |c| extreme(c, PrimOp::Amax), "largest over dims; NaN wins"),
    op!(Reduction "aten.amin.default", "amin" => |c| extreme(c, PrimOp::Amin), "smallest over dims; NaN wins"),
    op!(Reduction "aten.max.default", "max" => |c| extreme_of_all(c, PrimOp::Amax), "largest element"),
    op!(Reduction "aten.min.default", "min" => |c| extreme_of_all(c, PrimOp::Amin), "smallest element"),
    op!(Reduction "aten.max.dim", "max.dim" => |c| extreme_and_index(c, PrimOp::Amax, PrimOp::Argmax), "largest over a dim, and where"),
    op!(Reduction "aten.min.dim", "min.dim" => |c| extreme_and_index(c, PrimOp::Amin, PrimOp::Argmin), "smallest over a dim, and where"),
    op!(Reduction "aten.aminmax.default", "aminmax" => aminmax, "smallest and largest"),
    op!(Reduction "aten.argmax.default", "argmax" => |c| arg_extreme(c, PrimOp::Argmax), "where the largest is; no dim: in the flattened tensor"),
    op!(Reduction "aten.argmin.default", "argmin" => |c| arg_extreme(c, PrimOp::Argmin), "where the smallest is; no dim: in the flattened tensor"),
    op!(Reduction "aten.any.default", "any" => |c| logical(c, PrimOp::Any, ABSENT), "x != 0 somewhere"),
    op!(Reduction "aten.any.dim", "any.dim" => |c| logical(c, PrimOp::Any, 1), "x != 0 somewhere along dim"),
    op!(Reduction "aten.any.dims", "any.dims" => |c| logical(c, PrimOp::Any, 1), "x != 0 somewhere along dims"),
    op!(Reduction "aten.all.default", "all" => |c| logical(c, PrimOp::All, ABSENT), "x != 0 everywhere"),
    op!(Reduction "aten.all.dim", "all.dim" => |c| logical(c, PrimOp::All, 1), "x != 0 everywhere along dim"),
    op!(Reduction "aten.all.dims", "all.dims" => |c| logical(c, PrimOp::All, 1), "x != 0 everywhere along dims"),
    op!(Reduction "aten.prod.default", "prod" => |c| prod(c, ABSENT), "Π x; integers and bool as i64"),
    op!(Reduction "aten.prod.dim_int", "prod.dim" => |c| prod(c, 1), "Π x along dim"),
    op!(Reduction "aten.count_nonzero.default", "count_nonzero" => |c| count_nonzero(c, 1), "number of x != 0"),
    op!(Reduction "aten.count_nonzero.dim_IntList", "count_nonzero.dim" => |c| count_nonzero(c, 1), "number of x != 0 over dims"),
    op!(Reduction "aten.var.correction", "var" => |c| moments(c, Spread::Var, false), "Σ (x − mean)² / max(n − correction, 0)"),
    op!(Reduction "aten.var.default", "var.default" => |c| moments_all(c, Spread::Var, false), "Σ (x − mean)² / (n − 1)"),
    op!(Reduction "aten.var.dim", "var.dim" => |c| moments_unbiased(c, Spread::Var, false), "Σ (x − mean)² / (n − 1) over dims"),
    op!(Reduction "aten.std.correction", "std" => |c| moments(c, Spread::Std, false), "√var"),
    op!(Reduction "aten.std.default", "std.default" => |c| moments_all(c, Spread::Std, false), "√var"),
    op!(Reduction "aten.std.dim", "std.dim" => |c| moments_unbiased(c, Spread::Std, false), "√var over dims"),
    op!(Reduction "aten.var_mean.correction", "var_mean" => |c| moments(c, Spread::Var, true), "var and mean"),
    op!(Reduction "aten.var_mean.default", "var_mean.default" => |c| moments_all(c, Spread::Var, true), "var and mean"),
    op!(Reduction "aten.var_mean.dim", "var_mean.dim" => |c| moments_unbiased(c, Spread::Var, true), "var and mean over dims"),
    op!(Reduction "aten.std_mean.correction", "std_mean" => |c| moments(c, Spread::Std, true), "std and mean"),
    op!(Reduction "aten.std_mean.default", "std_mean.default" => |c| moments_all(c, Spread::Std, true), "std and mean"),
    op!(Reduction "aten.std_mean.dim", "std_mean.dim" => |c| moments_unbiased(c, Spread::Std, true), "std and mean over dims"),
    op!(Reduction "aten.linalg_vector_norm.default", "linalg_vector_norm" => |c| norm(c, 2), "(Σ |x|ᵖ)^(1/p); p = 0 counts, p = ±∞ is the extreme"),
    op!(Reduction "aten.norm.Scalar", "norm" => |c| norm(c, ABSENT), "(Σ |x|ᵖ)^(1/p)"),
    op!(Reduction "aten.norm.ScalarOpt_dim", "norm.dim" => |c| norm(c, 2), "(Σ |x|ᵖ)^(1/p) over dims"),
    op!(Reduction "aten.norm.ScalarOpt_dtype", "norm.dtype" => |c| norm(c, ABSENT), "(Σ |x|ᵖ)^(1/p), x cast first"),
    op!(Reduction "aten.norm.ScalarOpt_dim_dtype", "norm.dim_dtype" => |c| norm(c, 2), "(Σ |x|ᵖ)^(1/p) over dims, x cast first"),
    op!(Pointwise "aten.value_selecting_reduction_backward.default", "value_selecting_reduction_backward" => value_selecting_reduction_backward,
        "dx[indices] = dy along dim, else 0"),
    op!(Reduction "aten.trace.default", "trace" => trace, "Σ x[i, i]"),
    op!(Reduction "aten.cumsum.default", "running sum along dim"),
    op!(Reduction "aten.cumprod.default", "running product along dim"),
    op!(Opaque "aten.cummax.default", "running maximum along dim, and where"),
    op!(Opaque "aten.cummin.default", "running minimum along dim, and where"),
    op!(Opaque "aten.logcumsumexp.default", "log of the running sum of exponentials"),
    op!(Opaque "aten.median.default", "lower median of all elements"),
    op!(Opaque "aten.median.dim", "lower median along dim, and where"),
    op!(Opaque "aten.nanmedian.default", "lower median of all elements, NaN left out"),
    op!(Opaque "aten.nanmedian.dim", "lower median along dim, NaN left out, and where"),
    op!(Opaque "aten.mode.default", "most frequent value along dim, and where"),
];

/// Position of the argument where an operator has none of this kind.
const ABSENT: usize = 9;

/// The dims an operator reduces: the list at a position, wrapped; absent or empty means all, unless the promised rank says
/// that nothing vanishes. A 0-d tensor has none.
fn reduced_dims(c: &Call<'_, '_>, x: ValueId, at: usize) -> Result<Vec<i64>, Decline> {
    let rank = c.b.rank(x);
    let all = (0..rank as i64).collect();
    if rank == 0 || at == ABSENT {
        return Ok(all);
    }
    let dims = c.ints(at, "dim")?.unwrap_or_default();
    if dims.is_empty() {
        return Ok(all);
    }
    let mut dims = dims.iter().map(|d| Call::wrap(*d, rank).map(|d| d as i64)).collect::<Result<Vec<_>, _>>()?;
    dims.sort_unstable();
    dims.dedup();
    Ok(dims)
}

/// A reduction; over no dims it is the operand.
fn fold(c: &mut Call<'_, '_>, op: PrimOp, x: ValueId, dims: &[i64]) -> ValueId {
    if dims.is_empty() { x } else { c.b.reduce(op, x, dims, false) }
}

/// Number of elements folded into each result.
fn count(c: &Call<'_, '_>, x: ValueId, dims: &[i64]) -> Dim {
    let shape = c.b.graph.shape(x);
    Dim::product(dims.iter().map(|d| &shape[*d as usize]))
}

/// The value in the dtype that an engine computes it in.
fn wide(c: &mut Call<'_, '_>, x: ValueId) -> ValueId {
    let to = c.b.dtype(x).compute();
    c.b.cast(x, to)
}

/// Summed in the result's dtype; a 16-bit sum of an f32 tensor is an f32 sum rounded once.
fn sum(c: &mut Call<'_, '_>, dims_at: usize) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let y = summed(c, x, dims_at)?;
    one(c, y)
}

fn summed(c: &mut Call<'_, '_>, x: ValueId, dims_at: usize) -> Result<ValueId, Decline> {
    let dims = reduced_dims(c, x, dims_at)?;
    let to = result_dtype(c, 0)?;
    let x = c.b.cast(x, to);
    Ok(fold(c, PrimOp::Sum, x, &dims))
}

fn nansum(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let y = if c.b.dtype(x).is_float() {
        let nan = c.b.unary(PrimOp::IsNan, x);
        let dtype = c.b.dtype(x);
        let zero = zeros(c, &[], dtype)?;
        select(c, nan, zero, x)?
    } else {
        x
    };
    let y = summed(c, y, 1)?;
    one(c, y)
}

/// Dims in front of `size`, and those where it is 1, are summed.
fn sum_to_size(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let (from, to) = (c.b.shape(x), result_shape(c, 0)?);
    let Some(new) = from.len().checked_sub(to.len()) else { return Err("size has more dims than the tensor".into()) };
    let dims: Vec<i64> = (0..from.len())
        .filter(|i| *i < new || (to[i - new].is_const(1) && !from[*i].is_const(1)))
        .map(|i| i as i64)
        .collect();
    let dtype = result_dtype(c, 0)?;
    if dtype == DType::Bool {
        return Err("a sum of bool as bool".into());
    }
    let y = c.b.cast(x, dtype);
    let y = fold(c, PrimOp::Sum, y, &dims);
    one(c, y)
}

/// `Σ x / n`; 16-bit floats in f32, rounded once.
fn mean(c: &mut Call<'_, '_>, dims_at: usize) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dims = reduced_dims(c, x, dims_at)?;
    let to = result_dtype(c, 0)?;
    if !to.is_float() {
        return Err("the mean of integers".into());
    }
    let x = c.b.cast(x, to);
    let y = averaged(c, x, &dims)?;
    one(c, y)
}

/// The mean in the compute dtype, the reduced dims gone.
fn averaged(c: &mut Call<'_, '_>, x: ValueId, dims: &[i64]) -> Result<ValueId, Decline> {
    let n = count(c, x, dims);
    let x = wide(c, x);
    let total = fold(c, PrimOp::Sum, x, dims);
    let dtype = c.b.dtype(total);
    let n = dim_value(c, &n, dtype)?;
    binary(c, PrimOp::Div, total, n)
}

fn extreme(c: &mut Call<'_, '_>, op: PrimOp) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dims = reduced_dims(c, x, 1)?;
    let y = extreme_over(c, op, x, &dims);
    one(c, y)
}

fn extreme_of_all(c: &mut Call<'_, '_>, op: PrimOp) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dims = reduced_dims(c, x, ABSENT)?;
    let y = extreme_over(c, op, x, &dims);
    one(c, y)
}

/// On bool the largest is `any` and the smallest is `all`.
fn extreme_over(c: &mut Call<'_, '_>, op: PrimOp, x: ValueId, dims: &[i64]) -> ValueId {
    let op = match (op, c.b.dtype(x)) {
        (PrimOp::Amax, DType::Bool) => PrimOp::Any,
        (PrimOp::Amin, DType::Bool) => PrimOp::All,
        _ => op,
    };
    fold(c, op, x, dims)
}

fn extreme_and_index(c: &mut Call<'_, '_>, value: PrimOp, index: PrimOp) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dims = reduced_dims(c, x, 1)?;
    let v = extreme_over(c, value, x, &dims);
    let i = first_index(c, index, x, &dims)?;
    let second = if c.results.get(1).is_some_and(Option::is_some) { as_result(c, i, 1)? } else { None };
    let first = if c.results.first().is_some_and(Option::is_some) { as_result(c, v, 0)? } else { None };
    Ok(vec![first, second])
}

/// Position of the extreme along at most one dim; 0 in a 0-d tensor.
fn first_index(c: &mut Call<'_, '_>, op: PrimOp, x: ValueId, dims: &[i64]) -> Result<ValueId, Decline> {
    let x = if c.b.dtype(x) == DType::Bool { c.b.cast(x, DType::U8) } else { x };
    match dims {
        [] => zeros(c, &[], DType::I64),
        [_] => Ok(fold(c, op, x, dims)),
        _ => Err("an index over several dims".into()),
    }
}

fn aminmax(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dims = reduced_dims(c, x, 1)?;
    let (low, high) = (extreme_over(c, PrimOp::Amin, x, &dims), extreme_over(c, PrimOp::Amax, x, &dims));
    Ok(vec![as_result(c, low, 0)?, as_result(c, high, 1)?])
}

fn arg_extreme(c: &mut Call<'_, '_>, op: PrimOp) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let y = if c.arg(1, "dim").is_some() {
        let dims = reduced_dims(c, x, 1)?;
        first_index(c, op, x, &dims)?
    } else {
        let flat = [c.b.ty(x).numel()];
        let flat = reshape(c, x, &flat)?;
        first_index(c, op, flat, &[0])?
    };
    one(c, y)
}

/// On numbers `x != 0`; the result is bool, or u8 for u8.
fn logical(c: &mut Call<'_, '_>, op: PrimOp, dims_at: usize) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let mut dims = reduced_dims(c, x, dims_at)?;
    let listed = c.ints(dims_at, "dim")?;
    // The list forms reduce nothing over an empty list: the promised shape shows it.
    if listed.is_some_and(|d| d.is_empty()) && c.result(0)?.shape == c.b.shape(x) {
        dims.clear();
    }
    let t = truth(c, x);
    let y = fold(c, op, t, &dims);
    one(c, y)
}

fn prod(c: &mut Call<'_, '_>, dims_at: usize) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dims = reduced_dims(c, x, dims_at)?;
    let to = result_dtype(c, 0)?;
    if to == DType::Bool {
        return Err("a product of bool as bool".into());
    }
    let x = c.b.cast(x, to);
    let x = wide(c, x);
    let y = fold(c, PrimOp::Prod, x, &dims);
    one(c, y)
}

fn count_nonzero(c: &mut Call<'_, '_>, dims_at: usize) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let dims = reduced_dims(c, x, dims_at)?;
    let t = truth(c, x);
    let t = c.b.cast(t, DType::I64);
    let y = fold(c, PrimOp::Sum, t, &dims);
    one(c, y)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    Var,
    Std,
}

fn moments(c: &mut Call<'_, '_>, what: Spread, with_mean: bool) -> RuleResult {
    let correction = c.f64(ABSENT, "correction", 1.0)?;
    spread(c, what, with_mean, 1, correction)
}

fn moments_all(c: &mut Call<'_, '_>, what: Spread, with_mean: bool) -> RuleResult {
    let correction = if c.bool(1, "unbiased", true)? { 1.0 } else { 0.0 };
    spread(c, what, with_mean, ABSENT, correction)
}

fn moments_unbiased(c: &mut Call<'_, '_>, what: Spread, with_mean: bool) -> RuleResult {
    let correction = if c.bool(2, "unbiased", true)? { 1.0 } else { 0.0 };
    spread(c, what, with_mean, 1, correction)
}

/// Two passes: the mean, then `Σ (x − mean)² / max(n − correction, 0)`.
fn spread(c: &mut Call<'_, '_>, what: Spread, with_mean: bool, dims_at: usize, correction: f64) -> RuleResult {
    let x = operand(c, 0, "self")?;
    if !c.b.dtype(x).is_float() {
        return Err("the variance of integers".into());
    }
    let dims = reduced_dims(c, x, dims_at)?;
    let x = wide(c, x);
    let (shape, dtype) = (c.b.shape(x), c.b.dtype(x));
    let mean = averaged(c, x, &dims)?;
    let kept: Vec<Dim> =
        (0..shape.len()).map(|i| if dims.contains(&(i as i64)) { Dim::ONE } else { shape[i].clone() }).collect();
    let row = reshape(c, mean, &kept)?;
    let row = expand(c, row, &shape)?;
    let centred = c.b.sub(x, row);
    let squares = c.b.mul(centred, centred);
    let total = fold(c, PrimOp::Sum, squares, &dims);
    let n = count(c, x, &dims);
    let divisor = match n.as_const() {
        Some(n) => full(c, &Arg::Float((n as f64 - correction).max(0.0)), &[], dtype)?,
        None => {
            let n = dim_value(c, &n, dtype)?;
            let left = c.b.add_scalar(n, -correction);
            c.b.binary_scalar(PrimOp::Max, left, 0.0)
        }
    };
    let mut y = binary(c, PrimOp::Div, total, divisor)?;
    if what == Spread::Std {
        y = c.b.unary(PrimOp::Sqrt, y);
    }
    let mut out = vec![as_result(c, y, 0)?];
    if with_mean {
        out.push(if c.results.get(1).is_some_and(Option::is_some) { as_result(c, mean, 1)? } else { None });
    }
    Ok(out)
}

/// p = 2: √Σx²; 1: Σ|x|; 0: number of nonzero; ±∞: extreme of |x|; else (Σ|x|ᵖ)^(1/p), and |x| for all of a single number.
/// x is cast to the result's dtype first.
fn norm(c: &mut Call<'_, '_>, dims_at: usize) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let p = match c.arg(1, "ord").or_else(|| c.arg(1, "p")) {
        None => 2.0,
        Some(a) => a.as_f64().ok_or("the order is not a static number")?,
    };
    let dims = reduced_dims(c, x, dims_at)?;
    let to = result_dtype(c, 0)?;
    if !to.is_float() {
        return Err("the norm of integers".into());
    }
    let x = c.b.cast(x, to);
    let x = wide(c, x);
    let y = vector_norm(c, x, p, &dims)?;
    one(c, y)
}

/// The p-norm over `dims`, in the dtype of `x`.
pub(super) fn vector_norm(c: &mut Call<'_, '_>, x: ValueId, p: f64, dims: &[i64]) -> Result<ValueId, Decline> {
    let dtype = c.b.dtype(x);
    if !dtype.is_float() {
        return Err("the norm of integers".into());
    }
    if p == 0.0 {
        let t = truth(c, x);
        let t = c.b.cast(t, dtype);
        return Ok(fold(c, PrimOp::Sum, t, dims));
    }
    // Of one number the power might overflow, and its root would be rounded.
    let single = count(c, x, dims).is_const(1);
    if p == 2.0 && !single {
        let squares = c.b.mul(x, x);
        let total = fold(c, PrimOp::Sum, squares, dims);
        return Ok(c.b.unary(PrimOp::Sqrt, total));
    }
    let magnitude = c.b.unary(PrimOp::Abs, x);
    Ok(if p == 1.0 || single {
        fold(c, PrimOp::Sum, magnitude, dims)
    } else if p == f64::INFINITY && count(c, x, dims).is_const(0) {
        // The largest of nothing is 0 here, a norm being non-negative.
        fold(c, PrimOp::Sum, magnitude, dims)
    } else if p.is_infinite() {
        fold(c, if p > 0.0 { PrimOp::Amax } else { PrimOp::Amin }, magnitude, dims)
    } else {
        let power = c.b.binary_scalar(PrimOp::Pow, magnitude, p);
        let total = fold(c, PrimOp::Sum, power, dims);
        c.b.binary_scalar(PrimOp::Pow, total, 1.0 / p)
    })
}

/// `where(i = indices, dy, 0)` with i running along dim: each result row got exactly one element.
fn value_selecting_reduction_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let grad = operand(c, 0, "grad")?;
    let index = operand(c, 2, "indices")?;
    let sizes = c.dims(3, "sizes")?.ok_or("sizes is absent")?;
    if sizes.is_empty() {
        return one(c, grad);
    }
    let dim = Call::wrap(c.i64(1, "dim", 0)?, sizes.len())?;
    let mut kept = sizes.clone();
    kept[dim] = Dim::ONE;
    let (grad, index) = (reshape(c, grad, &kept)?, reshape(c, index, &kept)?);
    let index = c.b.cast(index, DType::I64);
    let i = iota_along(c, &sizes, dim);
    let here = binary(c, PrimOp::Eq, i, index)?;
    let dtype = c.b.dtype(grad);
    let zero = zeros(c, &[], dtype)?;
    let y = select(c, here, grad, zero)?;
    let y = expand(c, y, &sizes)?;
    one(c, y)
}

/// The sum of the elements where i = j.
fn trace(c: &mut Call<'_, '_>) -> RuleResult {
    let x = operand(c, 0, "self")?;
    let shape = c.b.shape(x);
    if shape.len() != 2 {
        return Err("no matrix".into());
    }
    let to = result_dtype(c, 0)?;
    let x = c.b.cast(x, to);
    let (i, j) = (iota_along(c, &shape, 0), iota_along(c, &shape, 1));
    let on = binary(c, PrimOp::Eq, i, j)?;
    let zero = zeros(c, &[], to)?;
    let y = select(c, on, x, zero)?;
    let y = fold(c, PrimOp::Sum, y, &[0, 1]);
    one(c, y)
}
