//! Reductions and scans.

use crate::pointwise::{float_binary, int_binary};
use crate::round::int_range;
use crate::tensor::{Data, Tensor, flat, indices};
use permalloy_ir::{DType, PrimOp};

type Result<T = Tensor> = std::result::Result<T, String>;

/// Folds `dims`, in row-major order of the operand, from the identity.
pub(crate) fn reduce(op: PrimOp, x: &Tensor, dims: &[usize]) -> Result {
    if matches!(op, PrimOp::Argmax | PrimOp::Argmin) {
        return arg_extreme(op, x, dims[0]);
    }
    let kept: Vec<usize> = (0..x.shape.len()).filter(|d| !dims.contains(d)).collect();
    let shape: Vec<usize> = kept.iter().map(|d| x.shape[*d]).collect();
    let numel: usize = shape.iter().product();
    let target = |index: &[usize]| flat(&kept.iter().map(|d| index[*d]).collect::<Vec<_>>(), &shape);
    let (low, high) = int_range(x.dtype);
    let (fold, float_identity, int_identity) = match op {
        PrimOp::Sum => (PrimOp::Add, 0.0, 0),
        PrimOp::Prod => (PrimOp::Mul, 1.0, 1),
        PrimOp::Amax => (PrimOp::Max, f64::NEG_INFINITY, low),
        PrimOp::Amin => (PrimOp::Min, f64::INFINITY, high),
        PrimOp::Any => (PrimOp::Or, 0.0, 0),
        PrimOp::All => (PrimOp::And, 1.0, 1),
        _ => return Err("is not a reduction".to_string()),
    };
    let data = match &x.data {
        Data::F(v) => {
            let f = float_binary(fold).ok_or_else(|| format!("has no meaning for {}", x.dtype))?;
            let mut out = vec![float_identity; numel];
            for (index, x) in indices(&x.shape).zip(v) {
                let slot = &mut out[target(&index)];
                *slot = f(*slot, *x);
            }
            Data::F(out)
        }
        Data::I(v) => {
            let mut out = vec![int_identity; numel];
            for (index, a) in indices(&x.shape).zip(v) {
                let slot = &mut out[target(&index)];
                *slot = int_binary(fold, x.dtype, *slot, *a)?;
            }
            Data::I(out)
        }
    };
    Ok(Tensor { dtype: x.dtype, shape, data })
}

/// Prefix sums or products along one dim.
pub(crate) fn scan(op: PrimOp, x: &Tensor, dim: usize) -> Result {
    let fold = if op == PrimOp::CumSum { PrimOp::Add } else { PrimOp::Mul };
    let mut out = x.clone();
    for index in indices(&x.shape) {
        if index[dim] == 0 {
            continue;
        }
        let mut before = index.clone();
        before[dim] -= 1;
        let (at, before) = (flat(&index, &x.shape), flat(&before, &x.shape));
        match &mut out.data {
            Data::F(v) => {
                let f = float_binary(fold).ok_or_else(|| format!("has no meaning for {}", x.dtype))?;
                v[at] = f(v[before], v[at]);
            }
            Data::I(v) => v[at] = int_binary(fold, x.dtype, v[before], v[at])?,
        }
    }
    Ok(out)
}

/// Position of the first extreme along a dim; the first NaN wins over everything.
fn arg_extreme(op: PrimOp, x: &Tensor, dim: usize) -> Result {
    let mut shape = x.shape.clone();
    let size = shape.remove(dim);
    if size == 0 && shape.iter().all(|s| *s > 0) {
        return Err(format!("dim {dim} is empty"));
    }
    let larger = op == PrimOp::Argmax;
    let positions = indices(&shape).map(|index| {
        let at = |i: usize| {
            let mut full = index.clone();
            full.insert(dim, i);
            flat(&full, &x.shape)
        };
        let better = |i: usize, best: usize| match &x.data {
            Data::F(v) => {
                let (a, b) = (v[at(i)], v[at(best)]);
                !b.is_nan() && (a.is_nan() || if larger { a > b } else { a < b })
            }
            Data::I(v) => {
                let (a, b) = (v[at(i)], v[at(best)]);
                if larger { a > b } else { a < b }
            }
        };
        (1..size).fold(0, |best, i| if better(i, best) { i } else { best }) as i64
    });
    let positions = positions.collect();
    Ok(Tensor::ints(DType::I64, &shape, positions))
}
