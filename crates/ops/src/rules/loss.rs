//! Losses and their gradients. 16-bit floats are computed and accumulated in f32.

use super::expr::{ArgName, Expr, Formula, broadcast, op, operand};
use crate::decl::{Call, Decline, OpDecl, RuleResult};
use permalloy_ir::{DType, Dim, TensorType, ValueId};

pub const DECLS: &[OpDecl] = &[
    op!("nll_loss_forward" "default", Indexing, nll_forward, "−w[t]·x[t], reduced; and Σ w[t]"),
    op!("nll_loss2d_forward" "default", Indexing, nll_forward, "−w[t]·x[t], reduced; and Σ w[t]"),
    op!("nll_loss_backward" "default", Pointwise, nll_backward, "−w·g where the class is the target"),
    op!("nll_loss2d_backward" "default", Pointwise, nll_backward, "−w·g where the class is the target"),
    op!("mse_loss" "default", Reduction, |c| loss(c, 2, |[x, t]| (x - t) * (x - t)), "(x − t)²"),
    op!("mse_loss_backward" "default", mse_backward, "2g(x − t)/n"),
    op!("l1_loss" "default", Reduction, |c| loss(c, 2, |[x, t]| (x - t).abs()), "|x − t|"),
    op!("smooth_l1_loss" "default", Reduction, smooth_l1, "(x − t)²/2beta, or |x − t| − beta/2 from beta on"),
    op!("smooth_l1_loss_backward" "default", smooth_l1_backward, "g·clamp((x − t)/beta, −1, 1)/n"),
    op!("huber_loss" "default", Reduction, huber, "(x − t)²/2, or delta·(|x − t| − delta/2) beyond delta"),
    op!("huber_loss_backward" "default", huber_backward, "g·clamp(x − t, −delta, delta)/n"),
    op!("soft_margin_loss" "default", Reduction, soft_margin, "ln(1 + e^(−t·x))"),
    op!("soft_margin_loss_backward" "default", soft_margin_backward, "−g·t·σ(−t·x)/n"),
    op!("kl_div" "default", Reduction, kl_div, "t·(ln t − x), or e^t·(t − x) of a log target"),
    op!("binary_cross_entropy" "default", Reduction, bce, "−w·(t·ln x + (1 − t)·ln(1 − x)), logarithms ≥ −100"),
    op!("binary_cross_entropy_backward" "default", bce_backward, "w·g·(x − t)/max(x(1 − x), 1e-12)/n"),
    op!("binary_cross_entropy_with_logits" "default", Reduction, bce_with_logits, "(1 − t)·x + (1 + (p − 1)·t)·ln(1 + e⁻ˣ), times w"),
];

/// What becomes of the loss of each element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reduction {
    None,
    Mean,
    Sum,
}

fn reduction(c: &Call<'_, '_>, position: usize) -> Result<Reduction, Decline> {
    match c.i64(position, "reduction", 1)? {
        0 => Ok(Reduction::None),
        1 => Ok(Reduction::Mean),
        2 => Ok(Reduction::Sum),
        other => Err(format!("reduction {other}").into()),
    }
}

impl Reduction {
    fn apply<'f, 'g>(self, x: Expr<'f, 'g>) -> Expr<'f, 'g> {
        let shape = x.shape();
        let dims: Vec<usize> = (0..shape.len()).collect();
        match self {
            Reduction::None => x,
            Reduction::Mean => x.sum(&dims, false) / &Dim::product(&shape),
            Reduction::Sum => x.sum(&dims, false),
        }
    }

    /// The gradient of the mean of `x`-many elements is the n-th part of each.
    fn share<'f, 'g>(self, x: Expr<'f, 'g>) -> Expr<'f, 'g> {
        if self == Reduction::Mean { x / &Dim::product(&x.shape()) } else { x }
    }
}

/// Shape of two tensors broadcast to each other.
fn joint_shape(c: &Call<'_, '_>, a: ValueId, b: ValueId) -> Result<Vec<Dim>, Decline> {
    let (a, b) = (c.b.shape(a), c.b.shape(b));
    let rank = a.len().max(b.len());
    let at = |s: &[Dim], i: usize| (i + s.len()).checked_sub(rank).map_or(Dim::ONE, |k| s[k].clone());
    (0..rank)
        .map(|i| match (at(&a, i), at(&b, i)) {
            (x, y) if x == y || y.is_const(1) => Ok(x),
            (x, y) if x.is_const(1) => Ok(y),
            (x, y) => Err(format!("sizes {x} and {y} are not known to broadcast").into()),
        })
        .collect()
}

/// A loss of (input, target), element by element, then reduced as the argument at `position` says.
fn loss(
    c: &mut Call<'_, '_>,
    position: usize,
    formula: impl for<'f, 'g> FnOnce([Expr<'f, 'g>; 2]) -> Expr<'f, 'g>,
) -> RuleResult {
    let reduction = reduction(c, position)?;
    let out = c.result(0)?.clone();
    let shape = joint_shape(c, c.tensor(0, "self")?, c.tensor(1, "target")?)?;
    let dtype = out.dtype.compute();
    let (x, t) = (operand(c, (0, "self"), dtype, &shape)?, operand(c, (1, "target"), dtype, &shape)?);
    let f = Formula::new(c.b);
    let y = reduction.apply(formula([f.of(x), f.of(t)]));
    Ok(vec![Some(y.cast(out.dtype).id())])
}

/// The gradient of such a loss from (grad_output, input, target); `formula` leaves the share of a mean to the caller.
fn loss_backward(
    c: &mut Call<'_, '_>,
    formula: impl for<'f, 'g> FnOnce([Expr<'f, 'g>; 3]) -> Expr<'f, 'g>,
) -> RuleResult {
    let reduction = reduction(c, 3)?;
    let out = c.result(0)?.clone();
    let [g, x, t] = [(0, "grad_output"), (1, "self"), (2, "target")];
    let dtype = out.dtype.compute();
    let x = operand(c, x, dtype, &out.shape)?;
    let t = operand(c, t, dtype, &out.shape)?;
    let g = operand(c, g, dtype, &out.shape)?;
    let f = Formula::new(c.b);
    let dx = reduction.share(formula([f.of(g), f.of(x), f.of(t)]));
    Ok(vec![Some(dx.cast(out.dtype).id())])
}

/// dx = 2g(x − t)/n
fn mse_backward(c: &mut Call<'_, '_>) -> RuleResult {
    loss_backward(c, |[g, x, t]| g * ((x - t) * 2.0))
}

fn smooth_l1(c: &mut Call<'_, '_>) -> RuleResult {
    let beta = c.f64(3, "beta", 1.0)?;
    loss(c, 2, |[x, t]| {
        let z = (x - t).abs();
        if beta == 0.0 { z } else { z.lt(beta).select(z * z * 0.5 / beta, z - 0.5 * beta) }
    })
}

/// dx = −g/n for x − t ≤ −beta, g/n for x − t ≥ beta, g(x − t)/beta/n between
fn smooth_l1_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let beta = c.f64(4, "beta", 1.0)?;
    loss_backward(c, |[g, x, t]| {
        let d = x - t;
        if beta == 0.0 {
            return d.le(0.0).select(-g, g);
        }
        let inside = d.ge(beta).select(g, g * d / beta);
        d.le(-beta).select(-g, inside)
    })
}

fn huber(c: &mut Call<'_, '_>) -> RuleResult {
    let delta = c.f64(3, "delta", 1.0)?;
    loss(c, 2, |[x, t]| {
        let z = (x - t).abs();
        z.lt(delta).select(z * z * 0.5, (z - 0.5 * delta) * delta)
    })
}

/// dx = −g·delta/n for x − t ≤ −delta, g·delta/n for x − t ≥ delta, g(x − t)/n between
fn huber_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let delta = c.f64(4, "delta", 1.0)?;
    loss_backward(c, |[g, x, t]| {
        let d = x - t;
        let inside = d.ge(delta).select(g * delta, g * d);
        d.le(-delta).select(g * -delta, inside)
    })
}

fn soft_margin(c: &mut Call<'_, '_>) -> RuleResult {
    loss(c, 2, |[x, t]| (-t * x).exp().log1p())
}

/// dx = −g·t·σ(−t·x)/n
fn soft_margin_backward(c: &mut Call<'_, '_>) -> RuleResult {
    loss_backward(c, |[g, x, t]| g * (-t * (-t * x).sigmoid()))
}

fn kl_div(c: &mut Call<'_, '_>) -> RuleResult {
    let log_target = c.bool(3, "log_target", false)?;
    loss(c, 2, |[x, t]| {
        if log_target {
            return t.exp() * (t - x);
        }
        // t·ln t is 0 at 0.
        let entropy = t.eq(0.0).select(t.constant(0.0), t * t.log());
        entropy - t * x
    })
}

/// Multiplies by the weight argument, if it is there.
fn weighted<'f, 'g>(f: &'f Formula<'g>, y: Expr<'f, 'g>, weight: Option<ValueId>) -> Expr<'f, 'g> {
    weight.map_or(y, |w| y * f.of(w))
}

fn opt_operand(c: &mut Call<'_, '_>, arg: ArgName, dtype: DType, shape: &[Dim]) -> Result<Option<ValueId>, Decline> {
    if c.arg(arg.0, arg.1).is_none() { Ok(None) } else { operand(c, arg, dtype, shape).map(Some) }
}

/// y = −w·(t·max(ln x, −100) + (1 − t)·max(ln(1 − x), −100))
fn bce(c: &mut Call<'_, '_>) -> RuleResult {
    let reduction = reduction(c, 3)?;
    let out = c.result(0)?.clone();
    let (shape, dtype) = (c.b.shape(c.tensor(0, "self")?), out.dtype.compute());
    let x = operand(c, (0, "self"), dtype, &shape)?;
    let t = operand(c, (1, "target"), dtype, &shape)?;
    let w = opt_operand(c, (2, "weight"), dtype, &shape)?;
    let f = Formula::new(c.b);
    let (x, t) = (f.of(x), f.of(t));
    let y = (t - 1.0) * (-x).log1p().max(-100.0) - t * x.log().max(-100.0);
    Ok(vec![Some(reduction.apply(weighted(&f, y, w)).cast(out.dtype).id())])
}

/// dx = w·g·(x − t)/max(x(1 − x), 1e-12)/n
fn bce_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let reduction = reduction(c, 4)?;
    let out = c.result(0)?.clone();
    let dtype = out.dtype.compute();
    let g = operand(c, (0, "grad_output"), dtype, &out.shape)?;
    let x = operand(c, (1, "self"), dtype, &out.shape)?;
    let t = operand(c, (2, "target"), dtype, &out.shape)?;
    let w = opt_operand(c, (3, "weight"), dtype, &out.shape)?;
    let f = Formula::new(c.b);
    let (g, x, t) = (f.of(g), f.of(x), f.of(t));
    let dx = g * (x - t) / ((1.0 - x) * x).max(1e-12);
    Ok(vec![Some(reduction.share(weighted(&f, dx, w)).cast(out.dtype).id())])
}

/// y = w·((1 − t)·x + (1 + (p − 1)·t)·(ln(1 + e^−|x|) + max(−x, 0)))
fn bce_with_logits(c: &mut Call<'_, '_>) -> RuleResult {
    let reduction = reduction(c, 4)?;
    let out = c.result(0)?.clone();
    let dtype = out.dtype.compute();
    let mut shape = joint_shape(c, c.tensor(0, "self")?, c.tensor(1, "target")?)?;
    if reduction == Reduction::None {
        shape.clone_from(&out.shape);
    }
    let x = operand(c, (0, "self"), dtype, &shape)?;
    let t = operand(c, (1, "target"), dtype, &shape)?;
    let w = opt_operand(c, (2, "weight"), dtype, &shape)?;
    let p = opt_operand(c, (3, "pos_weight"), dtype, &shape)?;
    let f = Formula::new(c.b);
    let (x, t) = (f.of(x), f.of(t));
    let softplus = (-x.abs()).exp().log1p() + (-x).max(0.0);
    let positive = p.map_or(softplus, |p| ((f.of(p) - 1.0) * t + 1.0) * softplus);
    let y = (1.0 - t) * x + positive;
    Ok(vec![Some(reduction.apply(weighted(&f, y, w)).cast(out.dtype).id())])
}

/// The arguments that the nll losses share.
struct Nll {
    /// Log-probabilities and the type they are promised in.
    shape: Vec<Dim>,
    class: usize,
    /// Shape of the target: that of the input without its class dim.
    rows: Vec<Dim>,
    target: ValueId,
    weight: Option<ValueId>,
    ignored: i64,
    reduction: Reduction,
}

impl Nll {
    /// `at` is the position of the input among the arguments.
    fn read(c: &mut Call<'_, '_>, at: usize) -> Result<Nll, Decline> {
        let x = c.tensor(at, "self")?;
        let shape = c.b.shape(x);
        if shape.is_empty() {
            return Err("log-probabilities of rank 0".into());
        }
        let class = usize::from(shape.len() > 1);
        let mut rows = shape.clone();
        rows.remove(class);
        let target = c.tensor(at + 1, "target")?;
        if !c.b.dtype(target).is_int() {
            return Err(format!("target of dtype {}", c.b.dtype(target)).into());
        }
        let target = c.b.cast(target, DType::I64);
        // A batch of one may have a 0-d input and a target of shape [1].
        let target = c.b.reshape(target, &rows);
        let weight = c.opt_tensor(at + 2, "weight");
        let reduction = reduction(c, at + 3)?;
        let ignored = c.i64(at + 4, "ignore_index", -100)?;
        Ok(Nll { shape, class, rows, target, weight, ignored, reduction })
    }

    /// An index constant beside an i64 value: exact, unlike a float.
    fn ignored<'f, 'g>(&self, target: Expr<'f, 'g>) -> Expr<'f, 'g> {
        target.eq(&Dim::from(self.ignored))
    }
}

/// y[n] = −w[t[n]]·x[n, t[n]], 0 where t[n] is the ignored index; mean: Σy/Σw[t[n]]; and that Σw[t[n]] unless unreduced
fn nll_forward(c: &mut Call<'_, '_>) -> RuleResult {
    let out = c.result(0)?.clone();
    let total_ty: Option<TensorType> = c.results.get(1).cloned().flatten();
    let nll = Nll::read(c, 0)?;
    let dtype = out.dtype.compute();
    let x = operand(c, (0, "self"), dtype, &nll.shape)?;
    let weight = nll.weight.map(|w| c.b.cast(w, dtype));
    let f = Formula::new(c.b);
    let (x, target) = (f.of(x), f.of(nll.target));
    let ignored = nll.ignored(target);
    // An ignored index is never an address.
    let safe = ignored.select(target.constant(0.0), target);
    let mut column = nll.rows.clone();
    column.insert(nll.class, Dim::ONE);
    let picked = x.gather(safe.reshape(&column), nll.class).reshape(&nll.rows);
    let weights = weight.map_or(picked.constant(1.0), |w| f.of(w).take(safe, 0));
    let weights = ignored.select(weights.constant(0.0), weights);
    let loss = ignored.select(picked.constant(0.0), -picked * weights);
    let all: Vec<usize> = (0..nll.rows.len()).collect();
    let zero = || f.full(0.0, &[], dtype);
    let (loss, total) = match nll.reduction {
        Reduction::None if !all.is_empty() => (loss, zero()),
        // A single row is its own sum.
        Reduction::None | Reduction::Sum => (loss.sum(&all, false), weights.sum(&all, false)),
        Reduction::Mean => {
            let total = weights.sum(&all, false);
            (loss.sum(&all, false) / total, total)
        }
    };
    let loss = loss.reshape(&out.shape).cast(out.dtype).id();
    Ok(vec![Some(loss), total_ty.map(|ty| total.cast(ty.dtype).reshape(&ty.shape).id())])
}

/// dx[n, k] = −w[k]·g[n] where k = t[n] and t[n] is not the ignored index, else 0; mean: g/Σw
fn nll_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let out = c.result(0)?.clone();
    let nll = Nll::read(c, 1)?;
    let dtype = out.dtype.compute();
    let mut column = nll.rows.clone();
    column.insert(nll.class, Dim::ONE);
    let mut class_line = vec![Dim::ONE; nll.shape.len()];
    class_line[nll.class] = nll.shape[nll.class].clone();
    let g = c.tensor(0, "grad_output")?;
    let g = c.b.cast(g, dtype);
    let total = c.tensor(6, "total_weight")?;
    let total = c.b.cast(total, dtype);
    let weight = nll.weight.map(|w| c.b.cast(w, dtype));
    // One gradient a row, or one for all.
    let g = if nll.reduction == Reduction::None && !nll.rows.is_empty() {
        c.b.reshape(g, &column)
    } else {
        c.b.reshape(g, &[])
    };
    let g = {
        let f = Formula::new(c.b);
        let g = f.of(g);
        let g = if nll.reduction == Reduction::Mean { g / f.of(total).reshape(&[]) } else { g };
        (-g).id()
    };
    let g = broadcast(c, g, &nll.shape)?;
    let f = Formula::new(c.b);
    let target = f.of(nll.target);
    let ignored = nll.ignored(target);
    let hot = f.iota(&nll.shape, nll.class, DType::I64).eq(target.reshape(&column).expand(&nll.shape));
    let hot = hot.and(ignored.not().reshape(&column).expand(&nll.shape));
    let g = f.of(g);
    let g = weight.map_or(g, |w| g * f.of(w).reshape(&class_line).expand(&nll.shape));
    Ok(vec![Some(hot.select(g, 0.0).cast(out.dtype).id())])
}
