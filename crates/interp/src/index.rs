//! Prims with data-dependent addresses. An index outside of `0 <= i < size` is an error.

use crate::Scope;
use crate::pointwise::int_binary;
use crate::tensor::{Data, Tensor, flat, indices, sizes};
use permalloy_ir::PrimOp;

pub(crate) fn eval(op: PrimOp, x: &Tensor, index: &Tensor, scope: &Scope<'_>) -> Result<Tensor, String> {
    let dim = scope.position("dim")?;
    let Data::I(entries) = &index.data else { return Err("the index is not an integer tensor".to_string()) };
    let within = |at: &[usize], size: usize| {
        let i = entries[flat(at, &index.shape)];
        usize::try_from(i)
            .ok()
            .filter(|i| *i < size)
            .ok_or_else(|| format!("index {i} at {at:?} is outside of 0..{size}"))
    };
    let rank = index.shape.len();
    match op {
        PrimOp::Gather => {
            same_but(dim, &index.shape, &x.shape)?;
            pick(x, &index.shape, |at| {
                let mut from = at.to_vec();
                from[dim] = within(at, x.shape[dim])?;
                Ok(flat(&from, &x.shape))
            })
        }
        PrimOp::Take => {
            let mut shape = x.shape.clone();
            shape.splice(dim..=dim, index.shape.iter().copied());
            pick(x, &shape, |at| {
                let mut from = at.to_vec();
                let i = within(&at[dim..dim + rank], x.shape[dim])?;
                from.splice(dim..dim + rank, [i]);
                Ok(flat(&from, &x.shape))
            })
        }
        PrimOp::IndexSum => {
            if x.shape.get(dim..dim + rank) != Some(index.shape.as_slice()) {
                return Err(format!("index {:?} does not lie in {:?} at dim {dim}", index.shape, x.shape));
            }
            let size = scope.position("size")?;
            let mut shape = x.shape.clone();
            shape.splice(dim..dim + rank, [size]);
            sum_at(x, &shape, |at| {
                let mut to = at.to_vec();
                let i = within(&at[dim..dim + rank], size)?;
                to.splice(dim..dim + rank, [i]);
                Ok(to)
            })
        }
        PrimOp::ScatterSum => {
            if index.shape != x.shape {
                return Err(format!("index {:?} differs from source {:?}", index.shape, x.shape));
            }
            let size = scope.position("size")?;
            let mut shape = x.shape.clone();
            shape[dim] = size;
            sum_at(x, &shape, |at| {
                let mut to = at.to_vec();
                to[dim] = within(at, size)?;
                Ok(to)
            })
        }
        _ => Err("is not an index prim".to_string()),
    }
}

/// Reads `x` at the flat position that `from` gives for each index of the result.
fn pick(x: &Tensor, shape: &[usize], from: impl Fn(&[usize]) -> Result<usize, String>) -> Result<Tensor, String> {
    sizes(&shape.iter().map(|s| *s as i64).collect::<Vec<_>>())?;
    let picks: Vec<usize> = indices(shape).map(|at| from(&at)).collect::<Result<_, _>>()?;
    let mut picks = picks.into_iter();
    Ok(x.rearrange(shape, |_| picks.next()))
}

/// Adds each element of `x` to the result at the index that `to` gives, in row-major order of `x`.
fn sum_at(x: &Tensor, shape: &[usize], to: impl Fn(&[usize]) -> Result<Vec<usize>, String>) -> Result<Tensor, String> {
    let shape = sizes(&shape.iter().map(|s| *s as i64).collect::<Vec<_>>())?;
    let numel = shape.iter().product();
    let targets = indices(&x.shape).map(|at| to(&at).map(|to| flat(&to, &shape)));
    let data = match &x.data {
        Data::F(v) => {
            let mut out = vec![0.0; numel];
            for (to, x) in targets.zip(v) {
                out[to?] += x;
            }
            Data::F(out)
        }
        Data::I(v) => {
            let mut out = vec![0; numel];
            for (to, a) in targets.zip(v) {
                let to = to?;
                out[to] = int_binary(PrimOp::Add, x.dtype, out[to], *a)?;
            }
            Data::I(out)
        }
    };
    Ok(Tensor { dtype: x.dtype, shape, data })
}

fn same_but(dim: usize, a: &[usize], b: &[usize]) -> Result<(), String> {
    if a.len() == b.len() && (0..a.len()).all(|d| d == dim || a[d] == b[d]) {
        Ok(())
    } else {
        Err(format!("index {a:?} does not fit {b:?} along dim {dim}"))
    }
}
