//! What each kind of node becomes.

use super::emit::flatten;
use super::empty::{is_empty, zero};
use super::*;

impl<'g> Lowering<'g> {
    pub(super) fn node(&mut self, node: &'g Node) -> Result<(), String> {
        let Some(prim) = node.prim() else {
            return match (node.op.external(), node.operand(0), node.result()) {
                (Some("aten.copy_.default"), ..) => self.copy_back(node),
                (Some("aten.clone.default"), Some(x), Some(result)) if self.infos[x.0 as usize].dtype.is_computed() => {
                    let (x, result) = (x.0 as usize, result.0 as usize);
                    self.compute(WorkKind::Copy, self.infos[result].shape.clone(), vec![x], result, node)
                }
                _ => self.native(node),
            };
        };
        let result = node.result().ok_or("a prim has no result")?.0 as usize;
        let operands: Vec<Val> = node.operands().iter().map(|v| self.as_it_was(v.0 as usize)).collect();
        match prim.kind() {
            PrimKind::Source => {
                self.infos[result].home = Some(self.source(prim, node, result)?);
                Ok(())
            }
            PrimKind::View if prim == PrimOp::Concat => self.concat(node, &operands, result),
            PrimKind::View if prim == PrimOp::After => {
                self.after(&operands, result);
                Ok(())
            }
            PrimKind::View => self.view(prim, node, operands[0], result),
            PrimKind::Scan => Err(format!("{prim} has no loop form; it must be routed to a native operator")),
            PrimKind::Index => self.indexed(prim, node, &operands, result),
            PrimKind::Reduce => {
                let dims: Vec<usize> = node.ints_attr("dims").iter().map(|d| *d as usize).collect();
                let space = self.infos[operands[0]].shape.clone();
                if dims.iter().all(|d| space[*d].is_const(1)) {
                    return self.fold_nothing(prim, &dims, operands[0], result, node);
                }
                self.compute(WorkKind::Reduce(prim, dims), space, operands, result, node)
            }
            _ => {
                let space = self.infos[result].shape.clone();
                self.compute(WorkKind::Pointwise(prim), space, operands, result, node)
            }
        }
    }

    /// A reduction of single elements: those elements, or their position.
    fn fold_nothing(
        &mut self,
        prim: PrimOp,
        dims: &[usize],
        x: Val,
        result: Val,
        node: &'g Node,
    ) -> Result<(), String> {
        if matches!(prim, PrimOp::Argmax | PrimOp::Argmin) {
            self.infos[result].home = Some(Home::Const(Scalar::Int(0)));
            return Ok(());
        }
        let shape = self.infos[result].shape.clone();
        let from = self.infos[x].clone();
        let kept = (0..from.view.dims.len()).filter(|d| !dims.contains(d)).map(|d| from.view.dims[d].clone()).collect();
        let view = Rc::new(View { offset: from.view.offset.clone(), dims: kept });
        self.infos.push(Info { shape: shape.clone(), view, home: None, ..from });
        self.compute(WorkKind::Copy, shape, vec![self.infos.len() - 1], result, node)
    }

    pub(super) fn source(&self, prim: PrimOp, node: &Node, result: Val) -> Result<Home, String> {
        if prim == PrimOp::Iota {
            return Ok(Home::Iota);
        }
        let dtype = self.infos[result].dtype;
        match node.kwarg("value") {
            Some(Arg::Float(x)) if dtype.is_float() => Ok(Home::Const(Scalar::Float(*x))),
            Some(Arg::Float(x)) if dtype == DType::Bool => Ok(Home::Const(Scalar::Bool(*x != 0.0))),
            Some(Arg::Float(x)) => Ok(Home::Const(Scalar::Int(*x as i64))),
            Some(Arg::Bool(b)) if dtype.is_float() => Ok(Home::Const(Scalar::Float(f64::from(u8::from(*b))))),
            Some(Arg::Bool(b)) if dtype == DType::Bool => Ok(Home::Const(Scalar::Bool(*b))),
            Some(Arg::Bool(b)) => Ok(Home::Const(Scalar::Int(i64::from(*b)))),
            Some(Arg::Int(Dim::Const(c))) if dtype.is_float() => Ok(Home::Const(Scalar::Float(*c as f64))),
            Some(Arg::Int(Dim::Const(c))) if dtype == DType::Bool => Ok(Home::Const(Scalar::Bool(*c != 0))),
            Some(Arg::Int(Dim::Const(c))) => Ok(Home::Const(Scalar::Int(*c))),
            Some(Arg::Int(d)) => Ok(Home::Size(d.clone())),
            other => Err(format!("prim.full with value {other:?}")),
        }
    }

    pub(super) fn view(&mut self, prim: PrimOp, node: &Node, x: Val, result: Val) -> Result<(), String> {
        let shape = self.infos[result].shape.clone();
        if is_empty(&self.infos[x].shape) && !is_empty(&shape) {
            self.infos[result].home = Some(Home::Const(zero(self.infos[result].dtype)));
            return Ok(());
        }
        let apply = |v: &View| -> Option<View> {
            let ints = |name| node.ints_attr(name).iter().map(|d| *d as usize).collect::<Vec<_>>();
            match prim {
                PrimOp::Reshape => v.reshape(&shape),
                PrimOp::Permute => Some(v.permute(&ints("perm"))),
                PrimOp::Expand => Some(v.expand(&shape)),
                PrimOp::Flip => v.flip(&ints("dims")),
                PrimOp::Window => v.window(node.dim_attr("dim"), node.kwarg("step").and_then(Arg::as_i64)?, &shape),
                PrimOp::Pad => v.pad(&node.dims_attr("low"), &node.dims_attr("high")),
                _ => {
                    let d = node.dim_attr("dim");
                    let one = |name: &str| node.kwarg(name).and_then(Arg::as_dim);
                    v.slice(d, &one("start")?, &one("end")?, one("step")?.as_const()?, &shape[d])
                }
            }
        };
        let (mut base, mut view) = (self.infos[x].base, apply(&self.infos[x].view));
        if view.is_none() {
            base = self.materialize_view(x)?;
            view = apply(&self.infos[base].view);
            // Sizes may be equal by what the guards say only: a reshape of a dense value is dense whatever they look like.
            if view.is_none() && prim == PrimOp::Reshape {
                view = Some(View::contiguous(&shape));
            }
        }
        let view = view.ok_or_else(|| format!("{prim} of a dense value has no strided form"))?;
        self.infos[result].base = base;
        self.infos[result].view = view.into();
        if self.new_contents.contains(&x) {
            self.new_contents.insert(result);
        }
        Ok(())
    }

    /// The same memory, complete only once the other operands are made, too. What is overwritten later keeps its own order.
    fn after(&mut self, operands: &[Val], result: Val) {
        let x = operands[0];
        let base = self.infos[x].base;
        let waits: Vec<UnitId> = operands[1..]
            .iter()
            .flat_map(|v| match &self.infos[self.infos[*v].base].home {
                Some(Home::Memory { writers, .. }) => writers.clone(),
                Some(Home::Group { unit, .. }) => vec![*unit],
                _ => vec![],
            })
            .collect();
        let (mut writers, layout) = match &self.infos[base].home {
            Some(Home::Memory { writers, layout, .. }) => (writers.clone(), layout.clone()),
            Some(Home::Group { unit, .. }) => (vec![*unit], self.shapes.dense(&self.infos[base].shape.clone()).1),
            _ => (vec![], self.infos[x].view.clone()),
        };
        let later = !self.last_reads.contains_key(&base) && !waits.is_empty();
        match self.buffer_of(base).filter(|_| later) {
            Some(buffer) => {
                writers.extend(waits);
                let shape = self.infos[base].shape.clone();
                let same = self.add_val(base, &shape);
                self.infos[same].home = Some(Home::Memory { buffer, layout, writers });
                self.same_memory.insert(same, base);
                self.infos[result].base = same;
            }
            None => self.infos[result].base = base,
        }
        self.infos[result].view = self.infos[x].view.clone();
    }

    /// A dense copy of a (viewed) value, as a value of its own.
    pub(super) fn materialize_view(&mut self, x: Val) -> Result<Val, String> {
        let shape = self.infos[x].shape.clone();
        let copy = self.add_val(x, &shape);
        // `x` may come to stand for the copy: the copy reads what `x` is now.
        let mut source = self.infos[x].clone();
        source.home = None;
        self.infos.push(source);
        self.place_copy(self.infos.len() - 1, copy, shape, copy_of_ours())?;
        Ok(copy)
    }

    pub(super) fn compute(
        &mut self,
        kind: WorkKind,
        space: Shape,
        operands: Vec<Val>,
        result: Val,
        node: &'g Node,
    ) -> Result<(), String> {
        let dtype = self.infos[result].dtype;
        self.place(Work { kind, space, operands, dtype, result, fused: fused(node) })
    }

    pub(super) fn indexed(
        &mut self,
        prim: PrimOp,
        node: &'g Node,
        operands: &[Val],
        result: Val,
    ) -> Result<(), String> {
        let (x, index) = (operands[0], operands[1]);
        let d = node.dim_attr("dim");
        let space = self.infos[result].shape.clone();
        match prim {
            PrimOp::Gather | PrimOp::Take => {
                let (base, mut view) = self.in_memory_one_part(x, d)?;
                let size = self.infos[base].shape[d].clone();
                let stride = view.dims[d].first().map_or(Dim::ZERO, |p| p.stride.clone());
                view.dims[d].clear();
                let index_rank = self.infos[index].shape.len();
                let index = if prim == PrimOp::Gather {
                    view.dims[d] = repeated(&space[d]);
                    index
                } else {
                    let dims: Vec<Vec<Part>> = space[d..d + index_rank].iter().map(repeated).collect();
                    view.dims.splice(d..=d, dims);
                    self.broadcast(index, d, &space)
                };
                self.compute(
                    WorkKind::LoadAt { view: view.into(), stride, size },
                    space,
                    vec![base, index],
                    result,
                    node,
                )
            }
            _ => {
                let size = node.kwarg("size").and_then(Arg::as_dim).ok_or("index_sum without a size")?;
                let src = self.infos[x].shape.clone();
                let index = if prim == PrimOp::IndexSum { self.broadcast(index, d, &src) } else { index };
                let index_rank = if prim == PrimOp::IndexSum { self.infos[operands[1]].shape.len() } else { 1 };
                self.scatter(x, index, d, index_rank, size, result, node)
            }
        }
    }

    /// The dims of `index` stand at `d` of a wider space; it repeats along the others.
    pub(super) fn broadcast(&mut self, index: Val, d: usize, space: &[Dim]) -> Val {
        let info = &self.infos[index];
        let rank = info.shape.len();
        let mut dims: Vec<Vec<Part>> = space[..d].iter().map(repeated).collect();
        dims.extend(info.view.dims.iter().cloned());
        dims.extend(space[d + rank..].iter().map(repeated));
        let (base, view) = (info.base, View { offset: info.view.offset.clone(), dims });
        let id = self.add_val(index, space);
        self.infos[id].base = base;
        self.infos[id].view = view.into();
        id
    }

    /// A value in memory, the same as `x`, of which dim `d` is one strided run, with its view over that memory.
    pub(super) fn in_memory_one_part(&mut self, x: Val, d: usize) -> Result<(Val, View), String> {
        let info = &self.infos[x];
        let fits = |v: &Rc<View>| v.dims[d].len() <= 1 && !v.dims[d].iter().any(|p| p.mask.is_some());
        if !self.is_inline(x)?
            && let Some(view) = self.memory_view(x, &info.view).filter(fits)
        {
            return Ok((x, (*view).clone()));
        }
        let copy = self.materialize_view(x)?;
        let view = (*self.infos[copy].view).clone();
        Ok((copy, view))
    }

    pub(super) fn scatter(
        &mut self,
        src: Val,
        index: Val,
        d: usize,
        index_rank: usize,
        size: Dim,
        result: Val,
        node: &'g Node,
    ) -> Result<(), String> {
        let space = self.infos[src].shape.clone();
        if is_empty(&self.infos[result].shape) {
            self.empty_value(result);
            return Ok(());
        }
        if is_empty(&space) {
            self.infos[result].home = Some(Home::Const(zero(self.infos[result].dtype)));
            return Ok(());
        }
        // Copies are units of their own: make them before the scatter's.
        let src = self.plain_operand(src)?;
        let index = self.plain_operand(index)?;
        let unit = self.units.add(self.position);
        let (mut domain, dims) = Domain::of_shape(&space);
        let no_form = || "operand of a scatter has no strided form".to_string();
        let src_at = self.memory_operand(unit, src, &dims, &mut domain).ok_or_else(no_form)?;
        let index_at = self.memory_operand(unit, index, &dims, &mut domain).ok_or_else(no_form)?;
        let out = self.dense_buffer(result, BufferKind::Intermediate);
        let out_view = View::contiguous(&self.infos[result].shape);
        let stride = out_view.dims[d].first().map_or(Dim::ZERO, |p| p.stride.clone());
        let mut over = out_view.clone();
        let repeats: Vec<Vec<Part>> = space[d..d + index_rank].iter().map(repeated).collect();
        over.dims.splice(d..=d, repeats);
        let out_at = domain.address(&dims, &over).ok_or("result of a scatter has no strided form")?;
        let leaves = domain.leaves();
        let access = |at: &Address| flatten(&domain, at, &leaves);
        let body = Scatter {
            name: String::new(),
            axes: leaves.iter().map(|a| domain.size(*a).clone()).collect(),
            src: (src_at.0, access(&src_at.1)),
            index: (index_at.0, access(&index_at.1)),
            out: (out, access(&out_at)),
            stride,
            size,
            fused: vec![fused(node)],
        };
        self.bodies.push(Unit::Scatter(Box::new(body)));
        self.infos[result].home = Some(Home::Memory { buffer: out, layout: out_view.into(), writers: vec![unit] });
        self.settle(unit)
    }

    /// The value as strided memory without masks, itself or a copy.
    fn plain_operand(&mut self, x: Val) -> Result<Val, String> {
        let strided = |l: &Self| l.memory_view(x, &l.infos[x].view).is_some_and(|v| !v.has_masks());
        if !self.is_inline(x)? && strided(self) { Ok(x) } else { self.materialize_view(x) }
    }

    pub(super) fn concat(&mut self, node: &'g Node, operands: &[Val], result: Val) -> Result<(), String> {
        let d = node.dim_attr("dim");
        if is_empty(&self.infos[result].shape) {
            self.empty_value(result);
            return Ok(());
        }
        let early = self.take_early(result, operands.len());
        let buffer = early.buffer;
        let whole = View::contiguous(&self.infos[result].shape);
        let mut start = Dim::ZERO;
        let mut writers = early.writers;
        for (x, there) in operands.iter().zip(early.stored) {
            let shape = self.infos[*x].shape.clone();
            if is_empty(&shape) {
                continue;
            }
            let end = &start + &shape[d];
            if !there {
                let target = piece(&whole, d, &start, &end)?;
                // A piece of size 1 drops out of the loops; its place is in the offset.
                let unit = self.store_into(*x, shape, buffer, target, node, writers.last().copied())?;
                writers.push(unit);
            }
            start = end;
        }
        writers.sort_unstable();
        writers.dedup();
        self.infos[result].home = Some(Home::Memory { buffer, layout: whole.into(), writers });
        Ok(())
    }

    /// Stores a large result of a native operator where it belongs in a concatenation that comes later, if nobody else
    /// reads it: its memory is free at once.
    pub(super) fn store_early(&mut self, x: ValueId) -> Result<(), String> {
        let Some((whole, k)) = self.pieces.get(&x).copied() else { return Ok(()) };
        let node = self.graph.producer(whole).ok_or("a concatenation is an input")?;
        let (d, operands) = (node.dim_attr("dim"), node.operands());
        let start = operands[..k].iter().fold(Dim::ZERO, |sum, o| &sum + &self.graph.shape(*o)[d]);
        let (x, result) = (x.0 as usize, whole.0 as usize);
        let shape = self.infos[x].shape.clone();
        let target = piece(&View::contiguous(&self.infos[result].shape), d, &start, &(&start + &shape[d]))?;
        let mut early = self.take_early(result, operands.len());
        let unit = self.store_into(x, shape, early.buffer, target, node, None)?;
        early.stored[k] = true;
        early.writers.push(unit);
        self.early.insert(result, early);
        Ok(())
    }

    /// What is stored so far of a concatenation of so many pieces.
    fn take_early(&mut self, result: Val, pieces: usize) -> Early {
        if let Some(early) = self.early.remove(&result) {
            return early;
        }
        let buffer = self.dense_buffer(result, BufferKind::Intermediate);
        Early { buffer, stored: vec![false; pieces], writers: Vec::new() }
    }

    /// Stores `x` at `target` in a buffer; returns the unit that does it. `beside` is a unit that would be a good place.
    pub(super) fn store_into(
        &mut self,
        x: Val,
        shape: Shape,
        buffer: BufferId,
        target: View,
        node: &Node,
        beside: Option<UnitId>,
    ) -> Result<UnitId, String> {
        let val = self.group_value(x, shape, node, beside)?;
        self.add_store(ExtraStore { val, buffer, target })
    }

    /// Adds a store to the group that makes the value; returns the group's unit.
    pub(super) fn add_store(&mut self, store: ExtraStore) -> Result<UnitId, String> {
        let Some(Home::Group { unit, .. }) = self.infos[store.val].home else {
            return Err("a stored value has no group".into());
        };
        let Unit::Group(g) = &mut self.bodies[unit] else { return Err("a stored value has no group".into()) };
        g.stores.push(store);
        Ok(unit)
    }

    /// `x` itself when a group makes it in just this shape and order, else a copy of it placed in a group.
    pub(super) fn group_value(
        &mut self,
        x: Val,
        shape: Shape,
        node: &Node,
        beside: Option<UnitId>,
    ) -> Result<Val, String> {
        let info = &self.infos[x];
        if info.base == x && matches!(info.home, Some(Home::Group { .. })) {
            return Ok(x);
        }
        let copy = self.add_val(x, &shape);
        let mut work = self.copy_work(x, copy, shape, fused(node));
        self.over_dense_bases(&mut work)?;
        let x = work.operands[0];
        if let Some(beside) = beside {
            let beside = self.units.find(beside);
            let rc = Rc::new(work.clone());
            let home = match self.infos[self.infos[x].base].home {
                Some(Home::Group { unit, .. }) if unit != beside => Some(unit),
                _ => None,
            };
            let joined = match home {
                Some(home) => self.same_loops(home, beside) && self.try_merging(&[home, beside], &rc),
                None => self.try_join_same_space(beside, &rc),
            };
            if joined {
                return Ok(copy);
            }
        }
        self.place(work)?;
        Ok(copy)
    }

    pub(super) fn place_copy(&mut self, x: Val, copy: Val, shape: Shape, fused: Fused) -> Result<(), String> {
        let work = self.copy_work(x, copy, shape, fused);
        self.place(work)
    }

    pub(super) fn copy_work(&self, x: Val, copy: Val, space: Shape, fused: Fused) -> Work {
        Work { kind: WorkKind::Copy, space, operands: vec![x], dtype: self.infos[x].dtype, result: copy, fused }
    }
}

/// Bytes of a native operator's result, by hint, from which on it is worth a kernel of its own to have them back early.
const EARLY_BYTES: i64 = 1 << 20;

/// Results of native operators that are stored early, each with the concatenation and its place among the pieces.
pub(super) fn early_pieces(graph: &Graph, hints: &SymbolValues) -> BTreeMap<ValueId, (ValueId, usize)> {
    let mut pieces = BTreeMap::new();
    for (_, node) in graph.nodes().filter(|(_, n)| n.prim() == Some(PrimOp::Concat)) {
        for (k, x) in node.operands().into_iter().enumerate() {
            let native = graph.producer(x).is_some_and(|n| n.op.external().is_some_and(|o| o != "aten.clone.default"));
            let bytes = graph.ty(x).numel().eval(hints).unwrap_or(0).saturating_mul(graph.dtype(x).size() as i64);
            if let Some(whole) = node.result().filter(|_| native && bytes >= EARLY_BYTES) {
                pieces.insert(x, (whole, k));
            }
        }
    }
    if pieces.is_empty() {
        return pieces;
    }
    let mut readers = vec![0u32; graph.value_count()];
    for (_, n) in graph.nodes() {
        // What merely waits for a value does not read it.
        let reads = if n.prim() == Some(PrimOp::After) { 1 } else { usize::MAX };
        n.operands().iter().take(reads).for_each(|v| readers[v.0 as usize] += 1);
    }
    permalloy_ir::output_values(&graph.outputs).for_each(|v| readers[v.0 as usize] += 1);
    pieces.retain(|x, _| readers[x.0 as usize] == 1);
    pieces
}

/// Where a piece lies in a concatenation along `d`.
fn piece(whole: &View, d: usize, start: &Dim, end: &Dim) -> Result<View, String> {
    whole.slice(d, start, end, 1, &(end - start)).ok_or_else(|| "a piece of a concatenation has no strided form".into())
}

pub(super) fn repeated(n: &Dim) -> Vec<Part> {
    if n.is_const(1) { vec![] } else { vec![Part { size: n.clone(), stride: Dim::ZERO, mask: None }] }
}

/// What reports say of a node.
pub(super) fn fused(node: &Node) -> Fused {
    Fused { op: node.op.shared_name(), loc: node.loc.clone() }
}

/// What reports say of a copy that no node asked for.
pub(super) fn copy_of_ours() -> Fused {
    Fused { op: "copy".into(), loc: None }
}
