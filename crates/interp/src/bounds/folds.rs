//! Bounds of sums, extremes and indexed access.

use super::{Errors, format};
use permalloy_ir::{Arg, DType, Dim, Node, PrimOp, ValueId};

impl Errors {
    /// Bound of a sum of `terms` numbers with the given sum of magnitudes, in any order.
    pub(super) fn accumulation(&mut self, size: ValueId, dtype: DType, terms: Dim) -> ValueId {
        let shape = self.graph.shape(size).to_vec();
        let n = self.b().full(Arg::Int(terms), &shape, DType::F64);
        let part = self.b().mul(size, n);
        self.b().mul_scalar(part, format(dtype.compute()).0)
    }

    pub(super) fn reduce(
        &mut self,
        p: PrimOp,
        node: &Node,
        x: (ValueId, Option<ValueId>),
        y: ValueId,
    ) -> Option<ValueId> {
        let dtype = self.graph.dtype(x.0);
        let dims = node.ints_attr("dims");
        let terms = Dim::product(dims.iter().map(|d| &self.graph.shape(x.0)[*d as usize]));
        let fold = |s: &mut Self, op: PrimOp, v: ValueId| s.b().reduce(op, v, &dims, false);
        match p {
            PrimOp::Sum if dtype.is_float() => {
                let size = self.magnitude(x.0);
                let size = fold(self, PrimOp::Sum, size);
                let mut e = self.accumulation(size, dtype, terms);
                if let Some(ex) = x.1 {
                    let part = fold(self, PrimOp::Sum, ex);
                    e = self.b().add(e, part);
                }
                self.rounded(Some(e), y, 1.0)
            }
            PrimOp::Prod if dtype.is_float() => {
                let size = self.magnitude(x.0);
                let low = fold(self, PrimOp::Prod, size);
                let ex = self.or_zero(x.1, x.0);
                let reach = self.b().add(size, ex);
                let high = fold(self, PrimOp::Prod, reach);
                let off = self.b().sub(high, low);
                let part = self.accumulation(high, dtype, terms);
                let e = self.b().add(off, part);
                self.rounded(Some(e), y, 1.0)
            }
            PrimOp::Amax | PrimOp::Amin if dtype.is_float() => {
                let ex = x.1?;
                let centre = self.wide(x.0);
                let wide = self.wide(y);
                let mut worst = self.constant(y, 0.0);
                for op in [PrimOp::Add, PrimOp::Sub] {
                    let end = self.b().binary(op, centre, ex);
                    let end = fold(self, p, end);
                    let off = self.distance(end, wide);
                    worst = self.b().prim(PrimOp::Max, &[worst, off], vec![]);
                }
                self.rounded(Some(worst), y, 0.0)
            }
            PrimOp::Argmax | PrimOp::Argmin if dtype.is_float() => {
                let ex = x.1?;
                self.arg_extreme(p, dims[0] as usize, x.0, ex, y)
            }
            _ => {
                let total = fold(self, PrimOp::Sum, x.1?);
                Some(self.infinite_where_positive(total))
            }
        }
    }

    /// Certain where everything is exact, or only one element reaches up to the extreme.
    fn arg_extreme(&mut self, p: PrimOp, d: usize, x: ValueId, ex: ValueId, y: ValueId) -> Option<ValueId> {
        let mut c = self.wide(x);
        if p == PrimOp::Argmin {
            c = self.b().unary(PrimOp::Neg, c);
        }
        let d = d as i64;
        let low = self.b().sub(c, ex);
        let best = self.b().reduce(PrimOp::Amax, low, &[d], true);
        let shape = self.graph.shape(x).to_vec();
        let best = self.b().expand(best, &shape);
        let high = self.b().add(c, ex);
        let near = self.b().prim(PrimOp::Lt, &[high, best], vec![]);
        let near = self.b().unary(PrimOp::Not, near);
        let near = self.b().cast(near, DType::F64);
        let count = self.b().sum(near, &[d], false);
        let total = self.b().sum(ex, &[d], false);
        let (zero, one, inf) = (self.constant(y, 0.0), self.constant(y, 1.0), self.constant(y, f64::INFINITY));
        let alone = self.b().prim(PrimOp::Le, &[count, one], vec![]);
        let exact = self.b().prim(PrimOp::Eq, &[total, zero], vec![]);
        let certain = self.b().prim(PrimOp::Or, &[alone, exact], vec![]);
        Some(self.b().select(certain, zero, inf))
    }

    pub(super) fn indexed(
        &mut self,
        p: PrimOp,
        node: &Node,
        x: &[(ValueId, Option<ValueId>)],
        y: ValueId,
    ) -> Option<ValueId> {
        let (source, index) = (x[0], x[1]);
        if index.1.is_some() {
            // Rare enough not to look closer.
            return Some(self.constant(y, f64::INFINITY));
        }
        let dtype = self.graph.dtype(y);
        if matches!(p, PrimOp::Gather | PrimOp::Take) {
            let e = source.1?;
            return Some(self.again(p, node, &[e, index.0]));
        }
        if !dtype.is_float() {
            let e = source.1?;
            let e = self.again(p, node, &[e, index.0]);
            return Some(self.infinite_where_positive(e));
        }
        let size = self.magnitude(source.0);
        let size = self.again(p, node, &[size, index.0]);
        let terms = Dim::product(self.graph.shape(source.0));
        let mut e = self.accumulation(size, dtype, terms);
        if let Some(ex) = source.1 {
            let part = self.again(p, node, &[ex, index.0]);
            e = self.b().add(e, part);
        }
        self.rounded(Some(e), y, 1.0)
    }
}
