//! Cross-entropy over a large vocabulary, `linear → softmax → loss`, with its gradients, in pieces: the logits are never all
//! in memory.
//!
//! The backward makes the logits once more instead of saving them, so the joint graph is cut with that product marked as
//! one to repeat. Then each half is rewritten on its own: what has the size of the logits becomes a number of pieces, of
//! rows or of columns, each computed and used up before the next is begun. `prim.after` is what keeps them apart.
//! The forward is cut along the rows, since a softmax needs whole ones. Where a backward makes the gradient of the weight,
//! that is joined of pieces of columns, so that what pieces add up to is the smaller gradient of the hidden states.

use super::record;
use super::region::{Axis, Class, Exit, Feed, Line, MM, Region};
use super::uses::Uses;
use crate::partition::{Partition, PartitionError, partition};
use crate::record::{Record, RouteTaken};
use crate::simplify::{VERIFIED, simplify};
use permalloy_ir::{Arg, Builder, Dim, Graph, Node, NodeId, Op, PrimKind, PrimOp, Rebuild, TensorType, ValueId, hints};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NAME: &str = "chunked_loss";
/// Columns from which on a product's result may be logits of a vocabulary, and how many times its inner size they are.
const FEWEST_COLUMNS: i64 = 1024;
const COLUMNS_TO_INNER: i64 = 4;
/// A piece has a multiple of so many rows or columns, and that many at least.
const STEP: i64 = 16;
/// Pieces at most: the graph grows with their number.
const MOST_PIECES: i64 = 1024;

/// Logits of a graph that are to be made in pieces.
#[derive(Clone, Debug, Default)]
pub struct Chunks {
    /// Names of the logits.
    logits: BTreeSet<Arc<str>>,
    /// The products that make them.
    products: BTreeSet<NodeId>,
    /// Names of values of one element a row that the backward may need.
    rows: BTreeSet<Arc<str>>,
    /// Bytes of a piece of logits.
    bytes: i64,
    /// What looked like logits and is used as a whole.
    records: Vec<Record>,
}

impl Chunks {
    /// The logits in a clean graph that take more than `bytes`, by hint, and that a softmax is made of.
    pub fn of(graph: &Graph, bytes: i64) -> Chunks {
        let mut chunks = Chunks { bytes, ..Chunks::default() };
        let large: Vec<NodeId> = graph.nodes().filter(|(_, n)| is_large(graph, n, bytes)).map(|(id, _)| id).collect();
        if large.is_empty() {
            return chunks;
        }
        let uses = Uses::of(graph);
        for id in large {
            let node = graph.node(id);
            let Some(logits) = node.result().filter(|v| feeds_softmax(graph, &uses, *v)) else { continue };
            match Region::of(graph, id, Axis::Rows) {
                Ok(region) => {
                    let rows = region.class.iter().filter(|(_, c)| **c == Class::Row).map(|(v, _)| v);
                    chunks.rows.extend(rows.map(|v| graph.value(*v).name.clone()));
                    chunks.logits.insert(graph.value(logits).name.clone());
                    chunks.products.insert(id);
                }
                Err(why) => chunks.records.push(as_written(node, &why)),
            }
        }
        chunks
    }

    pub fn is_empty(&self) -> bool {
        self.products.is_empty()
    }

    /// Names of values that a backward may be given.
    pub fn rows(&self) -> impl Iterator<Item = &Arc<str>> {
        self.rows.iter()
    }

    /// A graph that is not joint, with these logits in pieces.
    pub fn apply(&self, graph: &Graph) -> (Graph, Vec<Record>) {
        let mut records = self.records.clone();
        match self.pieces_of(graph) {
            Ok((cut, made)) => {
                records.extend(made);
                (cut, records)
            }
            Err(why) => {
                records.extend(self.left(graph, &why));
                (graph.clone(), records)
            }
        }
    }

    /// Cuts a joint graph; both halves are clean; `memory_budget` as for [`partition`]. As without pieces where they cannot be had.
    pub fn partition(
        &self,
        joint: &Graph,
        known: &dyn Fn(&str) -> bool,
        memory_budget: f64,
    ) -> Result<(Partition, Vec<Record>), PartitionError> {
        let mut records = self.records.clone();
        if !self.is_empty() {
            let with_rows = |name: &str| known(name) || self.rows.contains(name);
            let cut = partition(joint, &with_rows, &|n| self.products.contains(&n), memory_budget)?;
            let halves = [&cut.forward, &cut.backward].map(|g| self.pieces_of(&simplify(g)));
            match halves {
                [Ok((forward, mut made)), Ok((backward, more))] => {
                    made.extend(more);
                    records.extend(made);
                    return Ok((Partition { forward, backward, ..cut }, records));
                }
                [Err(why), _] | [_, Err(why)] => records.extend(self.left(joint, &why)),
            }
        }
        let mut cut = partition(joint, known, &|_| false, memory_budget)?;
        (cut.forward, cut.backward) = (simplify(&cut.forward), simplify(&cut.backward));
        Ok((cut, records))
    }

    /// Says of each product that its logits stay in one piece.
    fn left<'a>(&'a self, graph: &'a Graph, why: &'a str) -> impl Iterator<Item = Record> + 'a {
        let products = graph.nodes().filter(|(id, _)| self.products.contains(id));
        products.map(move |(_, n)| as_written(n, why))
    }

    /// The graph with all of the logits that it makes in pieces, or why one cannot be.
    fn pieces_of(&self, graph: &Graph) -> Result<(Graph, Vec<Record>), String> {
        let (mut graph, mut records) = (graph.clone(), vec![]);
        for name in &self.logits {
            let is_it = |n: &Node| n.result().is_some_and(|v| graph.value(v).name == *name);
            let Some((id, node)) = graph.nodes().find(|(_, n)| n.op.external() == Some(MM) && is_it(n)) else {
                continue;
            };
            let region = best_region(&graph, id)?;
            let cuts = Cuts::of(&region, self.bytes);
            let [rows, columns] = [&region.rows, &region.columns];
            let along = if region.axis == Axis::Rows { "rows" } else { "columns" };
            let detail =
                format!("the logits [{rows}, {columns}] are made in {} pieces of {} {along}", cuts.count, cuts.size);
            records.push(record(node.op.shared_name(), RouteTaken::Rewritten(NAME), node.loc.clone(), detail));
            let cut = in_pieces(&region, &cuts);
            graph = simplify(&cut);
        }
        Ok((graph, records))
    }
}

fn as_written(node: &Node, why: &str) -> Record {
    record(node.op.shared_name(), RouteTaken::AsWritten, node.loc.clone(), format!("logits in one piece: {why}"))
}

fn is_large(graph: &Graph, node: &Node, bytes: i64) -> bool {
    let (Some(MM), Some(a), Some(v)) = (node.op.external(), node.operand(0), node.result()) else { return false };
    let hints = hints(&graph.symbols);
    let size = |d: &Dim| d.eval(&hints).unwrap_or(0);
    let ([rows, columns], [_, inner]) = (graph.shape(v), graph.shape(a)) else { return false };
    let (columns, inner) = (size(columns), size(inner));
    let all = size(rows).saturating_mul(columns).saturating_mul(graph.dtype(v).size() as i64);
    node.kwargs.is_empty()
        && columns >= FEWEST_COLUMNS
        && columns >= inner.saturating_mul(COLUMNS_TO_INNER)
        && all > bytes
}

/// Whether the maximum of each row is taken, after pointwise operators and views, as a softmax does.
fn feeds_softmax(graph: &Graph, uses: &Uses, logits: ValueId) -> bool {
    let columns = graph.shape(logits).last();
    let (mut seen, mut open) = (BTreeSet::new(), vec![logits]);
    while let Some(v) = open.pop() {
        let last = graph.shape(v).len() as i64 - 1;
        for node in uses.readers(v).iter().map(|id| graph.node(*id)) {
            if node.prim() == Some(PrimOp::Amax) && node.ints_attr("dims") == [last] {
                return true;
            }
            let passes = node.prim().is_some() || node.op.external() == Some("aten.clone.default");
            let wide = |r: &ValueId| graph.shape(*r).len() > 1 && graph.shape(*r).last() == columns;
            if let Some(r) = node.result().filter(|r| passes && wide(r) && seen.insert(*r)) {
                open.push(r);
            }
        }
    }
    false
}

/// The region along the axis that leaves fewer bytes to be summed over pieces.
fn best_region(graph: &Graph, product: NodeId) -> Result<Region<'_>, String> {
    let hints = hints(&graph.symbols);
    let summed = |r: &Region<'_>| -> i64 {
        let exits = r.exits.iter().filter(|(_, e)| *e == Exit::Summed);
        exits.map(|(v, _)| graph.ty(*v).numel().eval(&hints).unwrap_or(i64::MAX)).fold(0, i64::saturating_add)
    };
    let ordered = |axis| {
        let mut region = Region::of(graph, product, axis)?;
        region.order()?;
        Ok(region)
    };
    match (ordered(Axis::Rows), ordered(Axis::Columns)) {
        (Ok(rows), Ok(columns)) => Ok(if summed(&columns) < summed(&rows) { columns } else { rows }),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
        (Err(why), Err(_)) => Err(why),
    }
}

/// Where an axis is cut. All pieces have the same size but the last.
struct Cuts {
    count: i64,
    size: Dim,
    whole: Dim,
}

impl Cuts {
    /// Pieces of at most `bytes`, by hint for symbolic sizes: their number is fixed.
    fn of(region: &Region<'_>, bytes: i64) -> Cuts {
        let hints = hints(&region.graph.symbols);
        let (whole, other) = match region.axis {
            Axis::Rows => (&region.rows, &region.columns),
            Axis::Columns => (&region.columns, &region.rows),
        };
        let size = |d: &Dim| d.eval(&hints).unwrap_or(1).max(1);
        let element = region.graph.node(region.product).result().map_or(1, |v| region.graph.dtype(v).size() as i64);
        let most = (bytes / size(other).saturating_mul(element) / STEP * STEP).max(STEP);
        let up = |a: i64, b: i64| (a - 1) / b + 1;
        let count = up(size(whole), most).min(MOST_PIECES);
        let count_of = |step: i64| up(size(whole), step);
        match whole.as_const() {
            Some(n) => {
                let step = up(up(n.max(1), count), STEP) * STEP;
                Cuts { count: count_of(step), size: Dim::from(step.min(n)), whole: whole.clone() }
            }
            None => Cuts { count, size: whole.floor_div(&Dim::from(count)), whole: whole.clone() },
        }
    }

    fn piece(&self, i: i64) -> (Dim, Dim) {
        let start = &self.size * &Dim::from(i);
        let end = if i + 1 == self.count { self.whole.clone() } else { &start + &self.size };
        (start, end)
    }
}

/// The graph with a region's nodes done piece by piece, where its product was.
fn in_pieces(region: &Region<'_>, cuts: &Cuts) -> Graph {
    let graph = region.graph;
    let mut new = Rebuild::of(graph);
    new.reserve_names();
    let inside: BTreeSet<NodeId> = region.nodes.iter().chain(&region.before).copied().collect();
    for (id, node) in graph.nodes() {
        if id == region.product {
            for early in &region.before {
                new.copy(graph.node(*early)).expect(VERIFIED);
            }
            let made = all_pieces(region, cuts, &mut new);
            for ((old, exit), parts) in region.exits.iter().zip(made) {
                let whole = whole_of(&mut new, *old, *exit, &parts);
                new.take_name(*old, whole);
                new.graph.set_strides(whole, graph.ty(*old).strides.clone());
                new.bind(*old, whole);
            }
        } else if !inside.contains(&id) {
            new.copy(node).expect(VERIFIED);
        }
    }
    new.finish().expect(VERIFIED)
}

/// For each exit its pieces, or the one sum of them.
fn all_pieces(region: &Region<'_>, cuts: &Cuts, new: &mut Rebuild<'_>) -> Vec<Vec<ValueId>> {
    let mut exits: Vec<Vec<ValueId>> = vec![vec![]; region.exits.len()];
    let mut before: Vec<ValueId> = vec![];
    for i in 0..cuts.count {
        let mut piece = Piece { region, cut: cuts.piece(i), before, made: BTreeMap::new() };
        for id in &region.nodes {
            piece.node(new, *id);
        }
        before = vec![];
        for ((old, exit), parts) in region.exits.iter().zip(&mut exits) {
            let part = piece.made[old];
            let mut b = Builder::new(&mut new.graph);
            match (*exit, parts.first().copied()) {
                (Exit::Joined(_), _) => parts.push(part),
                (Exit::Summed, None) => parts.push(wide(&mut b, part)),
                (Exit::Summed, Some(sum)) => {
                    let part = wide(&mut b, part);
                    parts[0] = b.add(sum, part);
                }
            }
            before.extend(parts.last());
        }
    }
    exits
}

/// Sums of 16-bit floats are kept in f32.
fn wide(b: &mut Builder<'_>, x: ValueId) -> ValueId {
    let dtype = b.dtype(x);
    b.cast(x, if dtype.is_float() { dtype.compute() } else { dtype })
}

fn whole_of(new: &mut Rebuild<'_>, old: ValueId, exit: Exit, parts: &[ValueId]) -> ValueId {
    let ty = new.old().ty(old).clone();
    let mut b = Builder::new(&mut new.graph);
    let whole = match exit {
        Exit::Joined(dim) => b.concat(parts, dim),
        Exit::Summed => b.cast(parts[0], ty.dtype),
    };
    b.reshape(whole, &ty.shape)
}

/// One piece in the making.
struct Piece<'r, 'g> {
    region: &'r Region<'g>,
    /// Where it begins and ends.
    cut: (Dim, Dim),
    /// What the piece before it made.
    before: Vec<ValueId>,
    /// What stands for values of the old graph: of the matrix's size [rows, columns] of the piece, of one element a row
    /// [rows].
    made: BTreeMap<ValueId, ValueId>,
}

impl Piece<'_, '_> {
    /// Rows and columns.
    fn shape(&self) -> [Dim; 2] {
        let size = &self.cut.1 - &self.cut.0;
        match self.region.axis {
            Axis::Rows => [size, self.region.columns.clone()],
            Axis::Columns => [self.region.rows.clone(), size],
        }
    }

    fn cuts(&self, axis: Axis) -> bool {
        self.region.axis == axis
    }

    /// The part of a dim that has all of the axis, if that is cut.
    fn part(&self, b: &mut Builder<'_>, x: ValueId, dim: usize, axis: Axis) -> ValueId {
        if self.cuts(axis) { b.slice(x, dim, &self.cut.0, &self.cut.1, 1) } else { x }
    }

    /// A value of the outside, read after the piece before is done: kernels of two pieces must not become one.
    fn outside(&self, new: &mut Rebuild<'_>, v: ValueId) -> ValueId {
        let outside = new.value(v).expect(VERIFIED);
        let constant =
            new.graph.producer(outside).is_some_and(|n| n.prim().is_some_and(|p| p.kind() == PrimKind::Source));
        if self.before.is_empty() || constant {
            return outside;
        }
        Builder::new(&mut new.graph).prim(PrimOp::After, &[&[outside], &self.before[..]].concat(), vec![])
    }

    fn node(&mut self, new: &mut Rebuild<'_>, id: NodeId) {
        let node = self.region.graph.node(id);
        let Some(result) = node.result() else { return };
        let made = match (&node.op, node.prim()) {
            (_, Some(prim)) => self.prim(new, node, prim, result),
            (Op::External(name), _) if &**name == MM => self.product(new, node, id),
            _ => self.whole(new, node.operands()[0]),
        };
        self.made.insert(result, made);
    }

    fn prim(&mut self, new: &mut Rebuild<'_>, node: &Node, prim: PrimOp, result: ValueId) -> ValueId {
        let operands = node.operands();
        let class = self.region.class.get(&result).copied();
        match prim.kind() {
            PrimKind::Reduce => {
                let x = self.whole(new, operands[0]);
                let last = self.region.graph.shape(operands[0]).len() as i64 - 1;
                let dims = node.ints_attr("dims");
                let rows = dims.iter().any(|d| *d < last).then_some(0);
                let dims: Vec<i64> = rows.into_iter().chain(dims.contains(&last).then_some(1)).collect();
                builder(new, node).reduce(prim, x, &dims, false)
            }
            PrimKind::Index => {
                let x = self.whole(new, operands[0]);
                let index = self.row(new, operands[1]);
                let mut b = builder(new, node);
                let index = b.unsqueeze(index, 1);
                let picked = b.gather(x, index, 1);
                let rows = b.shape(index)[0].clone();
                b.reshape(picked, &[rows])
            }
            PrimKind::View => match (prim, class) {
                (PrimOp::Permute, _) => {
                    let x = self.made[&operands[0]];
                    builder(new, node).permute(x, &[1, 0])
                }
                (_, Some(Class::Row)) => self.row(new, operands[0]),
                (PrimOp::Expand, _) if self.region.class.get(&operands[0]) == Some(&Class::Row) => {
                    let x = self.row(new, operands[0]);
                    self.repeat(&mut builder(new, node), x)
                }
                _ => self.whole(new, operands[0]),
            },
            _ => {
                let row = class == Some(Class::Row);
                let parts: Vec<ValueId> =
                    operands.iter().map(|v| if row { self.row(new, *v) } else { self.whole(new, *v) }).collect();
                builder(new, node).prim(prim, &parts, node.attributes())
            }
        }
    }

    fn repeat(&self, b: &mut Builder<'_>, row: ValueId) -> ValueId {
        let column = b.unsqueeze(row, 1);
        b.expand(column, &self.shape())
    }

    fn product(&mut self, new: &mut Rebuild<'_>, node: &Node, id: NodeId) -> ValueId {
        let (old_a, old_b) = (node.operands()[0], node.operands()[1]);
        let classes = (self.region.class.get(&old_a), self.region.class.get(&old_b));
        let outside = |new: &Rebuild<'_>, v| new.value(v).expect(VERIFIED);
        let (a, b) = match classes {
            _ if id == self.region.product && self.cuts(Axis::Rows) => {
                let (a, b) = (self.outside(new, old_a), outside(new, old_b));
                (self.part(&mut builder(new, node), a, 0, Axis::Rows), b)
            }
            _ if id == self.region.product => {
                let (a, b) = (outside(new, old_a), self.outside(new, old_b));
                (a, self.part(&mut builder(new, node), b, 1, Axis::Columns))
            }
            (Some(class), _) => {
                let (a, b) = (self.made[&old_a], outside(new, old_b));
                // What the product sums over.
                let inner = if *class == Class::Whole { Axis::Columns } else { Axis::Rows };
                (a, self.part(&mut builder(new, node), b, 0, inner))
            }
            (None, class) => {
                let (a, b) = (outside(new, old_a), self.made[&old_b]);
                let inner = if class == Some(&Class::Whole) { Axis::Rows } else { Axis::Columns };
                (self.part(&mut builder(new, node), a, 1, inner), b)
            }
        };
        let ty = TensorType {
            shape: vec![new.graph.shape(a)[0].clone(), new.graph.shape(b)[1].clone()],
            strides: None,
            ..self.region.graph.ty(node.result().expect("a product has a result")).clone()
        };
        let made = builder(new, node).external(MM, vec![Arg::Value(a), Arg::Value(b)], vec![Some(ty)]);
        made[0].expect("a product has a result")
    }

    /// The piece of a value of the matrix's size.
    fn whole(&mut self, new: &mut Rebuild<'_>, v: ValueId) -> ValueId {
        if let Some(made) = self.made.get(&v) {
            return *made;
        }
        let [rows, columns] = [self.region.rows.clone(), self.region.columns.clone()];
        let made = match self.region.feed(v) {
            Feed::Again(node) if node.prim() == Some(PrimOp::Reshape) => self.whole(new, node.operands()[0]),
            Feed::Again(node) => {
                let parts: Vec<ValueId> = node.operands().iter().map(|x| self.whole(new, *x)).collect();
                let shape = self.shape();
                let attrs = node.attributes().into_iter();
                let attrs = attrs.map(|(n, a)| if n == "shape" { (n, Arg::dims(&shape)) } else { (n, a) }).collect();
                let device = new.old().ty(v).device;
                let mut b = builder(new, node);
                b.device = device;
                b.prim(node.prim().unwrap_or(PrimOp::Full), &parts, attrs)
            }
            Feed::Repeated(x) => {
                let line = self.region.line(x, v);
                let outside = self.outside(new, x);
                let shape = self.region.graph.shape(v);
                let mut b = Builder::new(&mut new.graph);
                match line {
                    Some(Line::OfRows) => {
                        let mut each = shape.to_vec();
                        each[shape.len() - 1] = Dim::ONE;
                        let x = b.expand(outside, &each);
                        let x = b.reshape(x, &[rows]);
                        let x = self.part(&mut b, x, 0, Axis::Rows);
                        self.repeat(&mut b, x)
                    }
                    Some(Line::OfColumns) => {
                        let x = b.reshape(outside, &[Dim::ONE, columns]);
                        let x = self.part(&mut b, x, 1, Axis::Columns);
                        b.expand(x, &self.shape())
                    }
                    _ => {
                        let x = b.reshape(outside, &[Dim::ONE, Dim::ONE]);
                        b.expand(x, &self.shape())
                    }
                }
            }
            Feed::Cut => {
                let outside = self.outside(new, v);
                let mut b = Builder::new(&mut new.graph);
                let x = b.reshape(outside, &[rows, columns]);
                let x = self.part(&mut b, x, 0, Axis::Rows);
                self.part(&mut b, x, 1, Axis::Columns)
            }
        };
        self.made.insert(v, made);
        made
    }

    /// The piece of a value of one element a row.
    fn row(&mut self, new: &mut Rebuild<'_>, v: ValueId) -> ValueId {
        if let Some(made) = self.made.get(&v) {
            return *made;
        }
        let outside = self.outside(new, v);
        let mut b = Builder::new(&mut new.graph);
        let x = b.reshape(outside, std::slice::from_ref(&self.region.rows));
        let made = self.part(&mut b, x, 0, Axis::Rows);
        self.made.insert(v, made);
        made
    }
}

fn builder<'a>(new: &'a mut Rebuild<'_>, node: &Node) -> Builder<'a> {
    let mut b = Builder::new(&mut new.graph);
    b.loc = node.loc.clone();
    b
}
