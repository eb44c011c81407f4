//! Activations and their gradients.

use super::expr::{ArgName, Expr, Formula, broadcast, op, operand, pointwise, pointwise_in, single};
use crate::decl::{Call, Effect, OpDecl, RuleResult};
use permalloy_ir::Dim;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

pub const DECLS: &[OpDecl] = &[
    op!("relu" "default", |c| single(c, [SELF], |[x]| x.max(0.0)), "max(x, 0)"),
    op!("relu6" "default", |c| single(c, [SELF], |[x]| x.max(0.0).min(6.0)), "min(max(x, 0), 6)"),
    op!("threshold_backward" "default", threshold_backward, "g where x > threshold"),
    // Rounded at once: the gradient y·(1 − y) is 0 where the dtype of y has rounded it to 1.
    op!("sigmoid" "default", |c| pointwise(c, [SELF], |[x]| x.sigmoid()), "1/(1 + e⁻ˣ)"),
    op!("special_expit" "default", |c| single(c, [SELF], |[x]| x.sigmoid()), "1/(1 + e⁻ˣ)"),
    op!("sigmoid_backward" "default", sigmoid_backward, "g·y·(1 − y)"),
    op!("tanh" "default", |c| pointwise(c, [SELF], |[x]| x.tanh()), "tanh(x)"),
    op!("tanh_backward" "default", tanh_backward, "g·(1 − y²)"),
    op!("gelu" "default", gelu, "x·Φ(x); approximate=\"tanh\": x/2·(1 + tanh(√(2/π)(x + 0.044715x³)))"),
    op!("gelu_backward" "default", gelu_backward, "g·(Φ(x) + x·Φ′(x))"),
    op!("silu" "default", |c| pointwise(c, [SELF], |[x]| x * x.sigmoid()), "x·σ(x)"),
    op!("silu_backward" "default", silu_backward, "g·σ(x)·(1 + x·(1 − σ(x)))"),
    op!("mish" "default", |c| pointwise(c, [SELF], |[x]| x * x.exp().log1p().tanh()), "x·tanh(ln(1 + eˣ))"),
    op!("mish_backward" "default", mish_backward, "g·(t + x·σ(x)·(1 − t²)), t = tanh(ln(1 + eˣ))"),
    op!("elu" "default", elu, "scale·x above 0, scale·alpha·(e^(input_scale·x) − 1) below"),
    op!("elu_backward" "default", elu_backward, "g·elu′(x), from x or from elu(x)"),
    op!("celu" "default", celu, "x above 0, alpha·(e^(x/alpha) − 1) below"),
    op!("selu" "default", selu, "elu with the self-normalising constants"),
    op!("leaky_relu" "default", leaky_relu, "x above 0, slope·x below"),
    op!("leaky_relu_backward" "default", leaky_relu_backward, "g above 0, slope·g below"),
    op!("hardswish" "default", hardswish, "x·min(max(x + 3, 0), 6)/6"),
    op!("hardswish_backward" "default", hardswish_backward, "0 up to −3, g from 3, g·(x/3 + 1/2) between"),
    op!("hardsigmoid" "default", |c| pointwise(c, [SELF], |[x]| ramp(x) / 6.0), "min(max(x + 3, 0), 6)/6"),
    op!("hardsigmoid_backward" "default", hardsigmoid_backward, "g/6 between −3 and 3"),
    op!("hardtanh" "default", hardtanh, "min(max(x, low), high)"),
    op!("hardtanh_backward" "default", hardtanh_backward, "g strictly between the bounds"),
    op!("softplus" "default", softplus, "ln(1 + e^(beta·x))/beta; x where beta·x > threshold"),
    op!("softplus_backward" "default", softplus_backward, "g·σ(beta·x); g where beta·x > threshold"),
    op!("softshrink" "default", softshrink, "x − lambd above lambd, x + lambd below −lambd, else 0"),
    op!("softshrink_backward" "default", shrink_backward, "g outside of [−lambd, lambd]"),
    op!("hardshrink" "default", hardshrink, "x outside of [−lambd, lambd], else 0"),
    op!("hardshrink_backward" "default", shrink_backward, "g outside of [−lambd, lambd]"),
    op!("log_sigmoid" "default", |c| pointwise(c, [SELF], log_sigmoid), "ln σ(x)"),
    op!("log_sigmoid_forward" "default", log_sigmoid_forward, "ln σ(x), and the buffer e^−|x|"),
    op!("log_sigmoid_backward" "default", log_sigmoid_backward, "g·σ(−x)"),
    op!("glu" "default", glu, "a·σ(b) of the halves along dim"),
    op!("glu_backward" "default", glu_backward, "(g·σ(b), g·a·σ(b)·(1 − σ(b))) along dim"),
    op!("prelu" "default", prelu, "x above 0, w·x below, one w a channel"),
    op!("_prelu_kernel" "default", |c| pointwise(c, [SELF, (1, "weight")], leak), "x above 0, w·x below"),
    op!("_prelu_kernel_backward" "default", prelu_backward, "dx = g above 0, w·g below; dw = x·g below"),
    op!("native_dropout_backward" "default", dropout_backward, "g·mask·scale"),
    op!("rrelu_with_noise" "default", rrelu, "leaky_relu with the middle slope, outside of training")
        .effect(Effect::Random),
    op!("rrelu_with_noise_functional" "default", rrelu, "leaky_relu with the middle slope, outside of training")
        .effect(Effect::Random),
    op!("rrelu_with_noise_backward" "default", rrelu_backward, "noise·g in training, leaky_relu_backward outside"),
];

const SELF: ArgName = (0, "self");
const GRAD: ArgName = (0, "grad_output");
const X: ArgName = (1, "self");
const Y: ArgName = (1, "output");

/// dx = 0 where x ≤ threshold, g elsewhere (so at NaN)
fn threshold_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let threshold = c.f64(2, "threshold", 0.0)?;
    let dtype = c.result(0)?.dtype;
    pointwise_in(c, dtype, [GRAD, X], |[g, x]| x.le(threshold).select(g.constant(0.0), g))
}

/// dx = g·y·(1 − y)
fn sigmoid_backward(c: &mut Call<'_, '_>) -> RuleResult {
    pointwise(c, [GRAD, Y], |[g, y]| g * (1.0 - y) * y)
}

/// dx = g·(1 − y²)
fn tanh_backward(c: &mut Call<'_, '_>) -> RuleResult {
    pointwise(c, [GRAD, Y], |[g, y]| g * rest_of_square(y))
}

/// √(2/π)
const GELU_SCALE: f64 = SQRT_2 * FRAC_2_SQRT_PI * 0.5;
const GELU_CUBE: f64 = 0.044_715;

/// `tanh(√(2/π)(x + 0.044715x³))`
fn gelu_tanh<'f, 'g>(x: Expr<'f, 'g>) -> Expr<'f, 'g> {
    ((x + x * x * x * GELU_CUBE) * GELU_SCALE).tanh()
}

/// 1 − t² as (1 − t)·(1 + t), which keeps its last places where t is near 1.
fn rest_of_square<'f, 'g>(t: Expr<'f, 'g>) -> Expr<'f, 'g> {
    (1.0 - t) * (t + 1.0)
}

/// y = x·Φ(x), Φ(x) = (1 + erf(x/√2))/2 or its tanh form
fn gelu(c: &mut Call<'_, '_>) -> RuleResult {
    let tanh = c.str(1, "approximate") == Some("tanh");
    pointwise(c, [SELF], |[x]| {
        let inner = if tanh { gelu_tanh(x) } else { (x * FRAC_1_SQRT_2).erf() };
        x * 0.5 * (inner + 1.0)
    })
}

/// dx = g·(Φ(x) + x·φ(x)), φ(x) = e^(−x²/2)/√(2π);
/// tanh form, t = tanh(u(x)): dx = g·((1 + t)/2 + x/2·(1 − t²)·u′(x))
fn gelu_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let tanh = c.str(2, "approximate") == Some("tanh");
    pointwise(c, [GRAD, X], |[g, x]| {
        if tanh {
            let t = gelu_tanh(x);
            let slope = (x * x * (3.0 * GELU_CUBE) + 1.0) * GELU_SCALE;
            return g * ((t + 1.0) * 0.5 + x * 0.5 * rest_of_square(t) * slope);
        }
        let cdf = ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
        let pdf = (x * x * -0.5).exp() * (FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 0.5);
        g * (cdf + x * pdf)
    })
}

/// dx = g·σ(x)·(1 + x·(1 − σ(x)))
fn silu_backward(c: &mut Call<'_, '_>) -> RuleResult {
    pointwise(c, [GRAD, X], |[g, x]| {
        let s = x.sigmoid();
        g * s * (x * (1.0 - s) + 1.0)
    })
}

/// dx = g·(t + x·σ(x)·(1 − t²)), t = tanh(ln(1 + eˣ))
fn mish_backward(c: &mut Call<'_, '_>) -> RuleResult {
    pointwise(c, [GRAD, X], |[g, x]| {
        let t = x.exp().log1p().tanh();
        g * (t + x * x.sigmoid() * rest_of_square(t))
    })
}

/// y = scale·x for x > 0, scale·alpha·(e^(input_scale·x) − 1) otherwise
fn elu_of(c: &mut Call<'_, '_>, alpha: f64, scale: f64, input_scale: f64) -> RuleResult {
    pointwise(c, [SELF], |[x]| x.le(0.0).select((x * input_scale).expm1() * (alpha * scale), x * scale))
}

fn elu(c: &mut Call<'_, '_>) -> RuleResult {
    let (alpha, scale, input_scale) = (c.f64(1, "alpha", 1.0)?, c.f64(2, "scale", 1.0)?, c.f64(3, "input_scale", 1.0)?);
    elu_of(c, alpha, scale, input_scale)
}

fn celu(c: &mut Call<'_, '_>) -> RuleResult {
    let alpha = c.f64(1, "alpha", 1.0)?;
    elu_of(c, alpha, 1.0, 1.0 / alpha)
}

fn selu(c: &mut Call<'_, '_>) -> RuleResult {
    elu_of(c, 1.673_263_242_354_377_2, 1.050_700_987_355_480_5, 1.0)
}

/// dx = g·scale for x > 0; below, g·input_scale·alpha·scale·e^(input_scale·x), which of y is g·input_scale·(y + alpha·scale)
fn elu_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (alpha, scale, input_scale) = (c.f64(1, "alpha", 1.0)?, c.f64(2, "scale", 1.0)?, c.f64(3, "input_scale", 1.0)?);
    let is_result = c.bool(4, "is_result", false)?;
    let low = alpha * scale;
    pointwise(c, [GRAD, (5, "self_or_result")], |[g, x]| {
        let below =
            if is_result { g * input_scale * (x + low) } else { g * (input_scale * low) * (x * input_scale).exp() };
        x.le(0.0).select(below, g * scale)
    })
}

fn leaky_relu(c: &mut Call<'_, '_>) -> RuleResult {
    let slope = c.f64(1, "negative_slope", 0.01)?;
    pointwise(c, [SELF], |[x]| x.gt(0.0).select(x, x * slope))
}

/// dx = g for x > 0, slope·g otherwise (a result has the sign of its input)
fn leaky_relu_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let slope = c.f64(2, "negative_slope", 0.01)?;
    pointwise(c, [GRAD, X], |[g, x]| x.gt(0.0).select(g, g * slope))
}

/// `min(max(x + 3, 0), 6)`
fn ramp<'f, 'g>(x: Expr<'f, 'g>) -> Expr<'f, 'g> {
    (x + 3.0).max(0.0).min(6.0)
}

fn hardswish(c: &mut Call<'_, '_>) -> RuleResult {
    pointwise(c, [SELF], |[x]| x * ramp(x) / 6.0)
}

/// dx = 0 for x ≤ −3, g for x ≥ 3, g·(x/3 + 1/2) between
fn hardswish_backward(c: &mut Call<'_, '_>) -> RuleResult {
    pointwise(c, [GRAD, X], |[g, x]| {
        let inside = x.lt(3.0).select(g * (x / 3.0 + 0.5), g);
        x.le(-3.0).select(g.constant(0.0), inside)
    })
}

/// dx = g/6 for −3 < x < 3. PyTorch's sixth is that of f32, for doubles as well.
fn hardsigmoid_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let sixth = f64::from(1.0_f32 / 6.0);
    pointwise(c, [GRAD, X], |[g, x]| x.gt(-3.0).and(x.lt(3.0)).select(g * sixth, 0.0))
}

fn hardtanh(c: &mut Call<'_, '_>) -> RuleResult {
    let (low, high) = (c.f64(1, "min_val", -1.0)?, c.f64(2, "max_val", 1.0)?);
    let dtype = c.result(0)?.dtype;
    pointwise_in(c, dtype, [SELF], |[x]| x.max(low).min(high))
}

/// dx = 0 for x ≤ low or x ≥ high, g elsewhere
fn hardtanh_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (low, high) = (c.f64(2, "min_val", -1.0)?, c.f64(3, "max_val", 1.0)?);
    pointwise(c, [GRAD, X], |[g, x]| x.le(low).or(x.ge(high)).select(g.constant(0.0), g))
}

fn softplus(c: &mut Call<'_, '_>) -> RuleResult {
    let (beta, threshold) = (c.f64(1, "beta", 1.0)?, c.f64(2, "threshold", 20.0)?);
    pointwise(c, [SELF], |[x]| {
        let z = x * beta;
        z.gt(threshold).select(x, z.exp().log1p() / beta)
    })
}

/// dx = g·σ(beta·x); g where beta·x > threshold
fn softplus_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (beta, threshold) = (c.f64(2, "beta", 1.0)?, c.f64(3, "threshold", 20.0)?);
    pointwise(c, [GRAD, X], |[g, x]| {
        let z = x * beta;
        z.gt(threshold).select(g, g * z.sigmoid())
    })
}

/// y = x − lambd, x + lambd, or 0 (NaN stays: 0·x)
fn softshrink(c: &mut Call<'_, '_>) -> RuleResult {
    let lambd = c.f64(1, "lambd", 0.5)?;
    pointwise(c, [SELF], |[x]| {
        let below = x.lt(-lambd).select(x + lambd, x * 0.0);
        x.gt(lambd).select(x - lambd, below)
    })
}

fn hardshrink(c: &mut Call<'_, '_>) -> RuleResult {
    let lambd = c.f64(1, "lambd", 0.5)?;
    pointwise(c, [SELF], |[x]| x.ge(-lambd).and(x.le(lambd)).select(x.constant(0.0), x))
}

/// dx = 0 for −lambd ≤ x ≤ lambd, g elsewhere
fn shrink_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let lambd = c.f64(2, "lambd", 0.5)?;
    pointwise(c, [GRAD, X], |[g, x]| x.ge(-lambd).and(x.le(lambd)).select(g.constant(0.0), g))
}

/// y = min(x, 0) − ln(1 + e^−|x|)
fn log_sigmoid<'f, 'g>([x]: [Expr<'f, 'g>; 1]) -> Expr<'f, 'g> {
    x.min(0.0) - (-x.abs()).exp().log1p()
}

/// The buffer is e^−|x| on the CPU and empty elsewhere; the backward rule does not read it.
fn log_sigmoid_forward(c: &mut Call<'_, '_>) -> RuleResult {
    let (out, buffer) = (c.result(0)?.clone(), c.result(1)?.clone());
    let x = operand(c, SELF, out.dtype.compute(), &out.shape)?;
    let f = Formula::new(c.b);
    let x = f.of(x);
    let y = log_sigmoid([x]).cast(out.dtype);
    let saved = if buffer.shape == out.shape {
        (-x.abs()).exp().cast(buffer.dtype)
    } else {
        f.full(0.0, &buffer.shape, buffer.dtype)
    };
    Ok(vec![Some(y.id()), Some(saved.id())])
}

/// dx = g·σ(−x)
fn log_sigmoid_backward(c: &mut Call<'_, '_>) -> RuleResult {
    pointwise(c, [GRAD, X], |[g, x]| g * (-x).sigmoid())
}

/// y = a·σ(b), (a, b) the halves of x along dim
fn glu(c: &mut Call<'_, '_>) -> RuleResult {
    let out = c.result(0)?.clone();
    let x = c.tensor(0, "self")?;
    let shape = c.b.shape(x);
    let dim = Call::wrap(c.i64(1, "dim", -1)?, shape.len())?;
    let half = out.shape.get(dim).ok_or("glu of a 0-d tensor")?;
    let x = operand(c, SELF, out.dtype.compute(), &shape)?;
    let f = Formula::new(c.b);
    let (a, b) = halves(f.of(x), dim, half);
    Ok(vec![Some((a * b.sigmoid()).cast(out.dtype).id())])
}

/// The size of a half is the caller's, since that of a symbolic dim is not the rest of its quotient.
fn halves<'f, 'g>(x: Expr<'f, 'g>, dim: usize, half: &Dim) -> (Expr<'f, 'g>, Expr<'f, 'g>) {
    (x.slice(dim, &Dim::ZERO, half), x.slice(dim, half, &(half + half)))
}

/// da = g·σ(b), db = g·a·σ(b)·(1 − σ(b))
fn glu_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let out = c.result(0)?.clone();
    let grad = c.tensor(0, "grad_output")?;
    let grad_shape = c.b.shape(grad);
    let dim = Call::wrap(c.i64(2, "dim", -1)?, out.rank())?;
    let half = grad_shape.get(dim).ok_or("glu of a 0-d tensor")?;
    let dtype = out.dtype.compute();
    let (g, x) = (operand(c, GRAD, dtype, &grad_shape)?, operand(c, X, dtype, &out.shape)?);
    let f = Formula::new(c.b);
    let (a, b) = halves(f.of(x), dim, half);
    let s = b.sigmoid();
    let gs = f.of(g) * s;
    let dx = gs.concat(gs * a * (1.0 - s), dim);
    Ok(vec![Some(dx.reshape(&out.shape).cast(out.dtype).id())])
}

/// `x` where positive, `w·x` elsewhere
fn leak<'f, 'g>([x, w]: [Expr<'f, 'g>; 2]) -> Expr<'f, 'g> {
    x.gt(0.0).select(x, w * x)
}

/// The weight runs along dim 1 (dim 0 of a vector).
fn prelu(c: &mut Call<'_, '_>) -> RuleResult {
    let out = c.result(0)?.clone();
    let w = c.tensor(1, "weight")?;
    let dtype = out.dtype.compute();
    let x = operand(c, SELF, dtype, &out.shape)?;
    let w = c.b.cast(w, dtype);
    let mut line = vec![Dim::ONE; out.rank()];
    if let Some(channel) = line.get_mut(1) {
        *channel = Dim::product(c.b.shape(w).iter());
    }
    let w = c.b.reshape(w, &line);
    let w = broadcast(c, w, &out.shape)?;
    let f = Formula::new(c.b);
    Ok(vec![Some(leak([f.of(x), f.of(w)]).cast(out.dtype).id())])
}

/// dx = g for x > 0, w·g otherwise; dw = 0 for x > 0, x·g otherwise, not yet summed
fn prelu_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let out = c.result(0)?.clone();
    let dw = c.results.get(1).cloned().flatten();
    let dtype = out.dtype.compute();
    let g = operand(c, GRAD, dtype, &out.shape)?;
    let x = operand(c, X, dtype, &out.shape)?;
    let w = operand(c, (2, "weight"), dtype, &out.shape)?;
    let f = Formula::new(c.b);
    let (g, x, w) = (f.of(g), f.of(x), f.of(w));
    let positive = x.gt(0.0);
    let dx = positive.select(g, w * g).cast(out.dtype);
    let dw = dw.map(|ty| positive.select(g.constant(0.0), x * g).cast(ty.dtype).id());
    Ok(vec![Some(dx.id()), dw])
}

/// Outside of training: slope = (lower + upper)/2
fn rrelu(c: &mut Call<'_, '_>) -> RuleResult {
    if c.bool(4, "training", false)? {
        return Err("rrelu draws its slopes at random in training".into());
    }
    let slope = (c.f64(2, "lower", 0.125)? + c.f64(3, "upper", 1.0 / 3.0)?) / 2.0;
    let mut results = pointwise(c, [SELF], |[x]| x.le(0.0).select(x * slope, x))?;
    if c.results.len() > 1 {
        results.push(Some(c.tensor(1, "noise")?));
    }
    Ok(results)
}

/// dx = noise·g in training (unless the slopes coincide), else g for x > 0 and slope·g otherwise
fn rrelu_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (lower, upper) = (c.f64(3, "lower", 0.125)?, c.f64(4, "upper", 1.0 / 3.0)?);
    if c.bool(5, "training", false)? && upper - lower > 1e-6 {
        return pointwise(c, [GRAD, (2, "noise")], |[g, noise]| g * noise);
    }
    let slope = (lower + upper) / 2.0;
    pointwise(c, [GRAD, X], |[g, x]| x.gt(0.0).select(g, g * slope))
}

/// dx = g·mask·scale
fn dropout_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let scale = c.f64(2, "scale", 1.0)?;
    pointwise(c, [GRAD, (1, "mask")], |[g, mask]| g * (mask * scale))
}
