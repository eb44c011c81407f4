//! What hangs together with the result of a large product: all that has its size, and what is made of each of its rows.

use super::uses::Uses;
use crate::simplify::must_run;
use permalloy_ir::{Dim, Graph, Node, NodeId, PrimKind, PrimOp, ValueId, needed, output_values};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const MM: &str = "aten.mm.default";

/// What the matrix is cut into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Axis {
    Rows,
    Columns,
}

/// How a value of the region lies over the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// An element for each of the matrix, in its order.
    Whole,
    /// The same, transposed.
    Turned,
    /// An element for each row; inside of a region of rows only.
    Row,
}

/// A node that ends the region: its result is a whole once all pieces are done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exit {
    /// Pieces one after the other along a dim of the (flattened) result.
    Joined(usize),
    /// The sum of the pieces.
    Summed,
}

/// The nodes that are done piece by piece.
pub(super) struct Region<'g> {
    pub graph: &'g Graph,
    pub axis: Axis,
    /// The product.
    pub product: NodeId,
    pub rows: Dim,
    pub columns: Dim,
    pub class: BTreeMap<ValueId, Class>,
    /// In the graph's order, the product first.
    pub nodes: Vec<NodeId>,
    /// Values that are read outside, in order.
    pub exits: Vec<(ValueId, Exit)>,
    /// Nodes outside that come after the product and must be done before the first piece, in order.
    pub before: Vec<NodeId>,
}

/// What an operator is to the region.
enum Part {
    Inside(Class),
    Ends(Exit),
    Outside,
}

impl<'g> Region<'g> {
    /// The region of a product's result; the message says why it cannot be done in pieces.
    pub fn of(graph: &'g Graph, product: NodeId, axis: Axis) -> Result<Region<'g>, String> {
        let logits = graph.node(product).result().ok_or("the product has no result")?;
        let [rows, columns] = graph.shape(logits) else { return Err("the product is no matrix".into()) };
        let mut r = Region {
            graph,
            axis,
            product,
            rows: rows.clone(),
            columns: columns.clone(),
            class: BTreeMap::from([(logits, Class::Whole)]),
            nodes: vec![],
            exits: vec![],
            before: vec![],
        };
        let mut ends: BTreeMap<NodeId, Exit> = BTreeMap::new();
        let mut inside = vec![product];
        for (id, node) in graph.nodes().filter(|(id, _)| *id > product) {
            match r.part(node)? {
                Part::Inside(class) => {
                    r.class.insert(node.result().ok_or("an operator has no result")?, class);
                    inside.push(id);
                }
                Part::Ends(exit) => {
                    ends.insert(id, exit);
                    inside.push(id);
                }
                Part::Outside => {}
            }
        }
        r.prune(inside, &ends);
        if let Some(v) = output_values(&graph.outputs).find(|v| r.is_big(*v)) {
            return Err(format!("%{} is returned", graph.value(v).name));
        }
        r.find_exits(&ends);
        Ok(r)
    }

    /// Whether a shape has the matrix's elements in its order, the columns in the last dim.
    pub fn is_whole(&self, shape: &[Dim]) -> bool {
        shape.split_last().is_some_and(|(last, rows)| *last == self.columns && Dim::product(rows) == self.rows)
    }

    pub fn is_big(&self, v: ValueId) -> bool {
        matches!(self.class.get(&v), Some(Class::Whole | Class::Turned))
    }

    fn part(&self, node: &Node) -> Result<Part, String> {
        let operands = node.operands();
        let mut read = operands.iter().filter_map(|v| self.class.get(v));
        let Some(first) = read.next() else { return Ok(Part::Outside) };
        let big = operands.iter().any(|v| self.is_big(*v));
        let turned = operands.iter().any(|v| self.class.get(v) == Some(&Class::Turned));
        let elsewhere = || format!("{} reads it whole", node.op);
        let (Some(prim), Some(result), Some(x)) = (node.prim(), node.result(), node.operand(0)) else {
            return match node.op.external() {
                Some(MM) if big => self.product_of(node).map(Part::Ends).ok_or_else(elsewhere),
                Some("aten.clone.default") if big && !turned => Ok(Part::Inside(Class::Whole)),
                _ if big => Err(elsewhere()),
                _ => Ok(Part::Outside),
            };
        };
        let shape = self.graph.shape(result);
        let inside = |class| Ok(Part::Inside(class));
        match prim.kind() {
            PrimKind::Unary | PrimKind::Binary | PrimKind::Compare | PrimKind::Select if !turned => {
                inside(if big { Class::Whole } else { Class::Row })
            }
            PrimKind::Reduce if *first == Class::Whole => self.reduction(node, prim).ok_or_else(elsewhere),
            PrimKind::View => match (prim, first) {
                (PrimOp::Reshape, Class::Whole) if self.is_whole(shape) => inside(Class::Whole),
                (PrimOp::Reshape, Class::Row) => inside(Class::Row),
                (PrimOp::Expand, Class::Row) if self.repeats_columns(x, shape) => inside(Class::Whole),
                (PrimOp::Permute, Class::Whole) if shape.len() == 2 => inside(Class::Turned),
                (PrimOp::Permute, Class::Turned) => inside(Class::Whole),
                _ if big => Err(elsewhere()),
                _ => Ok(Part::Outside),
            },
            PrimKind::Index if big => {
                let last = self.graph.shape(x).len() - 1;
                let one_a_row = prim == PrimOp::Gather
                    && self.axis == Axis::Rows
                    && self.class.get(&x) == Some(&Class::Whole)
                    && node.dim_attr("dim") == last
                    && shape[last].is_const(1)
                    && operands.len() == 2
                    && !self.class.contains_key(&operands[1]);
                if one_a_row { inside(Class::Row) } else { Err(elsewhere()) }
            }
            _ if big => Err(elsewhere()),
            _ => Ok(Part::Outside),
        }
    }

    /// Whether `x`, one element a row, becomes a value of the matrix's size by repeating each.
    fn repeats_columns(&self, x: ValueId, shape: &[Dim]) -> bool {
        let from = self.graph.shape(x);
        let Some((last, rows)) = from.split_last() else { return false };
        self.is_whole(shape) && last.is_const(1) && *rows == shape[..shape.len() - 1]
    }

    fn reduction(&self, node: &Node, prim: PrimOp) -> Option<Part> {
        let rank = self.graph.shape(node.operand(0)?).len() as i64;
        let dims = node.ints_attr("dims");
        let (rows, columns) = (dims.iter().any(|d| *d < rank - 1), dims.contains(&(rank - 1)));
        let all_rows = (0..rank - 1).all(|d| dims.contains(&d));
        let summed = (prim == PrimOp::Sum).then_some(Part::Ends(Exit::Summed));
        match (rows, columns, self.axis) {
            (false, true, Axis::Rows) => Some(Part::Inside(Class::Row)),
            (true, false, Axis::Columns) if all_rows => Some(Part::Ends(Exit::Joined(0))),
            (false, true, Axis::Columns) => summed,
            (true, ..) if all_rows => summed,
            _ => None,
        }
    }

    /// How the pieces of a product with a value of the region become its result.
    fn product_of(&self, node: &Node) -> Option<Exit> {
        let (a, b) = (node.operand(0)?, node.operand(1)?);
        if !node.kwargs.is_empty() || node.args.len() != 2 || self.graph.shape(a).len() != 2 {
            return None;
        }
        // The dim of the result that has the region's outer dim, and whether that is the matrix's rows.
        let (dim, rows_kept) = match (self.class.get(&a), self.class.get(&b)) {
            (Some(class), None) => (0, *class == Class::Whole),
            (None, Some(class)) => (1, *class == Class::Turned),
            _ => return None,
        };
        Some(if rows_kept == (self.axis == Axis::Rows) { Exit::Joined(dim) } else { Exit::Summed })
    }

    /// Values of rows stay inside only where the matrix's size is made of them again, or they are made of it.
    fn prune(&mut self, inside: Vec<NodeId>, ends: &BTreeMap<NodeId, Exit>) {
        let mut read: BTreeSet<ValueId> = BTreeSet::new();
        for id in inside.into_iter().rev() {
            let node = self.graph.node(id);
            let operands = node.operands();
            let row = node.result().filter(|v| self.class.get(v) == Some(&Class::Row));
            let from_big = operands.iter().any(|v| self.is_big(*v));
            match row {
                Some(v) if !from_big && !read.contains(&v) && !ends.contains_key(&id) => {
                    self.class.remove(&v);
                }
                _ => {
                    read.extend(operands);
                    self.nodes.push(id);
                }
            }
        }
        self.nodes.reverse();
    }

    fn find_exits(&mut self, ends: &BTreeMap<NodeId, Exit>) {
        let uses = Uses::of(self.graph);
        let inside: BTreeSet<NodeId> = self.nodes.iter().copied().collect();
        for id in &self.nodes {
            let Some(v) = self.graph.node(*id).result() else { continue };
            let outside = uses.returned(v) || uses.readers(v).iter().any(|n| !inside.contains(n));
            match ends.get(id) {
                Some(exit) => self.exits.push((v, *exit)),
                None if outside && self.class.get(&v) == Some(&Class::Row) => self.exits.push((v, Exit::Joined(0))),
                None => {}
            }
        }
    }

    /// Finds what comes before the first piece. What is made of all pieces cannot: it is a later pass over them, as the
    /// backward is, in a graph of its own.
    pub fn order(&mut self) -> Result<(), String> {
        let leaves = self.leaves();
        let made: BTreeSet<ValueId> = self.exits.iter().map(|(v, _)| *v).collect();
        let inside: BTreeSet<NodeId> = self.nodes.iter().copied().collect();
        let early = needed(self.graph, leaves.iter().copied(), |v| made.contains(&v), |_, _| false);
        for (id, node) in self.graph.nodes().filter(|(id, _)| early[id.0 as usize] && !inside.contains(id)) {
            if let Some(v) = node.operands().into_iter().find(|v| made.contains(v)) {
                return Err(format!("%{}, of all pieces, is read by each", self.graph.value(v).name));
            }
            if id < self.product {
                continue;
            }
            if must_run(&node.op) {
                return Err(format!("{} would change its place", node.op));
            }
            self.before.push(id);
        }
        match leaves.iter().find(|v| made.contains(v)) {
            Some(v) => Err(format!("%{}, of all pieces, is read by each", self.graph.value(*v).name)),
            None => Ok(()),
        }
    }

    /// Values of the outside that pieces are cut from.
    fn leaves(&self) -> BTreeSet<ValueId> {
        let mut leaves = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut open: Vec<ValueId> = vec![];
        for id in &self.nodes {
            let node = self.graph.node(*id);
            let pointwise = node.result().is_some_and(|v| self.is_big(v)) && node.prim().is_some();
            for v in node.operands().into_iter().filter(|v| !self.class.contains_key(v)) {
                if pointwise {
                    open.push(v);
                } else {
                    leaves.insert(v);
                }
            }
        }
        while let Some(v) = open.pop() {
            if !seen.insert(v) || self.class.contains_key(&v) {
                continue;
            }
            let leaf = match self.feed(v) {
                Feed::Again(node) => {
                    open.extend(node.operands());
                    continue;
                }
                Feed::Repeated(x) => x,
                Feed::Cut => v,
            };
            leaves.insert(leaf);
        }
        leaves
    }

    /// How a piece of a value of the matrix's size is made that is not of the region.
    pub fn feed(&self, v: ValueId) -> Feed<'g> {
        let Some(node) = self.graph.producer(v) else { return Feed::Cut };
        let Some(prim) = node.prim() else { return Feed::Cut };
        match prim.kind() {
            PrimKind::Unary | PrimKind::Binary | PrimKind::Compare | PrimKind::Select => Feed::Again(node),
            PrimKind::Source if prim == PrimOp::Full => Feed::Again(node),
            PrimKind::View => match (prim, node.operand(0)) {
                (PrimOp::Reshape, Some(x)) if self.is_whole(self.graph.shape(x)) => Feed::Again(node),
                (PrimOp::Expand, Some(x)) if self.line(x, v).is_some() => Feed::Repeated(x),
                _ => Feed::Cut,
            },
            _ => Feed::Cut,
        }
    }

    /// What an expanded value is over the matrix; None when it differs from row to row and from column to column.
    pub fn line(&self, x: ValueId, expanded: ValueId) -> Option<Line> {
        let (last, rows) = self.graph.shape(x).split_last()?;
        if !self.is_whole(self.graph.shape(expanded)) {
            return None;
        }
        match (rows.iter().all(|n| n.is_const(1)), last.is_const(1)) {
            (true, true) => Some(Line::One),
            (true, false) => Some(Line::OfColumns),
            (false, true) => Some(Line::OfRows),
            (false, false) => None,
        }
    }
}

/// A value that is repeated over the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line {
    One,
    /// An element for each row.
    OfRows,
    OfColumns,
}

/// See [`Region::feed`].
pub(super) enum Feed<'g> {
    /// By the same operator on pieces.
    Again(&'g Node),
    /// By repeating (a piece of) a smaller value.
    Repeated(ValueId),
    /// By cutting it.
    Cut,
}
