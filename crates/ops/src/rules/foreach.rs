//! `_foreach_*`: one elementwise operator over lists of tensors, as optimizers use it. Each tensor becomes its own expression,
//! so that fusion sees them; the fused optimizer kernels stay whole.
//!
//! Operands are cast to the result's dtype (f32 for 16-bit ones), the expression is computed there, and rounded once.

use super::emit::{as_result, binary, full, op, operands, result_dtype, result_shape, zeros};
use super::reduction::vector_norm;
use crate::decl::{Call, Decline, Effect, OpDecl, RuleResult};
use permalloy_ir::{Arg, DType, PrimOp, ValueId};

macro_rules! unary {
    ($name:literal, $rule:literal, $op:ident) => {
        op!(Pointwise $name, $rule => |c| each(c, |c, x| Ok(c.b.unary(PrimOp::$op, x))), "the unary operator for each")
    };
}

/// The four right operands of a binary operator: a number, a number each, a tensor each, one tensor.
macro_rules! binary_op {
    ($name:literal, $rule:literal, $f:expr, $doc:literal) => {
        op!(Pointwise $name, $rule => |c| pairs(c, $f), $doc)
    };
}

macro_rules! ternary_op {
    ($name:literal, $rule:literal, $f:expr, $doc:literal) => {
        op!(Pointwise $name, $rule => |c| triples(c, $f), $doc)
    };
}

pub const DECLS: &[OpDecl] = &[
    binary_op!("aten._foreach_add.Scalar", "_foreach_add.Scalar", add, "x + scalar for each"),
    binary_op!("aten._foreach_add.ScalarList", "_foreach_add.ScalarList", add, "x + scalar for each"),
    binary_op!("aten._foreach_add.List", "_foreach_add.List", add, "x + alpha·y for each"),
    binary_op!("aten._foreach_add.Tensor", "_foreach_add.Tensor", add, "x + alpha·y for each"),
    binary_op!("aten._foreach_sub.Scalar", "_foreach_sub.Scalar", sub, "x − scalar for each"),
    binary_op!("aten._foreach_sub.ScalarList", "_foreach_sub.ScalarList", sub, "x − scalar for each"),
    binary_op!("aten._foreach_sub.List", "_foreach_sub.List", sub, "x − alpha·y for each"),
    binary_op!("aten._foreach_mul.Scalar", "_foreach_mul.Scalar", mul, "x·scalar for each"),
    binary_op!("aten._foreach_mul.ScalarList", "_foreach_mul.ScalarList", mul, "x·scalar for each"),
    binary_op!("aten._foreach_mul.List", "_foreach_mul.List", mul, "x·y for each"),
    binary_op!("aten._foreach_mul.Tensor", "_foreach_mul.Tensor", mul, "x·y for each"),
    binary_op!("aten._foreach_div.Scalar", "_foreach_div.Scalar", div, "x/scalar for each"),
    binary_op!("aten._foreach_div.ScalarList", "_foreach_div.ScalarList", div, "x/scalar for each"),
    binary_op!("aten._foreach_div.List", "_foreach_div.List", div, "x/y for each"),
    binary_op!("aten._foreach_div.Tensor", "_foreach_div.Tensor", div, "x/y for each"),
    binary_op!("aten._foreach_maximum.Scalar", "_foreach_maximum.Scalar", max, "max(x, scalar) for each; NaN wins"),
    binary_op!(
        "aten._foreach_maximum.ScalarList",
        "_foreach_maximum.ScalarList",
        max,
        "max(x, scalar) for each; NaN wins"
    ),
    binary_op!("aten._foreach_maximum.List", "_foreach_maximum.List", max, "max(x, y) for each; NaN wins"),
    binary_op!("aten._foreach_minimum.Scalar", "_foreach_minimum.Scalar", min, "min(x, scalar) for each; NaN wins"),
    binary_op!(
        "aten._foreach_minimum.ScalarList",
        "_foreach_minimum.ScalarList",
        min,
        "min(x, scalar) for each; NaN wins"
    ),
    binary_op!("aten._foreach_minimum.List", "_foreach_minimum.List", min, "min(x, y) for each; NaN wins"),
    binary_op!("aten._foreach_clamp_min.Scalar", "_foreach_clamp_min.Scalar", max, "max(x, scalar) for each; NaN wins"),
    binary_op!(
        "aten._foreach_clamp_min.ScalarList",
        "_foreach_clamp_min.ScalarList",
        max,
        "max(x, scalar) for each; NaN wins"
    ),
    binary_op!("aten._foreach_clamp_min.List", "_foreach_clamp_min.List", max, "max(x, y) for each; NaN wins"),
    binary_op!("aten._foreach_clamp_max.Scalar", "_foreach_clamp_max.Scalar", min, "min(x, scalar) for each; NaN wins"),
    binary_op!(
        "aten._foreach_clamp_max.ScalarList",
        "_foreach_clamp_max.ScalarList",
        min,
        "min(x, scalar) for each; NaN wins"
    ),
    binary_op!("aten._foreach_clamp_max.List", "_foreach_clamp_max.List", min, "min(x, y) for each; NaN wins"),
    binary_op!("aten._foreach_pow.Scalar", "_foreach_pow.Scalar", pow, "x to the power of scalar for each"),
    binary_op!("aten._foreach_pow.ScalarList", "_foreach_pow.ScalarList", pow, "x to the power of scalar for each"),
    binary_op!("aten._foreach_pow.List", "_foreach_pow.List", pow, "x to the power of y for each"),
    op!(Pointwise "aten._foreach_pow.ScalarAndTensor", "_foreach_pow.ScalarAndTensor" => pow_of_scalar, "scalar to the power of x for each"),
    ternary_op!("aten._foreach_addcmul.Scalar", "_foreach_addcmul.Scalar", addcmul, "x + value·a·b for each"),
    ternary_op!("aten._foreach_addcmul.ScalarList", "_foreach_addcmul.ScalarList", addcmul, "x + value·a·b for each"),
    ternary_op!(
        "aten._foreach_addcmul.Tensor",
        "_foreach_addcmul.Tensor",
        addcmul,
        "x + value·a·b for each, values in one tensor"
    ),
    ternary_op!("aten._foreach_addcdiv.Scalar", "_foreach_addcdiv.Scalar", addcdiv, "x + value·a/b for each"),
    ternary_op!("aten._foreach_addcdiv.ScalarList", "_foreach_addcdiv.ScalarList", addcdiv, "x + value·a/b for each"),
    ternary_op!(
        "aten._foreach_addcdiv.Tensor",
        "_foreach_addcdiv.Tensor",
        addcdiv,
        "x + value·a/b for each, values in one tensor"
    ),
    op!(Pointwise "aten._foreach_lerp.Scalar", "_foreach_lerp.Scalar" => lerp, "x + weight·(y − x) for each"),
    op!(Pointwise "aten._foreach_lerp.ScalarList", "_foreach_lerp.ScalarList" => lerp, "x + weight·(y − x) for each"),
    op!(Pointwise "aten._foreach_lerp.List", "_foreach_lerp.List" => lerp, "x + weight·(y − x) for each"),
    unary!("aten._foreach_abs.default", "_foreach_abs", Abs),
    unary!("aten._foreach_acos.default", "_foreach_acos", Acos),
    unary!("aten._foreach_asin.default", "_foreach_asin", Asin),
    unary!("aten._foreach_atan.default", "_foreach_atan", Atan),
    unary!("aten._foreach_ceil.default", "_foreach_ceil", Ceil),
    unary!("aten._foreach_cos.default", "_foreach_cos", Cos),
    unary!("aten._foreach_cosh.default", "_foreach_cosh", Cosh),
    unary!("aten._foreach_erf.default", "_foreach_erf", Erf),
    unary!("aten._foreach_erfc.default", "_foreach_erfc", Erfc),
    unary!("aten._foreach_exp.default", "_foreach_exp", Exp),
    unary!("aten._foreach_expm1.default", "_foreach_expm1", Expm1),
    unary!("aten._foreach_floor.default", "_foreach_floor", Floor),
    unary!("aten._foreach_lgamma.default", "_foreach_lgamma", Lgamma),
    unary!("aten._foreach_log.default", "_foreach_log", Log),
    unary!("aten._foreach_log10.default", "_foreach_log10", Log10),
    unary!("aten._foreach_log1p.default", "_foreach_log1p", Log1p),
    unary!("aten._foreach_log2.default", "_foreach_log2", Log2),
    unary!("aten._foreach_neg.default", "_foreach_neg", Neg),
    unary!("aten._foreach_reciprocal.default", "_foreach_reciprocal", Reciprocal),
    unary!("aten._foreach_round.default", "_foreach_round", Round),
    unary!("aten._foreach_rsqrt.default", "_foreach_rsqrt", Rsqrt),
    unary!("aten._foreach_sigmoid.default", "_foreach_sigmoid", Sigmoid),
    unary!("aten._foreach_sign.default", "_foreach_sign", Sign),
    unary!("aten._foreach_sin.default", "_foreach_sin", Sin),
    unary!("aten._foreach_sinh.default", "_foreach_sinh", Sinh),
    unary!("aten._foreach_sqrt.default", "_foreach_sqrt", Sqrt),
    unary!("aten._foreach_tan.default", "_foreach_tan", Tan),
    unary!("aten._foreach_tanh.default", "_foreach_tanh", Tanh),
    unary!("aten._foreach_trunc.default", "_foreach_trunc", Trunc),
    op!(Pointwise "aten._foreach_frac.default", "_foreach_frac" => |c| each(c, frac), "x − trunc(x) for each"),
    op!(Pointwise "aten._foreach_copy.default", "_foreach_copy" => copy, "the source in the dtype of x, for each"),
    op!(Pointwise "aten._foreach_zero.default", "_foreach_zero" => zero, "zeros for each"),
    op!(Reduction "aten._foreach_norm.Scalar", "_foreach_norm" => norm, "(Σ |x|ᵖ)^(1/p) for each"),
    op!(Reduction "aten._foreach_max.default", "_foreach_max" => |c| each(c, largest), "largest element of each"),
    op!(Reduction "aten._foreach_powsum.Scalar", "Σ |x|ᵖ for each"),
    op!(Opaque "aten._fused_adam.default", "one step of Adam over lists"),
    op!(Opaque "aten._fused_adam.tensor_lr", "one step of Adam over lists"),
    op!(Opaque "aten._fused_adamw.default", "one step of AdamW over lists"),
    op!(Opaque "aten._fused_adamw.tensor_lr", "one step of AdamW over lists"),
    op!(Opaque "aten._fused_sgd.default", "one step of SGD over lists"),
    op!(Opaque "aten._fused_sgd.tensor_lr", "one step of SGD over lists"),
    op!(Opaque "aten._fused_adagrad.default", "one step of Adagrad over lists"),
    op!(Opaque "aten._fused_adagrad.tensor_lr", "one step of Adagrad over lists"),
    op!(Opaque "aten._fused_adam_.default", "one step of Adam in place").effect(Effect::Mutates),
    op!(Opaque "aten._fused_adam_.tensor_lr", "one step of Adam in place").effect(Effect::Mutates),
    op!(Opaque "aten._fused_adamw_.default", "one step of AdamW in place").effect(Effect::Mutates),
    op!(Opaque "aten._fused_adamw_.tensor_lr", "one step of AdamW in place").effect(Effect::Mutates),
    op!(Opaque "aten._fused_sgd_.default", "one step of SGD in place").effect(Effect::Mutates),
    op!(Opaque "aten._fused_sgd_.tensor_lr", "one step of SGD in place").effect(Effect::Mutates),
    op!(Opaque "aten._fused_adagrad_.default", "one step of Adagrad in place").effect(Effect::Mutates),
    op!(Opaque "aten._amp_foreach_non_finite_check_and_unscale.default", "gradients over the loss scale, and whether any is not finite"),
    op!(Opaque "aten._amp_foreach_non_finite_check_and_unscale_.default", "gradients over the loss scale in place")
        .effect(Effect::Mutates),
    op!(Opaque "aten._amp_update_scale.default", "the next loss scale"),
    op!(Opaque "aten._amp_update_scale_.default", "the next loss scale in place").effect(Effect::Mutates),
];

/// The dtype in which result `i` is computed.
fn working(c: &Call<'_, '_>, i: usize) -> Result<DType, Decline> {
    Ok(result_dtype(c, i)?.compute())
}

fn wanted(c: &Call<'_, '_>, i: usize) -> bool {
    c.results.get(i).is_some_and(Option::is_some)
}

/// `f(x)` for each tensor of `self`.
fn each(c: &mut Call<'_, '_>, f: impl Fn(&mut Call<'_, '_>, ValueId) -> Result<ValueId, Decline>) -> RuleResult {
    let mut out = Vec::new();
    for (i, x) in operands(c, 0, "self")?.into_iter().enumerate() {
        if !wanted(c, i) {
            out.push(None);
            continue;
        }
        let to = working(c, i)?;
        let x = c.b.cast(x, to);
        let y = f(c, x)?;
        out.push(as_result(c, y, i)?);
    }
    Ok(out)
}

/// Argument `position` for tensor `i`: the i-th of a list, or the one value for all; a number becomes a 0-d constant.
fn item(c: &mut Call<'_, '_>, position: usize, names: [&str; 2], i: usize, dtype: DType) -> Result<ValueId, Decline> {
    let arg = names.iter().find_map(|n| c.arg(position, n)).cloned().ok_or("an operand is absent")?;
    let one = match arg {
        Arg::List(items) => items.get(i).cloned().ok_or("the lists differ in length")?,
        other => other,
    };
    match one {
        Arg::Value(v) if !c.b.dtype(v).is_computed() => Err(format!("no prims for dtype {}", c.b.dtype(v)).into()),
        Arg::Value(v) => Ok(c.b.cast(v, dtype)),
        number => full(c, &number, &[], dtype),
    }
}

type Expression = fn(&mut Call<'_, '_>, ValueId, ValueId) -> Result<ValueId, Decline>;

/// `f(x, alpha·y)` for each.
fn pairs(c: &mut Call<'_, '_>, f: Expression) -> RuleResult {
    let mut out = Vec::new();
    let alpha = c.arg(9, "alpha").cloned().filter(|a| a.as_f64() != Some(1.0));
    for (i, x) in operands(c, 0, "self")?.into_iter().enumerate() {
        if !wanted(c, i) {
            out.push(None);
            continue;
        }
        let to = working(c, i)?;
        let x = c.b.cast(x, to);
        let names = if c.arg(1, "other").is_some() { ["other", "scalar"] } else { ["scalars", "exponent"] };
        let mut y = item(c, 1, names, i, to)?;
        if let Some(alpha) = &alpha {
            let alpha = full(c, alpha, &[], to)?;
            y = binary(c, PrimOp::Mul, y, alpha)?;
        }
        let y = f(c, x, y)?;
        out.push(as_result(c, y, i)?);
    }
    Ok(out)
}

fn add(c: &mut Call<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId, Decline> {
    binary(c, PrimOp::Add, x, y)
}

fn sub(c: &mut Call<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId, Decline> {
    binary(c, PrimOp::Sub, x, y)
}

fn mul(c: &mut Call<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId, Decline> {
    binary(c, PrimOp::Mul, x, y)
}

fn div(c: &mut Call<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId, Decline> {
    binary(c, PrimOp::Div, x, y)
}

fn max(c: &mut Call<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId, Decline> {
    binary(c, PrimOp::Max, x, y)
}

fn min(c: &mut Call<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId, Decline> {
    binary(c, PrimOp::Min, x, y)
}

/// A constant exponent of 2 or ½ is a product or a root.
fn pow(c: &mut Call<'_, '_>, x: ValueId, y: ValueId) -> Result<ValueId, Decline> {
    let constant =
        c.b.graph.producer(y).filter(|n| n.prim() == Some(PrimOp::Full)).and_then(|n| n.kwarg("value")?.as_f64());
    match constant {
        Some(2.0) => binary(c, PrimOp::Mul, x, x),
        Some(0.5) if c.b.dtype(x).is_float() => Ok(c.b.unary(PrimOp::Sqrt, x)),
        _ => binary(c, PrimOp::Pow, x, y),
    }
}

fn pow_of_scalar(c: &mut Call<'_, '_>) -> RuleResult {
    let base = c.arg(0, "self").cloned().ok_or("the base is absent")?;
    let mut out = Vec::new();
    for (i, x) in operands(c, 1, "exponent")?.into_iter().enumerate() {
        let to = working(c, i)?;
        let (base, x) = (full(c, &base, &[], to)?, c.b.cast(x, to));
        let y = binary(c, PrimOp::Pow, base, x)?;
        out.push(as_result(c, y, i)?);
    }
    Ok(out)
}

type Ternary = fn(&mut Call<'_, '_>, ValueId, ValueId, ValueId, Option<ValueId>) -> Result<ValueId, Decline>;

/// `f(x, a, b, value)` for each; a value of 1 is left out.
fn triples(c: &mut Call<'_, '_>, f: Ternary) -> RuleResult {
    let mut out = Vec::new();
    for (i, x) in operands(c, 0, "self")?.into_iter().enumerate() {
        if !wanted(c, i) {
            out.push(None);
            continue;
        }
        let to = working(c, i)?;
        let x = c.b.cast(x, to);
        let a = item(c, 1, ["tensor1", "tensor1"], i, to)?;
        let b = item(c, 2, ["tensor2", "tensor2"], i, to)?;
        let value = match c.arg(3, "value").or_else(|| c.arg(3, "scalars")).cloned() {
            None => None,
            Some(v) if v.as_f64() == Some(1.0) => None,
            Some(Arg::Value(all)) => Some(element(c, all, i, to)?),
            Some(_) => Some(item(c, 3, ["value", "scalars"], i, to)?),
        };
        let y = f(c, x, a, b, value)?;
        out.push(as_result(c, y, i)?);
    }
    Ok(out)
}

/// Element `i` of a vector, as a 0-d tensor.
fn element(c: &mut Call<'_, '_>, all: ValueId, i: usize, dtype: DType) -> Result<ValueId, Decline> {
    if c.b.rank(all) != 1 {
        return Err("the values are no vector".into());
    }
    let at = |i: usize| permalloy_ir::Dim::from(i as i64);
    let one = c.b.slice(all, 0, &at(i), &at(i + 1), 1);
    let one = c.b.reshape(one, &[]);
    Ok(c.b.cast(one, dtype))
}

/// `x + (value·a)·b`.
fn addcmul(c: &mut Call<'_, '_>, x: ValueId, a: ValueId, b: ValueId, v: Option<ValueId>) -> Result<ValueId, Decline> {
    let a = scaled(c, a, v)?;
    let y = binary(c, PrimOp::Mul, a, b)?;
    binary(c, PrimOp::Add, x, y)
}

/// `x + (value·a)/b`.
fn addcdiv(c: &mut Call<'_, '_>, x: ValueId, a: ValueId, b: ValueId, v: Option<ValueId>) -> Result<ValueId, Decline> {
    let a = scaled(c, a, v)?;
    let y = binary(c, PrimOp::Div, a, b)?;
    binary(c, PrimOp::Add, x, y)
}

fn scaled(c: &mut Call<'_, '_>, a: ValueId, v: Option<ValueId>) -> Result<ValueId, Decline> {
    match v {
        None => Ok(a),
        Some(v) => binary(c, PrimOp::Mul, a, v),
    }
}

/// `|w| < ½ ? x + w·(y − x) : y − (y − x)·(1 − w)`, exact at both ends.
fn lerp(c: &mut Call<'_, '_>) -> RuleResult {
    let mut out = Vec::new();
    for (i, x) in operands(c, 0, "self")?.into_iter().enumerate() {
        if !wanted(c, i) {
            out.push(None);
            continue;
        }
        let to = working(c, i)?;
        if !to.is_float() {
            return Err("interpolation of integers".into());
        }
        let x = c.b.cast(x, to);
        let y = item(c, 1, ["tensors1", "tensors1"], i, to)?;
        let w = item(c, 2, ["weights", "weight"], i, to)?;
        let (half, unit) = (full(c, &Arg::Float(0.5), &[], to)?, full(c, &Arg::Float(1.0), &[], to)?);
        let span = binary(c, PrimOp::Sub, y, x)?;
        let up = binary(c, PrimOp::Mul, w, span)?;
        let up = binary(c, PrimOp::Add, x, up)?;
        let rest = binary(c, PrimOp::Sub, unit, w)?;
        let down = binary(c, PrimOp::Mul, span, rest)?;
        let down = binary(c, PrimOp::Sub, y, down)?;
        let magnitude = c.b.unary(PrimOp::Abs, w);
        let low = binary(c, PrimOp::Lt, magnitude, half)?;
        let y = super::emit::select(c, low, up, down)?;
        out.push(as_result(c, y, i)?);
    }
    Ok(out)
}

fn frac(c: &mut Call<'_, '_>, x: ValueId) -> Result<ValueId, Decline> {
    let whole = c.b.unary(PrimOp::Trunc, x);
    binary(c, PrimOp::Sub, x, whole)
}

fn largest(c: &mut Call<'_, '_>, x: ValueId) -> Result<ValueId, Decline> {
    let dims: Vec<i64> = (0..c.b.rank(x) as i64).collect();
    Ok(if dims.is_empty() { x } else { c.b.reduce(PrimOp::Amax, x, &dims, false) })
}

fn copy(c: &mut Call<'_, '_>) -> RuleResult {
    let mut out = Vec::new();
    for (i, src) in operands(c, 1, "src")?.into_iter().enumerate() {
        let (shape, dtype) = (result_shape(c, i)?, result_dtype(c, i)?);
        let y = c.b.cast(src, dtype);
        let y = super::emit::expand(c, y, &shape)?;
        out.push(as_result(c, y, i)?);
    }
    Ok(out)
}

fn zero(c: &mut Call<'_, '_>) -> RuleResult {
    (0..c.results.len())
        .map(|i| {
            let (shape, dtype) = (result_shape(c, i)?, result_dtype(c, i)?);
            Ok(Some(zeros(c, &shape, dtype)?))
        })
        .collect()
}

fn norm(c: &mut Call<'_, '_>) -> RuleResult {
    let p = c.f64(1, "ord", 2.0)?;
    each(c, |c, x| {
        let dims: Vec<i64> = (0..c.b.rank(x) as i64).collect();
        vector_norm(c, x, p, &dims)
    })
}
