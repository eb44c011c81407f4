//! The softmax family and its gradients. 16-bit floats are computed in f32.

use super::expr::{ArgName, Expr, Formula, op, operand};
use crate::decl::{Call, Decline, OpDecl, RuleResult};
use permalloy_ir::{Dim, PrimOp};

pub const DECLS: &[OpDecl] = &[
    op!("_softmax" "default", Reduction, |c| forward(c, softmax), "e^(x − max)/Σe^(x − max) along dim"),
    op!("softmax" "int", Reduction, |c| forward(c, softmax), "e^(x − max)/Σe^(x − max) along dim"),
    op!("special_softmax" "default", Reduction, |c| forward(c, softmax), "e^(x − max)/Σe^(x − max) along dim"),
    op!("_safe_softmax" "default", Reduction, |c| forward(c, safe_softmax), "softmax; 0 in a slice that is −∞ throughout"),
    op!("_log_softmax" "default", Reduction, |c| forward(c, log_softmax), "x − max − ln Σe^(x − max) along dim"),
    op!("log_softmax" "int", Reduction, |c| forward(c, log_softmax), "x − max − ln Σe^(x − max) along dim"),
    op!("special_log_softmax" "default", Reduction, |c| forward(c, log_softmax), "x − max − ln Σe^(x − max) along dim"),
    op!("_softmax_backward_data" "default", Reduction, softmax_backward, "y·(g − Σ g·y)"),
    op!("_log_softmax_backward_data" "default", Reduction, log_softmax_backward, "g − e^y·Σg"),
    op!("logsumexp" "default", Reduction, logsumexp, "ln Σe^x over dims"),
    op!("special_logsumexp" "default", Reduction, logsumexp, "ln Σe^x over dims"),
];

/// The operands in a dtype to compute in, with a rank of at least one, and the dim that the operator works along.
fn slices<const N: usize>(
    c: &mut Call<'_, '_>,
    args: [ArgName; N],
    dim: ArgName,
) -> Result<([permalloy_ir::ValueId; N], usize), Decline> {
    let out = c.result(0)?.clone();
    let dim = Call::wrap(c.i64(dim.0, dim.1, -1)?, out.rank())?;
    let mut ids = [permalloy_ir::ValueId(0); N];
    for (id, arg) in ids.iter_mut().zip(args) {
        // half_to_float: the result may be wider than the operand.
        *id = operand(c, arg, out.dtype.compute(), &out.shape)?;
        if out.rank() == 0 {
            *id = c.b.reshape(*id, &[Dim::ONE]);
        }
    }
    Ok((ids, dim))
}

fn forward(c: &mut Call<'_, '_>, formula: impl for<'f, 'g> FnOnce(Expr<'f, 'g>, usize) -> Expr<'f, 'g>) -> RuleResult {
    let out = c.result(0)?.clone();
    let ([x], dim) = slices(c, [(0, "self")], (1, "dim"))?;
    let f = Formula::new(c.b);
    let y = formula(f.of(x), dim);
    Ok(vec![Some(y.reshape(&out.shape).cast(out.dtype).id())])
}

/// A slice that is −∞ throughout gives NaN: −∞ − −∞.
fn softmax<'f, 'g>(x: Expr<'f, 'g>, dim: usize) -> Expr<'f, 'g> {
    let e = (x - x.reduce(PrimOp::Amax, &[dim], true)).exp();
    e / e.sum(&[dim], true)
}

fn safe_softmax<'f, 'g>(x: Expr<'f, 'g>, dim: usize) -> Expr<'f, 'g> {
    let max = x.reduce(PrimOp::Amax, &[dim], true);
    let e = (x - max).exp();
    let y = e / e.sum(&[dim], true);
    max.eq(f64::NEG_INFINITY).select(y.constant(0.0), y)
}

fn log_softmax<'f, 'g>(x: Expr<'f, 'g>, dim: usize) -> Expr<'f, 'g> {
    let shifted = x - x.reduce(PrimOp::Amax, &[dim], true);
    shifted - shifted.exp().sum(&[dim], true).log()
}

/// dx = y·(g − Σ g·y)
fn softmax_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let out = c.result(0)?.clone();
    let ([g, y], dim) = slices(c, [(0, "grad_output"), (1, "output")], (2, "dim"))?;
    let f = Formula::new(c.b);
    let (g, y) = (f.of(g), f.of(y));
    let dx = (g - (g * y).sum(&[dim], true)) * y;
    Ok(vec![Some(dx.reshape(&out.shape).cast(out.dtype).id())])
}

/// dx = g − e^y·Σg
fn log_softmax_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let out = c.result(0)?.clone();
    let ([g, y], dim) = slices(c, [(0, "grad_output"), (1, "output")], (2, "dim"))?;
    let f = Formula::new(c.b);
    let (g, y) = (f.of(g), f.of(y));
    let dx = g - y.exp() * g.sum(&[dim], true);
    Ok(vec![Some(dx.reshape(&out.shape).cast(out.dtype).id())])
}

/// y = max + ln Σe^(x − max), where an infinite max counts as 0
fn logsumexp(c: &mut Call<'_, '_>) -> RuleResult {
    let out = c.result(0)?.clone();
    let x = c.tensor(0, "self")?;
    let shape = c.b.shape(x);
    let rank = shape.len();
    let dims = c.ints(1, "dim")?.unwrap_or_default();
    let mut dims = dims.into_iter().map(|d| Call::wrap(d, rank)).collect::<Result<Vec<_>, _>>()?;
    if dims.is_empty() {
        dims = (0..rank).collect();
    }
    let x = operand(c, (0, "self"), out.dtype.compute(), &shape)?;
    let f = Formula::new(c.b);
    // A 0-d tensor has the one dim of its one element.
    let x = if rank == 0 { f.of(x).reshape(&[Dim::ONE]) } else { f.of(x) };
    let max = x.reduce(PrimOp::Amax, &dims, true);
    let max = max.is_inf().select(max.constant(0.0), max);
    let y = (x - max).exp().sum(&dims, true).log() + max;
    Ok(vec![Some(y.reshape(&out.shape).cast(out.dtype).id())])
}
