//! The gradients of an attention written by hand.

use super::attention::{BACKWARD, Found, Matrix, Miss, PRODUCT, Pattern, Product, declined, only};
use super::attention_mask::Term;
use permalloy_ir::{NodeId, PrimOp, ValueId};

/// What the backward of the pattern computes, as far as it is wanted.
pub struct Gradients {
    /// `dO`.
    pub output: Matrix,
    /// `dS·K`, `dSᵀ·Q`, `Pᵀ·dO`.
    pub queries: Option<Product>,
    pub keys: Option<Product>,
    pub values: Option<Product>,
    /// `dO·Vᵀ`.
    probabilities: NodeId,
}

impl Gradients {
    /// The first product of the backward: what the kernel needs is there by then, and nothing it makes is read before.
    pub fn start(&self) -> NodeId {
        self.values.map_or(self.probabilities, |v| v.node.min(self.probabilities))
    }

    pub fn products(&self) -> impl Iterator<Item = NodeId> {
        let made = [self.queries, self.keys, self.values].into_iter().flatten().map(|p| p.node);
        made.chain([self.probabilities])
    }
}

/// Finds the gradients that go through `_softmax_backward_data`, node `backward`.
pub(super) fn gradients(
    p: &Pattern<'_>,
    backward: NodeId,
    values: Option<Product>,
    [q, k, v]: [Matrix; 3],
    scale: f64,
    terms: &[Term],
) -> Found<Gradients> {
    let g = p.graph;
    let node = g.node(backward);
    debug_assert_eq!(node.op.external(), Some(BACKWARD));
    let (Some(dp), Some(ds)) = (node.operand(0), node.result()) else { return Err(Miss::Other) };
    let rank = g.shape(ds).len() as i64;
    if !node.arg(2, "dim").and_then(permalloy_ir::Arg::as_i64).is_some_and(|d| d == -1 || d == rank - 1) {
        return declined("the softmax's gradient is over another dim");
    }
    let (probabilities, flipped) = up_to_product(p, dp)?;
    let (output, keys_of_values) = p.sides(g.node(probabilities), flipped).ok_or(Miss::Other)?;
    if keys_of_values.transposed() != v {
        return declined("the probabilities' gradient is not of these values");
    }
    if values.is_some_and(|dv| dv.other != output) {
        return declined("two different gradients of the result");
    }
    let mut products = vec![];
    let steps = down_to_products(p, ds, terms)?;
    p.products(steps.end, false, &mut products, &mut |_, _| false)?;
    if steps.unmasked {
        return declined("the gradient of the scores is not masked as they are");
    }
    if (steps.factor - scale).abs() > 1e-12 * scale.abs() {
        return declined(format!("scores are scaled by {scale}, their gradient by {}", steps.factor));
    }
    let (queries, keys) = (only(&products, false)?, only(&products, true)?);
    if queries.is_some_and(|d| d.other != k) || keys.is_some_and(|d| d.other != q) {
        return declined("the scores' gradient goes to other operands");
    }
    Ok(Gradients { output, queries, keys, values, probabilities })
}

/// The product that a value is a view or cast of, read by nobody else on the way; and whether it is transposed.
fn up_to_product(p: &Pattern<'_>, mut v: ValueId) -> Found<(NodeId, bool)> {
    let mut flipped = false;
    loop {
        if p.uses.only_reader(v).is_none() {
            return declined("the probabilities' gradient is used elsewhere");
        }
        let Some((node, id)) = p.graph.producer(v).zip(p.producer_id(v)) else {
            return declined("the probabilities' gradient is no product");
        };
        if node.op.external() == Some(PRODUCT) {
            return Ok((id, flipped));
        }
        v = match (p.same_matrix(v), node.prim()) {
            (Some((up, swaps)), _) => {
                flipped ^= swaps;
                up
            }
            (None, Some(PrimOp::Cast)) => p.cast_of_float(node).ok_or(Miss::Other)?,
            _ => return declined(format!("the probabilities' gradient comes from {}", node.op)),
        };
    }
}

/// From the softmax's gradient to the value that the products read.
struct Steps {
    end: ValueId,
    factor: f64,
    /// A fill of the forward that is not undone.
    unmasked: bool,
}

/// The forward's steps in reverse, each undone once.
fn down_to_products(p: &Pattern<'_>, ds: ValueId, terms: &[Term]) -> Found<Steps> {
    let mut v = ds;
    let mut factor = 1.0;
    let fills = terms.iter().filter_map(|t| match t {
        Term::Fill { mask, hidden, .. } => Some((*mask, *hidden)),
        Term::Add { .. } => None,
    });
    let mut open: Vec<(ValueId, bool)> = fills.collect();
    while let Some(node) = p.uses.only_reader(v).map(|id| p.graph.node(id)) {
        let (Some(prim), Some(next)) = (node.prim(), node.result()) else { break };
        match prim {
            PrimOp::Cast if p.cast_of_float(node).is_some() => {}
            PrimOp::Reshape if p.same_matrix(next).is_some() => {}
            PrimOp::Mul | PrimOp::Div => {
                let Some((up, c)) = p.scaled(prim, node) else { break };
                if up != v {
                    break;
                }
                factor *= c;
            }
            PrimOp::Where => {
                let (Some(mask), Some(a), Some(b)) = (node.operand(0), node.operand(1), node.operand(2)) else { break };
                let zero = |x: ValueId| p.facts.get(x).as_constant() == Some(0.0);
                let hidden = match (a == v, b == v) {
                    (true, false) if zero(b) => false,
                    (false, true) if zero(a) => true,
                    _ => break,
                };
                let Some(i) = open.iter().position(|f| *f == (mask, hidden)) else {
                    return declined("the gradient is masked by something else than the scores are");
                };
                open.remove(i);
            }
            _ => break,
        }
        v = next;
    }
    Ok(Steps { end: v, factor, unmasked: !open.is_empty() })
}
