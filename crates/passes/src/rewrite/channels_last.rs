//! Images of 16 bits lie in memory channels last on CUDA devices, and so do the weights of convolutions.
//!
//! The library's convolutions read and write channels last; for any other layout they copy operands and results, which
//! took a sixth of a training step of resnet50. So what kernels of ours compute from the result of a convolution, or for a
//! convolution to read, is computed over [N, H, W, C]. The graph's own [N, C, H, W] is a view of that.

use super::uses::Uses;
use super::{Rewritten, record};
use crate::record::RouteTaken;
use crate::simplify::VERIFIED;
use permalloy_ir::{Arg, Builder, DType, Device, Dim, Graph, Node, NodeId, PrimKind, Rebuild, ValueId};
use std::collections::{BTreeMap, BTreeSet};

const CONVOLUTION: &str = "aten.convolution.default";
const GRADIENTS: &str = "aten.convolution_backward.default";
/// What else keeps the layout of its first operand.
const POOLS: [&str; 2] = ["aten.max_pool2d_with_indices.default", "aten.max_pool2d_with_indices_backward.default"];

/// [N, C, H, W] to [N, H, W, C], and back.
const LAST: [usize; 4] = [0, 2, 3, 1];
const BACK: [usize; 4] = [0, 3, 1, 2];

/// Whether a node is a convolution that is best done channels last, or its gradients.
pub(super) fn is_convolution(graph: &Graph, node: &Node) -> bool {
    // Operands that are images or weights, and where transposed and groups stand.
    let (images, transposed, groups) = match node.op.external() {
        Some(CONVOLUTION) => (2, 6, 8),
        Some(GRADIENTS) => (3, 7, 9),
        _ => return false,
    };
    let image = |i: usize| {
        node.operand(i).is_some_and(|v| {
            let ty = graph.ty(v);
            matches!(ty.device, Device::Cuda(_)) && matches!(ty.dtype, DType::BF16 | DType::F16) && ty.rank() == 4
        })
    };
    (0..images).all(image)
        && node.args.get(transposed).is_some_and(|a| matches!(a, Arg::Bool(false)))
        && node.args.get(groups).and_then(Arg::as_i64) == Some(1)
}

pub(super) fn apply(work: &mut Rewritten) {
    let graph = &work.graph;
    let convolutions: BTreeSet<NodeId> =
        graph.nodes().filter(|(_, n)| is_convolution(graph, n)).map(|(id, _)| id).collect();
    if convolutions.is_empty() {
        return;
    }
    let uses = Uses::of(graph);
    let mut new = Rebuild::of(graph);
    new.reserve_names();
    let mut layouts = Layouts { last: BTreeMap::new() };
    for (id, node) in graph.nodes() {
        let pool = node.op.external().is_some_and(|n| POOLS.contains(&n));
        let held = |v: ValueId| layouts.last.contains_key(&v);
        // Without an operand that can be had channels last it would come as it is.
        if (convolutions.contains(&id) || pool) && node.operands().into_iter().any(held) {
            layouts.native(&mut new, node);
            let detail = "its operands and results lie channels last".to_string();
            work.records.push(record(
                node.op.shared_name(),
                RouteTaken::Rewritten("channels_last"),
                node.loc.clone(),
                detail,
            ));
            continue;
        }
        let reader = |r: &NodeId| convolutions.contains(r);
        let wanted = node.result().is_some_and(|r| uses.readers(r).iter().any(reader));
        let read = node.operands().into_iter().any(held);
        if !(wanted || read) || !layouts.kernel(&mut new, node) {
            new.copy(node).expect(VERIFIED);
        }
    }
    work.graph = new.finish().expect(VERIFIED);
}

struct Layouts {
    /// By value of the old graph: the same values over [N, H, W, C].
    last: BTreeMap<ValueId, ValueId>,
}

impl Layouts {
    /// A native operator whose results lie channels last when its operands do.
    fn native(&mut self, new: &mut Rebuild<'_>, node: &Node) {
        let moved = new.moved(node).expect(VERIFIED);
        let old = new.old();
        let types = node.results.iter().map(|r| {
            r.map(|v| {
                let mut ty = old.ty(v).clone();
                if let [_, c, h, w] = ty.shape.as_slice() {
                    ty.strides = Some(vec![&(h * w) * c, Dim::ONE, w * c, c.clone()]);
                }
                ty
            })
        });
        let types = types.collect();
        let mut b = Builder::new(&mut new.graph);
        b.loc = node.loc.clone();
        let made = b.external(&moved.op.shared_name(), moved.args, types);
        for (v, made) in node.results.iter().zip(made) {
            let (Some(v), Some(made)) = (v, made) else { continue };
            new.take_name(*v, made);
            new.bind(*v, made);
            if new.graph.shape(made).len() == 4 {
                let last = Builder::new(&mut new.graph).permute(made, &LAST);
                self.last.insert(*v, last);
            }
        }
    }

    /// A node that becomes part of a kernel, over [N, H, W, C]; false if it is no such node.
    fn kernel(&mut self, new: &mut Rebuild<'_>, node: &Node) -> bool {
        let (Some(op), Some(result)) = (node.prim(), node.result()) else { return false };
        let operands = node.operands();
        if operands.iter().any(|v| new.old().shape(*v).len() != 4) {
            return false;
        }
        let mut attrs = node.attributes();
        match op.kind() {
            PrimKind::Unary | PrimKind::Binary | PrimKind::Compare | PrimKind::Select => {}
            PrimKind::Reduce => {
                let dims: BTreeSet<i64> = node.ints_attr("dims").into_iter().collect();
                // Otherwise what is kept would come in another order.
                let in_order = dims.contains(&1) || dims.contains(&2) && dims.contains(&3);
                if !in_order {
                    return false;
                }
                let place = |d: i64| LAST.iter().position(|l| *l as i64 == d).map_or(d, |p| p as i64);
                let mut there: Vec<i64> = dims.iter().map(|d| place(*d)).collect();
                there.sort_unstable();
                attrs = vec![("dims", Arg::ints(there))];
            }
            _ => return false,
        }
        let operands: Vec<ValueId> = operands.into_iter().map(|v| self.over_last(new, v)).collect();
        let mut b = Builder::new(&mut new.graph);
        b.loc = node.loc.clone();
        let made = b.prim(op, &operands, attrs);
        new.take_name(result, made);
        if op.kind() == PrimKind::Reduce {
            new.bind(result, made);
        } else {
            let back = Builder::new(&mut new.graph).permute(made, &BACK);
            new.bind(result, back);
            self.last.insert(result, made);
        }
        true
    }

    fn over_last(&self, new: &mut Rebuild<'_>, v: ValueId) -> ValueId {
        match self.last.get(&v) {
            Some(last) => *last,
            None => {
                let there = new.value(v).expect(VERIFIED);
                Builder::new(&mut new.graph).permute(there, &LAST)
            }
        }
    }
}
