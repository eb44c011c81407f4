//! Addresses of a tile: an access split into the two dimensions of a tile, and the straight runs it consists of.

use crate::concrete::Access;
use crate::layout::{Group, Layout};

/// Strides of an access along one dimension of a tile.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Walk {
    sizes: Vec<usize>,
    strides: Vec<i64>,
    /// Position in the group, `low..high`, product of the sizes of later axes, own size.
    masks: Vec<(usize, i64, i64, usize, usize)>,
    /// The address moves by this much per flat position, if that is so throughout.
    pub flat: Option<i64>,
    /// The access varies along this dimension.
    pub varies: bool,
}

impl Walk {
    fn new(group: &Group, strides: &[i64], masks: impl Iterator<Item = (usize, i64, i64)>) -> Walk {
        let below = |i: usize| group.sizes[i + 1..].iter().product::<usize>();
        let masks: Vec<_> = masks.map(|(i, low, high)| (i, low, high, below(i), group.sizes[i])).collect();
        let last = strides.last().copied().unwrap_or(0);
        let uniform = (0..strides.len()).all(|i| strides[i] == last.wrapping_mul(below(i) as i64));
        let varies = strides.iter().any(|s| *s != 0) || !masks.is_empty();
        Walk { sizes: group.sizes.clone(), strides: strides.to_vec(), masks, flat: uniform.then_some(last), varies }
    }

    /// Address of one flat position.
    pub(crate) fn address(&self, at: usize) -> i64 {
        if let Some(s) = self.flat {
            return s * at as i64;
        }
        let (mut rest, mut sum) = (at, 0);
        for (n, s) in self.sizes.iter().zip(&self.strides).rev() {
            sum += (rest % n) as i64 * s;
            rest /= n;
        }
        sum
    }

    /// Calls `f(address, place in the range, count, step)` for each straight piece of the range inside of the masks.
    fn pieces(&self, (start, len): (usize, usize), mut f: impl FnMut(i64, usize, usize, i64)) {
        if let (Some(s), true) = (self.flat, self.masks.is_empty()) {
            return f(s * start as i64, 0, len, s);
        }
        let Some((&size, &step)) = self.sizes.last().zip(self.strides.last()) else { return f(0, 0, len, 0) };
        let mut at = start;
        while at < start + len {
            let first = at % size;
            let count = (size - first).min(start + len - at);
            let (mut low, mut high) = (first as i64, (first + count) as i64);
            for &(axis, l, h, below, n) in &self.masks {
                if axis + 1 == self.sizes.len() {
                    low = low.max(l);
                    high = high.min(h);
                } else {
                    let i = (at / below % n) as i64;
                    if i < l || i >= h {
                        high = low;
                    }
                }
            }
            if low < high {
                let skipped = (low - first as i64) as usize;
                f(self.address(at + skipped), at + skipped - start, (high - low) as usize, step);
            }
            at += count;
        }
    }

    /// Some(true): every position of the range satisfies the masks; Some(false): none; None: mixed or hard to say.
    fn inside(&self, start: usize, len: usize) -> Option<bool> {
        let mut all = true;
        for &(_, low, high, below, size) in &self.masks {
            let (first, last) = (start / below, (start + len - 1) / below);
            if first / size != last / size {
                all = false;
                continue;
            }
            let (first, last) = ((first % size) as i64, (last % size) as i64);
            if last < low || first >= high {
                return Some(false);
            }
            all &= first >= low && last < high;
        }
        all.then_some(true)
    }
}

/// An access as tiles see it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TileAccess {
    pub offset: i64,
    pub outer: Walk,
    pub inner: Walk,
}

/// A rectangle of flat positions: `outer.0 .. outer.0 + outer.1`, likewise inner.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Span {
    pub outer: (usize, usize),
    pub inner: (usize, usize),
}

/// Part of a tile whose addresses are `base + o · step_o + i · step_i`; `at_*` is its place in the tile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Run {
    pub base: i64,
    pub at_o: usize,
    pub at_i: usize,
    pub n_o: usize,
    pub n_i: usize,
    pub step_o: i64,
    pub step_i: i64,
}

impl TileAccess {
    pub(crate) fn new(access: &Access, layout: &Layout, row_axes: usize, is_store: bool) -> TileAccess {
        let walk = |group: &Group, from: usize| {
            let to = from + group.sizes.len();
            let strides = &access.strides[from..to];
            let masks = access.masks.iter().filter(|m| (from..to).contains(&m.axis));
            let mut masks: Vec<_> = masks.map(|m| (m.axis - from, m.low, m.high)).collect();
            if is_store && strides.iter().any(|s| *s != 0) {
                // What does not vary along an axis is stored once.
                masks.extend((0..strides.len()).filter(|i| strides[*i] == 0).map(|i| (i, 0, 1)));
            }
            Walk::new(group, strides, masks.into_iter())
        };
        let (rows, cols) = (walk(&layout.rows, 0), walk(&layout.cols, row_axes));
        let (outer, inner) = if layout.rows_inner { (cols, rows) } else { (rows, cols) };
        TileAccess { offset: access.offset, outer, inner }
    }

    pub(crate) fn has_masks(&self) -> bool {
        !self.outer.masks.is_empty() || !self.inner.masks.is_empty()
    }

    /// Whether every point of the span is inside of the masks (or none is, or neither is known).
    pub(crate) fn inside(&self, span: Span) -> Option<bool> {
        let (o, i) = (self.outer.inside(span.outer.0, span.outer.1), self.inner.inside(span.inner.0, span.inner.1));
        match (o, i) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    /// Address of the first element when the span is one dense piece of memory in tile order. Masks are not looked at.
    pub(crate) fn dense(&self, span: Span) -> Option<i64> {
        let ((o0, no), (i0, ni)) = (span.outer, span.inner);
        if ni > 1 && self.inner.flat != Some(1) {
            return None;
        }
        if no > 1 && self.outer.flat != Some(ni as i64) {
            return None;
        }
        Some(self.offset + self.outer.address(o0) + self.inner.address(i0))
    }

    /// Calls `f` with the straight pieces of the span that satisfy the masks. Dimensions along which the access does not
    /// vary count as one position.
    pub(crate) fn runs(&self, span: Span, mut f: impl FnMut(Run)) {
        let outer = if self.outer.varies { span.outer } else { (0, 1) };
        let inner = if self.inner.varies { span.inner } else { (0, 1) };
        self.outer.pieces(outer, |base_o, at_o, n_o, step_o| {
            self.inner.pieces(inner, |base_i, at_i, n_i, step_i| {
                f(Run { base: self.offset + base_o + base_i, at_o, at_i, n_o, n_i, step_o, step_i });
            });
        });
    }
}
