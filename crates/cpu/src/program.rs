//! What a kernel compiles to: lists of micro-ops over registers that are tiles.
//!
//! A task walks blocks of rows. For each block it runs, phase by phase, the row-level ops the phase needs (one value a row),
//! then the phase's body on each chunk of columns. A phase ends where a reduction over columns must be complete.

use crate::access::TileAccess;
use crate::class::Class;
use crate::fold::Join;
use crate::jit::{Code, Fused};
use permalloy_ir::{DType, PrimOp};
use std::sync::Arc;

/// A value of the program; says where its pointer is kept while a task runs.
pub(crate) type Slot = usize;

/// Dimensions of the tile along which a value varies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Shape {
    pub outer: bool,
    pub inner: bool,
}

impl Shape {
    pub(crate) const FULL: Shape = Shape { outer: true, inner: true };
}

/// Where a result is kept: `offset + chunk · step` bytes into the registers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Place {
    pub offset: usize,
    pub step: usize,
}

/// A strided view of a buffer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Memory {
    pub buffer: usize,
    pub dtype: DType,
    pub access: TileAccess,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    Const(u64),
    /// `copy`: never use the memory in place.
    Load {
        memory: usize,
        copy: bool,
    },
    /// `copy`: never use the memory in place.
    LoadAt {
        memory: usize,
        index: Slot,
        stride: i64,
        size: i64,
        copy: bool,
    },
    Index(TileAccess),
    Unary(PrimOp, Slot),
    Binary(PrimOp, Slot, Slot),
    Select(Slot, Slot, Slot),
    Cast(Slot),
    /// The operand repeated to the micro-op's shape.
    Spread(Slot),
    /// What an earlier phase left at this place.
    Recall,
    /// Joins the tile into a column accumulator.
    FoldCols {
        acc: usize,
        x: Slot,
    },
    /// The accumulator's result, one a row.
    FinishCols(usize),
    /// Joins the tile (or the row values) into a row accumulator.
    FoldRows {
        acc: usize,
        x: Slot,
    },
    Store {
        memory: usize,
        value: Slot,
    },
    /// Several others as one.
    Fused(Box<Fused>),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Micro {
    pub kind: Kind,
    pub dst: Slot,
    pub at: Place,
    /// Memory the result may be written to at once.
    pub direct: Option<usize>,
}

impl Micro {
    pub(crate) fn fused(&self) -> Option<&Fused> {
        if let Kind::Fused(f) = &self.kind { Some(f) } else { None }
    }
}

/// Static facts of a slot.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SlotInfo {
    pub dtype: DType,
    pub class: Class,
    pub shape: Shape,
}

/// How values are joined by a reduction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Fold {
    Join(Join),
    /// Positions; of the maximum if true.
    Arg(bool),
}

/// State of an `Over::Cols` reduction: one accumulator a row, with a position for arg folds.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ColAcc {
    pub fold: Fold,
    pub class: Class,
    pub start: u64,
    pub value_at: usize,
    pub index_at: usize,
}

/// State of an `Over::Rows` or `Over::All` reduction.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RowAcc {
    pub fold: Fold,
    pub class: Class,
    /// Identity in the class, and in the accumulator's.
    pub start: u64,
    pub start_total: u64,
    /// One accumulator a column; otherwise a single one.
    pub wide: bool,
    /// Folds columns too.
    pub all: bool,
    /// Results go here.
    pub stores: Vec<usize>,
}

impl RowAcc {
    /// Class of the running totals.
    pub(crate) fn total(&self) -> Class {
        match self.fold {
            Fold::Join(j) => j.accumulator(self.class),
            Fold::Arg(_) => self.class,
        }
    }

    /// A few rows are summed in the class itself before they are added to the totals.
    pub(crate) fn two_levels(&self) -> bool {
        !self.all && self.total() != self.class
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Phase {
    /// Row-level ops that come before the phase.
    pub rows: Vec<Micro>,
    /// Column accumulators the body fills.
    pub accs: Vec<usize>,
    pub body: Vec<Micro>,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Values that vary nowhere: once a task.
    pub once: Vec<Micro>,
    /// The last one may have row-level ops only.
    pub phases: Vec<Phase>,
    pub memories: Vec<Memory>,
    pub slots: Vec<SlotInfo>,
    pub col_accs: Vec<ColAcc>,
    pub row_accs: Vec<RowAcc>,
    /// Bytes of registers of a task, accumulators over rows not counted.
    pub registers: usize,
    /// Offsets of three tiles and of one column of row values that micro-ops may use while they run.
    pub spare: [usize; 3],
    pub spare_row: usize,
    /// Functions of the fused micro-ops.
    pub code: Option<Arc<Code>>,
    /// Rough cost of one element.
    pub cost: usize,
}

impl Program {
    /// The bits of a slot that is a constant.
    pub(crate) fn constant(&self, s: Slot) -> Option<u64> {
        self.once.iter().find_map(|m| match m.kind {
            Kind::Const(bits) if m.dst == s => Some(bits),
            _ => None,
        })
    }
}
