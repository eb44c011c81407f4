//! `copy_`: inputs that the graph overwrites.

use super::emit::flatten;
use super::empty::is_empty;
use super::nodes::fused;
use super::*;

/// For each input that is overwritten, the position of the last node that reads its old contents.
pub(super) fn last_reads(graph: &Graph) -> BTreeMap<Val, u32> {
    let copies = |n: &Node| n.op.external() == Some("aten.copy_.default");
    let mut last = BTreeMap::new();
    for (_, n) in graph.nodes().filter(|(_, n)| copies(n)) {
        if let Some(target) = n.operand(0) {
            last.insert(target.0 as usize, 0);
        }
    }
    if last.is_empty() {
        return last;
    }
    // The value that each one is a view of.
    let mut roots: Vec<Val> = (0..graph.value_count()).collect();
    for (i, (_, n)) in graph.nodes().enumerate() {
        if let (Some(PrimKind::View), Some(x), Some(y)) = (n.prim().map(PrimOp::kind), n.operand(0), n.result()) {
            roots[y.0 as usize] = roots[x.0 as usize];
        }
        for v in n.operands().iter().skip(usize::from(copies(n))) {
            if let Some(position) = last.get_mut(&roots[v.0 as usize]) {
                *position = i as u32;
            }
        }
    }
    last
}

impl<'g> Lowering<'g> {
    /// The value as it was before an input under it was overwritten.
    pub(super) fn as_it_was(&mut self, x: Val) -> Val {
        let Some(copy) = self.kept.get(&self.infos[x].base) else { return x };
        let info = Info { base: *copy, home: None, ..self.infos[x].clone() };
        if self.new_contents.contains(&x) {
            return x;
        }
        self.infos.push(info);
        self.infos.len() - 1
    }

    /// `aten.copy_(target, source)`: a store into an input, after everything that still reads the old contents.
    pub(super) fn copy_back(&mut self, node: &'g Node) -> Result<(), String> {
        let (target, source) = (
            node.operand(0).ok_or("copy_ without target")?.0 as usize,
            self.as_it_was(node.operand(1).ok_or("copy_ without source")?.0 as usize),
        );
        let base = self.infos[target].base;
        let Home::Memory { buffer, layout, writers } = self.home(base)?.clone() else {
            return Err("copy_ writes to a value that is not a graph input".into());
        };
        if !matches!(self.buffers[buffer.0 as usize].kind, BufferKind::Input(_)) {
            return Err("copy_ writes to a value that is not a graph input".into());
        }
        if self.last_reads.get(&base).is_some_and(|last| *last > self.position) && !self.kept.contains_key(&base) {
            let copy = self.materialize_view(base)?;
            self.kept.insert(base, copy);
        }
        let at = if base == target { layout } else { self.infos[target].view.clone() };
        let (shape, dtype) = (self.infos[target].shape.clone(), self.infos[target].dtype);
        if is_empty(&shape) {
            if let Some(r) = node.result() {
                self.empty_value(r.0 as usize);
            }
            return Ok(());
        }
        let mut value = source;
        if self.infos[source].shape != shape {
            value = self.add_val(source, &shape);
            let info = self.infos[source].clone();
            let mut dims = info.view.dims.clone();
            dims.splice(0..0, std::iter::repeat_n(vec![], shape.len() - info.shape.len()));
            self.infos[value].base = info.base;
            self.infos[value].view = View { offset: info.view.offset.clone(), dims }.expand(&shape).into();
        }
        // Another view of the same input: written while it is read, elements would be read too late.
        if self.infos[value].base == base && !self.infos[value].view.is_contiguous(&shape) {
            value = self.materialize_view(value)?;
        }
        // Always a group of its own: nothing that reads the old contents may come to depend on it.
        let copy = self.add_val(target, &shape);
        self.infos[copy].dtype = dtype;
        let from = self.infos[value].dtype;
        let kind = if from == dtype { WorkKind::Copy } else { WorkKind::Pointwise(PrimOp::Cast) };
        let mut work = Work { kind, space: shape, operands: vec![value], dtype, result: copy, fused: fused(node) };
        self.over_dense_bases(&mut work)?;
        let work = Rc::new(work);
        let readers = self.readers.get(&base).cloned().unwrap_or_default();
        self.place_writer(&work, base, &readers, &at)?;
        let unit = self.add_store(ExtraStore { val: copy, buffer, target: (*at).clone() })?;
        for r in readers.into_iter().chain(writers) {
            self.units.add_dep(unit, r);
        }
        if let Some(Home::Memory { writers, .. }) = &mut self.infos[base].home {
            *writers = vec![unit];
        }
        if let Some(r) = node.result() {
            let info = self.infos[target].clone();
            let r = r.0 as usize;
            self.new_contents.insert(r);
            self.infos[r].base = info.base;
            self.infos[r].view = if info.base == target { self.shapes.dense(&info.shape).1 } else { info.view };
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
            // A reader may have become part of this very group since.
            let others_free = readers.iter().all(|r| self.units.find(*r) == unit || !self.units.depends(*r, unit));
            if others_free && self.reads_only_at(unit, target, at, &work.space) && self.try_join(unit, work) {
                return Ok(());
            }
        }
        self.place_alone(work)
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
