//! Attention written by hand becomes PyTorch's fused kernel, forward and gradients together.
//!
//! ```text
//! S = scale·(Q·Kᵀ) + mask      P = softmax(S)      O = P·V
//! dV = Pᵀ·dO    dP = dO·Vᵀ    dS = scale·(P∘(dP − Σ dP∘P))    dQ = dS·K    dK = dSᵀ·Q
//! ```
//!
//! The kernel makes neither `S` nor `P`, so nobody else may read them: dropped-out, returned or otherwise used
//! probabilities stay as they are, and so does a mask that wants a gradient. Around the products there may be views,
//! casts and a swap of the last two dims, which is how `matmul` and `einsum` are traced.

use super::attention_gradients::{Gradients, gradients};
use super::attention_mask::{Mask, Sight, Term, additive, compact};
use super::uses::Uses;
use super::{Rewritten, copy, record};
use crate::record::RouteTaken;
use crate::simplify::VERIFIED;
use crate::uniform::Facts;
use permalloy_ir::{
    Arg, Builder, DType, Device, Dim, Graph, Node, NodeId, Op, PrimOp, Rebuild, TensorType, ValueId,
    contiguous_strides, non_negative,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Operators that a pattern starts from.
pub const SOFTMAX: [&str; 2] = ["aten._softmax.default", "aten._safe_softmax.default"];
pub const BACKWARD: &str = "aten._softmax_backward_data.default";
/// What must not be decomposed for patterns to be found.
pub const HELD: [&str; 3] = [SOFTMAX[0], SOFTMAX[1], BACKWARD];
pub const PRODUCT: &str = "aten.bmm.default";

/// Steps that may lie between a sum of scores and mask and the product.
const REACH: usize = 8;

const KERNEL: &str = "aten._scaled_dot_product_flash_attention_for_cpu.default";
const KERNEL_BACKWARD: &str = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default";
const CUDA_KERNEL: &str = "aten._scaled_dot_product_flash_attention.default";
const CUDA_KERNEL_BACKWARD: &str = "aten._scaled_dot_product_flash_attention_backward.default";

/// Says whether anything has changed.
pub(super) fn apply(work: &mut Rewritten, always: bool) -> bool {
    let graph = &work.graph;
    let starts: Vec<NodeId> = graph.nodes().filter(|(_, n)| is_softmax(n)).map(|(id, _)| id).collect();
    if starts.is_empty() {
        return false;
    }
    let (facts, uses) = (Facts::of(graph), Uses::of(graph));
    let pattern = Pattern { graph, facts: &facts, uses: &uses, always };
    let mut found: Vec<Attention> = Vec::new();
    for id in starts {
        let node = graph.node(id);
        match pattern.attention(id) {
            Ok(a) => found.push(a),
            // A softmax without products around it is no attention.
            Err(Miss::Other) => {}
            Err(Miss::Declined(why)) => {
                let detail = format!("softmax between two products stays: {why}");
                work.records.push(record("attention".into(), RouteTaken::AsWritten, node.loc.clone(), detail));
            }
        }
    }
    if found.is_empty() {
        return false;
    }
    let mut at: BTreeMap<NodeId, (usize, bool)> = BTreeMap::new();
    for (i, a) in found.iter().enumerate() {
        at.insert(a.out.node, (i, true));
        at.extend(a.gradients.as_ref().map(|g| (g.start(), (i, false))));
    }
    let mut new = Rebuild::of(graph);
    new.reserve_names();
    for (id, node) in graph.nodes() {
        match at.get(&id) {
            Some((i, true)) => {
                found[*i].emit_forward(graph, &mut new);
                work.records.push(found[*i].record(graph));
            }
            Some((i, false)) => found[*i].emit_backward(graph, &mut new),
            None => {}
        }
        copy(&mut new, node);
    }
    for a in found.iter().filter(|a| a.made.is_some()) {
        let gone = |n: NodeId| (Arc::from(graph.node(n).op.name()), graph.node(n).loc.clone());
        work.gone.push(gone(a.scores));
        work.gone.push(gone(a.out.node));
        if let Some(g) = &a.gradients {
            work.gone.extend(g.products().map(gone));
        }
    }
    let made =
        found.iter().filter_map(|a| a.made).flat_map(|m| [Some(m.out), Some(m.logsumexp), m.random[0], m.random[1]]);
    work.made.extend(made.flatten().map(|v| new.graph.value(v).name.clone()));
    work.graph = new.finish().expect(VERIFIED);
    found.iter().any(|a| a.made.is_some())
}

pub(super) fn is_softmax(n: &Node) -> bool {
    n.op.external().is_some_and(|name| SOFTMAX.contains(&name))
}

/// Why a softmax is not rewritten.
pub enum Miss {
    /// It is not between two products.
    Other,
    /// It is, and this is in the way.
    Declined(String),
}

pub type Found<T> = Result<T, Miss>;

pub fn declined<T>(why: impl Into<String>) -> Found<T> {
    Err(Miss::Declined(why.into()))
}

/// A matrix operand: a value, or its transpose in the last two dims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Matrix {
    pub base: ValueId,
    pub swapped: bool,
}

/// A product that reads `P` (or `dS`): `P·other`, or `Pᵀ·other` when `transposed`; the node gives its transpose when
/// `flipped`.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub node: NodeId,
    pub transposed: bool,
    pub other: Matrix,
    pub flipped: bool,
}

/// The pattern, found.
struct Attention {
    q: Matrix,
    k: Matrix,
    v: Matrix,
    scale: f64,
    mask: Mask,
    /// The product under the softmax.
    scores: NodeId,
    out: Product,
    gradients: Option<Gradients>,
    /// What queries, keys and values (by 1) are multiplied by in the graph; the kernel has it in its scale.
    factors: [f64; 3],
    /// Batch, heads, queries, keys, head dim.
    sizes: [Dim; 5],
    /// What the kernel computes on.
    dtype: DType,
    device: Device,
    loc: Option<Arc<str>>,
    made: Option<Made>,
}

/// Values of the new graph that the backward needs.
#[derive(Clone, Copy)]
struct Made {
    q: ValueId,
    k: ValueId,
    v: ValueId,
    mask: Option<ValueId>,
    out: ValueId,
    logsumexp: ValueId,
    /// State of the generator, which CUDA's kernel hands to its gradient also where nothing is drawn.
    random: [Option<ValueId>; 2],
}

/// What finding a pattern looks at.
pub struct Pattern<'a> {
    pub graph: &'a Graph,
    pub facts: &'a Facts,
    pub uses: &'a Uses,
    /// Found where the kernel is slower, too.
    pub always: bool,
}

/// What lies between a product and the softmax.
struct Scores {
    left: Matrix,
    right: Matrix,
    product: NodeId,
    scale: f64,
    terms: Vec<Term>,
}

impl Pattern<'_> {
    fn attention(&self, softmax: NodeId) -> Found<Attention> {
        let g = self.graph;
        let node = g.node(softmax);
        let (Some(s), Some(p)) = (node.operand(0), node.result()) else { return Err(Miss::Other) };
        let scores = self.scores(s)?;
        let rank = g.shape(p).len();
        if !self.is_last(node.arg(1, "dim"), rank) {
            return declined("the softmax is not over the last dim");
        }
        let device = g.ty(p).device;
        if !matches!(device, Device::Cpu | Device::Cuda(_)) {
            return declined(format!("no kernel is known for {device}"));
        }
        let (batch, head) = match g.shape(p) {
            [b, h, _, _] => (b.clone(), h.clone()),
            [bh, _, _] => (Dim::ONE, bh.clone()),
            _ => return declined(format!("the scores have {rank} dims")),
        };
        let (mut products, mut backward) = (vec![], None);
        self.products(p, false, &mut products, &mut |id, n| {
            let reads = n.op.external() == Some(BACKWARD) && n.operand(1) == Some(p) && n.operand(0) != Some(p);
            if reads && backward.is_none() {
                backward = Some(id);
                return true;
            }
            false
        })?;
        let out = only(&products, false)?.ok_or(Miss::Other)?;
        let (q, k, v) = (scores.left, scores.right.transposed(), out.other);
        let sizes = self.sizes(q, k, v, &batch, &head)?;
        let dtype = g.dtype(q.base);
        if [k, v].iter().any(|m| g.dtype(m.base) != dtype) || !dtype.is_float() {
            return declined("queries, keys and values differ in dtype");
        }
        let gradients = match (backward, only(&products, true)?) {
            (None, None) => None,
            (None, Some(_)) => return declined("only the values want a gradient"),
            (Some(b), values) => Some(gradients(self, b, values, [q, k, v], scores.scale, &scores.terms)?),
        };
        if let Some(g) = gradients.as_ref().filter(|g| g.start() <= out.node) {
            return declined(format!("{} comes before the result", self.graph.node(g.start()).op));
        }
        let safe = node.op.external() == Some(SOFTMAX[1]);
        let sight = Sight { graph: g, facts: self.facts, rows: &sizes[2], columns: &sizes[3], safe };
        let mask = sight.mask(&scores.terms).or_else(declined)?;
        let mut gradients = gradients;
        let (mut operands, mut factors, mut dtype) = ([q, k, v], [1.0; 3], dtype);
        if device != Device::Cpu {
            (operands, factors) = self.narrow(operands)?;
            if factors[2] != 1.0 {
                return declined("the values are scaled");
            }
            dtype = g.dtype(operands[0].base);
            if let Some(gradients) = &mut gradients {
                let (m, factor) = self.narrow_one(gradients.output);
                if factor != 1.0 || g.dtype(m.base) != dtype {
                    return declined("the result's gradient is not of 16 bits");
                }
                gradients.output = m;
            }
            if matches!(mask, Mask::Additive(_)) {
                return declined("flash attention takes no mask but the causal one");
            }
            self.fits_flash(&sizes)?;
        } else if !self.always && !self.pays(&sizes) {
            let [.., keys, width] = &sizes;
            return declined(format!("the kernel is slower for {keys} keys of width {width}"));
        }
        let (scores, scale, loc) = (scores.product, scores.scale * factors[0] * factors[1], node.loc.clone());
        let [q, k, v] = operands;
        let made = None;
        Ok(Attention { q, k, v, scale, mask, scores, out, gradients, factors, sizes, dtype, device, loc, made })
    }

    /// Queries, keys and values of 16 bits, which wider ones are casts or multiples of, and the factors.
    fn narrow(&self, operands: [Matrix; 3]) -> Found<([Matrix; 3], [f64; 3])> {
        let found = operands.map(|m| self.narrow_one(m));
        let dtypes = found.map(|(m, _)| self.graph.dtype(m.base));
        if dtypes.iter().any(|d| *d != dtypes[0] || !matches!(d, DType::BF16 | DType::F16)) {
            return declined("flash attention takes queries, keys and values of 16 bits");
        }
        Ok((found.map(|(m, _)| m), found.map(|(_, factor)| factor)))
    }

    fn narrow_one(&self, m: Matrix) -> (Matrix, f64) {
        let (mut at, mut factor) = (m, 1.0);
        while !matches!(self.graph.dtype(at.base), DType::BF16 | DType::F16) {
            let Some(node) = self.graph.producer(at.base) else { return (m, 1.0) };
            at.base = match (self.same_matrix(at.base), node.prim()) {
                (Some((up, swaps)), _) => {
                    at.swapped ^= swaps;
                    up
                }
                (None, Some(PrimOp::Cast)) => match self.cast_of_float(node) {
                    Some(up) => up,
                    None => return (m, 1.0),
                },
                (None, Some(p @ (PrimOp::Mul | PrimOp::Div))) => match self.scaled(p, node) {
                    Some((up, c)) => {
                        factor *= c;
                        up
                    }
                    None => return (m, 1.0),
                },
                _ => return (m, 1.0),
            };
        }
        // Views on the way to the value's origin are none of the kernel's business.
        let origin = self.matrix(at.base);
        (Matrix { base: origin.base, swapped: at.swapped ^ origin.swapped }, factor)
    }

    fn fits_flash(&self, sizes: &[Dim; 5]) -> Found<()> {
        match sizes[4].as_const() {
            Some(width) if width % 8 == 0 && width <= 256 => Ok(()),
            _ => declined(format!("flash attention takes no heads of width {}", sizes[4])),
        }
    }

    /// Walks up from the softmax to the product; nobody else may read what lies between.
    fn scores(&self, top: ValueId) -> Found<Scores> {
        let g = self.graph;
        let (mut v, mut scale, mut terms, mut flipped, mut read_elsewhere) = (top, 1.0, vec![], false, false);
        loop {
            read_elsewhere |= self.uses.only_reader(v).is_none();
            let Some(node) = g.producer(v) else { return Err(Miss::Other) };
            if node.op.external() == Some(PRODUCT) {
                if read_elsewhere {
                    return declined("the scores are used elsewhere");
                }
                let (left, right) = self.sides(node, flipped).ok_or(Miss::Other)?;
                let id = self.producer_id(v).ok_or(Miss::Other)?;
                return Ok(Scores { left, right, product: id, scale, terms });
            }
            let miss = || self.between(node);
            let Some(p) = node.prim() else { return Err(miss()) };
            v = match p {
                PrimOp::Reshape | PrimOp::Permute => {
                    let (up, swaps) = self.same_matrix(v).ok_or_else(miss)?;
                    flipped ^= swaps;
                    up
                }
                PrimOp::Cast => self.cast_of_float(node).ok_or_else(miss)?,
                PrimOp::Mul | PrimOp::Div => {
                    let (up, factor) = self.scaled(p, node).ok_or_else(miss)?;
                    scale *= factor;
                    up
                }
                // Masks lie as the softmax does.
                PrimOp::Where | PrimOp::Add if !flipped => {
                    let (up, term) = self.masked(p, node).ok_or_else(miss)?;
                    let infinite = matches!(term, Term::Fill { fill, .. } if fill == f64::NEG_INFINITY && scale > 0.0);
                    if scale != 1.0 && !infinite {
                        return declined("the mask is scaled with the scores");
                    }
                    terms.push(term);
                    up
                }
                _ => return Err(miss()),
            };
        }
    }

    /// Why a node on the way up from the softmax is no step of the pattern.
    fn between(&self, node: &Node) -> Miss {
        if node.operands().iter().any(|v| self.leads_to_product(*v, REACH)) {
            return Miss::Declined(format!("{} of no constant lies between the product and it", node.op));
        }
        Miss::Other
    }

    /// `where` with a constant beside the scores, or a sum of the scores and something else.
    fn masked(&self, p: PrimOp, node: &Node) -> Option<(ValueId, Term)> {
        if p == PrimOp::Where {
            let (mask, a, b) = (node.operand(0)?, node.operand(1)?, node.operand(2)?);
            let constant = |v: ValueId| self.facts.get(v).as_constant();
            return match (constant(a), constant(b)) {
                (Some(fill), None) => Some((b, Term::Fill { mask, hidden: true, fill })),
                (None, Some(fill)) => Some((a, Term::Fill { mask, hidden: false, fill })),
                _ => None,
            };
        }
        let (a, b) = (node.operand(0)?, node.operand(1)?);
        match (self.leads_to_product(a, REACH), self.leads_to_product(b, REACH)) {
            (true, false) => Some((a, Term::Add { mask: b })),
            (false, true) => Some((b, Term::Add { mask: a })),
            _ => None,
        }
    }

    /// Whether a value is a product, rearranged, scaled or masked, a few steps up.
    fn leads_to_product(&self, v: ValueId, reach: usize) -> bool {
        let Some(node) = self.graph.producer(v).filter(|_| reach > 0) else { return false };
        let up = match node.prim() {
            None => return node.op.external() == Some(PRODUCT),
            Some(PrimOp::Reshape | PrimOp::Permute | PrimOp::Cast) => node.operand(0),
            Some(p @ (PrimOp::Mul | PrimOp::Div)) => self.scaled(p, node).map(|(x, _)| x),
            Some(PrimOp::Where) => self.masked(PrimOp::Where, node).map(|(x, _)| x),
            Some(PrimOp::Add) => {
                return node.operands().iter().any(|x| self.leads_to_product(*x, reach - 1));
            }
            _ => None,
        };
        up.is_some_and(|x| self.leads_to_product(x, reach - 1))
    }

    /// `x·c` or `x/c`: `x` and the factor.
    pub fn scaled(&self, p: PrimOp, node: &Node) -> Option<(ValueId, f64)> {
        let (a, b) = (node.operand(0)?, node.operand(1)?);
        let constant = |v: ValueId| self.facts.get(v).as_constant().filter(|c| c.is_finite() && *c != 0.0);
        match (p, constant(a), constant(b)) {
            (PrimOp::Mul, None, Some(c)) => Some((a, c)),
            (PrimOp::Mul, Some(c), None) => Some((b, c)),
            (PrimOp::Div, None, Some(c)) => Some((a, 1.0 / c)),
            _ => None,
        }
    }

    pub fn cast_of_float(&self, node: &Node) -> Option<ValueId> {
        node.operand(0).filter(|x| {
            self.graph.dtype(*x).is_float() && node.result().is_some_and(|v| self.graph.dtype(v).is_float())
        })
    }

    /// The operand of a view that keeps the last two dims as they are or swaps them; and whether it swaps.
    pub fn same_matrix(&self, v: ValueId) -> Option<(ValueId, bool)> {
        let node = self.graph.producer(v)?;
        let x = node.operand(0)?;
        let (from, to) = (self.graph.shape(x), self.graph.shape(v));
        let (m, n) = (from.len(), to.len());
        match node.prim()? {
            PrimOp::Reshape if m >= 2 && n >= 2 && from[m - 2..] == to[n - 2..] => Some((x, false)),
            PrimOp::Permute if n >= 2 => {
                let perm = node.ints_attr("perm");
                let front = perm[..n - 2].iter().copied().eq(0..n as i64 - 2);
                (front && perm[n - 1] == n as i64 - 2).then_some((x, true))
            }
            _ => None,
        }
    }

    /// The value that a chain of views of matrices starts from.
    pub fn matrix(&self, v: ValueId) -> Matrix {
        let mut m = Matrix { base: v, swapped: false };
        while let Some((up, swaps)) = self.same_matrix(m.base) {
            m = Matrix { base: up, swapped: m.swapped ^ swaps };
        }
        m
    }

    /// Both factors of a product, or of its transpose.
    pub fn sides(&self, product: &Node, flipped: bool) -> Option<(Matrix, Matrix)> {
        let (a, b) = (self.matrix(product.operand(0)?), self.matrix(product.operand(1)?));
        Some(if flipped { (b.transposed(), a.transposed()) } else { (a, b) })
    }

    pub fn producer_id(&self, v: ValueId) -> Option<NodeId> {
        match self.graph.value(v).def {
            permalloy_ir::Def::Node(id, _) => Some(id),
            permalloy_ir::Def::Input(_) => None,
        }
    }

    /// Every product that reads `v`, through views and casts. Another reader is an error unless `also` takes it.
    pub fn products(
        &self,
        v: ValueId,
        transposed: bool,
        out: &mut Vec<Product>,
        also: &mut dyn FnMut(NodeId, &Node) -> bool,
    ) -> Found<()> {
        let g = self.graph;
        if self.uses.returned(v) {
            return declined(format!("%{} is returned or saved", g.value(v).name));
        }
        for id in self.uses.readers(v) {
            let node = g.node(*id);
            let result = node.result();
            if node.op.external() == Some(PRODUCT) {
                let (Some(a), Some(b)) = (node.operand(0), node.operand(1)) else { return Err(Miss::Other) };
                out.push(match (a == v, b == v) {
                    (true, false) => Product { node: *id, transposed, other: self.matrix(b), flipped: false },
                    (false, true) => {
                        let other = self.matrix(a).transposed();
                        Product { node: *id, transposed: !transposed, other, flipped: true }
                    }
                    _ => return declined("a product of the probabilities with themselves"),
                });
                continue;
            }
            let through = match (node.prim(), result) {
                (Some(PrimOp::Reshape | PrimOp::Permute), Some(r)) => self.same_matrix(r).map(|(_, swaps)| (r, swaps)),
                (Some(PrimOp::Cast), Some(r)) => self.cast_of_float(node).map(|_| (r, false)),
                _ => None,
            };
            match through {
                Some((r, swaps)) => self.products(r, transposed ^ swaps, out, also)?,
                None if also(*id, node) => {}
                None => return declined(format!("%{} is also read by {}", g.value(v).name, node.op)),
            }
        }
        Ok(())
    }

    fn is_last(&self, dim: Option<&Arg>, rank: usize) -> bool {
        dim.and_then(Arg::as_i64).is_some_and(|d| d == -1 || d == rank as i64 - 1)
    }

    /// `[B, H, Sq, Sk, D]`, if the operands agree on them and none is empty.
    fn sizes(&self, q: Matrix, k: Matrix, v: Matrix, batch: &Dim, head: &Dim) -> Found<[Dim; 5]> {
        let (qs, ks, vs) = (self.last_two(q), self.last_two(k), self.last_two(v));
        if qs.1 != ks.1 || ks.0 != vs.0 {
            return Err(Miss::Other);
        }
        if vs.1 != qs.1 {
            return declined("values are of another width than keys");
        }
        let sizes = [batch.clone(), head.clone(), qs.0, ks.0, qs.1];
        let symbols = &self.graph.symbols;
        match sizes.iter().find(|n| !non_negative(&(*n - &Dim::ONE), symbols)) {
            Some(n) => declined(format!("size {n} may be 0")),
            None => Ok(sizes),
        }
    }

    /// By time on one thread of an AVX-512 machine, forward and gradients, kernel over written out (fused by us), f32:
    ///
    /// | width | 16 keys | 32 | 64 | 128 | 256 | 512 | 1024 | 2048 |
    /// |---|---|---|---|---|---|---|---|---|
    /// | 16 | | | 0.95 | 0.57 | | | | |
    /// | 32 | 1.4 | 1.1 | 1.0 | | 0.72 | | | |
    /// | 64 | | | 1.0 | 1.05 | 1.02 | 1.0 | 0.75 | 0.6 |
    /// | 128 | | | | 1.1 | | | | |
    /// | 256 | | | | | 1.2 | | | |
    ///
    /// Where times are equal the kernel is taken: it keeps no probabilities for the backward.
    fn pays(&self, [_, _, _, keys, width]: &[Dim; 5]) -> bool {
        let hints = permalloy_ir::hints(&self.graph.symbols);
        let (Ok(keys), Ok(width)) = (keys.eval(&hints), width.eval(&hints)) else { return false };
        keys >= 64 && keys >= 2 * width
    }

    fn last_two(&self, m: Matrix) -> (Dim, Dim) {
        let shape = self.graph.shape(m.base);
        let (a, b) = (shape[shape.len() - 2].clone(), shape[shape.len() - 1].clone());
        if m.swapped { (b, a) } else { (a, b) }
    }
}

impl Matrix {
    pub fn transposed(self) -> Matrix {
        Matrix { base: self.base, swapped: !self.swapped }
    }
}

/// The one product that reads the matrix (or its transpose), if there is one.
pub fn only(products: &[Product], transposed: bool) -> Found<Option<Product>> {
    let mut of_kind = products.iter().filter(|p| p.transposed == transposed);
    let first = of_kind.next().copied();
    match of_kind.next() {
        None => Ok(first),
        Some(_) => declined("two products read the same matrix"),
    }
}

impl Attention {
    fn record(&self, graph: &Graph) -> crate::record::Record {
        let mask = match &self.mask {
            Mask::None => "no mask",
            Mask::Causal => "causal",
            Mask::Additive(_) => "additive mask",
        };
        let size = permalloy_ir::shape_text(&self.sizes);
        let what = if self.gradients.is_some() { "forward and gradients" } else { "forward" };
        let detail = format!(
            "{what} by {}: {mask}, scale {}, [batch, heads, queries, keys, width] = {size}",
            self.kernels().0,
            self.scale
        );
        let loc = self.loc.clone().or_else(|| graph.node(self.scores).loc.clone());
        let done = self.made.is_some();
        let route = if done { RouteTaken::Rewritten("attention") } else { RouteTaken::AsWritten };
        let detail =
            if done { detail } else { "softmax between two products stays: a mask is of no usual shape".into() };
        record("attention".into(), route, loc, detail)
    }

    fn emit_forward(&mut self, graph: &Graph, new: &mut Rebuild<'_>) {
        let [batch, head, queries, _, width] = self.sizes.clone();
        let wide = if self.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let mask = match &self.mask {
            Mask::Additive(terms) => {
                let terms: Vec<_> =
                    terms.iter().map(|t| (t.clone(), new.value(compact(graph, t)).expect(VERIFIED))).collect();
                let mut b = Builder::new(&mut new.graph);
                b.loc = self.loc.clone();
                match additive(&mut b, &terms, (&batch, &head), wide) {
                    Some(mask) => Some(mask),
                    None => return,
                }
            }
            Mask::None | Mask::Causal => None,
        };
        let [q, k, v] = [self.q, self.k, self.v].map(|m| self.operand(new, m));
        let causal = self.mask == Mask::Causal;
        let mut args = vec![Arg::Value(q), Arg::Value(k), Arg::Value(v), Arg::Float(0.0), Arg::Bool(causal)];
        // The kernel gives [B, Sq, H, ·] with the two middle dims swapped.
        let out = self.swapped([&batch, &head, &queries, &width]);
        let mut lse = self.ty(wide, &[&batch, &head, &queries]);
        let named = |what: &str, ty: TensorType| Some((format!("{}.{what}", self.name(graph)).into(), ty));
        let mut results = vec![named("heads", out)];
        if self.device == Device::Cpu {
            lse.strides = Some(vec![&queries * &head, Dim::ONE, head.clone()]);
            results.push(named("logsumexp", lse));
        } else {
            args.push(Arg::Bool(false));
            // Lengths of sequences, which nobody gives, and the probabilities, which nobody asks for, are not returned.
            results.extend([named("logsumexp", lse), None, None, None, None]);
            let (seed, offset) = (self.ty(DType::U64, &[&Dim::from(2)]), self.ty(DType::U64, &[]));
            results.extend([named("seed", seed), named("offset", offset), None]);
        }
        let op = Op::External(self.kernels().0.into());
        let id = new.graph.add_node(op, args, self.keywords(mask), results, self.loc.clone());
        let made = new.graph.node(id).results.clone();
        let (Some(out), Some(logsumexp)) = (made[0], made[1]) else { return };
        let random = [6, 7].map(|i| made.get(i).copied().flatten());
        self.made = Some(Made { q, k, v, mask, out, logsumexp, random });
        self.replace(graph, new, self.out, out, 1.0);
    }

    fn emit_backward(&self, graph: &Graph, new: &mut Rebuild<'_>) {
        let (Some(gradients), Some(made)) = (&self.gradients, self.made) else { return };
        let [batch, head, queries, keys, width] = &self.sizes;
        let dout = self.operand(new, gradients.output);
        let values = [dout, made.q, made.k, made.v, made.out, made.logsumexp];
        let mut args: Vec<Arg> = values.into_iter().map(Arg::Value).collect();
        let causal = Arg::Bool(self.mask == Mask::Causal);
        match made.random {
            [Some(seed), Some(offset)] => {
                let longest = [queries, keys].map(|n| Arg::Int(n.clone()));
                args.extend([Arg::None, Arg::None].into_iter().chain(longest));
                args.extend([Arg::Float(0.0), causal, Arg::Value(seed), Arg::Value(offset)]);
            }
            _ => args.extend([Arg::Float(0.0), causal]),
        }
        let of = |what: &str, n: &Dim| {
            let name = format!("{}.{what}", self.name(graph)).into();
            Some((name, self.swapped([batch, head, n, width])))
        };
        let results = vec![of("dq", queries), of("dk", keys), of("dv", keys)];
        let op = Op::External(self.kernels().1.into());
        let id = new.graph.add_node(op, args, self.keywords(made.mask), results, self.loc.clone());
        let made = new.graph.node(id).results.clone();
        let products = [gradients.queries, gradients.keys, gradients.values];
        for ((product, gradient), factor) in products.into_iter().zip(made).zip(self.factors) {
            if let (Some(product), Some(gradient)) = (product, gradient) {
                // The graph's operand is `factor` times the kernel's.
                self.replace(graph, new, product, gradient, 1.0 / factor);
            }
        }
    }

    /// The operator and its gradient.
    fn kernels(&self) -> (&'static str, &'static str) {
        match self.device {
            Device::Cpu => (KERNEL, KERNEL_BACKWARD),
            _ => (CUDA_KERNEL, CUDA_KERNEL_BACKWARD),
        }
    }

    fn ty(&self, dtype: DType, shape: &[&Dim]) -> TensorType {
        let mut ty = TensorType::new(dtype, shape.iter().copied().cloned().collect());
        ty.device = self.device;
        ty
    }

    /// `[B, H, rows, width]` with the middle dims swapped in memory.
    fn swapped(&self, [batch, head, rows, width]: [&Dim; 4]) -> TensorType {
        let strides = contiguous_strides(&[batch.clone(), rows.clone(), head.clone(), width.clone()]);
        let mut ty = self.ty(self.dtype, &[batch, head, rows, width]);
        ty.strides = Some(vec![strides[0].clone(), strides[2].clone(), strides[1].clone(), strides[3].clone()]);
        ty
    }

    fn name(&self, graph: &Graph) -> Arc<str> {
        graph.node(self.out.node).result().map_or_else(|| "attention".into(), |v| graph.value(v).name.clone())
    }

    fn keywords(&self, mask: Option<ValueId>) -> Vec<(Arc<str>, Arg)> {
        let mask = mask.map(|m| ("attn_mask".into(), Arg::Value(m)));
        mask.into_iter().chain([("scale".into(), Arg::Float(self.scale))]).collect()
    }

    /// An operand as `[B, H, rows, width]`.
    fn operand(&self, new: &mut Rebuild<'_>, m: Matrix) -> ValueId {
        let x = new.value(m.base).expect(VERIFIED);
        let mut b = Builder::new(&mut new.graph);
        b.loc = self.loc.clone();
        let from = b.shape(x);
        let shape: Vec<Dim> = self.sizes[..2].iter().chain(&from[from.len() - 2..]).cloned().collect();
        let x = b.reshape(x, &shape);
        if m.swapped { b.transpose(x, 2, 3) } else { x }
    }

    /// The product's result becomes `[B, H, ·, ·]`, times a factor, in its own shape and dtype.
    fn replace(&self, graph: &Graph, new: &mut Rebuild<'_>, product: Product, made: ValueId, factor: f64) {
        let Some(old) = graph.node(product.node).result() else { return };
        let mut b = Builder::new(&mut new.graph);
        b.loc = graph.node(product.node).loc.clone();
        let made = b.cast(made, graph.dtype(old));
        let made = if factor == 1.0 { made } else { b.mul_scalar(made, factor) };
        let made = if product.flipped { b.transpose(made, 2, 3) } else { made };
        // Products have three dims, so this is a value of its own.
        let made = b.reshape(made, graph.shape(old));
        new.take_name(old, made);
        new.bind(old, made);
    }
}
