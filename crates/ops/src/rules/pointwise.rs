//! Elementwise arithmetic and mathematical functions.
//!
//! The promised dtype decides in which dtype an operator computes; 16-bit floats are computed in f32, scalars applied in
//! f32, and the result rounded once, as eager does.

use super::expr::{ArgName, Expr, Formula, op, operand, pointwise, pointwise_in, single};
use crate::decl::{Call, Cost, Decline, OpDecl, RuleResult};
use permalloy_ir::{Arg, DType, Device, PrimOp};
use std::f64::consts::{LN_2, PI};

/// A function of one operand that is one prim.
macro_rules! unary {
    ($name:literal, $prim:ident) => {
        op!($name "default", |c| single(c, [SELF], |[x]| x.unary(PrimOp::$prim)), "the function of this name")
    };
}

/// A function that no prim computes.
macro_rules! native {
    ($name:literal, $doc:literal) => {
        OpDecl::new(concat!("aten.", $name, ".default"), Cost::Pointwise, &[], $doc)
    };
}

pub const DECLS: &[OpDecl] = &[
    op!("add" "Tensor", |c| add(c, SELF, OTHER), "a + alpha·b"),
    op!("add" "Scalar", |c| add(c, SELF, OTHER), "a + alpha·b"),
    op!("sub" "Tensor", |c| sub(c, SELF, OTHER), "a − alpha·b"),
    op!("sub" "Scalar", |c| sub(c, SELF, OTHER), "a − alpha·b"),
    op!("rsub" "Tensor", |c| sub(c, OTHER, SELF), "b − alpha·a"),
    op!("rsub" "Scalar", |c| sub(c, OTHER, SELF), "b − alpha·a"),
    op!("mul" "Tensor", |c| single(c, [SELF, OTHER], |[a, b]| a * b), "a·b"),
    op!("mul" "Scalar", |c| single(c, [SELF, OTHER], |[a, b]| a * b), "a·b"),
    op!("div" "Tensor", |c| single(c, [SELF, OTHER], |[a, b]| a / b), "a/b, of integers as floats"),
    op!("div" "Scalar", |c| single(c, [SELF, OTHER], |[a, b]| a / b), "a/b, of integers as floats"),
    op!("div" "Tensor_mode", div_mode, "a/b, its floor or its truncation"),
    op!("div" "Scalar_mode", div_mode, "a/b, its floor or its truncation"),
    op!("floor_divide" "default", |c| pointwise(c, [SELF, OTHER], |[a, b]| floor_div(a, b)), "⌊a/b⌋"),
    op!("floor_divide" "Scalar", |c| pointwise(c, [SELF, OTHER], |[a, b]| floor_div(a, b)), "⌊a/b⌋"),
    op!("remainder" "Tensor", |c| remainder(c, PrimOp::Mod), "a − b·⌊a/b⌋"),
    op!("remainder" "Scalar", |c| remainder(c, PrimOp::Mod), "a − b·⌊a/b⌋"),
    op!("remainder" "Scalar_Tensor", |c| remainder(c, PrimOp::Mod), "a − b·⌊a/b⌋"),
    op!("fmod" "Tensor", |c| remainder(c, PrimOp::Fmod), "a − b·trunc(a/b)"),
    op!("fmod" "Scalar", |c| remainder(c, PrimOp::Fmod), "a − b·trunc(a/b)"),
    op!("pow" "Tensor_Tensor", |c| single(c, [SELF, EXPONENT], |[a, b]| a.binary(PrimOp::Pow, b)), "a**b"),
    op!("pow" "Scalar", |c| single(c, [SELF, EXPONENT], |[a, b]| a.binary(PrimOp::Pow, b)), "a**b"),
    op!("pow" "Tensor_Scalar", pow_scalar, "a**b; small powers by multiplication"),
    op!("float_power" "Tensor_Tensor", |c| pointwise(c, [SELF, EXPONENT], |[a, b]| a.binary(PrimOp::Pow, b)), "a**b in f64"),
    op!("float_power" "Tensor_Scalar", pow_scalar, "a**b in f64"),
    op!("float_power" "Scalar", |c| pointwise(c, [SELF, EXPONENT], |[a, b]| a.binary(PrimOp::Pow, b)), "a**b in f64"),
    op!("square" "default", |c| single(c, [SELF], |[x]| x * x), "x²"),
    op!("ldexp" "Tensor", |c| pointwise(c, [SELF, OTHER], |[a, b]| a * b.unary(PrimOp::Exp2)), "a·2**b"),
    op!("neg" "default", |c| single(c, [SELF], |[x]| -x), "−x"),
    op!("positive" "default", |c| single(c, [SELF], |[x]| x), "x"),
    op!("abs" "default", |c| single(c, [SELF], |[x]| if x.dtype() == DType::Bool { x } else { x.abs() }), "|x|"),
    op!("sign" "default", |c| single(c, [SELF], sign), "−1, 0 or 1"),
    op!("sgn" "default", |c| single(c, [SELF], sign), "−1, 0 or 1"),
    unary!("exp", Exp),
    unary!("exp2", Exp2),
    unary!("expm1", Expm1),
    unary!("log", Log),
    unary!("log2", Log2),
    unary!("log10", Log10),
    unary!("log1p", Log1p),
    unary!("sqrt", Sqrt),
    unary!("rsqrt", Rsqrt),
    unary!("reciprocal", Reciprocal),
    unary!("sin", Sin),
    unary!("cos", Cos),
    unary!("tan", Tan),
    unary!("asin", Asin),
    unary!("acos", Acos),
    unary!("atan", Atan),
    unary!("sinh", Sinh),
    unary!("cosh", Cosh),
    unary!("asinh", Asinh),
    unary!("acosh", Acosh),
    unary!("atanh", Atanh),
    unary!("erf", Erf),
    unary!("erfc", Erfc),
    unary!("erfinv", Erfinv),
    unary!("lgamma", Lgamma),
    unary!("digamma", Digamma),
    unary!("floor", Floor),
    unary!("ceil", Ceil),
    unary!("round", Round),
    unary!("trunc", Trunc),
    op!("round" "decimals", round_decimals, "round(x·10**decimals)/10**decimals"),
    op!("frac" "default", |c| single(c, [SELF], |[x]| x - x.unary(PrimOp::Trunc)), "x − trunc(x)"),
    op!("deg2rad" "default", |c| pointwise(c, [SELF], |[x]| x * (PI / 180.0)), "x·π/180"),
    op!("rad2deg" "default", |c| pointwise(c, [SELF], |[x]| x * (180.0 / PI)), "x·180/π"),
    op!("sinc" "default", |c| pointwise(c, [SELF], sinc), "sin(πx)/(πx); 1 at 0"),
    op!("angle" "default", |c| pointwise(c, [SELF], angle), "π below 0, else 0; NaN stays"),
    op!("polygamma" "default", polygamma, "the n-th derivative of digamma; n = 0 only"),
    op!("special_entr" "default", |c| pointwise(c, [SELF], entr), "−x·ln x; 0 at 0, −∞ below"),
    op!("special_ndtr" "default", |c| pointwise(c, [SELF], ndtr), "Φ(x) = erfc(−x/√2)/2"),
    op!("nan_to_num" "default", nan_to_num, "NaN and infinities replaced"),
    op!("maximum" "default", |c| single(c, [SELF, OTHER], |[a, b]| a.max(b)), "max(a, b); NaN if either is"),
    op!("minimum" "default", |c| single(c, [SELF, OTHER], |[a, b]| a.min(b)), "min(a, b); NaN if either is"),
    op!("max" "other", |c| single(c, [SELF, OTHER], |[a, b]| a.max(b)), "max(a, b); NaN if either is"),
    op!("min" "other", |c| single(c, [SELF, OTHER], |[a, b]| a.min(b)), "min(a, b); NaN if either is"),
    op!("fmax" "default", |c| pointwise(c, [SELF, OTHER], |[a, b]| skip_nan(a, b, a.max(b))), "max(a, b); NaN only if both are"),
    op!("fmin" "default", |c| pointwise(c, [SELF, OTHER], |[a, b]| skip_nan(a, b, a.min(b))), "min(a, b); NaN only if both are"),
    op!("clamp" "default", |c| clamp(c, Some((1, "min")), Some((2, "max"))), "min(max(x, low), high)"),
    op!("clamp" "Tensor", |c| clamp(c, Some((1, "min")), Some((2, "max"))), "min(max(x, low), high)"),
    op!("clamp_min" "default", |c| clamp(c, Some((1, "min")), None), "max(x, low)"),
    op!("clamp_min" "Tensor", |c| clamp(c, Some((1, "min")), None), "max(x, low)"),
    op!("clamp_max" "default", |c| clamp(c, None, Some((1, "max"))), "min(x, high)"),
    op!("clamp_max" "Tensor", |c| clamp(c, None, Some((1, "max"))), "min(x, high)"),
    op!("atan2" "default", |c| binary(c, PrimOp::Atan2), "angle of the point (b, a)"),
    op!("hypot" "default", |c| binary(c, PrimOp::Hypot), "√(a² + b²)"),
    op!("copysign" "Tensor", |c| binary(c, PrimOp::CopySign), "|a| with the sign of b"),
    op!("copysign" "Scalar", |c| binary(c, PrimOp::CopySign), "|a| with the sign of b"),
    op!("heaviside" "default", |c| pointwise(c, [SELF, (1, "values")], heaviside), "values where x = 0, else x > 0"),
    op!("lerp" "Scalar", lerp, "a + w·(b − a)"),
    op!("lerp" "Tensor", lerp, "a + w·(b − a)"),
    op!("addcmul" "default", addcmul, "x + value·a·b"),
    op!("addcdiv" "default", addcdiv, "x + value·a/b"),
    op!("logit" "default", logit, "ln(x/(1 − x)), x clamped to [eps, 1 − eps]"),
    op!("logit_backward" "default", logit_backward, "g/(x(1 − x)); 0 outside of [eps, 1 − eps]"),
    op!("xlogy" "Tensor", |c| pointwise(c, [SELF, OTHER], xlogy), "x·ln y; 0 at x = 0"),
    op!("xlogy" "Scalar_Other", |c| pointwise(c, [SELF, OTHER], xlogy), "x·ln y; 0 at x = 0"),
    op!("xlogy" "Scalar_Self", |c| pointwise(c, [SELF, OTHER], xlogy), "x·ln y; 0 at x = 0"),
    op!("special_xlog1py" "default", |c| pointwise(c, [SELF, OTHER], xlog1py), "x·ln(1 + y); 0 at x = 0"),
    op!("special_xlog1py" "other_scalar", |c| pointwise(c, [SELF, OTHER], xlog1py), "x·ln(1 + y); 0 at x = 0"),
    op!("special_xlog1py" "self_scalar", |c| pointwise(c, [SELF, OTHER], xlog1py), "x·ln(1 + y); 0 at x = 0"),
    op!("logaddexp" "default", |c| pointwise(c, [SELF, OTHER], logaddexp), "ln(eᵃ + eᵇ)"),
    native!("i0", "modified Bessel function I₀"),
    native!("special_i0e", "e^−|x|·I₀(x)"),
    native!("special_i1", "modified Bessel function I₁"),
    native!("special_i1e", "e^−|x|·I₁(x)"),
    native!("special_erfcx", "e^(x²)·erfc(x)"),
    native!("special_log_ndtr", "ln Φ(x)"),
    native!("special_ndtri", "the inverse of Φ"),
    native!("nextafter", "the neighbour of a towards b"),
    native!("gcd", "greatest common divisor"),
    native!("lcm", "least common multiple"),
    op!("logaddexp2" "default", |c| pointwise(c, [SELF, OTHER], logaddexp2), "log₂(2ᵃ + 2ᵇ)"),
];

const SELF: ArgName = (0, "self");
const OTHER: ArgName = (1, "other");
const EXPONENT: ArgName = (1, "exponent");

fn binary(c: &mut Call<'_, '_>, op: PrimOp) -> RuleResult {
    single(c, [SELF, OTHER], |[a, b]| a.binary(op, b))
}

/// Both operands take the promised dtype first: a remainder by a scalar is one by the scalar rounded to 16 bits.
fn remainder(c: &mut Call<'_, '_>, op: PrimOp) -> RuleResult {
    let dtype = c.result(0)?.dtype;
    pointwise_in(c, dtype, [SELF, OTHER], |[a, b]| a.binary(op, b))
}

/// The factor `alpha` or `value`, if it is not 1.
fn factor(c: &Call<'_, '_>, position: usize, name: &'static str) -> Option<ArgName> {
    let arg = c.arg(position, name)?;
    if arg.as_f64() == Some(1.0) { None } else { Some((position, name)) }
}

/// `a + alpha·b`
fn add(c: &mut Call<'_, '_>, a: ArgName, b: ArgName) -> RuleResult {
    match factor(c, 2, "alpha") {
        None => single(c, [a, b], |[a, b]| a + b),
        Some(alpha) => pointwise(c, [a, b, alpha], |[a, b, alpha]| a + alpha * b),
    }
}

/// `a − alpha·b`
fn sub(c: &mut Call<'_, '_>, a: ArgName, b: ArgName) -> RuleResult {
    match factor(c, 2, "alpha") {
        None => single(c, [a, b], |[a, b]| a - b),
        Some(alpha) => pointwise(c, [a, b, alpha], |[a, b, alpha]| a - alpha * b),
    }
}

fn div_mode(c: &mut Call<'_, '_>) -> RuleResult {
    match c.str(2, "rounding_mode") {
        None => single(c, [SELF, OTHER], |[a, b]| a / b),
        Some("floor") => pointwise(c, [SELF, OTHER], |[a, b]| floor_div(a, b)),
        Some("trunc") => pointwise(c, [SELF, OTHER], |[a, b]| a.binary(PrimOp::TruncDiv, b)),
        Some(other) => Err(format!("rounding mode {other}").into()),
    }
}

/// Floor of the exact quotient, which Python's `//` promises and a rounded `a/b` can miss:
/// `d = (a − fmod(a, b))/b`, less one where the signs differ, rounded to the integer it is.
fn floor_div<'f, 'g>(a: Expr<'f, 'g>, b: Expr<'f, 'g>) -> Expr<'f, 'g> {
    if !a.dtype().is_float() {
        return a.binary(PrimOp::FloorDiv, b);
    }
    let rest = a.binary(PrimOp::Fmod, b);
    let quotient = (a - rest) / b;
    let crosses = rest.ne(0.0).and(b.lt(0.0).ne(rest.lt(0.0)));
    let quotient = crosses.select(quotient - 1.0, quotient);
    let floor = quotient.unary(PrimOp::Floor);
    let floor = (quotient - floor).gt(0.5).select(floor + 1.0, floor);
    let exact = a / b;
    let zero = exact.constant(0.0).binary(PrimOp::CopySign, exact);
    let floor = quotient.ne(0.0).select(floor, zero);
    b.eq(0.0).select(exact, floor)
}

/// `x**n`: x·x, x·x·x, √x, 1/√x, 1/x and 1/(x·x) where eager takes them; the power otherwise.
fn pow_scalar(c: &mut Call<'_, '_>) -> RuleResult {
    let n = c.arg(1, "exponent").and_then(Arg::as_f64);
    let float = c.result(0)?.dtype.is_float();
    match n {
        Some(0.0) => pointwise(c, [SELF], |[x]| x.constant(1.0)),
        Some(1.0) => single(c, [SELF], |[x]| x),
        Some(2.0) => single(c, [SELF], |[x]| x * x),
        Some(3.0) => pointwise(c, [SELF], |[x]| x * x * x),
        Some(0.5) if float => single(c, [SELF], |[x]| x.sqrt()),
        Some(-0.5) if float => single(c, [SELF], |[x]| x.rsqrt()),
        Some(-1.0) if float => single(c, [SELF], |[x]| x.unary(PrimOp::Reciprocal)),
        Some(-2.0) if float => pointwise(c, [SELF], |[x]| (x * x).unary(PrimOp::Reciprocal)),
        Some(n) if exponent_matters(n, c)? => pointwise(c, [SELF], |[x]| exact_power(x, n)),
        _ => single(c, [SELF, EXPONENT], |[a, b]| a.binary(PrimOp::Pow, b)),
    }
}

/// Eager's CPU kernel rounds the exponent to f32 for whole vectors and not for what is left of them, so that its error is far
/// smaller for few elements.
fn exponent_matters(n: f64, c: &Call<'_, '_>) -> Result<bool, Decline> {
    let ty = c.result(0)?;
    Ok(ty.dtype == DType::F32 && ty.device == Device::Cpu && n.is_finite() && f64::from(n as f32) != n)
}

/// `x**n` as `x**h · (1 + l·ln x)`, where `h` is `n` in f32 and `l` the rest of it: the next term is below 1e-11.
fn exact_power<'f, 'g>(x: Expr<'f, 'g>, n: f64) -> Expr<'f, 'g> {
    let h = f64::from(n as f32);
    let power = x.binary(PrimOp::Pow, x.constant(h));
    let rest = power * (x.log() * (n - h));
    // Zero, infinity and NaN are what they are in both.
    let changes = rest.abs().lt(f64::INFINITY);
    power + changes.select(rest, x.constant(0.0))
}

/// Eager's sign of NaN is 0, the prim's is NaN.
fn sign<'f, 'g>([x]: [Expr<'f, 'g>; 1]) -> Expr<'f, 'g> {
    match x.dtype() {
        DType::Bool => x,
        d if d.is_float() => x.is_nan().select(x.constant(0.0), x.unary(PrimOp::Sign)),
        _ => x.unary(PrimOp::Sign),
    }
}

fn round_decimals(c: &mut Call<'_, '_>) -> RuleResult {
    let decimals = c.i64(1, "decimals", 0)?;
    if !c.result(0)?.dtype.is_float() {
        return Err("decimals of an integer".into());
    }
    let scale = 10f64.powi(decimals.unsigned_abs().min(400) as i32);
    pointwise(c, [SELF], |[x]| match decimals {
        0 => x.unary(PrimOp::Round),
        1.. => (x * scale).unary(PrimOp::Round) / scale,
        _ => (x / scale).unary(PrimOp::Round) * scale,
    })
}

fn sinc<'f, 'g>([x]: [Expr<'f, 'g>; 1]) -> Expr<'f, 'g> {
    let y = x * PI;
    x.eq(0.0).select(x.constant(1.0), y.unary(PrimOp::Sin) / y)
}

fn angle<'f, 'g>([x]: [Expr<'f, 'g>; 1]) -> Expr<'f, 'g> {
    let y = x.lt(0.0).select(x.constant(PI), 0.0);
    x.is_nan().select(x, y)
}

fn polygamma(c: &mut Call<'_, '_>) -> RuleResult {
    match c.i64(0, "n", 0)? {
        0 => single(c, [(1, "self")], |[x]| x.unary(PrimOp::Digamma)),
        n => Err(format!("polygamma of order {n}").into()),
    }
}

fn entr<'f, 'g>([x]: [Expr<'f, 'g>; 1]) -> Expr<'f, 'g> {
    let edge = x.eq(0.0).select(x.constant(0.0), f64::NEG_INFINITY);
    let y = x.gt(0.0).select(-x * x.log(), edge);
    x.is_nan().select(x, y)
}

fn ndtr<'f, 'g>([x]: [Expr<'f, 'g>; 1]) -> Expr<'f, 'g> {
    (x * -std::f64::consts::FRAC_1_SQRT_2).unary(PrimOp::Erfc) * 0.5
}

/// Largest finite value.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MAX,
        DType::BF16 => f64::from(f32::from_bits(0x7f7f_0000)),
        DType::F16 => 65504.0,
        _ => f64::from(f32::MAX),
    }
}

fn nan_to_num(c: &mut Call<'_, '_>) -> RuleResult {
    let dtype = c.result(0)?.dtype;
    if !dtype.is_float() {
        return single(c, [SELF], |[x]| x);
    }
    let nan = c.f64(1, "nan", 0.0)?;
    let high = c.f64(2, "posinf", largest(dtype))?;
    let low = c.f64(3, "neginf", -largest(dtype))?;
    pointwise_in(c, dtype, [SELF], |[x]| {
        let y = x.eq(f64::NEG_INFINITY).select(x.constant(low), x);
        let y = x.eq(f64::INFINITY).select(x.constant(high), y);
        x.is_nan().select(x.constant(nan), y)
    })
}

/// `b` where `a` is NaN, `a` where `b` is, `both` elsewhere.
fn skip_nan<'f, 'g>(a: Expr<'f, 'g>, b: Expr<'f, 'g>, both: Expr<'f, 'g>) -> Expr<'f, 'g> {
    if !a.dtype().is_float() {
        return both;
    }
    let y = b.is_nan().select(a, both);
    a.is_nan().select(b, y)
}

/// Bounds take the dtype of the operands before they are compared, as in eager.
fn clamp(c: &mut Call<'_, '_>, low: Option<ArgName>, high: Option<ArgName>) -> RuleResult {
    let out = c.result(0)?.clone();
    let present = |bound: Option<ArgName>| bound.filter(|(i, name)| c.arg(*i, name).is_some());
    let (low, high) = (present(low), present(high));
    let x = operand(c, SELF, out.dtype, &out.shape)?;
    let mut bounds = Vec::new();
    for bound in [low, high].into_iter().flatten() {
        bounds.push(operand(c, bound, out.dtype, &out.shape)?);
    }
    let f = Formula::new(c.b);
    let mut rest = bounds.into_iter().map(|v| f.of(v));
    let mut y = f.of(x);
    if low.is_some() {
        y = rest.next().map_or(y, |low| y.max(low));
    }
    if high.is_some() {
        y = rest.next().map_or(y, |high| y.min(high));
    }
    Ok(vec![Some(y.id())])
}

fn heaviside<'f, 'g>([x, values]: [Expr<'f, 'g>; 2]) -> Expr<'f, 'g> {
    let step = x.gt(0.0).cast(x.dtype());
    x.eq(0.0).select(values, step)
}

/// `a + w·(b − a)` for |w| < ½, else `b − (b − a)·(1 − w)`: exact at both ends.
fn lerp(c: &mut Call<'_, '_>) -> RuleResult {
    pointwise(c, [SELF, (1, "end"), (2, "weight")], |[a, b, w]| {
        let d = b - a;
        w.abs().lt(0.5).select(a + w * d, b - d * (1.0 - w))
    })
}

fn addcmul(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, a, b) = (SELF, (1, "tensor1"), (2, "tensor2"));
    match factor(c, 3, "value") {
        None => pointwise(c, [x, a, b], |[x, a, b]| x + a * b),
        Some(value) => pointwise(c, [x, a, b, value], |[x, a, b, value]| x + value * a * b),
    }
}

fn addcdiv(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, a, b) = (SELF, (1, "tensor1"), (2, "tensor2"));
    match factor(c, 3, "value") {
        None => pointwise(c, [x, a, b], |[x, a, b]| x + a / b),
        Some(value) => pointwise(c, [x, a, b, value], |[x, a, b, value]| x + value * a / b),
    }
}

fn logit(c: &mut Call<'_, '_>) -> RuleResult {
    let (range, dtype) = logit_range(c, 1);
    pointwise(c, [SELF], |[x]| {
        let x = rounded(x, dtype);
        let x = range.map_or(x, |(low, high)| x.max(low).min(high));
        (x / (1.0 - x)).log()
    })
}

/// dx = g/(x(1 − x)), outside of the clamped range 0 (NaN when there is no clamp)
fn logit_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (range, dtype) = logit_range(c, 2);
    pointwise(c, [(0, "grad_output"), (1, "self")], |[g, x]| {
        let x = rounded(x, dtype);
        let ((low, high), outside) = range.map_or(((0.0, 1.0), f64::NAN), |r| (r, 0.0));
        let out = x.lt(low).or(x.gt(high));
        out.select(x.constant(outside), g / (x * (1.0 - x)))
    })
}

/// A 16-bit float to its last digit: near a pole, digits that its dtype does not have make another number.
fn rounded<'f, 'g>(x: Expr<'f, 'g>, dtype: DType) -> Expr<'f, 'g> {
    let wide = x.dtype();
    if dtype == wide { x } else { x.cast(dtype).cast(wide) }
}

/// `[eps, 1 − eps]` as the dtype of logit's `self` has it (in a 16-bit float a small `eps` leaves 1 in the range), and
/// that dtype.
fn logit_range(c: &Call<'_, '_>, position: usize) -> (Option<(f64, f64)>, DType) {
    let dtype = c.results[0].as_ref().map_or(DType::F32, |ty| ty.dtype);
    let Some(eps) = c.arg(position, "eps").and_then(Arg::as_f64).filter(|e| *e >= 0.0) else { return (None, dtype) };
    let bits = match dtype {
        DType::BF16 => 8,
        DType::F16 => 11,
        _ => return (Some((eps, 1.0 - eps)), dtype),
    };
    let round = |x: f64| {
        let unit = 2f64.powi(x.log2().floor() as i32 + 1 - bits);
        if x > 0.0 { (x / unit).round_ties_even() * unit } else { x }
    };
    let eps = round(eps);
    (Some((eps, round(1.0 - eps))), dtype)
}

fn xlogy<'f, 'g>([x, y]: [Expr<'f, 'g>; 2]) -> Expr<'f, 'g> {
    let z = x.eq(0.0).select(x.constant(0.0), x * y.log());
    y.is_nan().select(y, z)
}

fn xlog1py<'f, 'g>([x, y]: [Expr<'f, 'g>; 2]) -> Expr<'f, 'g> {
    let z = x.eq(0.0).select(x.constant(0.0), x * y.log1p());
    y.is_nan().select(y, z)
}

/// `max + ln(1 + e^−|a − b|)`; equal infinities are their own sum.
fn logaddexp<'f, 'g>([a, b]: [Expr<'f, 'g>; 2]) -> Expr<'f, 'g> {
    let y = a.max(b) + (-(a - b).abs()).exp().log1p();
    a.is_inf().and(a.eq(b)).select(a, y)
}

/// `max + log₂(1 + 2^−|a − b|)`
fn logaddexp2<'f, 'g>([a, b]: [Expr<'f, 'g>; 2]) -> Expr<'f, 'g> {
    let y = a.max(b) + (-(a - b).abs()).unary(PrimOp::Exp2).log1p() * (1.0 / LN_2);
    a.is_inf().and(a.eq(b)).select(a, y)
}
