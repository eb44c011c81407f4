//! Tensors out of nothing: constants, ranges, the identity matrix.

use super::emit::{binary, full, iota_along, one, op, result_dtype, result_shape, select};
use crate::decl::{Call, Decline, OpDecl, RuleResult};
use permalloy_ir::{Arg, DType, Dim, PrimOp};

pub const DECLS: &[OpDecl] = &[
    op!(Pointwise "aten.zeros.default", "zeros" => zeros, "every element 0"),
    op!(Pointwise "aten.new_zeros.default", "new_zeros" => zeros, "every element 0, dtype of another tensor"),
    op!(Pointwise "aten.ones.default", "ones" => ones, "every element 1"),
    op!(Pointwise "aten.new_ones.default", "new_ones" => ones, "every element 1, dtype of another tensor"),
    op!(Pointwise "aten.full.default", "full" => full_of, "every element fill_value"),
    op!(Pointwise "aten.new_full.default", "new_full" => new_full, "every element fill_value, dtype of another tensor"),
    op!(Pointwise "aten.scalar_tensor.default", "scalar_tensor" => scalar_tensor, "a number as a 0-d tensor"),
    op!(Pointwise "aten.arange.default", "arange" => arange, "0, 1, … below end"),
    op!(Pointwise "aten.arange.start", "arange.start" => arange_start, "start, start + 1, … below end"),
    op!(Pointwise "aten.arange.start_step", "arange.start_step" => arange_start, "start + i·step, short of end"),
    op!(Pointwise "aten.eye.default", "eye" => eye, "1 where i = j, else 0"),
    op!(Pointwise "aten.eye.m", "eye.m" => eye, "1 where i = j, else 0"),
    op!(Pointwise "aten.linspace.default", "linspace" => linspace, "steps points from start to end, both included"),
    op!(Opaque "aten.logspace.default", "base to the power of linspace"),
    op!(Opaque "aten.tril_indices.default", "row and column of each element of the lower triangle"),
    op!(Opaque "aten.triu_indices.default", "row and column of each element of the upper triangle"),
    op!(Opaque "aten.empty.memory_format", "memory with no promised content"),
    op!(Opaque "aten.empty_strided.default", "memory with no promised content"),
    op!(Opaque "aten.empty_permuted.default", "memory with no promised content"),
    op!(Opaque "aten.new_empty.default", "memory with no promised content"),
    op!(Opaque "aten.new_empty_strided.default", "memory with no promised content"),
    op!(Opaque "aten._efficientzerotensor.default", "zeros that take no memory"),
];

fn constant(c: &mut Call<'_, '_>, value: &Arg) -> RuleResult {
    let (shape, dtype) = (result_shape(c, 0)?, result_dtype(c, 0)?);
    let y = full(c, value, &shape, dtype)?;
    Ok(vec![Some(y)])
}

fn zeros(c: &mut Call<'_, '_>) -> RuleResult {
    constant(c, &Arg::Int(Dim::ZERO))
}

fn ones(c: &mut Call<'_, '_>) -> RuleResult {
    constant(c, &Arg::Int(Dim::ONE))
}

fn full_of(c: &mut Call<'_, '_>) -> RuleResult {
    let value = c.arg(1, "fill_value").cloned().ok_or("fill_value is absent")?;
    constant(c, &value)
}

fn new_full(c: &mut Call<'_, '_>) -> RuleResult {
    let value = c.arg(2, "fill_value").cloned().ok_or("fill_value is absent")?;
    constant(c, &value)
}

fn scalar_tensor(c: &mut Call<'_, '_>) -> RuleResult {
    let value = c.arg(0, "s").cloned().ok_or("s is absent")?;
    constant(c, &value)
}

fn arange(c: &mut Call<'_, '_>) -> RuleResult {
    range(c, &Arg::Int(Dim::ZERO), &Arg::Int(Dim::ONE))
}

fn arange_start(c: &mut Call<'_, '_>) -> RuleResult {
    let start = c.arg(0, "start").cloned().ok_or("start is absent")?;
    let step = c.arg(2, "step").cloned().unwrap_or(Arg::Int(Dim::ONE));
    range(c, &start, &step)
}

/// `start + step·i`: in i64 for integer results, in f64 rounded once for floating-point ones.
fn range(c: &mut Call<'_, '_>, start: &Arg, step: &Arg) -> RuleResult {
    let dtype = result_dtype(c, 0)?;
    let [n] = result_shape(c, 0)?.try_into().map_err(|_| Decline("the result is no vector".into()))?;
    let wide = if dtype.is_float() { DType::F64 } else { DType::I64 };
    if wide == DType::I64 && [start, step].iter().any(|a| a.as_dim().is_none()) {
        return Err("fractional bounds of an integer range".into());
    }
    let i = c.b.iota(n);
    // Steps of one from an integer that f32 holds exactly need no f64.
    let exact = |a: &Arg| a.as_dim().is_some();
    let mut y = if exact(start) && exact(step) { i } else { c.b.cast(i, wide) };
    let within = c.b.dtype(y);
    if step.as_f64() != Some(1.0) {
        let k = full(c, step, &[], within)?;
        y = binary(c, PrimOp::Mul, y, k)?;
    }
    if start.as_f64() != Some(0.0) {
        let k = full(c, start, &[], within)?;
        y = binary(c, PrimOp::Add, y, k)?;
    }
    one(c, y)
}

fn eye(c: &mut Call<'_, '_>) -> RuleResult {
    let shape = result_shape(c, 0)?;
    if shape.len() != 2 {
        return Err("the result is no matrix".into());
    }
    let (i, j) = (iota_along(c, &shape, 0), iota_along(c, &shape, 1));
    let y = binary(c, PrimOp::Eq, i, j)?;
    one(c, y)
}

/// `start + i·d` in the lower half, `end − (n−1−i)·d` in the upper one, d = (end − start)/(n−1), so that both ends are exact.
fn linspace(c: &mut Call<'_, '_>) -> RuleResult {
    let dtype = result_dtype(c, 0)?;
    let (start, end) = (c.f64(0, "start", 0.0)?, c.f64(1, "end", 0.0)?);
    let [n] = result_shape(c, 0)?.try_into().map_err(|_| Decline("the result is no vector".into()))?;
    let Some(steps) = n.as_const() else { return Err("a symbolic number of steps".into()) };
    if !dtype.is_float() {
        return Err("an integer result, rounded as the kernel rounds".into());
    }
    if steps <= 1 {
        return constant(c, &Arg::Float(start));
    }
    let d = (end - start) / (steps - 1) as f64;
    let i = c.b.iota(n.clone());
    let half = full(c, &Arg::Int(Dim::from(steps / 2)), &[], DType::I64)?;
    let low = binary(c, PrimOp::Lt, i, half)?;
    let x = c.b.cast(i, DType::F64);
    let up = c.b.mul_scalar(x, d);
    let up = c.b.add_scalar(up, start);
    let from_end = c.b.add_scalar(x, -((steps - 1) as f64));
    let down = c.b.mul_scalar(from_end, d);
    let down = c.b.add_scalar(down, end);
    let y = select(c, low, up, down)?;
    one(c, y)
}
