//! Sums over a dim along which one element at most is not zero.

use super::Site;
use super::along::{BUDGET, counts, holds_indices, is_zero, repeats, same_dim, slice_of_repeated, with_one};
use permalloy_ir::{Arg, Builder, DType, Dim, Graph, PrimOp, ValueId};

/// How many conditions and casts are looked through.
const MOST: usize = 8;

/// `Σ_j (j = t & c ? v : 0) = 0 <= t < n & c ? v : 0` where neither t, c nor v vary over the n indices j; a mask cast to
/// a number counts as a choice of 1. Exact but for the sign of a zero. A product with a cast mask is left alone: where
/// the mask is 0, it makes NaN of what is not finite.
pub(super) fn sum(b: &mut Builder<'_>, site: &Site<'_>) -> Option<ValueId> {
    let node = site.node;
    if node.prim() != Some(PrimOp::Sum) {
        return None;
    }
    let dims: Vec<usize> = node.ints_attr("dims").iter().map(|d| *d as usize).collect();
    let mut x = node.operand(0)?;
    let summed: Vec<Dim> = (0..b.rank(x)).filter(|d| !dims.contains(d)).map(|d| b.graph.shape(x)[d].clone()).collect();
    if let [d] = dims[..] {
        // The sum of a reshape that leaves the dim alone is a reshape of the sum.
        let mut d = d;
        while let Some(from) = b.graph.producer(x).filter(|n| n.prim() == Some(PrimOp::Reshape)) {
            let from = from.operand(0)?;
            d = same_dim(b.graph.shape(from), b.graph.shape(x), d)?;
            x = from;
        }
        let y = sum_over(b, x, d)?;
        return Some(b.reshape(y, &summed));
    }
    let (d, y) = dims.iter().find_map(|d| Some((*d, sum_over(b, x, *d)?)))?;
    let rest: Vec<Dim> = (0..b.rank(y)).filter(|e| *e != d).map(|e| b.graph.shape(y)[e].clone()).collect();
    let y = b.reshape(y, &rest);
    let others: Vec<i64> = dims.iter().filter(|e| **e != d).map(|e| (*e - usize::from(*e > d)) as i64).collect();
    Some(b.sum(y, &others, false))
}

/// The sum over dim `d`, which stays with size 1.
fn sum_over(b: &mut Builder<'_>, x: ValueId, d: usize) -> Option<ValueId> {
    let chosen = Chosen::of(b.graph, x)?;
    let (at, target) = chosen.conditions.iter().enumerate().find_map(|(i, c)| Some((i, hot(b.graph, *c, d)?)))?;
    let budget = &mut { BUDGET };
    let others = || chosen.conditions.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, c)| *c);
    if !others().chain(chosen.value).all(|v| repeats(b.graph, v, d, budget)) {
        return None;
    }
    let (shape, dtype) = (b.shape(x), b.dtype(x));
    let one = with_one(&shape, d);
    let target = slice_of_repeated(b, target, d)?;
    let index_dtype = b.dtype(target);
    let zero = b.full(Arg::Int(Dim::ZERO), &one, index_dtype);
    let size = b.full(Arg::Int(shape[d].clone()), &one, index_dtype);
    let not_below = b.binary(PrimOp::Ge, target, zero);
    let below = b.binary(PrimOp::Lt, target, size);
    let mut condition = b.binary(PrimOp::And, not_below, below);
    for c in others() {
        let c = slice_of_repeated(b, c, d)?;
        condition = b.binary(PrimOp::And, condition, c);
    }
    let mut value = match chosen.value {
        Some(v) => slice_of_repeated(b, v, d)?,
        None => b.full(number(1, chosen.unit), &one, chosen.unit),
    };
    for dtype in chosen.casts.iter().rev() {
        value = b.cast(value, *dtype);
    }
    let nothing = b.full(number(0, dtype), &one, dtype);
    Some(b.select(condition, value, nothing))
}

/// A value that is zero unless all conditions hold.
struct Chosen {
    conditions: Vec<ValueId>,
    /// What it is then; None stands for 1 of dtype `unit`.
    value: Option<ValueId>,
    unit: DType,
    /// Casts of that value, the last one first.
    casts: Vec<DType>,
}

impl Chosen {
    fn of(g: &Graph, mut x: ValueId) -> Option<Chosen> {
        let mut chosen = Chosen { conditions: vec![], value: None, unit: g.dtype(x), casts: vec![] };
        while let Some(node) = g.producer(x) {
            match (node.prim(), node.operand(0)) {
                (Some(PrimOp::Where), Some(c)) if is_zero(g, node.operand(2)?) => {
                    conjuncts(g, c, &mut chosen.conditions);
                    x = node.operand(1)?;
                }
                (Some(PrimOp::Cast), Some(from)) if g.dtype(from) == DType::Bool => {
                    conjuncts(g, from, &mut chosen.conditions);
                    chosen.unit = g.dtype(x);
                    return Some(chosen);
                }
                (Some(PrimOp::Cast), Some(from)) => {
                    chosen.casts.push(g.dtype(x));
                    x = from;
                }
                _ => break,
            }
            if chosen.conditions.len() > MOST || chosen.casts.len() > MOST {
                return None;
            }
        }
        chosen.value = Some(x);
        (!chosen.conditions.is_empty()).then_some(chosen)
    }
}

/// The conditions that `c` is the conjunction of, as far as they are few.
fn conjuncts(g: &Graph, c: ValueId, out: &mut Vec<ValueId>) {
    let mut open = vec![c];
    while let Some(c) = open.pop() {
        match g.producer(c) {
            Some(n) if n.prim() == Some(PrimOp::And) && out.len() + open.len() < MOST => open.extend(n.operands()),
            _ => out.push(c),
        }
    }
}

/// `t` of a condition `j = t`, j the index along `d`, t the same for each.
fn hot(g: &Graph, condition: ValueId, d: usize) -> Option<ValueId> {
    let node = g.producer(condition).filter(|n| n.prim() == Some(PrimOp::Eq))?;
    let (a, b) = (node.operand(0)?, node.operand(1)?);
    let size = &g.shape(condition)[d];
    let one = |j: ValueId, t: ValueId| {
        let fits = holds_indices(g.dtype(t), size) && counts(g, j, d) && repeats(g, t, d, &mut { BUDGET });
        fits.then_some(t)
    };
    one(a, b).or_else(|| one(b, a))
}

fn number(n: i64, dtype: DType) -> Arg {
    if dtype.is_float() { Arg::Float(n as f64) } else { Arg::Int(Dim::from(n)) }
}
