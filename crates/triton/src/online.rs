//! Maximum of a row and sum of exponentials below it in one pass: `Σ e^(x - max x)`.
//!
//! Each lane keeps the maximum `m` of what it has seen and `s = Σ e^(x - m)`. A larger `x` scales `s` by `e^(m - x)`; in the
//! end lane sums are scaled to the row's maximum. A long row is read once instead of twice.

use crate::body::{Total, open_total};
use crate::emit::{Emitter, Key};
use crate::error::Part;
use permalloy_ir::{DType, PrimOp};
use permalloy_loops::kernel::{Kernel, OpId, OpKind, Over};

/// Reductions over columns that share a pass: `max = amax(x)`, `sum = Σ e^(x - max)`.
pub(crate) struct Online {
    pub max: usize,
    pub sum: usize,
    pub x: OpId,
}

/// Those of a kernel. A maximum is in one pair at most.
pub(crate) fn pairs(e: &Emitter<'_>) -> Vec<Online> {
    let k = e.k;
    let mut out: Vec<Online> = Vec::new();
    for sum in 0..k.ops.len() {
        if let Some(pair) = pair(k, sum)
            && !out.iter().any(|o| o.max == pair.max)
        {
            out.push(pair);
        }
    }
    out
}

fn pair(k: &Kernel, sum: usize) -> Option<Online> {
    let f32 = |id: OpId| (k.op(id).dtype == DType::F32).then_some(&k.op(id).kind);
    let OpKind::Reduce { op: PrimOp::Sum, over: Over::Cols, x: e } = f32(OpId(sum as u32))? else { return None };
    let OpKind::Unary(PrimOp::Exp, below) = f32(*e)? else { return None };
    let OpKind::Binary(PrimOp::Sub, x, max) = f32(*below)? else { return None };
    let OpKind::Reduce { op: PrimOp::Amax, over: Over::Cols, x: of } = f32(*max)? else { return None };
    (of == x && f32(*x).is_some()).then_some(Online { max: max.0 as usize, sum, x: *x })
}

/// What the lanes keep of a pair.
pub(crate) struct Lanes {
    max: Total,
    sum: Total,
}

impl Online {
    /// Before the loop over the row; `dims` are those of `x` and the row.
    pub(crate) fn open(&self, e: &mut Emitter<'_>, dims: u32) -> Part<Lanes> {
        Ok(Lanes {
            max: open_total(e, &format!("amax_{}_parts", self.max), PrimOp::Amax, DType::F32, dims)?,
            sum: open_total(e, &format!("sum_{}_parts", self.sum), PrimOp::Sum, DType::F32, dims)?,
        })
    }

    /// In the loop.
    pub(crate) fn add(&self, e: &mut Emitter<'_>, lanes: &Lanes, folded: u32) -> Part<()> {
        let v = e.tensor(self.x)?;
        let text = e.spread(&v, lanes.max.dims);
        let text = e.neutral(PrimOp::Amax, text, DType::F32, folded)?;
        let depth = e.depth();
        let (m, s) = (&lanes.max.name, &lanes.sum.name);
        let line = format!("{m}, {s} = add_exponential({m}, {s}, {text})");
        e.line(depth, line);
        Ok(())
    }

    /// After the loop: both results.
    pub(crate) fn close(&self, e: &mut Emitter<'_>, lanes: &Lanes, cols: &[usize], col_bits: u32) -> Part<()> {
        let depth = e.depth();
        let kept = lanes.max.dims & !col_bits;
        let text = e.fold(PrimOp::Amax, lanes.max.name.clone(), DType::F32, lanes.max.dims, cols)?;
        let max = e.define(Key::Op(self.max as u32), &format!("amax_{}", self.max), text, kept, depth);
        let scaled = format!("scaled_exponentials({}, {}, {})", lanes.max.name, lanes.sum.name, max.text);
        let text = e.fold(PrimOp::Sum, scaled, DType::F32, lanes.sum.dims, cols)?;
        e.define(Key::Op(self.sum as u32), &format!("sum_{}", self.sum), text, kept, depth);
        Ok(())
    }
}
