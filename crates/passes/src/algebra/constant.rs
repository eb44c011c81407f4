//! Arithmetic on constants.

use super::Site;
use permalloy_ir::{Arg, Builder, DType, Dim, Graph, PrimOp, ValueId};

/// A constant whose dtype is computed here just as an engine does: 16-bit floats and narrow integers are left alone.
#[derive(Clone, Copy)]
enum Constant {
    F32(f32),
    F64(f64),
    I64(i64),
    Bool(bool),
}

use Constant::{Bool, F32, F64, I64};

/// `f(a, b) = c` for constants, and views of a constant; the arithmetic is that of the dtype.
pub(super) fn fold(b: &mut Builder<'_>, site: &Site<'_>) -> Option<ValueId> {
    let node = site.node;
    let p = node.prim()?;
    let x = node.operand(0)?;
    if matches!(p, PrimOp::Reshape | PrimOp::Expand | PrimOp::Permute) {
        let full = b.graph.producer(x).filter(|n| n.prim() == Some(PrimOp::Full))?;
        let value = full.kwarg("value")?.clone();
        let shape = match p {
            PrimOp::Permute => node.ints_attr("perm").iter().map(|d| b.graph.shape(x)[*d as usize].clone()).collect(),
            _ => node.dims_attr("shape"),
        };
        let dtype = b.dtype(x);
        return (!site.owns).then(|| b.full(value, &shape, dtype));
    }
    let value = match node.operands()[..] {
        [x] => unary(p, constant(b.graph, x)?)?,
        [x, y] => binary(p, constant(b.graph, x)?, constant(b.graph, y)?)?,
        _ => return None,
    };
    let (arg, dtype) = match value {
        F32(x) => (Arg::Float(f64::from(x)), DType::F32),
        F64(x) => (Arg::Float(x), DType::F64),
        I64(x) => (Arg::Int(Dim::from(x)), DType::I64),
        Bool(x) => (Arg::Bool(x), DType::Bool),
    };
    let shape = b.shape(x);
    Some(b.full(arg, &shape, dtype))
}

/// `true ? a : b = a`, `false ? a : b = b`, `c ? a : a = a`.
pub(super) fn select(b: &mut Builder<'_>, site: &Site<'_>) -> Option<ValueId> {
    let node = site.node;
    if node.prim() != Some(PrimOp::Where) || site.owns {
        return None;
    }
    let (c, x, y) = (node.operand(0)?, node.operand(1)?, node.operand(2)?);
    match constant(b.graph, c) {
        Some(Bool(true)) => Some(x),
        Some(Bool(false)) => Some(y),
        _ => (x == y).then_some(x),
    }
}

fn constant(g: &Graph, v: ValueId) -> Option<Constant> {
    let node = g.producer(v).filter(|n| n.prim() == Some(PrimOp::Full))?;
    let value = node.kwarg("value")?;
    let float = || value.as_f64().or_else(|| value.as_bool().map(|x| f64::from(u8::from(x))));
    match g.dtype(v) {
        DType::F32 => float().map(|x| F32(x as f32)),
        DType::F64 => float().map(F64),
        DType::I64 => match value {
            Arg::Int(Dim::Const(x)) => Some(I64(*x)),
            _ => None,
        },
        DType::Bool => match value {
            Arg::Bool(x) => Some(Bool(*x)),
            _ => None,
        },
        _ => None,
    }
}

fn unary(p: PrimOp, x: Constant) -> Option<Constant> {
    Some(match (p, x) {
        (PrimOp::Neg, F32(x)) => F32(-x),
        (PrimOp::Neg, F64(x)) => F64(-x),
        (PrimOp::Neg, I64(x)) => I64(x.wrapping_neg()),
        (PrimOp::Abs, F32(x)) => F32(x.abs()),
        (PrimOp::Abs, F64(x)) => F64(x.abs()),
        (PrimOp::Abs, I64(x)) => I64(x.wrapping_abs()),
        (PrimOp::Not, Bool(x)) => Bool(!x),
        _ => return None,
    })
}

fn binary(p: PrimOp, x: Constant, y: Constant) -> Option<Constant> {
    Some(match (x, y) {
        (F32(x), F32(y)) => match p {
            PrimOp::Add => F32(x + y),
            PrimOp::Sub => F32(x - y),
            PrimOp::Mul => F32(x * y),
            PrimOp::Div => F32(x / y),
            _ => Bool(compare(p, &x, &y)?),
        },
        (F64(x), F64(y)) => match p {
            PrimOp::Add => F64(x + y),
            PrimOp::Sub => F64(x - y),
            PrimOp::Mul => F64(x * y),
            PrimOp::Div => F64(x / y),
            _ => Bool(compare(p, &x, &y)?),
        },
        (I64(x), I64(y)) => match p {
            PrimOp::Add => I64(x.wrapping_add(y)),
            PrimOp::Sub => I64(x.wrapping_sub(y)),
            PrimOp::Mul => I64(x.wrapping_mul(y)),
            _ => Bool(compare(p, &x, &y)?),
        },
        (Bool(x), Bool(y)) => match p {
            PrimOp::And => Bool(x && y),
            PrimOp::Or => Bool(x || y),
            _ => Bool(compare(p, &x, &y)?),
        },
        _ => return None,
    })
}

fn compare<T: PartialOrd>(p: PrimOp, x: &T, y: &T) -> Option<bool> {
    Some(match p {
        PrimOp::Eq => x == y,
        PrimOp::Ne => x != y,
        PrimOp::Lt => x < y,
        PrimOp::Le => x <= y,
        PrimOp::Gt => x > y,
        PrimOp::Ge => x >= y,
        _ => return None,
    })
}
