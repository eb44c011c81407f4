//! How the points of a nest are laid out on tiles.
//!
//! Axes fall into two groups: *rows*, and *cols* (what `Over::Cols` folds, or the innermost run of a kernel that folds nothing).
//! A tile covers a range of flat row positions times a range of flat column positions. It is packed with columns
//! innermost, or with rows innermost where memory is contiguous that way.

use crate::concrete::{Access, Axis, Concrete, Node, is_arg};
use crate::error::CompileError;
use permalloy_loops::kernel::{AxisRole, Over};

/// Elements of a tile, about: of one that is worked on by an operation at a time, and of one by several (which the second-level cache holds).
pub(crate) const TILE: usize = 1024;
pub(crate) const FUSED_TILE: usize = 16 * 1024;
pub(crate) const LEAST_FUSED_TILE: usize = 4096;
/// Side of a tile where memory runs along different axes.
const SQUARE: usize = 64;
/// Longest run of columns that is one tile.
const LONGEST_RUN: usize = 2048;

/// Axes that are walked as one flat range, outermost first.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Group {
    pub sizes: Vec<usize>,
    pub total: usize,
}

/// The nest after relabelling, ordering and merging of its axes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Layout {
    pub rows: Group,
    pub cols: Group,
    /// Rows are the inner dimension of a tile.
    pub rows_inner: bool,
    /// Rows are `batches` times `rows.total / batches`; `Over::Rows` and `Over::All` fold within a batch.
    pub batches: usize,
    pub row_block: usize,
    pub col_block: usize,
}

/// What kinds of reductions a kernel has.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Folds {
    pub cols: bool,
    pub rows: bool,
    pub all: bool,
    /// Some reduction gives positions: folded axes keep their order.
    arg: bool,
    /// That one folds rows and columns.
    arg_all: bool,
}

impl Folds {
    pub(crate) fn of(k: &Concrete) -> Folds {
        let mut f = Folds::default();
        for v in &k.values {
            if let Node::Reduce { op, over, .. } = v.node {
                f.arg |= is_arg(op);
                f.arg_all |= is_arg(op) && over == Over::All;
                match over {
                    Over::Cols => f.cols = true,
                    Over::Rows => f.rows = true,
                    Over::All => f.all = true,
                }
            }
        }
        f
    }

    fn any(self) -> bool {
        self.cols || self.rows || self.all
    }
}

/// Memory touched by a load or store, for deciding between axes.
fn weights(k: &Concrete) -> Vec<(Access, i64)> {
    let mut out = Vec::new();
    for v in &k.values {
        let factor = match v.node {
            Node::Load { .. } | Node::LoadAt { .. } => 1,
            Node::Store { .. } => 2,
            _ => continue,
        };
        let Some(access) = v.node.access() else { continue };
        let points: f64 =
            k.axes.iter().enumerate().filter(|(a, _)| access.strides[*a] != 0).map(|(_, x)| x.size as f64).product();
        out.push((access.clone(), (points.min(1e15) as i64) * v.dtype.size() as i64 * factor));
    }
    out
}

/// The axis along which most memory is contiguous.
fn unit_axis(k: &Concrete, weights: &[(Access, i64)]) -> usize {
    let score = |a: usize| -> i64 {
        weights.iter().filter(|(x, _)| x.strides[a].abs() == 1).map(|(_, w)| *w).fold(0, i64::saturating_add)
    };
    let mut best = k.axes.len() - 1;
    for a in (0..k.axes.len()).rev() {
        if score(a) > score(best) {
            best = a;
        }
    }
    best
}

/// Gives a kernel with one kind of reduction the roles that suit its strides, and moves the axes of one that has none into
/// one group.
fn relabel(k: &mut Concrete, folds: Folds, weights: &[(Access, i64)]) {
    if k.axes.is_empty() {
        return;
    }
    let unit = unit_axis(k, weights);
    if !folds.any() {
        for (a, axis) in k.axes.iter_mut().enumerate() {
            axis.role = if a == unit { AxisRole::Col } else { AxisRole::Batch };
        }
        return;
    }
    let folded = |r: AxisRole| match (folds.cols, folds.rows, folds.all) {
        (true, false, false) => Some(r == AxisRole::Col),
        (false, true, false) => Some(r == AxisRole::Row),
        (false, false, true) => Some(r != AxisRole::Batch),
        _ => None,
    };
    let Some(is_folded) = k.axes.iter().map(|a| folded(a.role)).collect::<Option<Vec<bool>>>() else { return };
    let reduces = |v: usize| matches!(k.values[v].node, Node::Reduce { .. });
    let only_stored = k.values.iter().all(|v| {
        let along_fold = |a: &Access| (0..k.axes.len()).any(|i| is_folded[i] && a.strides[i] != 0);
        match &v.node {
            Node::Store { access, value, .. } => !reduces(*value) || !along_fold(access),
            other => other.operands().into_iter().all(|o| !reduces(o)),
        }
    });
    if !only_stored {
        return;
    }
    let product = |f: bool| -> usize {
        k.axes.iter().zip(&is_folded).filter(|(_, x)| **x == f).map(|(a, _)| a.size).fold(1, usize::saturating_mul)
    };
    let (kept, fold) = (product(false), product(true));
    let (role_kept, role_folded, over) = if is_folded[unit] {
        if kept < 64 && fold >= 8192 {
            (AxisRole::Batch, AxisRole::Row, Over::All)
        } else {
            (AxisRole::Batch, AxisRole::Col, Over::Cols)
        }
    } else if fold <= 64 && kept >= 4096 {
        (AxisRole::Batch, AxisRole::Col, Over::Cols)
    } else {
        (AxisRole::Batch, AxisRole::Row, Over::Rows)
    };
    // For a whole fold the innermost folded axis becomes the run; with positions that is the last one listed.
    let run = match over {
        Over::Rows => Some(unit),
        Over::All if folds.arg => is_folded.iter().rposition(|f| *f),
        Over::All => Some(unit),
        Over::Cols => None,
    };
    for (a, axis) in k.axes.iter_mut().enumerate() {
        axis.role = if Some(a) == run {
            AxisRole::Col
        } else if is_folded[a] {
            role_folded
        } else {
            role_kept
        };
    }
    for v in &mut k.values {
        if let Node::Reduce { over: o, .. } = &mut v.node {
            *o = over;
        }
    }
}

/// Order of `axes` (outermost first) in which strides mostly fall; `fixed` axes keep their order among themselves.
fn ordered(mut axes: Vec<usize>, weights: &[(Access, i64)], fixed: bool) -> Vec<usize> {
    if fixed {
        return axes;
    }
    let outer = |a: usize, b: usize| -> i64 {
        let mut vote = 0i64;
        for (x, w) in weights {
            let (sa, sb) = (x.strides[a].abs(), x.strides[b].abs());
            if sa != 0 && sb != 0 && sa != sb {
                vote = vote.saturating_add(if sa > sb { *w } else { -*w });
            }
        }
        vote
    };
    for i in 1..axes.len() {
        let mut j = i;
        while j > 0 && outer(axes[j - 1], axes[j]) < 0 {
            axes.swap(j - 1, j);
            j -= 1;
        }
    }
    axes
}

/// Merges neighbours that every access walks as one; returns the new list of axes as `(size, role, axis whose stride it keeps)`.
fn merge(k: &Concrete, order: &[usize], roles_matter: bool) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = Vec::new();
    for &a in order {
        let size = k.axes[a].size;
        if let Some((outer_size, outer)) = out.last_mut() {
            let same = !roles_matter || k.axes[*outer].role == k.axes[a].role;
            let fits = k.values.iter().filter_map(|v| v.node.access()).all(|x| {
                x.strides[*outer] == x.strides[a].wrapping_mul(size as i64)
                    && x.masks.iter().all(|m| m.axis != *outer && m.axis != a)
            });
            if same && fits {
                *outer_size *= size;
                *outer = a;
                continue;
            }
        }
        out.push((size, a));
    }
    out
}

fn group(axes: &[(usize, usize)]) -> Group {
    let sizes: Vec<usize> = axes.iter().map(|(n, _)| *n).collect();
    let total = sizes.iter().product();
    Group { sizes, total }
}

/// Piece length that splits `n` evenly into pieces of at most `most`, in whole vectors.
fn even(n: usize, most: usize) -> usize {
    let pieces = n.div_ceil(most).max(1);
    (n.div_ceil(pieces).div_ceil(64) * 64).clamp(1, n.max(1))
}

/// Decides the layout; afterwards the accesses of `k` are over its new axes, rows first.
/// Returns the layout and how many of the new axes are rows. `tile`: elements of a tile, about.
pub(crate) fn layout(k: &mut Concrete, tile: usize) -> Result<(Layout, usize), CompileError> {
    let folds = Folds::of(k);
    let weights = weights(k);
    relabel(k, folds, &weights);
    let folds = Folds::of(k);
    let is_col = |a: &usize| k.axes[*a].role == AxisRole::Col;
    let all: Vec<usize> = (0..k.axes.len()).collect();
    let batch_matters = folds.rows || folds.all;
    if folds.arg_all {
        let last_row = all.iter().rposition(|a| k.axes[*a].role == AxisRole::Row);
        let first_col = all.iter().position(is_col);
        if last_row.zip(first_col).is_some_and(|(r, c)| r > c) {
            return Err(CompileError::Malformed("positions over rows and columns need rows listed first".into()));
        }
    }
    let pick = |role: AxisRole| all.iter().copied().filter(|a| k.axes[*a].role == role).collect::<Vec<_>>();
    let cols = ordered(pick(AxisRole::Col), &weights, folds.arg);
    let mut rows = if batch_matters {
        let mut rows = ordered(pick(AxisRole::Batch), &weights, false);
        rows.extend(ordered(pick(AxisRole::Row), &weights, folds.arg));
        rows
    } else {
        let rows = all.iter().copied().filter(|a| !is_col(a)).collect();
        ordered(rows, &weights, false)
    };
    // Where some memory runs along another axis than the columns, that axis comes next, and tiles are square.
    let mut square = false;
    if let ([unit], false) = (&cols[..], folds.any()) {
        let mut crossing: Option<(usize, i64)> = None;
        for (x, w) in weights.iter().filter(|(x, _)| x.strides[*unit].abs() > 1) {
            let other = rows.iter().copied().find(|a| x.strides[*a].abs() == 1);
            if let Some(a) = other.filter(|_| crossing.is_none_or(|(_, most)| *w > most)) {
                crossing = Some((a, *w));
            }
        }
        if let Some((a, _)) = crossing {
            square = true;
            rows.retain(|x| *x != a);
            rows.push(a);
        }
    }
    let row_axes = merge(k, &rows, batch_matters);
    let col_axes = merge(k, &cols, false);
    let batches = match batch_matters {
        true => row_axes.iter().filter(|(_, a)| k.axes[*a].role == AxisRole::Batch).map(|(n, _)| n).product(),
        false => 1,
    };
    let (row_group, col_group) = (group(&row_axes), group(&col_axes));

    // A fold over columns whose memory is contiguous along rows works on tiles with rows innermost.
    let contiguous = |axes: &[(usize, usize)]| -> i64 {
        let Some((_, a)) = axes.last() else { return 0 };
        weights.iter().filter(|(x, _)| x.strides[*a].abs() == 1).map(|(_, w)| *w).fold(0, i64::saturating_add)
    };
    let inner_rows = row_group.total / batches.max(1);
    let rows_inner = folds.cols && inner_rows >= 8 && contiguous(&row_axes) > contiguous(&col_axes);
    let (rows_total, cols_total) = (row_group.total, col_group.total);
    let (row_block, col_block) = if square {
        (SQUARE.min(rows_total), SQUARE.min(cols_total))
    } else if rows_inner {
        let rows = even(inner_rows, 128);
        (rows, cols_total.min((TILE / rows).max(1)))
    } else {
        let cols = if cols_total <= LONGEST_RUN.max(tile / 2) {
            cols_total
        } else {
            even(cols_total, if folds.any() { TILE.max(tile / 4) } else { tile })
        };
        ((tile / cols).clamp(1, inner_rows.max(1)), cols)
    };

    let order: Vec<usize> = row_axes.iter().chain(&col_axes).map(|(_, a)| *a).collect();
    let old_axes = std::mem::take(&mut k.axes);
    k.axes = row_axes.iter().chain(&col_axes).map(|(n, a)| Axis { size: *n, role: old_axes[*a].role }).collect();
    for access in k.values.iter_mut().filter_map(|v| v.node.access_mut()) {
        access.strides = order.iter().map(|a| access.strides[*a]).collect();
        for m in &mut access.masks {
            // Axes with masks are never merged, so each is still there.
            m.axis = order.iter().position(|a| *a == m.axis).unwrap_or(0);
        }
    }
    let n = row_axes.len();
    Ok((Layout { rows: row_group, cols: col_group, rows_inner, batches, row_block, col_block }, n))
}
