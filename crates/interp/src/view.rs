//! Prims that only rearrange elements.

use crate::Scope;
use crate::tensor::{Data, Tensor, flat, sizes};
use permalloy_ir::PrimOp;

pub(crate) fn eval(op: PrimOp, operands: &[&Tensor], scope: &Scope<'_>) -> Result<Tensor, String> {
    let x = operands[0];
    let at = |index: &[usize]| Some(flat(index, &x.shape));
    match op {
        PrimOp::Reshape => {
            let shape = scope.shape("shape")?;
            if shape.iter().product::<usize>() != x.numel() {
                return Err(format!("{:?} does not reshape to {shape:?}", x.shape));
            }
            Ok(Tensor { dtype: x.dtype, shape, data: x.data.clone() })
        }
        PrimOp::Permute => {
            let perm = scope.positions("perm")?;
            let shape: Vec<usize> = perm.iter().map(|p| x.shape[*p]).collect();
            Ok(x.rearrange(&shape, |index| {
                let mut from = vec![0; index.len()];
                perm.iter().zip(index).for_each(|(p, i)| from[*p] = *i);
                at(&from)
            }))
        }
        PrimOp::Expand => {
            let shape = scope.shape("shape")?;
            expand(x, &shape)
        }
        PrimOp::Slice => {
            let (dim, start, end, step) =
                (scope.position("dim")?, scope.int("start")?, scope.int("end")?, scope.position("step")?);
            let size = x.shape[dim];
            if !(0 <= start && start <= end && end <= size as i64) {
                return Err(format!("{start}..{end} does not lie in 0..{size}"));
            }
            let mut shape = x.shape.clone();
            shape[dim] = ((end - start) as usize).div_ceil(step);
            Ok(x.rearrange(&shape, |index| {
                let mut from = index.to_vec();
                from[dim] = start as usize + index[dim] * step;
                at(&from)
            }))
        }
        PrimOp::Window => {
            let (dim, count, size, step) =
                (scope.position("dim")?, scope.position("count")?, scope.position("size")?, scope.position("step")?);
            let end = count.checked_sub(1).map_or(size, |last| last.saturating_mul(step).saturating_add(size));
            if end > x.shape[dim] {
                return Err(format!("{count} windows of {size} every {step} do not fit into {}", x.shape[dim]));
            }
            let mut shape = x.shape.clone();
            shape[dim] = count;
            shape.push(size);
            Ok(x.rearrange(&shape, |index| {
                let (inside, from) = index.split_last()?;
                let mut from = from.to_vec();
                from[dim] = from[dim] * step + inside;
                at(&from)
            }))
        }
        PrimOp::Flip => {
            let dims = scope.positions("dims")?;
            Ok(x.rearrange(&x.shape, |index| {
                let flip = |d: usize| if dims.contains(&d) { x.shape[d] - 1 - index[d] } else { index[d] };
                at(&(0..index.len()).map(flip).collect::<Vec<_>>())
            }))
        }
        PrimOp::Pad => {
            let (low, high) = (scope.positions("low")?, scope.positions("high")?);
            let padded: Vec<i64> = (0..low.len()).map(|d| (low[d] as i64).saturating_add(high[d] as i64)).collect();
            let shape: Vec<i64> = x.shape.iter().zip(&padded).map(|(s, p)| p.saturating_add(*s as i64)).collect();
            Ok(x.rearrange(&sizes(&shape)?, |index| {
                let inside = |d: usize| index[d].checked_sub(low[d]).filter(|i| *i < x.shape[d]);
                at(&(0..index.len()).map(inside).collect::<Option<Vec<_>>>()?)
            }))
        }
        PrimOp::After => Ok(x.clone()),
        PrimOp::Concat => concat(operands, scope.position("dim")?),
        _ => Err("is not a view".to_string()),
    }
}

/// Broadcast by PyTorch's rule: new dims in front, size-1 dims repeat.
pub(crate) fn expand(x: &Tensor, shape: &[usize]) -> Result<Tensor, String> {
    let fits = |(a, b): (&usize, &usize)| a == b || *a == 1;
    let Some(new) = shape.len().checked_sub(x.shape.len()).filter(|n| x.shape.iter().zip(&shape[*n..]).all(fits))
    else {
        return Err(format!("{:?} does not expand to {shape:?}", x.shape));
    };
    sizes(&shape.iter().map(|s| *s as i64).collect::<Vec<_>>())?;
    Ok(x.rearrange(shape, |index| {
        let from: Vec<usize> = index[new..].iter().zip(&x.shape).map(|(i, s)| if *s == 1 { 0 } else { *i }).collect();
        Some(flat(&from, &x.shape))
    }))
}

fn concat(parts: &[&Tensor], dim: usize) -> Result<Tensor, String> {
    let mut shape = parts[0].shape.clone();
    shape[dim] = 0;
    for p in parts {
        let others_equal = (0..shape.len()).all(|d| d == dim || p.shape[d] == shape[d]);
        if !others_equal {
            return Err(format!("{:?} does not join {:?} along dim {dim}", p.shape, parts[0].shape));
        }
        shape[dim] += p.shape[dim];
    }
    let shape = sizes(&shape.iter().map(|s| *s as i64).collect::<Vec<_>>())?;
    // All parts in one row of elements, then picked from there.
    let mut starts = Vec::new();
    let mut all = Tensor { dtype: parts[0].dtype, shape: vec![], data: parts[0].data.clone() };
    let mut count = 0;
    for (i, p) in parts.iter().enumerate() {
        starts.push(count);
        count += p.numel();
        match (&mut all.data, &p.data) {
            _ if i == 0 => {}
            (Data::F(all), Data::F(v)) => all.extend(v),
            (Data::I(all), Data::I(v)) => all.extend(v),
            _ => return Err(format!("{} does not join {}", p.dtype, all.dtype)),
        }
    }
    Ok(all.rearrange(&shape, |index| {
        let mut from = index.to_vec();
        let mut part = 0;
        while from[dim] >= parts[part].shape[dim] {
            from[dim] -= parts[part].shape[dim];
            part += 1;
        }
        Some(starts[part] + flat(&from, &parts[part].shape))
    }))
}
