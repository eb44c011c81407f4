//! Views as strides: a logical index space over a linear one, with dims that may be made of several strided parts.
//!
//! A dim of a view is a row-major product of [`Part`]s. PyTorch's strided views are the case of one part a dim; several
//! arise when a reshape merges dims that are not contiguous with each other. Everything a chain of reshape, permute,
//! expand, slice, window, flip and pad does to an index is thereby a list of strides, an offset and a few range masks, and costs
//! nothing at run time. What cannot be said so returns None, and the caller materialises the operand first.

use permalloy_ir::{Dim, contiguous_strides};

/// One strided loop of a dim.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    pub size: Dim,
    pub stride: Dim,
    /// Outside of `low <= i < high` the element is zero and has no address.
    pub mask: Option<(Dim, Dim)>,
}

/// An index space over linear memory (or over the row-major order of a value not in memory).
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    pub offset: Dim,
    /// Parts of each dim, outermost first; none for a dim of size 1.
    pub dims: Vec<Vec<Part>>,
}

impl View {
    /// A dense row-major space.
    pub fn contiguous(shape: &[Dim]) -> View {
        View::strided(shape, &contiguous_strides(shape))
    }

    pub fn strided(shape: &[Dim], strides: &[Dim]) -> View {
        let part = |(n, s): (&Dim, &Dim)| {
            if n.is_const(1) { vec![] } else { vec![Part { size: n.clone(), stride: s.clone(), mask: None }] }
        };
        View { offset: Dim::ZERO, dims: shape.iter().zip(strides).map(part).collect() }
    }

    /// Whether this is the dense view of that shape.
    pub fn is_contiguous(&self, shape: &[Dim]) -> bool {
        let mut stride = Dim::ONE;
        self.offset.is_const(0)
            && self.dims.len() == shape.len()
            && self.dims.iter().zip(shape).rev().all(|(parts, n)| {
                let dense = match parts.as_slice() {
                    [] => n.is_const(1),
                    [p] => p.size == *n && !n.is_const(1) && p.stride == stride && p.mask.is_none(),
                    _ => false,
                };
                if !n.is_const(0) {
                    stride = &stride * n;
                }
                dense
            })
    }

    pub fn has_masks(&self) -> bool {
        self.dims.iter().flatten().any(|p| p.mask.is_some())
    }

    fn is_empty(&self) -> bool {
        self.dims.iter().flatten().any(|p| p.size.is_const(0))
    }

    pub fn permute(&self, perm: &[usize]) -> View {
        View { offset: self.offset.clone(), dims: perm.iter().map(|p| self.dims[*p].clone()).collect() }
    }

    /// `shape` has the same rank; dims of size 1 repeat.
    pub fn expand(&self, shape: &[Dim]) -> View {
        let dims = self.dims.iter().zip(shape).map(|(parts, n)| match parts.is_empty() && !n.is_const(1) {
            true => vec![Part { size: n.clone(), stride: Dim::ZERO, mask: None }],
            false => parts.clone(),
        });
        View { offset: self.offset.clone(), dims: dims.collect() }
    }

    pub fn reshape(&self, shape: &[Dim]) -> Option<View> {
        if self.is_empty() || shape.iter().any(|n| n.is_const(0)) {
            return Some(View::contiguous(shape));
        }
        let parts: Vec<Part> = self.dims.iter().flatten().cloned().collect();
        self.grouped(parts.clone(), shape).or_else(|| self.grouped(merged(parts), shape))
    }

    /// The parts dealt out to dims of these sizes.
    fn grouped(&self, mut parts: Vec<Part>, shape: &[Dim]) -> Option<View> {
        let mut dims = Vec::with_capacity(shape.len());
        for n in shape.iter().rev() {
            let (mut need, mut dim) = (n.clone(), Vec::new());
            while !need.is_const(1) {
                let part = parts.pop()?;
                if let Some(rest) = need.div_exact(&part.size) {
                    need = rest;
                    dim.push(part);
                } else {
                    let (outer, inner) = part.split(&need)?;
                    parts.push(outer);
                    dim.push(inner);
                    need = Dim::ONE;
                }
            }
            dim.reverse();
            dims.push(dim);
        }
        dims.reverse();
        parts.is_empty().then(|| View { offset: self.offset.clone(), dims })
    }

    pub fn slice(&self, dim: usize, start: &Dim, end: &Dim, step: i64, size: &Dim) -> Option<View> {
        let mut out = self.clone();
        match merged(self.dims[dim].clone()).as_slice() {
            [] if start.is_const(0) && end.is_const(1) => {}
            [] => out.dims[dim] = vec![Part { size: size.clone(), stride: Dim::ZERO, mask: None }],
            [part] => {
                let mask = match &part.mask {
                    None => None,
                    Some((low, high)) if step == 1 => Some((low - start, high - start)),
                    Some(_) => return None,
                };
                out.offset = &out.offset + &(start * &part.stride);
                let sliced = Part { size: size.clone(), stride: &part.stride * &Dim::from(step), mask };
                if size.is_const(1) && sliced.mask.is_some() {
                    return None;
                }
                out.dims[dim] = if size.is_const(1) { vec![] } else { vec![sliced] };
            }
            _ => return None,
        }
        Some(out)
    }

    /// Windows of the size of `shape`'s last dim, as many as its dim `dim` says, `step` apart.
    pub fn window(&self, dim: usize, step: i64, shape: &[Dim]) -> Option<View> {
        let stride = match self.dims[dim].as_slice() {
            [] => Dim::ZERO,
            [Part { stride, mask: None, .. }] => stride.clone(),
            _ => return None,
        };
        let part = |n: &Dim, stride: Dim| match n.is_const(1) {
            true => vec![],
            false => vec![Part { size: n.clone(), stride, mask: None }],
        };
        let mut out = self.clone();
        out.dims[dim] = part(&shape[dim], &stride * &Dim::from(step));
        out.dims.push(part(&shape[self.dims.len()], stride));
        Some(out)
    }

    pub fn flip(&self, dims: &[usize]) -> Option<View> {
        let mut out = self.clone();
        for d in dims {
            match out.dims[*d].as_mut_slice() {
                [] => {}
                [part] if part.mask.is_none() => {
                    out.offset = &out.offset + &(&(&part.size - &Dim::ONE) * &part.stride);
                    part.stride = &Dim::ZERO - &part.stride;
                }
                _ => return None,
            }
        }
        Some(out)
    }

    pub fn pad(&self, low: &[Dim], high: &[Dim]) -> Option<View> {
        let mut out = self.clone();
        for d in 0..self.dims.len() {
            if low[d].is_const(0) && high[d].is_const(0) {
                continue;
            }
            let (size, stride) = match self.dims[d].as_slice() {
                [] => (Dim::ONE, Dim::ZERO),
                [Part { size, stride, mask: None }] => (size.clone(), stride.clone()),
                _ => return None,
            };
            out.offset = &out.offset - &(&low[d] * &stride);
            let end = &low[d] + &size;
            out.dims[d] = vec![Part { size: &end + &high[d], stride, mask: Some((low[d].clone(), end)) }];
        }
        Some(out)
    }

    /// Sizes and strides as PyTorch has them, if every dim is one part (or merges to one) and nothing is masked.
    pub fn as_strided(&self) -> Option<(Vec<Dim>, Vec<Dim>)> {
        let (mut sizes, mut strides) = (Vec::new(), Vec::new());
        for parts in &self.dims {
            let (mut size, mut stride) = (Dim::ONE, Dim::ONE);
            for p in parts.iter().rev() {
                if p.mask.is_some() {
                    return None;
                }
                if size.is_const(1) {
                    stride = p.stride.clone();
                } else if p.stride != &size * &stride {
                    return None;
                }
                size = &size * &p.size;
            }
            sizes.push(size);
            strides.push(stride);
        }
        Some((sizes, strides))
    }
}

impl Part {
    /// The part as two nested ones, the inner of the given size.
    pub fn split(&self, inner: &Dim) -> Option<(Part, Part)> {
        if self.mask.is_some() {
            return None;
        }
        let outer = Part { size: self.size.div_exact(inner)?, stride: &self.stride * inner, mask: None };
        Some((outer, Part { size: inner.clone(), stride: self.stride.clone(), mask: None }))
    }
}

/// Parts that follow each other in memory as one.
fn merged(parts: Vec<Part>) -> Vec<Part> {
    let mut out: Vec<Part> = Vec::with_capacity(parts.len());
    for inner in parts {
        match out.last_mut() {
            Some(outer)
                if outer.mask.is_none() && inner.mask.is_none() && outer.stride == &inner.size * &inner.stride =>
            {
                *outer = Part { size: &outer.size * &inner.size, stride: inner.stride, mask: None };
            }
            _ => out.push(inner),
        }
    }
    out
}

/// Runs backwards: strides are products of sizes and steps, so that their sign shows at any large sizes.
pub fn is_negative(stride: &Dim) -> bool {
    let mut symbols = Vec::new();
    stride.collect_symbols(&mut symbols);
    let large = symbols.into_iter().map(|s| (s, 1 << 10)).collect();
    stride.eval(&large).is_ok_and(|n| n < 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(d: &[i64]) -> Vec<Dim> {
        d.iter().map(|n| Dim::from(*n)).collect()
    }

    #[test]
    fn heads_split_and_merge() {
        let x = View::contiguous(&dims(&[4, 128, 256]));
        let heads = x.reshape(&dims(&[4, 128, 8, 32])).unwrap().permute(&[0, 2, 1, 3]);
        assert_eq!(heads.as_strided().unwrap().1, dims(&[128 * 256, 32, 256, 1]));
        let merged = heads.reshape(&dims(&[32, 128, 32])).unwrap();
        assert_eq!(merged.as_strided(), None, "batch and head are not contiguous with each other");
        assert_eq!(merged.reshape(&dims(&[4, 8, 128, 32])).unwrap(), heads);
    }

    #[test]
    fn only_the_dense_view_is_contiguous() {
        for shape in [dims(&[4, 1, 3]), dims(&[]), dims(&[2, 0, 5]), vec![Dim::sym("s"), Dim::from(8), Dim::sym("t")]] {
            let dense = View::contiguous(&shape);
            assert!(dense.is_contiguous(&shape), "{shape:?}");
            assert!(!View { offset: Dim::ONE, ..dense.clone() }.is_contiguous(&shape));
            assert!(!dense.is_contiguous(&[shape.clone(), dims(&[2])].concat()));
        }
        let x = View::contiguous(&dims(&[4, 4]));
        assert!(!x.permute(&[1, 0]).is_contiguous(&dims(&[4, 4])));
        assert!(!x.is_contiguous(&dims(&[4, 5])));
        let padded = View::contiguous(&dims(&[2])).pad(&dims(&[0]), &dims(&[1])).unwrap();
        assert!(!padded.is_contiguous(&dims(&[3])));
    }

    #[test]
    fn symbolic_reshape_round_trips() {
        let (s, t) = (Dim::sym("s"), Dim::sym("t"));
        let flat = View::contiguous(&[s.clone(), t.clone(), Dim::from(8)]).reshape(&[&s * &t, Dim::from(8)]).unwrap();
        assert_eq!(flat.as_strided().unwrap().1, dims(&[8, 1]));
        assert_eq!(flat.reshape(&[s.clone(), t.clone(), Dim::from(8)]).unwrap().dims.len(), 3);
    }

    #[test]
    fn boundaries_inside_of_parts_are_found_after_merging() {
        let x = View::contiguous(&dims(&[3, 4, 3])).reshape(&dims(&[9, 4])).unwrap();
        assert_eq!(x.as_strided().unwrap().1, dims(&[4, 1]));
        assert_eq!(View::contiguous(&dims(&[3, 4])).permute(&[1, 0]).reshape(&dims(&[6, 2])), None);
    }

    #[test]
    fn a_slice_of_dims_that_were_merged_is_strided() {
        let x = View::contiguous(&dims(&[4, 16, 32])).reshape(&dims(&[64, 32])).unwrap();
        let rows = x.slice(0, &Dim::from(20), &Dim::from(40), 1, &Dim::from(20)).unwrap();
        assert_eq!(
            (rows.offset.clone(), rows.as_strided().unwrap()),
            (Dim::from(640), (dims(&[20, 32]), dims(&[32, 1])))
        );
    }

    #[test]
    fn pad_masks_and_slice_unmasks_the_range() {
        let x = View::contiguous(&dims(&[4]));
        let padded = x.pad(&dims(&[2]), &dims(&[1])).unwrap();
        assert_eq!(padded.offset, Dim::from(-2));
        assert_eq!(padded.dims[0][0].mask, Some((Dim::from(2), Dim::from(6))));
        let cut = padded.slice(0, &Dim::from(1), &Dim::from(5), 1, &Dim::from(4)).unwrap();
        assert_eq!(
            (cut.offset.clone(), cut.dims[0][0].mask.clone()),
            (Dim::from(-1), Some((Dim::from(1), Dim::from(5))))
        );
        assert_eq!(padded.as_strided(), None);
    }
}
