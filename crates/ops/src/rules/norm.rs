//! Normalisations and their gradients.
//!
//! All of them are `y = x̂·w + b` with `x̂ = (x − mean)·rstd`; they differ in the dims that the statistics fold and in the
//! dims that share a weight. The variance is taken in a second pass, from the differences to the mean. A gradient uses one
//! x̂ for dx, dw and db, so that one pass over x and dy can serve all three.

use super::expr::{Expr, Formula, op, operand};
use crate::decl::{Call, Decline, Effect, OpDecl, RuleResult};
use permalloy_ir::{Arg, DType, Dim, TensorType, ValueId};

pub const DECLS: &[OpDecl] = &[
    op!("native_layer_norm" "default", Reduction, layer_norm, "x̂·w + b, statistics over the last dims; mean; rstd"),
    op!("native_layer_norm_backward" "default", Reduction, layer_norm_backward, "dx, dw = Σ g·x̂, db = Σ g"),
    op!("native_group_norm" "default", Reduction, group_norm, "x̂·w + b, statistics over groups of channels; mean; rstd"),
    op!("native_group_norm_backward" "default", Reduction, group_norm_backward, "dx, dw = Σ g·x̂, db = Σ g"),
    op!("native_batch_norm" "default", Reduction, batch_norm, "x̂·w + b, statistics over all dims but the channels").effect(Effect::Mutates),
    op!("_native_batch_norm_legit" "default", Reduction, batch_norm, "x̂·w + b, statistics over all dims but the channels")
        .effect(Effect::Mutates),
    op!("_native_batch_norm_legit" "no_stats", Reduction, batch_norm_no_stats, "x̂·w + b, statistics of the batch"),
    op!("_native_batch_norm_legit_functional" "default", Reduction, batch_norm_functional, "x̂·w + b, and new running statistics"),
    op!("_native_batch_norm_legit_no_training" "default", Reduction, batch_norm_inference, "x̂·w + b, running statistics"),
    op!("native_batch_norm_backward" "default", Reduction, batch_norm_backward, "dx, dw = Σ g·x̂, db = Σ g"),
    op!("_fused_rms_norm" "default", Reduction, rms_norm, "x·rstd·w, rstd = 1/√(mean x² + eps)"),
    op!("rms_norm" "default", Reduction, rms_norm, "x·rstd·w, rstd = 1/√(mean x² + eps)"),
    op!("_fused_rms_norm_backward" "default", Reduction, rms_norm_backward, "dx, dw = Σ g·x·rstd"),
    op!("_weight_norm_interface" "default", Reduction, weight_norm, "v·g/‖v‖, and ‖v‖"),
    op!("_weight_norm_interface_backward" "default", Reduction, weight_norm_backward, "dv, dg"),
];

/// Type promised for a result; None where the operator returns nothing (an output mask bit that is off).
fn wanted(results: &[Option<TensorType>], at: usize) -> Option<&TensorType> {
    results.get(at).and_then(Option::as_ref)
}

/// The result at a position, made only if it is wanted, in its promised shape and dtype.
fn promised<'f, 'g: 'f>(
    results: &[Option<TensorType>],
    at: usize,
    value: impl FnOnce() -> Expr<'f, 'g>,
) -> Option<ValueId> {
    wanted(results, at).map(|ty| value().reshape(&ty.shape).cast(ty.dtype).id())
}

/// mean and rstd = 1/√(var + eps) over `dims`, which stay with size 1.
fn statistics<'f, 'g>(x: Expr<'f, 'g>, dims: &[usize], eps: f64) -> (Expr<'f, 'g>, Expr<'f, 'g>) {
    let mean = x.mean(dims);
    let d = x - mean;
    let var = (d * d).mean(dims);
    (mean, (var + eps).rsqrt())
}

/// dx = rstd·(g·w − mean(g·w) − x̂·mean(g·w·x̂)), means over the dims of the statistics
fn input_gradient<'f, 'g>(gw: Expr<'f, 'g>, x_hat: Expr<'f, 'g>, rstd: Expr<'f, 'g>, dims: &[usize]) -> Expr<'f, 'g> {
    rstd * (gw - gw.mean(dims) - x_hat * (gw * x_hat).mean(dims))
}

/// Optional per-channel factor and offset.
fn affine<'f, 'g>(y: Expr<'f, 'g>, w: Option<Expr<'f, 'g>>, b: Option<Expr<'f, 'g>>) -> Expr<'f, 'g> {
    let y = w.map_or(y, |w| y * w);
    b.map_or(y, |b| y + b)
}

/// An optional tensor argument in `dtype`, reshaped to broadcast.
fn parameter(
    c: &mut Call<'_, '_>,
    position: usize,
    name: &str,
    dtype: DType,
    shape: &[Dim],
) -> Result<Option<ValueId>, Decline> {
    let Some(v) = c.opt_tensor(position, name) else { return Ok(None) };
    if !c.b.dtype(v).is_computed() {
        return Err(format!("{name} is {}", c.b.dtype(v)).into());
    }
    let v = c.b.cast(v, dtype);
    Ok(Some(c.b.reshape(v, shape)))
}

/// A tensor argument that must be there, in `dtype`, reshaped to broadcast.
fn required(
    c: &mut Call<'_, '_>,
    position: usize,
    name: &str,
    dtype: DType,
    shape: &[Dim],
) -> Result<ValueId, Decline> {
    parameter(c, position, name, dtype, shape)?.ok_or_else(|| format!("argument {name} is absent").into())
}

/// The input in a dtype to compute in.
fn input(c: &mut Call<'_, '_>, position: usize) -> Result<(ValueId, DType, Vec<Dim>), Decline> {
    let x = c.tensor(position, "input")?;
    let (dtype, shape) = (c.b.dtype(x).compute(), c.b.shape(x));
    if !dtype.is_float() {
        return Err(format!("normalisation of {dtype}").into());
    }
    Ok((c.b.cast(x, dtype), dtype, shape))
}

/// First of the dims that `normalized_shape` covers.
fn normalized_from(c: &Call<'_, '_>, position: usize, rank: usize) -> Result<usize, Decline> {
    let normalized = c.dims(position, "normalized_shape")?.ok_or("normalized_shape is absent")?;
    rank.checked_sub(normalized.len()).ok_or_else(|| "normalized_shape outranks the input".into())
}

/// Sizes of `dims`, 1 elsewhere.
fn line(shape: &[Dim], keep: impl Fn(usize) -> bool) -> Vec<Dim> {
    (0..shape.len()).map(|i| if keep(i) { shape[i].clone() } else { Dim::ONE }).collect()
}

/// y = x̂·w + b
fn layer_norm(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, dtype, shape) = input(c, 0)?;
    let first = normalized_from(c, 1, shape.len())?;
    let eps = c.f64(4, "eps", 1e-5)?;
    let columns = line(&shape, |i| i >= first);
    let w = parameter(c, 2, "weight", dtype, &columns)?;
    let b = parameter(c, 3, "bias", dtype, &columns)?;
    let results = c.results;
    let f = Formula::new(c.b);
    let dims: Vec<usize> = (first..shape.len()).collect();
    let x = f.of(x);
    let (mean, rstd) = statistics(x, &dims, eps);
    let y = affine((x - mean) * rstd, w.map(|w| f.of(w)), b.map(|b| f.of(b)));
    Ok(vec![promised(results, 0, || y), promised(results, 1, || mean), promised(results, 2, || rstd)])
}

/// dx = rstd·(g·w − mean(g·w) − x̂·mean(g·w·x̂)) over rows; dw = Σ g·x̂ and db = Σ g over columns
fn layer_norm_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, dtype, shape) = input(c, 1)?;
    let g = operand(c, (0, "grad_out"), dtype, &shape)?;
    let first = normalized_from(c, 2, shape.len())?;
    let rows = line(&shape, |i| i < first);
    let columns = line(&shape, |i| i >= first);
    let mean = required(c, 3, "mean", dtype, &rows)?;
    let rstd = required(c, 4, "rstd", dtype, &rows)?;
    let w = parameter(c, 5, "weight", dtype, &columns)?;
    let results = c.results;
    let f = Formula::new(c.b);
    let (inner, outer): (Vec<usize>, Vec<usize>) = ((first..shape.len()).collect(), (0..first).collect());
    let (x, g, rstd) = (f.of(x), f.of(g), f.of(rstd));
    let x_hat = (x - f.of(mean)) * rstd;
    Ok(vec![
        promised(results, 0, || {
            let gw = affine(g, w.map(|w| f.of(w)), None);
            input_gradient(gw, x_hat, rstd, &inner)
        }),
        promised(results, 1, || (g * x_hat).sum(&outer, false)),
        promised(results, 2, || g.sum(&outer, false)),
    ])
}

/// `[N, C, …]` seen as `[N, groups, C/groups, HxW]`.
struct Groups {
    split: Vec<Dim>,
    /// One a channel: `[1, groups, C/groups, 1]`.
    channels: Vec<Dim>,
    /// One a group: `[N, groups, 1, 1]`.
    groups: Vec<Dim>,
}

impl Groups {
    /// N, C, HxW and group stand from `at` on.
    fn read(c: &Call<'_, '_>, at: usize) -> Result<Groups, Decline> {
        let (n, channels, area) = (c.dim(at, "N")?, c.dim(at + 1, "C")?, c.dim(at + 2, "HxW")?);
        let group = c.dim(at + 3, "group")?;
        let each = channels.floor_div(&group);
        let split = vec![n, group, each, area];
        Ok(Groups { channels: line(&split, |i| i == 1 || i == 2), groups: line(&split, |i| i < 2), split })
    }
}

fn group_norm(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, dtype, _) = input(c, 0)?;
    let groups = Groups::read(c, 3)?;
    let eps = c.f64(7, "eps", 1e-5)?;
    let w = parameter(c, 1, "weight", dtype, &groups.channels)?;
    let b = parameter(c, 2, "bias", dtype, &groups.channels)?;
    let results = c.results;
    let f = Formula::new(c.b);
    let x = f.of(x).reshape(&groups.split);
    let (mean, rstd) = statistics(x, &[2, 3], eps);
    let y = affine((x - mean) * rstd, w.map(|w| f.of(w)), b.map(|b| f.of(b)));
    Ok(vec![promised(results, 0, || y), promised(results, 1, || mean), promised(results, 2, || rstd)])
}

/// dx = rstd·(g·w − mean(g·w) − x̂·mean(g·w·x̂)) over a group; dw = Σ g·x̂ and db = Σ g over a channel
fn group_norm_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, dtype, shape) = input(c, 1)?;
    let g = operand(c, (0, "grad_out"), dtype, &shape)?;
    let groups = Groups::read(c, 5)?;
    let mean = required(c, 2, "mean", dtype, &groups.groups)?;
    let rstd = required(c, 3, "rstd", dtype, &groups.groups)?;
    let w = parameter(c, 4, "weight", dtype, &groups.channels)?;
    let results = c.results;
    let f = Formula::new(c.b);
    let (x, g) = (f.of(x).reshape(&groups.split), f.of(g).reshape(&groups.split));
    let rstd = f.of(rstd);
    let x_hat = (x - f.of(mean)) * rstd;
    Ok(vec![
        promised(results, 0, || {
            let gw = affine(g, w.map(|w| f.of(w)), None);
            input_gradient(gw, x_hat, rstd, &[2, 3])
        }),
        promised(results, 1, || (g * x_hat).sum(&[0, 3], false)),
        promised(results, 2, || g.sum(&[0, 3], false)),
    ])
}

/// Which statistics a batch norm uses, and where its arguments stand.
struct BatchNorm {
    x: ValueId,
    shape: Vec<Dim>,
    w: Option<ValueId>,
    b: Option<ValueId>,
    /// Running mean and variance.
    running: Option<(ValueId, ValueId)>,
    eps: f64,
}

impl BatchNorm {
    fn read(c: &mut Call<'_, '_>, running: bool, eps: usize) -> Result<BatchNorm, Decline> {
        let (x, dtype, shape) = input(c, 0)?;
        if shape.len() < 2 {
            return Err("batch norm of rank below 2".into());
        }
        let channels = line(&shape, |i| i == 1);
        let w = parameter(c, 1, "weight", dtype, &channels)?;
        let b = parameter(c, 2, "bias", dtype, &channels)?;
        let running = if running {
            let mean = parameter(c, 3, "running_mean", dtype, &channels)?;
            let var = parameter(c, 4, "running_var", dtype, &channels)?;
            mean.zip(var)
        } else {
            None
        };
        Ok(BatchNorm { x, shape, w, b, running, eps: c.f64(eps, "eps", 1e-5)? })
    }

    /// Every dim but the channels.
    fn folded(&self) -> Vec<usize> {
        (0..self.shape.len()).filter(|i| *i != 1).collect()
    }

    fn affine<'f, 'g>(&self, f: &'f Formula<'g>, x_hat: Expr<'f, 'g>) -> Expr<'f, 'g> {
        affine(x_hat, self.w.map(|w| f.of(w)), self.b.map(|b| f.of(b)))
    }

    /// y, mean and rstd of the batch.
    fn training(&self, c: &mut Call<'_, '_>) -> Vec<Option<ValueId>> {
        let results = c.results;
        let f = Formula::new(c.b);
        let x = f.of(self.x);
        let (mean, rstd) = statistics(x, &self.folded(), self.eps);
        let y = self.affine(&f, (x - mean) * rstd);
        vec![promised(results, 0, || y), promised(results, 1, || mean), promised(results, 2, || rstd)]
    }

    /// y by running statistics; the saved ones are empty.
    fn inference(&self, c: &mut Call<'_, '_>) -> RuleResult {
        let (mean, var) = self.running.ok_or("no running statistics")?;
        let results = c.results;
        let f = Formula::new(c.b);
        let x_hat = (f.of(self.x) - f.of(mean)) * (f.of(var) + self.eps).rsqrt();
        let mut values = vec![promised(results, 0, || self.affine(&f, x_hat))];
        for at in 1..3 {
            values.push(wanted(results, at).map(|ty| f.full(0.0, &ty.shape, ty.dtype).id()));
        }
        Ok(values)
    }
}

/// Training writes to the running statistics, which a decomposition cannot.
fn batch_norm(c: &mut Call<'_, '_>) -> RuleResult {
    let bn = BatchNorm::read(c, true, 7)?;
    match (c.bool(5, "training", false)?, bn.running) {
        (true, Some(_)) => Err("writes the running statistics in place".into()),
        (true, None) => Ok(bn.training(c)),
        (false, _) => bn.inference(c),
    }
}

fn batch_norm_no_stats(c: &mut Call<'_, '_>) -> RuleResult {
    // Without running statistics the batch's own are used, training or not.
    BatchNorm::read(c, false, 5).map(|bn| bn.training(c))
}

fn batch_norm_inference(c: &mut Call<'_, '_>) -> RuleResult {
    BatchNorm::read(c, true, 6)?.inference(c)
}

/// running ← (1 − momentum)·running + momentum·batch, the variance of the batch over n − 1
fn batch_norm_functional(c: &mut Call<'_, '_>) -> RuleResult {
    let bn = BatchNorm::read(c, true, 7)?;
    let (running_mean, running_var) = bn.running.ok_or("no running statistics")?;
    if !c.bool(5, "training", false)? {
        let mut values = bn.inference(c)?;
        let results = c.results;
        let f = Formula::new(c.b);
        values.extend([promised(results, 3, || f.of(running_mean)), promised(results, 4, || f.of(running_var))]);
        return Ok(values);
    }
    let momentum = c.f64(6, "momentum", 0.1)?;
    let results = c.results;
    let f = Formula::new(c.b);
    let (x, dims) = (f.of(bn.x), bn.folded());
    let n = Dim::product(dims.iter().map(|d| &bn.shape[*d]));
    let mean = x.mean(&dims);
    let d = x - mean;
    let squares = (d * d).sum(&dims, true);
    let rstd = (squares / &n + bn.eps).rsqrt();
    let unbiased = squares / &(&n - &Dim::ONE);
    let y = bn.affine(&f, d * rstd);
    let new_mean = f.of(running_mean) * (1.0 - momentum) + mean * momentum;
    let new_var = f.of(running_var) * (1.0 - momentum) + unbiased * momentum;
    Ok(vec![
        promised(results, 0, || y),
        promised(results, 1, || mean),
        promised(results, 2, || rstd),
        promised(results, 3, || new_mean),
        promised(results, 4, || new_var),
    ])
}

/// Training: dx = rstd·w·(g − mean(g) − x̂·mean(g·x̂)); else dx = g·w·rstd; dw = Σ g·x̂, db = Σ g
fn batch_norm_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, dtype, shape) = input(c, 1)?;
    if shape.len() < 2 {
        return Err("batch norm of rank below 2".into());
    }
    let g = operand(c, (0, "grad_out"), dtype, &shape)?;
    let channels = line(&shape, |i| i == 1);
    let w = parameter(c, 2, "weight", dtype, &channels)?;
    let train = c.bool(7, "train", false)?;
    let eps = c.f64(8, "eps", 1e-5)?;
    let (mean, scale) = if train {
        (required(c, 5, "save_mean", dtype, &channels)?, required(c, 6, "save_invstd", dtype, &channels)?)
    } else {
        (required(c, 3, "running_mean", dtype, &channels)?, required(c, 4, "running_var", dtype, &channels)?)
    };
    let results = c.results;
    let f = Formula::new(c.b);
    let dims: Vec<usize> = (0..shape.len()).filter(|i| *i != 1).collect();
    let (x, g) = (f.of(x), f.of(g));
    let rstd = if train { f.of(scale) } else { (f.of(scale) + eps).rsqrt() };
    let x_hat = (x - f.of(mean)) * rstd;
    // Σ g and Σ g·x̂ serve dw, db and dx.
    let (sum, dot) = (g.sum(&dims, true), (g * x_hat).sum(&dims, true));
    let factor = w.map_or(rstd, |w| rstd * f.of(w));
    Ok(vec![
        promised(results, 0, || {
            let n = Dim::product(dims.iter().map(|d| &shape[*d]));
            let inner = if train { g - sum / &n - x_hat * (dot / &n) } else { g };
            inner * factor
        }),
        promised(results, 1, || dot),
        promised(results, 2, || sum),
    ])
}

/// y = x·rstd·w, rstd = 1/√(mean x² + eps); eps defaults to the machine epsilon of the dtype that eager computes in
fn rms_norm(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, dtype, shape) = input(c, 0)?;
    let first = normalized_from(c, 1, shape.len())?;
    let default = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let eps = c.arg(3, "eps").and_then(Arg::as_f64).unwrap_or(default);
    let w = parameter(c, 2, "weight", dtype, &line(&shape, |i| i >= first))?;
    let results = c.results;
    let f = Formula::new(c.b);
    let dims: Vec<usize> = (first..shape.len()).collect();
    let x = f.of(x);
    let rstd = ((x * x).mean(&dims) + eps).rsqrt();
    let y = affine(x * rstd, w.map(|w| f.of(w)), None);
    let mut values = vec![promised(results, 0, || y)];
    if results.len() > 1 {
        values.push(promised(results, 1, || rstd));
    }
    Ok(values)
}

/// x̂ = x·rstd; dx = rstd·(g·w − x̂·mean(g·w·x̂)) over rows; dw = Σ g·x̂ over columns
fn rms_norm_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, dtype, shape) = input(c, 1)?;
    let g = operand(c, (0, "grad_out"), dtype, &shape)?;
    let first = normalized_from(c, 2, shape.len())?;
    let rstd = required(c, 3, "rstd", dtype, &line(&shape, |i| i < first))?;
    let w = parameter(c, 4, "weight", dtype, &line(&shape, |i| i >= first))?;
    let results = c.results;
    let f = Formula::new(c.b);
    let (inner, outer): (Vec<usize>, Vec<usize>) = ((first..shape.len()).collect(), (0..first).collect());
    let (g, rstd) = (f.of(g), f.of(rstd));
    let x_hat = f.of(x) * rstd;
    Ok(vec![
        promised(results, 0, || {
            let gw = affine(g, w.map(|w| f.of(w)), None);
            rstd * (gw - x_hat * (gw * x_hat).mean(&inner))
        }),
        promised(results, 1, || (g * x_hat).sum(&outer, false)),
    ])
}

/// Every dim but `dim`: what a weight norm folds.
fn others(shape: &[Dim], dim: i64) -> Result<(Vec<usize>, Vec<Dim>), Decline> {
    let dim = Call::wrap(dim, shape.len())?;
    Ok(((0..shape.len()).filter(|i| *i != dim).collect(), line(shape, |i| i == dim)))
}

/// w = v·g/‖v‖
fn weight_norm(c: &mut Call<'_, '_>) -> RuleResult {
    let v = c.tensor(0, "v")?;
    let (dtype, shape) = (c.b.dtype(v).compute(), c.b.shape(v));
    let (dims, kept) = others(&shape, c.i64(2, "dim", 0)?)?;
    let v = operand(c, (0, "v"), dtype, &shape)?;
    let g = required(c, 1, "g", dtype, &kept)?;
    let results = c.results;
    let f = Formula::new(c.b);
    let v = f.of(v);
    let norm = (v * v).sum(&dims, true).sqrt();
    Ok(vec![promised(results, 0, || v * (f.of(g) / norm)), promised(results, 1, || norm)])
}

/// dg = Σ dw·v/‖v‖; dv = g/‖v‖·(dw − v·Σ(dw·v)/‖v‖²)
fn weight_norm_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let v = c.tensor(1, "saved_v")?;
    let (dtype, shape) = (c.b.dtype(v).compute(), c.b.shape(v));
    let (dims, kept) = others(&shape, c.i64(4, "dim", 0)?)?;
    let dw = operand(c, (0, "grad_w"), dtype, &shape)?;
    let v = operand(c, (1, "saved_v"), dtype, &shape)?;
    let g = required(c, 2, "saved_g", dtype, &kept)?;
    let norm = required(c, 3, "saved_norms", dtype, &kept)?;
    let results = c.results;
    let f = Formula::new(c.b);
    let (dw, v, g, norm) = (f.of(dw), f.of(v), f.of(g), f.of(norm));
    let dot = (dw * v).sum(&dims, true);
    let dv = g / norm * (dw - v * (dot / (norm * norm)));
    Ok(vec![promised(results, 0, || dv), promised(results, 1, || dot / norm)])
}
