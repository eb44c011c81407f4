//! Views over a value's row-major order, rewritten over the memory layout it really has.

use crate::view::{Part, View};
use permalloy_ir::{Dim, contiguous_strides};

/// Rewrites a view over the row-major order of `shape` as one over a memory layout of it.
pub(super) fn relayout(view: &View, shape: &[Dim], layout: &View) -> Option<View> {
    let dense = contiguous_strides(shape);
    // Address of each dense stride in the layout, for dims that matter.
    let mut pairs: Vec<(&Dim, &Dim, &Dim)> = Vec::new();
    for (d, n) in shape.iter().enumerate().filter(|(_, n)| !n.is_const(1)) {
        let part = layout.dims[d].first()?;
        pairs.push((n, &dense[d], &part.stride));
    }
    if view.dims.iter().flatten().any(|p| p.size.is_const(0)) {
        return Some(view.clone());
    }
    let mut out = View { offset: layout.offset.clone(), dims: Vec::with_capacity(view.dims.len()) };
    // The constant offset is a mixed-radix number over the dense strides: take it apart, outermost first.
    let mut rest = view.offset.clone();
    for (_, dense, real) in &pairs {
        if rest.is_const(0) {
            break;
        }
        let digit = match (rest.as_const(), dense.as_const()) {
            (Some(r), Some(s)) if r >= 0 => Dim::Const(r / s),
            _ => match rest.div_exact(dense) {
                Some(q) => q,
                None => continue,
            },
        };
        out.offset = &out.offset + &(&digit * *real);
        rest = &rest - &(&digit * *dense);
    }
    if !rest.is_const(0) {
        return None;
    }
    for parts in &view.dims {
        let mut dim = Vec::new();
        for p in parts {
            if p.stride.is_const(0) {
                dim.push(p.clone());
                continue;
            }
            let found = pairs.iter().rev().find_map(|(n, dense, real)| {
                let times = p.stride.div_exact(dense)?;
                let stays = match (times.as_const(), n.as_const(), p.size.as_const()) {
                    (Some(t), Some(n), Some(size)) => t.abs() * (size - 1) < n,
                    _ => times.is_const(1) && p.size == **n,
                };
                stays.then(|| &times * *real)
            });
            match found {
                Some(stride) => dim.push(Part { size: p.size.clone(), stride, mask: p.mask.clone() }),
                None => dim.extend(split_over(p, &pairs)?),
            }
        }
        out.dims.push(dim);
    }
    Some(out)
}

/// A part that runs over several dims of the layout, as one part for each.
fn split_over(part: &Part, pairs: &[(&Dim, &Dim, &Dim)]) -> Option<Vec<Part>> {
    if part.mask.is_some() {
        return None;
    }
    let mut out = Vec::new();
    let (mut size, mut stride) = (part.size.clone(), part.stride.clone());
    while !size.is_const(1) {
        let (n, dense, real) = pairs.iter().find(|(_, dense, _)| **dense == stride)?;
        let inner = if let Some(q) = size.div_exact(n) {
            size = q;
            (*n).clone()
        } else {
            n.div_exact(&size)?;
            std::mem::replace(&mut size, Dim::ONE)
        };
        stride = *dense * &inner;
        out.push(Part { size: inner, stride: (*real).clone(), mask: None });
    }
    out.reverse();
    Some(out)
}
