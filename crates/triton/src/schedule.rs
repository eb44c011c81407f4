//! Which program computes what: the dims of a tile, how each is walked, and how large its block is.
//!
//! | reductions of the kernel | tile | walked |
//! |---|---|---|
//! | none | `[y, x]` or `[x]` | both by the grid |
//! | over columns, results used in the nest | `[x, r]`: kept × folded | `x` by the grid, `r` whole or in a loop, once a phase |
//! | over rows only | `[r, x]`: folded × kept | `x` by the grid, `r` in a loop, divided among programs |
//! | all of rows and columns | `[x, r]` | `x` by the grid, `r` in a loop, divided among programs |
//! | over rows and over columns | `[x, r]`: rows × columns | `x` in a loop, divided among programs, `r` whole; long columns: one block of rows a program, `r` in a loop |
//! | over rows and all | `[x, r]` | `x` in a loop, divided among programs, `r` by the grid |
//!
//! What programs hold parts of goes to scratch memory, one slot a program, and a second launch adds the slots in their
//! order: results do not depend on timing.

use crate::device::{Device, Family};
use crate::error::{Part, construct};
use crate::{Options, TileChoice};
use permalloy_ir::{Dim, SymbolValues};
use permalloy_loops::kernel::{AxisRole, Kernel, KernelOp, OpKind, Over};

/// How a dim of the tile is walked.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Walk {
    /// One block a program.
    Grid,
    /// One block is all of it.
    Whole,
    /// All of it, block by block, in one program.
    Loop,
    /// In `parts` runs of `chunk` elements (a multiple of the block), one run a program, block by block.
    Divided { parts: Dim, chunk: Dim },
}

/// Some axes of the kernel, flattened row-major, as one dim of the tile.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TileDim {
    pub name: &'static str,
    pub axes: Vec<usize>,
    pub size: Dim,
    /// A power of two; 1 for an index that is a scalar of the program.
    pub block: u32,
    pub walk: Walk,
    /// Position in the tile's shape; None for a scalar.
    pub position: Option<usize>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Schedule {
    /// Scalars first, then the tile's dims in their order.
    pub dims: Vec<TileDim>,
    pub rank: usize,
    pub num_warps: u32,
    pub num_stages: u32,
    /// Dims that a reduction folds, by [`Over`].
    pub cols: Vec<usize>,
    pub rows: Vec<usize>,
    pub all: Vec<usize>,
}

impl Schedule {
    pub(crate) fn folded(&self, over: Over) -> &[usize] {
        match over {
            Over::Cols => &self.cols,
            Over::Rows => &self.rows,
            Over::All => &self.all,
        }
    }
}

pub(crate) struct Scheduler<'a> {
    pub kernel: &'a Kernel,
    pub device: &'a Device,
    pub hints: &'a SymbolValues,
    pub options: &'a Options,
    /// The whole of a dim in one program, so that nothing is left to add up.
    pub undivided: bool,
}

/// The smallest power of two that is not less.
fn power(n: i64) -> u32 {
    (n.clamp(1, 1 << 20) as u32).next_power_of_two()
}

/// Blocks overshoot by a sixteenth at most.
fn fills(size: i64, block: u32) -> bool {
    (size as u64).next_multiple_of(u64::from(block)) <= (size + size / 16) as u64
}

impl Scheduler<'_> {
    fn hint(&self, d: &Dim) -> i64 {
        // A size that cannot be estimated is taken to be middling.
        d.eval(self.hints).unwrap_or(1024)
    }

    fn axes(&self, want: impl Fn(AxisRole) -> bool) -> Vec<usize> {
        (0..self.kernel.axes.len()).filter(|a| want(self.kernel.axes[*a].role)).collect()
    }

    fn size(&self, axes: &[usize]) -> Dim {
        Dim::product(axes.iter().map(|a| &self.kernel.axes[*a].size))
    }

    fn dim(&self, name: &'static str, axes: Vec<usize>, position: usize, block: u32, walk: Walk) -> TileDim {
        TileDim { name, size: self.size(&axes), axes, block, walk, position: Some(position) }
    }

    fn scalar(&self, name: &'static str, axes: Vec<usize>) -> TileDim {
        TileDim { name, size: self.size(&axes), axes, block: 1, walk: Walk::Grid, position: None }
    }

    fn warps(&self, points: u32) -> u32 {
        (points / self.device.tiles.per_warp).next_power_of_two().clamp(1, self.device.max_warps)
    }

    fn has(&self, over: Over) -> bool {
        self.kernel.ops.iter().any(|o| matches!(o.kind, OpKind::Reduce { over: v, .. } if v == over))
    }

    pub(crate) fn schedule(&self) -> Part<Schedule> {
        let (cols, rows, all) = (self.has(Over::Cols), self.has(Over::Rows), self.has(Over::All));
        let mut s = match (cols, rows, all) {
            (false, false, false) => self.pointwise(),
            (true, false, false) => self.inner(),
            (false, true, false) => self.outer(),
            (false, false, true) => self.total(),
            (true, ..) => self.rows_and_columns(),
            (false, true, true) => self.rows_and_all(),
        }?;
        if !self.device.divides_tile_index {
            self.only_affine(&mut s)?;
        }
        Ok(s)
    }

    fn made(&self, dims: Vec<TileDim>, points: u32) -> Schedule {
        let warps = self.warps(points);
        self.made_with(dims, warps)
    }

    /// With so many warps, unless a tuner asked for another number.
    fn made_with(&self, dims: Vec<TileDim>, warps: u32) -> Schedule {
        let rank = dims.iter().filter(|d| d.position.is_some()).count();
        let warps = self.options.tile.map_or(warps, |t| t.warps);
        let num_warps = warps.clamp(1, self.device.max_warps);
        Schedule { dims, rank, num_warps, num_stages: 1, cols: vec![], rows: vec![], all: vec![] }
    }

    /// Sizes the user or a tuner asked for, else ours.
    fn blocks(&self, x: u32, r: u32) -> (u32, u32) {
        match self.options.tile {
            Some(TileChoice { outer, inner, .. }) => (outer.next_power_of_two(), inner.next_power_of_two()),
            None => (x, r),
        }
    }

    /// The innermost axis, or all of them as one; a second dim where some operand runs along another axis.
    fn pointwise(&self) -> Part<Schedule> {
        let n = self.kernel.axes.len();
        let points = self.device.tiles.pointwise;
        let all: Vec<usize> = (0..n).collect();
        let other = if n < 2 { None } else { self.contiguous_axis() };
        if other.is_none() && self.has_row_constants() {
            let outer = (0..n - 1).collect();
            let block = self.blocks(1, points).1;
            return Ok(
                self.made(vec![self.scalar("z", outer), self.dim("x", vec![n - 1], 0, block, Walk::Grid)], block)
            );
        }
        if n < 2 || (other.is_none() && self.device.divides_tile_index) {
            let block = self.blocks(1, points.min(power(self.hint(&self.size(&all))))).1;
            return Ok(self.made(vec![self.dim("x", all, 0, block, Walk::Grid)], block));
        }
        let indexed = self.kernel.ops.iter().any(|o| matches!(o.kind, OpKind::LoadAt { .. }));
        if indexed && !self.device.divides_tile_index {
            // A5's compiler takes a load at a loaded index in a tile of one dim only.
            let x = self.blocks(1, points.min(power(self.hint(&self.kernel.axes[n - 1].size)))).1;
            let outer = (0..n - 1).collect();
            return Ok(self.made(vec![self.scalar("z", outer), self.dim("x", vec![n - 1], 0, x, Walk::Grid)], x));
        }
        let y = other.unwrap_or(n - 2);
        let outer: Vec<usize> = (0..n - 1).filter(|a| *a != y).collect();
        let (x_size, y_size) = (self.hint(&self.kernel.axes[n - 1].size), self.hint(&self.kernel.axes[y].size));
        // A transposed tile wants both sides long; a plain one the inner.
        let points = if other.is_some() { self.device.tiles.transposed } else { points };
        let side = if other.is_some() { points.isqrt().next_power_of_two() } else { points };
        let x = side.min(power(x_size));
        let (y_block, x) = self.blocks((points / x).clamp(1, power(y_size)), x);
        let mut dims: Vec<TileDim> = Vec::new();
        if !outer.is_empty() {
            dims.push(self.scalar("z", outer));
        }
        dims.push(self.dim("y", vec![y], 0, y_block, Walk::Grid));
        dims.push(self.dim("x", vec![n - 1], 1, x, Walk::Grid));
        Ok(self.made(dims, y_block * x))
    }

    /// Rows are many blocks long, and some operand has one value a row: as a scalar of the program it is loaded once and not
    /// at every point, and no index is divided.
    fn has_row_constants(&self) -> bool {
        let Some(last) = self.kernel.axes.len().checked_sub(1).filter(|last| *last > 0) else { return false };
        let (size, points) = (self.hint(&self.kernel.axes[last].size), i64::from(self.device.tiles.pointwise));
        let constant = |k: &OpKind| match k {
            OpKind::Load { access, .. } => access.ignores(last) && (0..last).any(|a| !access.ignores(a)),
            _ => false,
        };
        self.device.divides_tile_index
            && size >= 4 * points
            && fills(size, self.device.tiles.pointwise)
            && self.kernel.ops.iter().any(|o| constant(&o.kind))
    }

    /// An axis other than the innermost along which some access is contiguous while it is not along the innermost.
    fn contiguous_axis(&self) -> Option<usize> {
        let n = self.kernel.axes.len();
        let access = |k: &OpKind| match k {
            OpKind::Load { access, .. } | OpKind::Store { access, .. } => Some(access.clone()),
            _ => None,
        };
        let strided = self.kernel.ops.iter().filter_map(|o| access(&o.kind));
        strided.filter(|x| !x.strides[n - 1].is_const(1) && !x.strides[n - 1].is_const(0)).find_map(|x| {
            (0..n - 1).rev().find(|a| x.strides[*a].is_const(1) && self.hint(&self.kernel.axes[*a].size) > 4)
        })
    }

    /// Whether rows are held whole, and the blocks of a tile of `points`.
    fn row_blocks(&self, size: &Dim, points: u32) -> (bool, u32, u32) {
        let t = self.device.tiles;
        // Many operands of a long row do not fit into registers together.
        let longest = if self.streams() > 4 { t.persistent / 2 } else { t.persistent };
        let whole = size.as_const().is_some_and(|n| n <= i64::from(longest));
        let r = if whole { power(self.hint(size)) } else { power(self.hint(size)).min(t.reduction / 2) };
        (whole, (points / r).max(1), r)
    }

    fn streams(&self) -> usize {
        self.kernel.reads().len() + self.kernel.writes().len()
    }

    /// Kept × folded, folded in a loop where it is long.
    fn inner(&self) -> Part<Schedule> {
        let (kept, folded) = (self.axes(|r| r != AxisRole::Col), self.axes(|r| r == AxisRole::Col));
        let t = self.device.tiles;
        let rows = self.hint(&self.size(&kept));
        let (whole, x, r) = self.row_blocks(&self.size(&folded), t.rows);
        // Few programs do not hide the latency of their loads from each other: each gets more warps.
        let few = self.device.max_warps > 1 && rows <= i64::from(self.device.cores) * 16;
        let (x, r, warps) = match (whole, few) {
            (true, _) => (x.min(power(rows)), r, self.warps(2 * t.rows.max(r))),
            (false, true) => (1, r.max(t.reduction.min(power(self.hint(&self.size(&folded))))), self.device.max_warps),
            (false, false) if self.has_misaligned_rows() => (1, r, self.warps(2 * r)),
            (false, false) => (1, r, self.warps(r)),
        };
        let (x, r) = self.blocks(x, r);
        let walk = if whole { Walk::Whole } else { Walk::Loop };
        let r = if whole { power(self.hint(&self.size(&folded))) } else { r };
        let dims = vec![self.dim("x", kept, 0, x, Walk::Grid), self.dim("r", folded, 1, r, walk)];
        Ok(Schedule { cols: vec![1], ..self.made_with(dims, warps) })
    }

    /// Parts such that every core has work, and the elements of each.
    fn divided(&self, size: &Dim, block: u32, other_programs: i64) -> Walk {
        let block = i64::from(block);
        let want = i64::from(self.device.cores * self.device.waves);
        let blocks = (self.hint(size) + block - 1) / block;
        let parts = (want / other_programs.max(1)).clamp(1, blocks.max(1));
        if self.undivided || parts == 1 {
            return Walk::Loop;
        }
        let a_round = Dim::from(parts * block);
        let chunk = &(size + &Dim::from(parts * block - 1)).floor_div(&a_round) * &Dim::from(block);
        let parts = match size.as_const() {
            Some(n) => Dim::from((n + chunk.as_const().unwrap_or(block) - 1) / chunk.as_const().unwrap_or(block)),
            None => Dim::from(parts),
        };
        if parts.is_const(1) { Walk::Loop } else { Walk::Divided { parts, chunk } }
    }

    fn blocks_of(&self, size: &Dim, block: u32) -> i64 {
        (self.hint(size) + i64::from(block) - 1) / i64::from(block)
    }

    /// Folded × kept.
    fn outer(&self) -> Part<Schedule> {
        let (kept, folded) = (self.axes(|r| r != AxisRole::Row), self.axes(|r| r == AxisRole::Row));
        let t = self.device.tiles;
        let (rows, columns) = (self.hint(&self.size(&folded)), self.hint(&self.size(&kept)));
        let wide = columns >= 2048 && fills(columns, 8 * t.columns);
        let (points, x) = if self.device.family != Family::Cuda {
            (t.reduction, t.columns)
        } else if self.undivided {
            // Few rows: more programs, by fewer columns.
            (t.reduction / 2, t.columns / 8)
        } else if self.streams() <= 3 {
            (t.reduction / 2, t.columns / 2)
        } else if wide {
            (t.reduction, 8 * t.columns)
        } else {
            (t.reduction, t.columns)
        };
        let x = x.min(power(columns));
        let (r, x) = self.blocks((points / x).min(power(rows)), x);
        let walk = self.divided(&self.size(&folded), r, self.blocks_of(&self.size(&kept), x));
        let dims = vec![self.dim("r", folded, 0, r, walk), self.dim("x", kept, 1, x, Walk::Grid)];
        let warps = self.warps(if x > t.columns {
            x * r / 2
        } else if self.undivided {
            x * r * 2
        } else {
            x * r
        });
        Ok(Schedule { rows: vec![0], ..self.made_with(dims, warps) })
    }

    /// Some row begins where a wide access does not.
    fn has_misaligned_rows(&self) -> bool {
        let last = self.kernel.axes.len() - 1;
        let misaligned = |o: &KernelOp| match &o.kind {
            OpKind::Load { access, .. } | OpKind::Store { access, .. } => {
                let width = i64::from(self.device.access_bytes) / o.dtype.size().max(1) as i64;
                let rows = access.strides[..last].iter().filter_map(Dim::as_const);
                access.strides[last].is_const(1) && rows.into_iter().any(|s| s % width.max(1) != 0)
            }
            _ => false,
        };
        self.kernel.ops.iter().any(misaligned)
    }

    /// Everything but batches folded; axes that are folded are columns by now.
    fn total(&self) -> Part<Schedule> {
        let (kept, folded) = (self.axes(|r| r == AxisRole::Batch), self.axes(|r| r != AxisRole::Batch));
        let t = self.device.tiles;
        if folded.len() > 1 && !self.device.divides_tile_index {
            return self.total_of_affine(kept, folded);
        }
        let size = self.size(&folded);
        let r = t.total.min(power(self.hint(&size)));
        let (x, r) = self.blocks((t.total / r).min(power(self.hint(&self.size(&kept)))), r);
        let walk = match size.as_const() {
            Some(n) if n <= i64::from(r) => Walk::Whole,
            _ => self.divided(&size, r, self.blocks_of(&self.size(&kept), x)),
        };
        let dims = vec![self.dim("x", kept, 0, x, Walk::Grid), self.dim("r", folded, 1, r, walk)];
        let warps = self.warps(2 * x * r);
        Ok(Schedule { all: vec![1], ..self.made_with(dims, warps) })
    }

    /// Folded axes that do not merge: the innermost two are the tile, the others scalars of the program.
    fn total_of_affine(&self, kept: Vec<usize>, mut folded: Vec<usize>) -> Part<Schedule> {
        let mut dims = Vec::new();
        let inner = folded.split_off(folded.len() - 2);
        if !kept.is_empty() {
            dims.push(self.scalar("b", kept));
        }
        let first = dims.len();
        if !folded.is_empty() {
            dims.push(self.scalar("z", folded));
        }
        let sizes: Vec<Dim> = inner.iter().map(|a| self.kernel.axes[*a].size.clone()).collect();
        let t = self.device.tiles;
        let r = t.columns.min(power(self.hint(&sizes[1])));
        let (x, r) = self.blocks((t.reduction / r).min(power(self.hint(&sizes[0]))), r);
        let programs: i64 = dims.iter().map(|d| self.hint(&d.size)).product::<i64>() * self.blocks_of(&sizes[1], r);
        let walk = self.divided(&sizes[0], x, programs);
        dims.push(self.dim("x", vec![inner[0]], 0, x, walk));
        dims.push(self.dim("r", vec![inner[1]], 1, r, Walk::Grid));
        let all = (first..dims.len()).collect();
        Ok(Schedule { all, ..self.made(dims, x * r) })
    }

    fn batches(&self) -> Vec<TileDim> {
        let batch = self.axes(|r| r == AxisRole::Batch);
        if batch.is_empty() { vec![] } else { vec![self.scalar("b", batch)] }
    }

    fn rows_and_columns(&self) -> Part<Schedule> {
        let (rows, cols) = (self.axes(|r| r == AxisRole::Row), self.axes(|r| r == AxisRole::Col));
        let mut dims = self.batches();
        let (row_size, col_size) = (self.size(&rows), self.size(&cols));
        let points = self.device.tiles.reduction;
        let points = if self.device.family == Family::Cuda { points / 2 } else { points };
        let (whole, x, r) = self.row_blocks(&col_size, points);
        // Columns of several loops leave no loop for the rows.
        let whole = whole && (cols.len() < 2 || self.device.divides_tile_index);
        let (x, r) = self
            .blocks(if whole { x } else { 32 }.min(power(self.hint(&row_size))), if whole { r } else { r.min(128) });
        let r = if whole { power(self.hint(&col_size)) } else { r };
        let batch = self.hint(&self.size(&self.axes(|r| r == AxisRole::Batch)));
        let x_walk = if whole { self.divided(&row_size, x, batch) } else { Walk::Grid };
        let at = dims.len();
        dims.push(self.dim("x", rows, 0, x, x_walk));
        dims.push(self.dim("r", cols, 1, r, if whole { Walk::Whole } else { Walk::Loop }));
        // Sums of rows end in each round of the loop: the fewer warps share a row, the less they wait for each other.
        let warps = self.warps(if whole { x * r / 2 } else { x * r });
        Ok(Schedule { cols: vec![at + 1], rows: vec![at], all: vec![at, at + 1], ..self.made_with(dims, warps) })
    }

    fn rows_and_all(&self) -> Part<Schedule> {
        let (rows, cols) = (self.axes(|r| r == AxisRole::Row), self.axes(|r| r == AxisRole::Col));
        let mut dims = self.batches();
        let t = self.device.tiles;
        let (row_size, col_size) = (self.size(&rows), self.size(&cols));
        let r = t.columns.min(power(self.hint(&col_size)));
        let (x, r) = self.blocks((t.reduction / r).min(power(self.hint(&row_size))), r);
        let batch = self.hint(&self.size(&self.axes(|r| r == AxisRole::Batch)));
        let walk = self.divided(&row_size, x, batch * self.blocks_of(&col_size, r));
        let at = dims.len();
        dims.push(self.dim("x", rows, 0, x, walk));
        dims.push(self.dim("r", cols, 1, r, Walk::Grid));
        Ok(Schedule { rows: vec![at], all: vec![at, at + 1], ..self.made(dims, x * r) })
    }

    /// Leaves one axis to each dim of the tile. The outer axes of what the grid walks become scalars of the program, those of
    /// what a program walks loops around it.
    fn only_affine(&self, s: &mut Schedule) -> Part<()> {
        let mut scalars: Vec<usize> = Vec::new();
        let mut around: Vec<(usize, Vec<usize>)> = Vec::new();
        for i in 0..s.dims.len() {
            let d = &mut s.dims[i];
            if d.position.is_none() || d.axes.len() < 2 {
                continue;
            }
            let outer: Vec<usize> = d.axes.drain(..d.axes.len() - 1).collect();
            d.size = self.kernel.axes[d.axes[0]].size.clone();
            d.block = d.block.min(power(self.hint(&d.size)));
            let folded = [&s.cols, &s.rows, &s.all].iter().any(|f| f.contains(&i));
            match &d.walk {
                Walk::Grid if folded => return construct("several axes that do not merge are folded by the grid"),
                Walk::Grid => scalars.extend(outer),
                Walk::Divided { .. } => {
                    d.walk = self.divided(&d.size, d.block, 1);
                    around.push((i, outer));
                }
                Walk::Whole | Walk::Loop => around.push((i, outer)),
            }
        }
        if around.len() > 1 {
            return construct("rows and columns of several axes that do not merge");
        }
        // A loop around goes first, and folds what the dim it was cut from folds.
        for (i, axes) in around {
            let loops = TileDim { walk: Walk::Loop, ..self.scalar("q", axes) };
            self.insert(s, loops);
            for folded in [&mut s.cols, &mut s.rows, &mut s.all] {
                if folded.contains(&(i + 1)) {
                    folded.insert(0, 0);
                }
            }
        }
        if !scalars.is_empty() {
            scalars.sort_unstable();
            let outer = self.scalar("o", scalars);
            self.insert(s, outer);
        }
        Ok(())
    }

    fn insert(&self, s: &mut Schedule, dim: TileDim) {
        s.dims.insert(0, dim);
        for folded in [&mut s.cols, &mut s.rows, &mut s.all] {
            folded.iter_mut().for_each(|d| *d += 1);
        }
    }
}
