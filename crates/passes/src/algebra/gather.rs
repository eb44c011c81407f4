//! Gathers of what is computed element by element.

use super::along::{BUDGET, is_elementwise, repeats, same_dim, slice_of_repeated};
use super::{Site, again};
use permalloy_ir::{Arg, Builder, Dim, Graph, PrimKind, PrimOp, ValueId};

/// A gather must take at most this part of its source.
const SMALL: i64 = 8;

/// `f(x, y)[i] = f(x[i], y[i])`: few elements are computed, and the source is not stored for their sake. What does not
/// vary along the gathered dim needs no gather; something must vary, so that an index out of range stays an error.
/// Everything gathered lies in memory anyhow.
pub(super) fn sink(b: &mut Builder<'_>, site: &Site<'_>) -> Option<ValueId> {
    let node = site.node;
    let p = node.prim().filter(|p| matches!(p, PrimOp::Gather | PrimOp::Take))?;
    let pick = Pick { p, index: node.operand(1)?, dim: node.dim_attr("dim") };
    let x = node.operand(0)?;
    let elements = |shape: &[Dim]| shape.iter().map(|n| n.eval(site.hints).ok()).product::<Option<i64>>();
    if elements(&pick.shape(b, x))?.checked_mul(SMALL)? > elements(b.graph.shape(x))? || in_memory(b.graph, x) {
        return None;
    }
    let mut gathered = 0;
    (can_sink(b.graph, x, pick.dim, &mut { BUDGET }, &mut gathered) && gathered > 0).then_some(())?;
    pick.of(b, x)
}

/// Whether all that makes `v` is elementwise down to what lies in memory; counts those.
fn can_sink(g: &Graph, v: ValueId, d: usize, budget: &mut u32, gathered: &mut u32) -> bool {
    if *budget == 0 {
        return false;
    }
    *budget -= 1;
    if repeats(g, v, d, budget) {
        return true;
    }
    if in_memory(g, v) {
        *gathered += 1;
        return true;
    }
    let Some((node, p)) = g.producer(v).and_then(|n| Some((n, n.prim()?))) else { return false };
    match (p, node.operand(0)) {
        (PrimOp::Reshape, Some(x)) => {
            same_dim(g.shape(x), g.shape(v), d).is_some_and(|e| can_sink(g, x, e, budget, gathered))
        }
        _ if is_elementwise(p) => node.operands().into_iter().all(|x| can_sink(g, x, d, budget, gathered)),
        _ => false,
    }
}

/// Stored whether or not a gather reads it: inputs, what operators outside of kernels make, and views of them.
fn in_memory(g: &Graph, mut v: ValueId) -> bool {
    loop {
        let Some(node) = g.producer(v) else { return true };
        match (node.prim(), node.operand(0)) {
            (None, _) | (Some(PrimOp::Concat | PrimOp::IndexSum | PrimOp::ScatterSum), _) => return true,
            (Some(p), Some(x)) if p.kind() == PrimKind::View && p != PrimOp::Pad => v = x,
            _ => return false,
        }
    }
}

/// A gather or take along a dim.
struct Pick {
    p: PrimOp,
    index: ValueId,
    dim: usize,
}

impl Pick {
    /// Shape of what it makes of a value.
    fn shape(&self, b: &Builder<'_>, x: ValueId) -> Vec<Dim> {
        let (mut shape, index) = (b.shape(x), b.graph.shape(self.index));
        let at = if self.p == PrimOp::Gather { &index[self.dim..=self.dim] } else { index };
        shape.splice(self.dim..=self.dim, at.iter().cloned());
        shape
    }

    fn of(&self, b: &mut Builder<'_>, v: ValueId) -> Option<ValueId> {
        let shape = self.shape(b, v);
        if repeats(b.graph, v, self.dim, &mut { BUDGET }) {
            let one = slice_of_repeated(b, v, self.dim)?;
            let mut ones = b.shape(one);
            let rank = shape.len() + 1 - ones.len();
            ones.splice(self.dim..=self.dim, std::iter::repeat_n(Dim::ONE, rank));
            let one = b.reshape(one, &ones);
            return Some(b.expand(one, &shape));
        }
        if in_memory(b.graph, v) {
            let attrs = vec![("dim", Arg::Int(Dim::from(self.dim as i64)))];
            return b.try_prim(self.p, &[v, self.index], attrs).ok();
        }
        let node = b.graph.producer(v)?.clone();
        if node.prim()? == PrimOp::Reshape {
            let x = node.operand(0)?;
            let dim = same_dim(b.graph.shape(x), b.graph.shape(v), self.dim)?;
            let mut inner = Pick { dim, ..*self };
            if self.p == PrimOp::Gather {
                let mut to = b.shape(x);
                to[dim] = b.graph.shape(self.index)[self.dim].clone();
                inner.index = b.reshape(self.index, &to);
            }
            let y = inner.of(b, x)?;
            return Some(b.reshape(y, &shape));
        }
        let operands: Option<Vec<ValueId>> = node.operands().into_iter().map(|x| self.of(b, x)).collect();
        again(b, &node, &operands?)
    }
}
