//! Views over a value's row-major order, rewritten over the memory layout it really has.

use crate::view::{Part, View, is_negative};
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
    // The lowest element has a position whose digits over the dense strides are its indices. Parts that run backwards
    // start above it, padding before it.
    let lowest = |p: &Part, stride: &Dim| {
        let (low, high) = p.mask.clone().unwrap_or((Dim::ZERO, p.size.clone()));
        let at = if is_negative(&p.stride) { &high - &Dim::ONE } else { low };
        &at * stride
    };
    let start = view.dims.iter().flatten().fold(view.offset.clone(), |sum, p| &sum + &lowest(p, &p.stride));
    let digits = digits(&start, &pairs)?;
    let offset = digits.iter().zip(&pairs).fold(layout.offset.clone(), |sum, (q, (_, _, real))| &sum + &(q * *real));
    let mut out = View { offset, dims: Vec::with_capacity(view.dims.len()) };
    for parts in &view.dims {
        let mut dim = Vec::new();
        for p in parts {
            if p.stride.is_const(0) {
                dim.push(p.clone());
                continue;
            }
            let found = pairs.iter().rev().find_map(|(n, dense, real)| {
                let times = p.stride.div_exact(dense)?;
                let elements = p.mask.as_ref().map_or_else(|| p.size.clone(), |(low, high)| high - low);
                let stays = match (times.as_const(), n.as_const(), elements.as_const()) {
                    (Some(t), Some(n), Some(elements)) => t.abs() * (elements - 1) < n,
                    _ => (times.is_const(1) || times.is_const(-1)) && elements == **n,
                };
                stays.then(|| &times * *real)
            });
            match found {
                Some(stride) => {
                    out.offset = &out.offset - &lowest(p, &stride);
                    dim.push(Part { size: p.size.clone(), stride, mask: p.mask.clone() });
                }
                None => dim.extend(split_over(p, &pairs)?),
            }
        }
        out.dims.push(dim);
    }
    Some(out)
}

/// The indices of a row-major position, one a dim.
fn digits(position: &Dim, dims: &[(&Dim, &Dim, &Dim)]) -> Option<Vec<Dim>> {
    // Terms that an outer stride divides belong to it. Whether that is how the position came about shows at large
    // sizes, where an index that is none lies far outside of its dim; then divide whatever the terms.
    let (mut rest, mut by_terms) = (position.clone(), Vec::new());
    for (_, dense, _) in dims {
        let (q, r) = match (rest.as_const(), dense.as_const()) {
            (Some(c), Some(s)) => (Dim::Const(c / s), Dim::Const(c % s)),
            _ => rest.div_terms(dense),
        };
        by_terms.push(q);
        rest = r;
    }
    if rest.is_const(0) && by_terms.iter().zip(dims).all(|(q, (n, ..))| is_index(q, n)) {
        return Some(by_terms);
    }
    let (mut rest, mut out) = (position.clone(), Vec::new());
    for (_, dense, _) in dims {
        out.push(rest.floor_div(dense));
        rest = rest.modulo(dense);
    }
    rest.is_const(0).then_some(out)
}

/// `0 <= q < n` for some large sizes.
fn is_index(q: &Dim, n: &Dim) -> bool {
    let mut symbols = Vec::new();
    [q, n].iter().for_each(|d| d.collect_symbols(&mut symbols));
    symbols.sort();
    [[1009, 16], [4001, -24]].iter().all(|[first, step]| {
        let sizes = symbols.iter().enumerate().map(|(i, s)| (s.clone(), first + step * i as i64)).collect();
        matches!((q.eval(&sizes), n.eval(&sizes)), (Ok(q), Ok(n)) if 0 <= q && q < n)
    })
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
