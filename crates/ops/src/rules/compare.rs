//! Comparisons, tests, logic, bits and selection.

use super::expr::{ArgName, Expr, op, pointwise, pointwise_in, result_type, single};
use crate::decl::{Call, Decline, OpDecl, RuleResult};
use permalloy_ir::{Arg, DType, PrimOp};

/// `aten.NAME.Tensor` and `.Scalar` of a comparison.
macro_rules! compare {
    ($name:literal $overload:literal, $prim:ident, $doc:literal) => {
        op!($name $overload, |c| compare(c, PrimOp::$prim), $doc)
    };
}

/// A bitwise operator.
macro_rules! bits {
    ($name:literal $overload:literal, $prim:ident, $doc:literal) => {
        op!($name $overload, |c| single(c, [SELF, OTHER], |[a, b]| a.binary(PrimOp::$prim, b)), $doc)
    };
}

pub const DECLS: &[OpDecl] = &[
    compare!("eq" "Tensor", Eq, "a = b"),
    compare!("eq" "Scalar", Eq, "a = b"),
    compare!("ne" "Tensor", Ne, "a ≠ b"),
    compare!("ne" "Scalar", Ne, "a ≠ b"),
    compare!("lt" "Tensor", Lt, "a < b"),
    compare!("lt" "Scalar", Lt, "a < b"),
    compare!("le" "Tensor", Le, "a ≤ b"),
    compare!("le" "Scalar", Le, "a ≤ b"),
    compare!("gt" "Tensor", Gt, "a > b"),
    compare!("gt" "Scalar", Gt, "a > b"),
    compare!("ge" "Tensor", Ge, "a ≥ b"),
    compare!("ge" "Scalar", Ge, "a ≥ b"),
    op!("isnan" "default", |c| float_test(c, false, |x| x.is_nan()), "x is NaN"),
    op!("isinf" "default", |c| float_test(c, false, |x| x.is_inf()), "x is ±∞"),
    op!("isfinite" "default", |c| float_test(c, true, |x| x.is_nan().or(x.is_inf()).not()), "x is neither NaN nor ±∞"),
    op!("isposinf" "default", |c| float_test(c, false, |x| x.eq(f64::INFINITY)), "x = +∞"),
    op!("isneginf" "default", |c| float_test(c, false, |x| x.eq(f64::NEG_INFINITY)), "x = −∞"),
    op!("isreal" "default", |c| test(c, |x| x.cast(DType::Bool).constant(1.0)), "true of every real number"),
    op!("signbit" "default", |c| test(c, signbit), "the sign bit is set"),
    op!("logical_not" "default", |c| pointwise_in(c, DType::Bool, [SELF], |[x]| x.not()), "x = 0"),
    op!("logical_and" "default", |c| logical(c, PrimOp::And), "a ≠ 0 and b ≠ 0"),
    op!("logical_or" "default", |c| logical(c, PrimOp::Or), "a ≠ 0 or b ≠ 0"),
    op!("logical_xor" "default", |c| logical(c, PrimOp::Xor), "exactly one of a, b is not 0"),
    op!("bitwise_not" "default", |c| single(c, [SELF], |[x]| x.not()), "every bit inverted; logical on bool"),
    bits!("bitwise_and" "Tensor", And, "a & b"),
    bits!("bitwise_and" "Scalar", And, "a & b"),
    bits!("bitwise_and" "Scalar_Tensor", And, "a & b"),
    bits!("bitwise_or" "Tensor", Or, "a | b"),
    bits!("bitwise_or" "Scalar", Or, "a | b"),
    bits!("bitwise_or" "Scalar_Tensor", Or, "a | b"),
    bits!("bitwise_xor" "Tensor", Xor, "a ^ b"),
    bits!("bitwise_xor" "Scalar", Xor, "a ^ b"),
    bits!("bitwise_xor" "Scalar_Tensor", Xor, "a ^ b"),
    bits!("__and__" "Tensor", And, "a & b"),
    bits!("__and__" "Scalar", And, "a & b"),
    bits!("__or__" "Tensor", Or, "a | b"),
    bits!("__or__" "Scalar", Or, "a | b"),
    bits!("__xor__" "Tensor", Xor, "a ^ b"),
    bits!("__xor__" "Scalar", Xor, "a ^ b"),
    op!("bitwise_left_shift" "Tensor", shift_left, "a·2**b; 0 when b is no bit position"),
    op!("bitwise_left_shift" "Tensor_Scalar", shift_left, "a·2**b; 0 when b is no bit position"),
    op!("bitwise_left_shift" "Scalar_Tensor", shift_left, "a·2**b; 0 when b is no bit position"),
    op!("__lshift__" "Tensor", shift_left, "a·2**b; 0 when b is no bit position"),
    op!("__lshift__" "Scalar", shift_left, "a·2**b; 0 when b is no bit position"),
    op!("bitwise_right_shift" "Tensor", shift_right, "⌊a/2**b⌋; the sign when b is no bit position"),
    op!("bitwise_right_shift" "Tensor_Scalar", shift_right, "⌊a/2**b⌋; the sign when b is no bit position"),
    op!("bitwise_right_shift" "Scalar_Tensor", shift_right, "⌊a/2**b⌋; the sign when b is no bit position"),
    op!("__rshift__" "Tensor", shift_right, "⌊a/2**b⌋; the sign when b is no bit position"),
    op!("__rshift__" "Scalar", shift_right, "⌊a/2**b⌋; the sign when b is no bit position"),
    op!("where" "self", |c| choose(c, COND, SELF1, OTHER2), "a where cond, b elsewhere"),
    op!("where" "ScalarOther", |c| choose(c, COND, SELF1, OTHER2), "a where cond, b elsewhere"),
    op!("where" "ScalarSelf", |c| choose(c, COND, SELF1, OTHER2), "a where cond, b elsewhere"),
    op!("where" "Scalar", |c| choose(c, COND, SELF1, OTHER2), "a where cond, b elsewhere"),
    op!("masked_fill" "Scalar", |c| choose(c, MASK, VALUE, SELF), "value where mask, x elsewhere"),
    op!("masked_fill" "Tensor", |c| choose(c, MASK, VALUE, SELF), "value where mask, x elsewhere"),
    op!("threshold" "default", threshold, "value where x ≤ threshold, x elsewhere"),
];

const SELF: ArgName = (0, "self");
const OTHER: ArgName = (1, "other");
const COND: ArgName = (0, "condition");
const SELF1: ArgName = (1, "self");
const OTHER2: ArgName = (2, "other");
const MASK: ArgName = (1, "mask");
const VALUE: ArgName = (2, "value");

/// Operands meet in their common dtype: a scalar beside a bf16 tensor is rounded to bf16 first.
fn compare(c: &mut Call<'_, '_>, op: PrimOp) -> RuleResult {
    let dtype = result_type(c, &[SELF, OTHER])?;
    pointwise_in(c, dtype, [SELF, OTHER], |[a, b]| a.binary(op, b))
}

fn test(c: &mut Call<'_, '_>, f: impl for<'f, 'g> FnOnce(Expr<'f, 'g>) -> Expr<'f, 'g>) -> RuleResult {
    let dtype = result_type(c, &[SELF])?;
    pointwise_in(c, dtype, [SELF], |[x]| f(x))
}

/// A test that integers pass or fail as a whole.
fn float_test(
    c: &mut Call<'_, '_>,
    integer: bool,
    f: impl for<'f, 'g> FnOnce(Expr<'f, 'g>) -> Expr<'f, 'g>,
) -> RuleResult {
    test(c, |x| if x.dtype().is_float() { f(x) } else { x.cast(DType::Bool).constant(f64::from(u8::from(integer))) })
}

fn signbit<'f, 'g>(x: Expr<'f, 'g>) -> Expr<'f, 'g> {
    if x.dtype().is_float() {
        x.constant(1.0).binary(PrimOp::CopySign, x).lt(0.0)
    } else if matches!(x.dtype(), DType::Bool | DType::U8) {
        x.cast(DType::Bool).constant(0.0)
    } else {
        x.lt(0.0)
    }
}

fn logical(c: &mut Call<'_, '_>, op: PrimOp) -> RuleResult {
    pointwise_in(c, DType::Bool, [SELF, OTHER], |[a, b]| a.binary(op, b))
}

/// Bits of the promised integer dtype; floats take another path in eager.
fn width(c: &Call<'_, '_>) -> Result<(DType, f64), Decline> {
    let dtype = c.result(0)?.dtype;
    if dtype.is_int() { Ok((dtype, 8.0 * dtype.size() as f64)) } else { Err(format!("shift of {dtype}").into()) }
}

/// The amount is a constant bit position.
fn is_position(c: &Call<'_, '_>, bits: f64) -> bool {
    c.arg(1, "other").and_then(Arg::as_i64).is_some_and(|b| b >= 0 && (b as f64) < bits)
}

fn shift_left(c: &mut Call<'_, '_>) -> RuleResult {
    let (dtype, bits) = width(c)?;
    let plain = is_position(c, bits);
    pointwise_in(c, dtype, [SELF, OTHER], |[a, b]| {
        if plain {
            return a.binary(PrimOp::Shl, b);
        }
        let valid = b.ge(0.0).and(b.lt(bits));
        let shifted = a.binary(PrimOp::Shl, valid.select(b, 0.0));
        valid.select(shifted, 0.0)
    })
}

fn shift_right(c: &mut Call<'_, '_>) -> RuleResult {
    let (dtype, bits) = width(c)?;
    let plain = is_position(c, bits);
    pointwise_in(c, dtype, [SELF, OTHER], |[a, b]| {
        if plain {
            return a.binary(PrimOp::Shr, b);
        }
        let valid = b.ge(0.0).and(b.lt(bits));
        let shifted = a.binary(PrimOp::Shr, valid.select(b, bits - 1.0));
        if dtype == DType::U8 { valid.select(shifted, 0.0) } else { shifted }
    })
}

/// `a` where the condition holds, `b` elsewhere, in the promised dtype.
fn choose(c: &mut Call<'_, '_>, cond: ArgName, a: ArgName, b: ArgName) -> RuleResult {
    let out = c.result(0)?.clone();
    let cond = super::expr::operand(c, cond, DType::Bool, &out.shape)?;
    let a = super::expr::operand(c, a, out.dtype, &out.shape)?;
    let b = super::expr::operand(c, b, out.dtype, &out.shape)?;
    Ok(vec![Some(c.b.select(cond, a, b))])
}

fn threshold(c: &mut Call<'_, '_>) -> RuleResult {
    let args = [SELF, (1, "threshold"), (2, "value")];
    pointwise(c, args, |[x, threshold, value]| x.le(threshold).select(value, x))
}
