//! What the rules of several topics share: checked operands, results as promised, sizes compared without new guards.

use crate::decl::{Call, Decline, RuleResult};
use permalloy_ir::{Arg, DType, Dim, PrimOp, ValueId};

/// One row of a topic's table: cost class, operator, rule name and function (none: native), meaning.
macro_rules! op {
    ($cost:ident $name:literal, $rule:literal => $apply:expr, $doc:literal) => {
        $crate::decl::OpDecl::new(
            $name,
            $crate::decl::Cost::$cost,
            &[$crate::decl::Rule { name: $rule, apply: $apply }],
            $doc,
        )
    };
    ($cost:ident $name:literal, $doc:literal) => {
        $crate::decl::OpDecl::new($name, $crate::decl::Cost::$cost, &[], $doc)
    };
}
pub(super) use op;

/// A tensor argument of a dtype that the prims compute.
pub(super) fn operand(c: &Call<'_, '_>, position: usize, name: &str) -> Result<ValueId, Decline> {
    computed(c, c.tensor(position, name)?)
}

/// A list-of-tensors argument.
pub(super) fn operands(c: &Call<'_, '_>, position: usize, name: &str) -> Result<Vec<ValueId>, Decline> {
    let items = c.arg(position, name).and_then(Arg::as_list).ok_or_else(|| not_a_list(name))?;
    items.iter().map(|a| computed(c, a.as_value().ok_or_else(|| not_a_list(name))?)).collect()
}

fn not_a_list(name: &str) -> Decline {
    format!("argument {name} is not a list of tensors").into()
}

fn computed(c: &Call<'_, '_>, v: ValueId) -> Result<ValueId, Decline> {
    let dtype = c.b.dtype(v);
    if dtype.is_computed() { Ok(v) } else { Err(format!("no prims for dtype {dtype}").into()) }
}

/// The promised dtype of a result, if the prims compute it.
pub(super) fn result_dtype(c: &Call<'_, '_>, position: usize) -> Result<DType, Decline> {
    let dtype = c.result(position)?.dtype;
    if dtype.is_computed() { Ok(dtype) } else { Err(format!("no prims for dtype {dtype}").into()) }
}

/// The promised shape of a result.
pub(super) fn result_shape(c: &Call<'_, '_>, position: usize) -> Result<Vec<Dim>, Decline> {
    Ok(c.result(position)?.shape.clone())
}

/// `y` in the promised dtype and shape of a result (kept dims come back here; equal sizes may be written in two ways).
pub(super) fn as_result(c: &mut Call<'_, '_>, y: ValueId, position: usize) -> Result<Option<ValueId>, Decline> {
    let (dtype, shape) = (result_dtype(c, position)?, result_shape(c, position)?);
    let y = c.b.cast(y, dtype);
    Ok(Some(reshape(c, y, &shape)?))
}

/// Ends a rule of one result.
pub(super) fn one(c: &mut Call<'_, '_>, y: ValueId) -> RuleResult {
    Ok(vec![as_result(c, y, 0)?])
}

/// Appends a prim; a type error means that the rule does not cover these arguments.
pub(super) fn prim(
    c: &mut Call<'_, '_>,
    op: PrimOp,
    operands: &[ValueId],
    attrs: Vec<(&str, Arg)>,
) -> Result<ValueId, Decline> {
    c.b.try_prim(op, operands, attrs).map_err(Decline)
}

pub(super) fn reshape(c: &mut Call<'_, '_>, x: ValueId, shape: &[Dim]) -> Result<ValueId, Decline> {
    if c.b.graph.shape(x) == shape {
        return Ok(x);
    }
    prim(c, PrimOp::Reshape, &[x], vec![("shape", Arg::dims(shape))])
}

/// PyTorch's broadcast of `x` to `shape`; a constant is made in that shape at once.
pub(super) fn expand(c: &mut Call<'_, '_>, x: ValueId, shape: &[Dim]) -> Result<ValueId, Decline> {
    let from = c.b.shape(x);
    let fits =
        from.len() <= shape.len() && from.iter().rev().zip(shape.iter().rev()).all(|(a, b)| a == b || a.is_const(1));
    if !fits {
        return Err("sizes are not provably broadcastable".into());
    }
    let constant = c.b.graph.producer(x).filter(|n| n.prim() == Some(PrimOp::Full)).and_then(|n| n.kwarg("value"));
    match constant.cloned() {
        Some(value) if from != shape => {
            let dtype = c.b.dtype(x);
            full(c, &value, shape, dtype)
        }
        _ => Ok(c.b.expand(x, shape)),
    }
}

/// The shape that `shapes` broadcast to.
pub(super) fn broadcast(shapes: &[Vec<Dim>]) -> Result<Vec<Dim>, Decline> {
    let rank = shapes.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = vec![Dim::ONE; rank];
    for shape in shapes {
        for (to, d) in out[rank - shape.len()..].iter_mut().zip(shape) {
            if to.is_const(1) {
                *to = d.clone();
            } else if !d.is_const(1) && d != to {
                return Err("sizes are not provably broadcastable".into());
            }
        }
    }
    Ok(out)
}

/// Concatenation along `dim`.
pub(super) fn concat(c: &mut Call<'_, '_>, parts: &[ValueId], dim: usize) -> Result<ValueId, Decline> {
    match parts {
        [one] => Ok(*one),
        _ => prim(c, PrimOp::Concat, parts, vec![("dim", Arg::Int(Dim::from(dim as i64)))]),
    }
}

/// Every element is `value`, an integer, a float or a bool, possibly symbolic.
pub(super) fn full(c: &mut Call<'_, '_>, value: &Arg, shape: &[Dim], dtype: DType) -> Result<ValueId, Decline> {
    if !dtype.is_computed() {
        return Err(format!("no prims for dtype {dtype}").into());
    }
    let value = match (value, dtype) {
        (Arg::Int(d), _) if d.as_const().is_none() => {
            if dtype == DType::Bool {
                return Err("a symbolic fill value as bool".into());
            }
            Arg::Int(d.clone())
        }
        (v, DType::Bool) => Arg::Bool(v.as_f64().ok_or("the fill value is not a number")? != 0.0),
        (v, d) if d.is_float() => Arg::Float(v.as_f64().ok_or("the fill value is not a number")?),
        (Arg::Float(x), _) if !x.is_finite() => return Err("a non-finite fill value as integer".into()),
        (Arg::Float(x), _) => Arg::Int(Dim::from(x.trunc() as i64)),
        (v, _) => Arg::Int(v.as_dim().ok_or("the fill value is not a number")?),
    };
    prim(c, PrimOp::Full, &[], vec![("value", value), ("shape", Arg::dims(shape)), ("dtype", Arg::DType(dtype))])
}

/// A size as a 0-d constant.
pub(super) fn dim_value(c: &mut Call<'_, '_>, value: &Dim, dtype: DType) -> Result<ValueId, Decline> {
    full(c, &Arg::Int(value.clone()), &[], dtype)
}

/// `[0, 1, …]` along dim `dim` of a tensor of `shape`, size 1 in the other dims.
pub(super) fn iota_along(c: &mut Call<'_, '_>, shape: &[Dim], dim: usize) -> ValueId {
    let i = c.b.iota(shape[dim].clone());
    let mut to = vec![Dim::ONE; shape.len()];
    to[dim] = shape[dim].clone();
    c.b.reshape(i, &to)
}

/// `where(cond, a, b)` with broadcasting.
pub(super) fn select(c: &mut Call<'_, '_>, cond: ValueId, a: ValueId, b: ValueId) -> Result<ValueId, Decline> {
    let shape = broadcast(&[c.b.shape(cond), c.b.shape(a), c.b.shape(b)])?;
    let (cond, a, b) = (expand(c, cond, &shape)?, expand(c, a, &shape)?, expand(c, b, &shape)?);
    prim(c, PrimOp::Where, &[cond, a, b], vec![])
}

/// An elementwise prim of two operands with broadcasting.
pub(super) fn binary(c: &mut Call<'_, '_>, op: PrimOp, a: ValueId, b: ValueId) -> Result<ValueId, Decline> {
    let shape = broadcast(&[c.b.shape(a), c.b.shape(b)])?;
    let (a, b) = (expand(c, a, &shape)?, expand(c, b, &shape)?);
    prim(c, op, &[a, b], vec![])
}

/// Zeros of a dtype and shape.
pub(super) fn zeros(c: &mut Call<'_, '_>, shape: &[Dim], dtype: DType) -> Result<ValueId, Decline> {
    full(c, &Arg::Int(Dim::ZERO), shape, dtype)
}

/// `x` as bool: `x != 0`.
pub(super) fn truth(c: &mut Call<'_, '_>, x: ValueId) -> ValueId {
    c.b.cast(x, DType::Bool)
}

/// `a <= b` whatever the size symbols are, as far as their ranges show.
pub(super) fn at_most(c: &Call<'_, '_>, a: &Dim, b: &Dim) -> bool {
    permalloy_ir::non_negative(&(b - a), &c.b.graph.symbols)
}

/// The smaller of two sizes, decided now where ranges show which it is.
pub(super) fn smaller(c: &Call<'_, '_>, a: &Dim, b: &Dim) -> Dim {
    if at_most(c, a, b) {
        a.clone()
    } else if at_most(c, b, a) {
        b.clone()
    } else {
        a.min(b)
    }
}

/// The larger of two sizes.
pub(super) fn larger(c: &Call<'_, '_>, a: &Dim, b: &Dim) -> Dim {
    if at_most(c, a, b) {
        b.clone()
    } else if at_most(c, b, a) {
        a.clone()
    } else {
        a.max(b)
    }
}

/// Whether an index counts from the end. Tracing guards on the sign of a symbolic index, so its value at trace time decides.
pub(super) fn is_negative(c: &Call<'_, '_>, d: &Dim) -> Result<bool, Decline> {
    if at_most(c, &Dim::ZERO, d) {
        return Ok(false);
    }
    let hints = permalloy_ir::hints(&c.b.graph.symbols);
    d.eval(&hints).map(|v| v < 0).map_err(|e| Decline(e.to_string()))
}

/// A slice bound by Python's rule: negative ones count from the end, then all are clamped into `0..=size`.
pub(super) fn bound(c: &Call<'_, '_>, at: &Dim, size: &Dim) -> Result<Dim, Decline> {
    if at.as_const().is_some_and(|v| v >= i64::MAX / 2) {
        return Ok(size.clone());
    }
    if at.as_const().is_some_and(|v| v <= i64::MIN / 2) {
        return Ok(Dim::ZERO);
    }
    Ok(if is_negative(c, at)? { larger(c, &(at + size), &Dim::ZERO) } else { smaller(c, at, size) })
}

/// An index into a dim, non-negative.
pub(super) fn position(c: &Call<'_, '_>, at: &Dim, size: &Dim) -> Result<Dim, Decline> {
    Ok(if is_negative(c, at)? { at + size } else { at.clone() })
}
