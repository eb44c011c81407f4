//! Large products of 16 bits over sizes that are no multiple of eight, such as an odd vocabulary, on CUDA devices.
//!
//! Tensor cores are fed 16 bytes at a time: where rows do not begin on such a boundary, a library falls back to kernels that
//! are several times slower. So operands get rows or columns of zeros, which change no product, and the result is a view of
//! the larger one. The zeros are written by the kernel that makes the operand.

use super::uses::Uses;
use super::{Rewritten, record};
use crate::record::RouteTaken;
use crate::simplify::VERIFIED;
use permalloy_ir::{Arg, Builder, DType, Device, Dim, Graph, Node, PrimOp, Rebuild, ValueId};
use std::collections::BTreeMap;
use std::sync::Arc;

const MM: &str = "aten.mm.default";
const ADDMM: &str = "aten.addmm.default";
/// Elements that sizes are rounded up to.
const MULTIPLE: i64 = 8;
/// Multiplications of a product that is worth the copies.
const LARGE: i64 = 1 << 33;

/// Rows, inner size and columns of a product, where they are known and one of them is to be rounded up.
struct Sizes {
    sizes: [i64; 3],
    rounded: [i64; 3],
}

fn sizes(graph: &Graph, node: &Node) -> Option<Sizes> {
    let first = match node.op.external()? {
        MM => 0,
        // Scaled products are left alone.
        ADDMM if node.kwargs.is_empty() && node.args.len() == 3 => 1,
        _ => return None,
    };
    let (a, b) = (node.operand(first)?, node.operand(first + 1)?);
    let result = graph.ty(node.result()?);
    if !matches!(result.device, Device::Cuda(_)) || !matches!(result.dtype, DType::BF16 | DType::F16) {
        return None;
    }
    let size = |v: ValueId, d: usize| graph.shape(v).get(d).and_then(Dim::as_const);
    let sizes = [size(a, 0)?, size(a, 1)?, size(b, 1)?];
    let rounded = sizes.map(|n| (n + MULTIPLE - 1) / MULTIPLE * MULTIPLE);
    let large = sizes.iter().try_fold(1i64, |all, n| all.checked_mul(*n)).is_none_or(|n| n >= LARGE);
    (large && rounded != sizes).then_some(Sizes { sizes, rounded })
}

/// Whether a node is such a product.
pub(super) fn is_odd(graph: &Graph, node: &Node) -> bool {
    sizes(graph, node).is_some()
}

pub(super) fn apply(work: &mut Rewritten) {
    let graph = &work.graph;
    if !graph.nodes().any(|(_, n)| is_odd(graph, n)) {
        return;
    }
    let uses = Uses::of(graph);
    let mut new = Rebuild::of(graph);
    new.reserve_names();
    let mut padder = Padder { known: BTreeMap::new() };
    for (_, node) in graph.nodes() {
        // What is returned would have to be copied out of the larger product.
        let view = |s: &Sizes| s.rounded[0] != s.sizes[0] || s.rounded[2] != s.sizes[2];
        let odd = sizes(graph, node).zip(node.result()).filter(|(s, old)| !(view(s) && uses.returned(*old)));
        let Some((s, old)) = odd else {
            new.copy(node).expect(VERIFIED);
            continue;
        };
        let made = padder.product(&mut new, node, &s);
        new.take_name(old, made);
        new.bind(old, made);
        let [m, k, n] = s.rounded;
        let detail = format!("{:?} is computed as [{m}, {k}, {n}]: rows begin on 16 bytes", s.sizes);
        let op: Arc<str> = node.op.shared_name();
        work.records.push(record(op, RouteTaken::Rewritten("aligned_products"), node.loc.clone(), detail));
    }
    work.graph = new.finish().expect(VERIFIED);
}

struct Padder {
    /// Padded values, by value and dim.
    known: BTreeMap<(ValueId, usize), ValueId>,
}

impl Padder {
    fn product(&mut self, new: &mut Rebuild<'_>, node: &Node, s: &Sizes) -> ValueId {
        let moved = new.moved(node).expect(VERIFIED);
        let operands: Vec<ValueId> = moved.operands();
        let (bias, [a, b]) = match operands.as_slice() {
            [a, b] => (None, [*a, *b]),
            [bias, a, b] => (Some(*bias), [*a, *b]),
            _ => unreachable!("a product has two or three operands"),
        };
        let [m, k, n] = [0, 1, 2].map(|i| s.rounded[i] - s.sizes[i]);
        let loc = &node.loc;
        let a = self.padded(new, loc, a, 0, m);
        let a = self.padded(new, loc, a, 1, k);
        let b = self.padded(new, loc, b, 0, k);
        let b = self.padded(new, loc, b, 1, n);
        let mut args = vec![Arg::Value(a), Arg::Value(b)];
        if let Some(bias) = bias {
            // One number a column; a column of them is none.
            let last = new.graph.shape(bias).len() - 1;
            let columns = new.graph.shape(bias)[last].is_const(s.sizes[2]);
            let bias = if columns { self.padded(new, loc, bias, last, n) } else { bias };
            args.insert(0, Arg::Value(bias));
        }
        let mut ty = new.graph.ty(a).clone();
        (ty.shape, ty.strides) = (vec![Dim::from(s.rounded[0]), Dim::from(s.rounded[2])], None);
        let mut builder = Builder::new(&mut new.graph);
        builder.loc = loc.clone();
        let made = builder.external(&moved.op.shared_name(), args, vec![Some(ty)]);
        let mut made = made[0].expect("a product has a result");
        for (d, i) in [(0, 0), (1, 2)] {
            if s.rounded[i] != s.sizes[i] {
                made = builder.slice(made, d, &Dim::ZERO, &Dim::from(s.sizes[i]), 1);
            }
        }
        made
    }

    /// A value with `by` zeros after it along a dim; where it is a transpose, a transpose of such a value.
    fn padded(&mut self, new: &mut Rebuild<'_>, loc: &Option<Arc<str>>, v: ValueId, dim: usize, by: i64) -> ValueId {
        if by == 0 {
            return v;
        }
        if let Some(known) = self.known.get(&(v, dim)) {
            return *known;
        }
        let transposed = new.graph.producer(v).filter(|n| n.prim() == Some(PrimOp::Permute));
        let up = transposed.and_then(|n| n.operand(0).zip(Some(n.ints_attr("perm"))));
        let made = match up {
            Some((x, perm)) => {
                let perm: Vec<usize> = perm.iter().map(|p| *p as usize).collect();
                let inner = self.padded(new, loc, x, perm[dim], by);
                Builder::new(&mut new.graph).permute(inner, &perm)
            }
            None => {
                let mut shape = new.graph.shape(v).to_vec();
                shape[dim] = Dim::from(by);
                let (dtype, device) = (new.graph.dtype(v), new.graph.ty(v).device);
                let mut b = Builder::new(&mut new.graph);
                b.loc = loc.clone();
                b.device = device;
                let zeros = b.full(Arg::Float(0.0), &shape, dtype);
                b.concat(&[v, zeros], dim)
            }
        };
        self.known.insert((v, dim), made);
        made
    }
}
