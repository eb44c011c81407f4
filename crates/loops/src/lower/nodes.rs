//! What each kind of node becomes.

use super::emit::flatten;
use super::*;

impl<'g> Lowering<'g> {
    pub(super) fn node(&mut self, node: &'g Node) -> Result<(), String> {
        let Some(prim) = node.prim() else {
            return if node.op.external() == Some("aten.copy_.default") {
                self.copy_back(node)
            } else {
                self.native(node)
            };
        };
        let result = node.result().ok_or("a prim has no result")?.0 as usize;
        let operands: Vec<Val> = node.operands().iter().map(|v| v.0 as usize).collect();
        if let Some(value) = self.of_nothing(prim, &operands, result) {
            self.infos[result].home = Some(Home::Const(value));
            return Ok(());
        }
        match prim.kind() {
            PrimKind::Source => {
                self.infos[result].home = Some(self.source(prim, node, result)?);
                Ok(())
            }
            PrimKind::View if prim == PrimOp::Concat => self.concat(node, &operands, result),
            PrimKind::View => self.view(prim, node, operands[0], result),
            PrimKind::Scan => Err(format!("{prim} has no loop form; it must be routed to a native operator")),
            PrimKind::Index => self.indexed(prim, node, &operands, result),
            PrimKind::Reduce => {
                let dims = node.ints_attr("dims").iter().map(|d| *d as usize).collect();
                let space = self.infos[operands[0]].shape.clone();
                self.compute(WorkKind::Reduce(prim, dims), space, operands, result, node)
            }
            _ => {
                let space = self.infos[result].shape.clone();
                self.compute(WorkKind::Pointwise(prim), space, operands, result, node)
            }
        }
    }

    /// What every element of a result is that is computed from no elements, or has none itself. Empty values have no
    /// loops, so that nothing but a native operator or the caller ever asks for memory of theirs.
    fn of_nothing(&self, prim: PrimOp, operands: &[Val], result: Val) -> Option<Scalar> {
        let empty = |x: Val| self.infos[x].shape.iter().any(|n| n.is_const(0));
        let dtype = self.infos[result].dtype;
        let value = match (prim.kind(), prim) {
            (PrimKind::Source, _) => return None,
            (PrimKind::View, p) if p != PrimOp::Concat => return None,
            (_, PrimOp::Prod | PrimOp::All) if empty(operands[0]) => 1,
            (_, PrimOp::Sum | PrimOp::Any | PrimOp::IndexSum | PrimOp::ScatterSum) if empty(operands[0]) => 0,
            _ if empty(result) => 0,
            _ => return None,
        };
        Some(match dtype {
            DType::Bool => Scalar::Bool(value != 0),
            d if d.is_float() => Scalar::Float(f64::from(value)),
            _ => Scalar::Int(i64::from(value)),
        })
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
        let apply = |v: &View| -> Option<View> {
            let ints = |name| node.ints_attr(name).iter().map(|d| *d as usize).collect::<Vec<_>>();
            match prim {
                PrimOp::Reshape => v.reshape(&shape),
                PrimOp::Permute => Some(v.permute(&ints("perm"))),
                PrimOp::Expand => Some(v.expand(&shape)),
                PrimOp::Flip => v.flip(&ints("dims")),
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
        self.infos[result].view = view;
        Ok(())
    }

    /// A dense copy of a (viewed) value, as a value of its own.
    pub(super) fn materialize_view(&mut self, x: Val) -> Result<Val, String> {
        let shape = self.infos[x].shape.clone();
        let copy = self.add_val(x, shape.clone());
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
        space: Vec<Dim>,
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
                let base = self.in_memory_one_part(x, d)?;
                let info = &self.infos[base];
                let size = info.shape[d].clone();
                let mut view = info.view.clone();
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
                self.compute(WorkKind::LoadAt { view, stride, size }, space, vec![base, index], result, node)
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
        let id = self.add_val(index, space.to_vec());
        self.infos[id].base = base;
        self.infos[id].view = view;
        id
    }

    /// A value in memory, the same as `x`, of which dim `d` is one strided run.
    pub(super) fn in_memory_one_part(&mut self, x: Val, d: usize) -> Result<Val, String> {
        let info = &self.infos[x];
        let fits = |v: &View| v.dims[d].len() <= 1 && !v.dims[d].iter().any(|p| p.mask.is_some());
        let inline = matches!(self.home(info.base)?, Home::Const(_) | Home::Size(_) | Home::Iota);
        if inline || !fits(&info.view) { self.materialize_view(x) } else { Ok(x) }
    }

    /// A value in memory, the same as `x`, that can be read without masks.
    fn unmasked_in_memory(&mut self, x: Val) -> Result<Val, String> {
        if self.is_inline(x)? || self.infos[x].view.has_masks() { self.materialize_view(x) } else { Ok(x) }
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
        // Copies are units of their own: make them before the scatter's.
        let src = self.unmasked_in_memory(src)?;
        let index = self.unmasked_in_memory(index)?;
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
        self.infos[result].home = Some(Home::Memory { buffer: out, layout: out_view, writers: vec![unit] });
        self.settle(unit)
    }

    pub(super) fn concat(&mut self, node: &'g Node, operands: &[Val], result: Val) -> Result<(), String> {
        let d = node.dim_attr("dim");
        let buffer = self.dense_buffer(result, BufferKind::Intermediate);
        let whole = View::contiguous(&self.infos[result].shape);
        let mut start = Dim::ZERO;
        let mut writers = Vec::new();
        for x in operands {
            let shape = self.infos[*x].shape.clone();
            if shape[d].is_const(0) {
                continue;
            }
            let end = &start + &shape[d];
            let target =
                whole.slice(d, &start, &end, 1, &shape[d]).ok_or("a piece of a concatenation has no strided form")?;
            // A piece of size 1 drops out of the loops; its place is in the offset.
            let unit = self.store_into(*x, shape, buffer, target, node, writers.last().copied())?;
            writers.push(unit);
            start = end;
        }
        writers.sort_unstable();
        writers.dedup();
        self.infos[result].home = Some(Home::Memory { buffer, layout: whole, writers });
        Ok(())
    }

    /// Stores `x` at `target` in a buffer; returns the unit that does it. `beside` is a unit that would be a good place.
    pub(super) fn store_into(
        &mut self,
        x: Val,
        shape: Vec<Dim>,
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
        shape: Vec<Dim>,
        node: &Node,
        beside: Option<UnitId>,
    ) -> Result<Val, String> {
        let info = &self.infos[x];
        if info.base == x && matches!(info.home, Some(Home::Group { .. })) {
            return Ok(x);
        }
        let copy = self.add_val(x, shape.clone());
        let work = self.copy_work(x, copy, shape, fused(node));
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

    pub(super) fn place_copy(&mut self, x: Val, copy: Val, shape: Vec<Dim>, fused: Fused) -> Result<(), String> {
        let work = self.copy_work(x, copy, shape, fused);
        self.place(work)
    }

    pub(super) fn copy_work(&self, x: Val, copy: Val, space: Vec<Dim>, fused: Fused) -> Work {
        Work { kind: WorkKind::Copy, space, operands: vec![x], dtype: self.infos[x].dtype, result: copy, fused }
    }

    /// `aten.copy_(target, source)`: a store into an input, after everything that still reads the old contents.
    pub(super) fn copy_back(&mut self, node: &'g Node) -> Result<(), String> {
        let (target, source) = (
            node.operand(0).ok_or("copy_ without target")?.0 as usize,
            node.operand(1).ok_or("copy_ without source")?.0 as usize,
        );
        let base = self.infos[target].base;
        let Home::Memory { buffer, layout, writers } = self.home(base)?.clone() else {
            return Err("copy_ writes to a value that is not a graph input".into());
        };
        if !matches!(self.buffers[buffer.0 as usize].kind, BufferKind::Input(_)) {
            return Err("copy_ writes to a value that is not a graph input".into());
        }
        let at = if base == target { layout } else { self.infos[target].view.clone() };
        let (shape, dtype) = (self.infos[target].shape.clone(), self.infos[target].dtype);
        let mut value = source;
        if self.infos[source].shape != shape {
            value = self.add_val(source, shape.clone());
            let info = self.infos[source].clone();
            let mut dims = info.view.dims.clone();
            dims.splice(0..0, std::iter::repeat_n(vec![], shape.len() - info.shape.len()));
            self.infos[value].base = info.base;
            self.infos[value].view = View { offset: info.view.offset, dims }.expand(&shape);
        }
        // Always a group of its own: nothing that reads the old contents may come to depend on it.
        let copy = self.add_val(target, shape.clone());
        self.infos[copy].dtype = dtype;
        let from = self.infos[value].dtype;
        let kind = if from == dtype { WorkKind::Copy } else { WorkKind::Pointwise(PrimOp::Cast) };
        let work = Rc::new(Work { kind, space: shape, operands: vec![value], dtype, result: copy, fused: fused(node) });
        let readers = self.readers.get(&base).cloned().unwrap_or_default();
        self.place_writer(&work, base, &readers, &at)?;
        let unit = self.add_store(ExtraStore { val: copy, buffer, target: at })?;
        for r in readers.into_iter().chain(writers) {
            self.units.add_dep(unit, r);
        }
        if let Some(Home::Memory { writers, .. }) = &mut self.infos[base].home {
            *writers = vec![unit];
        }
        if let Some(r) = node.result() {
            let info = self.infos[target].clone();
            let r = r.0 as usize;
            self.infos[r].base = info.base;
            self.infos[r].view = if info.base == target { View::contiguous(&info.shape) } else { info.view };
        }
        Ok(())
    }

    /// A group for a node that overwrites an input: the operand's own group if it reads that input just where it is
    /// written, or not at all; else a new one.
    pub(super) fn place_writer(
        &mut self,
        work: &Rc<Work>,
        target: Val,
        readers: &[UnitId],
        at: &View,
    ) -> Result<(), String> {
        if let Some(Home::Group { unit, .. }) = self.infos[self.infos[work.operands[0]].base].home.clone() {
            let others_free = readers.iter().all(|r| *r == unit || !self.units.depends(*r, unit));
            if others_free && self.reads_only_at(unit, target, at, &work.space) && self.try_join(unit, work) {
                return Ok(());
            }
        }
        let unit = self.open_group(&work.space);
        if self.try_join(unit, work) { Ok(()) } else { Err("a copy does not fit a space of its own shape".into()) }
    }

    /// Every read of `target` in the group is at the address that a store through `at` over `space` would have.
    pub(super) fn reads_only_at(&self, unit: UnitId, target: Val, at: &View, space: &[Dim]) -> bool {
        let Unit::Group(g) = &self.bodies[unit] else { return false };
        let mut domain = g.domain.clone();
        let leaves = domain.leaves();
        let Some(dims) = domain.cut(&leaves, space) else { return false };
        let Some(want) = domain.address(&dims, at) else { return false };
        let leaves = domain.leaves();
        let want = flatten(&domain, &want, &leaves);
        g.slots.iter().flat_map(|s| &s.sources).all(|(s, _)| match s {
            Source::Memory { val, at } if self.infos[*val].base == target => flatten(&domain, at, &leaves) == want,
            _ => true,
        })
    }
}

pub(super) fn repeated(n: &Dim) -> Vec<Part> {
    if n.is_const(1) { vec![] } else { vec![Part { size: n.clone(), stride: Dim::ZERO, mask: None }] }
}

/// What reports say of a node.
pub(super) fn fused(node: &Node) -> Fused {
    Fused { op: node.op.to_string().into(), loc: node.loc.clone() }
}

/// What reports say of a copy that no node asked for.
pub(super) fn copy_of_ours() -> Fused {
    Fused { op: "copy".into(), loc: None }
}
