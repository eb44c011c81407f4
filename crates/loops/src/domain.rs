//! The iteration space of a fused kernel while it is being grown: axes that split on demand.
//!
//! Every value in a group says which axes each of its logical dims runs over. When a reshape or an operand's layout needs
//! a finer view of an axis, the axis is split in two; earlier users see the split when they resolve their axes.

use crate::view::{Part, View};
use permalloy_ir::Dim;

/// Handle of an axis in its domain.
pub type AxisId = usize;

#[derive(Clone, Debug)]
struct AxisNode {
    size: Dim,
    split: Option<(AxisId, AxisId)>,
    /// Carries a mask: must stay whole.
    whole: bool,
}

/// Axes of a group, in loop order.
#[derive(Clone, Debug, Default)]
pub struct Domain {
    axes: Vec<AxisNode>,
    roots: Vec<AxisId>,
}

/// What a logical dim of an in-group operand runs over.
#[derive(Clone, PartialEq, Debug)]
pub enum DimAxes {
    Axes(Vec<AxisId>),
    /// The value is repeated along this dim.
    Repeated,
}

/// Address of a memory operand over a domain: one entry per axis it varies over.
#[derive(Clone, PartialEq, Debug)]
pub struct Address {
    pub offset: Dim,
    pub terms: Vec<AddressTerm>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct AddressTerm {
    pub axis: AxisId,
    pub stride: Dim,
    pub mask: Option<(Dim, Dim)>,
}

impl Domain {
    /// One axis per dim that is not 1; also returns the axes of each dim.
    pub fn of_shape(shape: &[Dim]) -> (Domain, Vec<Vec<AxisId>>) {
        let mut d = Domain::default();
        let mut dims = Vec::new();
        for n in shape {
            dims.push(if n.is_const(1) { vec![] } else { vec![d.push(n.clone())] });
        }
        d.roots = (0..d.axes.len()).collect();
        (d, dims)
    }

    fn push(&mut self, size: Dim) -> AxisId {
        self.axes.push(AxisNode { size, split: None, whole: false });
        self.axes.len() - 1
    }

    pub fn size(&self, a: AxisId) -> &Dim {
        &self.axes[a].size
    }

    /// All unsplit axes in loop order.
    pub fn leaves(&self) -> Vec<AxisId> {
        self.resolve(&self.roots)
    }

    /// A list of axes with split ones replaced by their pieces.
    pub fn resolve(&self, axes: &[AxisId]) -> Vec<AxisId> {
        let mut out = Vec::with_capacity(axes.len());
        let mut stack: Vec<AxisId> = axes.iter().rev().copied().collect();
        while let Some(a) = stack.pop() {
            match self.axes[a].split {
                Some((outer, inner)) => stack.extend([inner, outer]),
                None => out.push(a),
            }
        }
        out
    }

    fn split(&mut self, a: AxisId, inner: &Dim) -> Option<(AxisId, AxisId)> {
        if self.axes[a].whole {
            return None;
        }
        let outer = self.axes[a].size.div_exact(inner)?;
        let pair = (self.push(outer), self.push(inner.clone()));
        self.axes[a].split = Some(pair);
        Some(pair)
    }

    /// Which axes each dim of `view` runs over, where `view` looks at a value whose row-major order runs over `value_axes`.
    /// None unless the view shows every element of the value exactly once, repetition aside.
    pub fn match_view(&mut self, value_axes: &[AxisId], view: &View) -> Option<Vec<DimAxes>> {
        if !view.offset.is_const(0) || view.has_masks() {
            return None;
        }
        let mut free = Vec::new();
        let mut stride = Dim::ONE;
        for a in self.resolve(value_axes).into_iter().rev() {
            let next = &stride * self.size(a);
            free.push((a, stride));
            stride = next;
        }
        let mut dims = Vec::with_capacity(view.dims.len());
        for parts in &view.dims {
            let mut axes = Vec::new();
            let mut repeated = false;
            for part in parts.iter().rev() {
                if part.stride.is_const(0) {
                    repeated = true;
                    continue;
                }
                let (mut need, mut at) = (part.size.clone(), part.stride.clone());
                while !need.is_const(1) {
                    let i = self.axis_at(&mut free, &at)?;
                    let (a, _) = free[i];
                    let size = self.size(a).clone();
                    if let Some(rest) = need.div_exact(&size) {
                        free.remove(i);
                        axes.push(a);
                        need = rest;
                        at = &at * &size;
                    } else {
                        let (outer, inner) = self.split(a, &need)?;
                        free[i] = (outer, &at * &need);
                        axes.push(inner);
                        need = Dim::ONE;
                    }
                }
            }
            if repeated && !axes.is_empty() {
                return None;
            }
            axes.reverse();
            dims.push(if repeated { DimAxes::Repeated } else { DimAxes::Axes(axes) });
        }
        free.is_empty().then_some(dims)
    }

    /// Position of the axis whose stride is `at`, made by splitting one if the stride falls inside of it.
    fn axis_at(&mut self, free: &mut Vec<(AxisId, Dim)>, at: &Dim) -> Option<usize> {
        if let Some(i) = free.iter().position(|(_, s)| s == at) {
            return Some(i);
        }
        let (i, inner) = free.iter().enumerate().find_map(|(i, (a, s))| {
            let inner = at.div_exact(s)?;
            self.size(*a).div_exact(&inner)?;
            Some((i, inner))
        })?;
        let (a, stride) = free[i].clone();
        let (outer, rest) = self.split(a, &inner)?;
        free[i] = (rest, stride);
        free.push((outer, at.clone()));
        Some(free.len() - 1)
    }

    /// Cuts the row-major run of `axes` into dims of the given sizes, splitting axes where a boundary falls inside.
    pub fn cut(&mut self, axes: &[AxisId], sizes: &[Dim]) -> Option<Vec<Vec<AxisId>>> {
        let mut rest = self.resolve(axes);
        let mut dims = Vec::with_capacity(sizes.len());
        for n in sizes.iter().rev() {
            let (mut need, mut dim) = (n.clone(), Vec::new());
            while !need.is_const(1) {
                let a = rest.pop()?;
                if need == *self.size(a) {
                    need = Dim::ONE;
                    dim.push(a);
                } else if let Some(q) = need.div_exact(self.size(a)) {
                    need = q;
                    dim.push(a);
                } else {
                    let (outer, inner) = self.split(a, &need)?;
                    rest.push(outer);
                    dim.push(inner);
                    need = Dim::ONE;
                }
            }
            dim.reverse();
            dims.push(dim);
        }
        dims.reverse();
        rest.is_empty().then_some(dims)
    }

    /// The address of a memory operand whose dims run over `dims`; axes are split where the operand's parts are finer.
    pub fn address(&mut self, dims: &[Vec<AxisId>], view: &View) -> Option<Address> {
        let mut terms = Vec::new();
        for (axes, parts) in dims.iter().zip(&view.dims) {
            let mut axes = self.resolve(axes);
            let mut parts: Vec<Part> = parts.clone();
            while let Some(part) = parts.pop() {
                let a = axes.pop()?;
                let size = self.size(a).clone();
                let (axis, part) = if size == part.size {
                    (a, part)
                } else if let Some(p) = part.split(&size) {
                    parts.push(p.0);
                    (a, p.1)
                } else {
                    let (outer, inner) = self.split(a, &part.size)?;
                    axes.push(outer);
                    (inner, part)
                };
                if part.mask.is_some() {
                    self.axes[axis].whole = true;
                }
                if !part.stride.is_const(0) || part.mask.is_some() {
                    terms.push(AddressTerm { axis, stride: part.stride, mask: part.mask });
                }
            }
            if !axes.is_empty() {
                return None;
            }
        }
        Some(Address { offset: view.offset.clone(), terms })
    }

    /// Row-major strides of a value over the axes of its dims.
    pub fn row_major(&self, axes: &[AxisId]) -> Vec<AddressTerm> {
        let mut stride = Dim::ONE;
        let mut terms = Vec::new();
        for axis in self.resolve(axes).into_iter().rev() {
            let next = &stride * self.size(axis);
            terms.push(AddressTerm { axis, stride, mask: None });
            stride = next;
        }
        terms
    }

    /// An address in terms of the leaf axes: strides in leaf order, and masks with their leaf position.
    pub fn flatten(&self, terms: &[AddressTerm], leaves: &[AxisId]) -> (Vec<Dim>, Vec<(usize, Dim, Dim)>) {
        let mut strides = vec![Dim::ZERO; leaves.len()];
        let mut masks = Vec::new();
        for t in terms {
            let mut stride = t.stride.clone();
            for a in self.resolve(&[t.axis]).into_iter().rev() {
                let at = leaves.iter().position(|l| *l == a).expect("every resolved axis is a leaf of its domain");
                strides[at] = &strides[at] + &stride;
                if let Some((low, high)) = &t.mask {
                    masks.push((at, low.clone(), high.clone()));
                }
                stride = &stride * self.size(a);
            }
        }
        (strides, masks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(d: &[i64]) -> Vec<Dim> {
        d.iter().map(|n| Dim::from(*n)).collect()
    }

    #[test]
    fn a_reshape_of_a_value_splits_the_axis() {
        let (mut d, axes) = Domain::of_shape(&dims(&[512, 256]));
        let all: Vec<AxisId> = axes.concat();
        let view = View::contiguous(&dims(&[512, 256])).reshape(&dims(&[4, 128, 256])).unwrap();
        let got = d.match_view(&all, &view).unwrap();
        assert_eq!(got.len(), 3);
        assert_eq!(d.leaves().iter().map(|a| d.size(*a).clone()).collect::<Vec<_>>(), dims(&[4, 128, 256]));
    }

    #[test]
    fn a_transposed_view_is_matched_axis_by_axis() {
        let (mut d, axes) = Domain::of_shape(&dims(&[3, 5]));
        let view = View::contiguous(&dims(&[3, 5])).permute(&[1, 0]);
        let got = d.match_view(&axes.concat(), &view).unwrap();
        assert_eq!(got, [DimAxes::Axes(vec![1]), DimAxes::Axes(vec![0])]);
    }

    #[test]
    fn a_slice_does_not_match() {
        let (mut d, axes) = Domain::of_shape(&dims(&[6]));
        let view = View::contiguous(&dims(&[6])).slice(0, &Dim::from(0), &Dim::from(3), 1, &Dim::from(3)).unwrap();
        assert_eq!(d.match_view(&axes.concat(), &view), None);
    }
}
