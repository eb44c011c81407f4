//! Finding a group for a computing node.

use super::emit::flatten;
use super::empty::is_empty;
use super::layout::relayout;
use super::*;

impl<'g> Lowering<'g> {
    pub(super) fn is_inline(&self, x: Val) -> Result<bool, String> {
        Ok(matches!(self.home(self.infos[x].base)?, Home::Const(_) | Home::Size(_) | Home::Iota))
    }

    /// Puts a node into the best group that takes it.
    pub(super) fn place(&mut self, mut work: Work) -> Result<(), String> {
        if is_empty(&work.space) {
            return self.place_empty(&work);
        }
        self.over_dense_bases(&mut work)?;
        self.beside_copies(&mut work);
        let work = Rc::new(work);
        if self.join_a_home(&work) {
            return Ok(());
        }
        if let Some(again) = self.with_operands_again(&work)? {
            let again = Rc::new(again);
            return if self.join_a_home(&again) { Ok(()) } else { self.place_alone(&again) };
        }
        if self.siblings(&work).into_iter().any(|u| self.try_join_sibling(u, &work)) {
            return Ok(());
        }
        self.place_alone(&work)
    }

    /// Groups that make operands, in the order of the operands.
    pub(super) fn homes(&self, work: &Work) -> Vec<UnitId> {
        let mut homes: Vec<UnitId> = Vec::new();
        for x in &work.operands {
            if let Some(Home::Group { unit, .. }) = self.infos[self.infos[*x].base].home
                && !homes.contains(&unit)
            {
                homes.push(unit);
            }
        }
        homes
    }

    /// Groups that read an operand and make none, latest first.
    fn siblings(&self, work: &Work) -> Vec<UnitId> {
        let mut siblings: Vec<UnitId> = Vec::new();
        for x in &work.operands {
            for r in self.readers.get(&self.infos[*x].base).into_iter().flatten().rev().take(4) {
                let r = self.units.find(*r);
                if matches!(self.bodies[r], Unit::Group(_)) && !siblings.contains(&r) {
                    siblings.push(r);
                }
            }
        }
        let homes = self.homes(work);
        siblings.sort_unstable_by(|a, b| b.cmp(a));
        siblings.retain(|s| !homes.contains(s));
        siblings
    }

    /// Puts a node into the merged groups of its operands, or the latest of them that takes it; false changes nothing.
    fn join_a_home(&mut self, work: &Rc<Work>) -> bool {
        let mut homes = self.homes(work);
        if homes.len() > 1 && self.try_merging(&homes, work) {
            return true;
        }
        homes.sort_unstable_by(|a, b| b.cmp(a));
        homes.into_iter().any(|u| self.try_join(u, work))
    }

    /// Puts a node into a group of its own.
    pub(super) fn place_alone(&mut self, work: &Rc<Work>) -> Result<(), String> {
        if self.open_group_for(work) {
            return Ok(());
        }
        // The way out for a node whose operands want their axes divided in ways that do not go together (a mask over a
        // dim that another operand has in parts): dense copies of those that are not plain.
        let misfit = || format!("{} does not fit a space of its own shape", work.fused.op);
        let mut plain = (**work).clone();
        for (k, x) in work.operands.iter().enumerate() {
            let whole = self.infos[*x].view.is_contiguous(&self.infos[*x].shape);
            let indexed = matches!(work.kind, WorkKind::LoadAt { .. }) && k == 0;
            if !whole && !indexed && !matches!(work.kind, WorkKind::Copy) && !self.is_inline(*x)? {
                plain.operands[k] = self.materialize_view(*x)?;
            }
        }
        if plain.operands != work.operands && self.open_group_for(&Rc::new(plain)) { Ok(()) } else { Err(misfit()) }
    }

    /// A masked constant has no address to mask, and not every view of a strided value is strided: gives such views dense
    /// memory to look at.
    pub(super) fn over_dense_bases(&mut self, work: &mut Work) -> Result<(), String> {
        let indexed = matches!(work.kind, WorkKind::LoadAt { .. });
        for x in work.operands.iter_mut().skip(usize::from(indexed)) {
            let view = &self.infos[*x].view;
            let looks_at_dense =
                if self.is_inline(*x)? { view.has_masks() } else { self.memory_view(*x, view).is_none() };
            if looks_at_dense {
                let base = self.infos[*x].base;
                let dense = self.materialize_view(base)?;
                let mut info = self.infos[*x].clone();
                info.base = dense;
                self.infos.push(info);
                *x = self.infos.len() - 1;
            }
        }
        Ok(())
    }

    /// A group for the node alone; false leaves everything as it was.
    fn open_group_for(&mut self, work: &Rc<Work>) -> bool {
        let unit = self.open_group(&work.space);
        let fits = self.try_join(unit, work);
        if !fits {
            self.bodies[unit] = Unit::Merged;
        }
        fits
    }

    /// Joins the groups of a node's operands into one that also takes the node. The group with the largest space comes
    /// first: the others' spaces may be parts of it.
    pub(super) fn try_merging(&mut self, homes: &[UnitId], work: &Rc<Work>) -> bool {
        let mut order = homes.to_vec();
        let elements = |u: &UnitId| match &self.bodies[*u] {
            Unit::Group(g) => self.elements(g.domain.leaves().iter().map(|a| g.domain.size(*a))),
            _ => 0,
        };
        order.sort_by_cached_key(|u| (std::cmp::Reverse(elements(u)), self.units.level(*u), *u));
        (0..order.len()).any(|i| {
            let target = order[i];
            let others: Vec<UnitId> = order.iter().copied().filter(|u| *u != target).collect();
            self.try_merging_into(target, &others, work)
        })
    }

    fn try_merging_into(&mut self, target: UnitId, others: &[UnitId], work: &Rc<Work>) -> bool {
        // The target before anything was moved into it.
        let mut before: Option<Box<Group>> = None;
        let mut moved: Vec<(Val, Option<Home>)> = Vec::new();
        let mut merged = vec![target];
        for src in others {
            // What the target reads from memory cannot be made after it in the same body.
            let feeds = merged.iter().any(|m| self.units.depends(*m, *src));
            let apart = merged.iter().all(|m| !self.meet_in_memory(*m, *src));
            if feeds || !apart || !self.mergeable(&merged, *src) {
                continue;
            }
            if let Some(group) = self.replay(target, *src, &mut moved) {
                before.get_or_insert(group);
                merged.push(*src);
            }
        }
        if merged.len() > 1 && !self.waits_for(&work.operands, &merged) {
            let Unit::Group(g) = &self.bodies[target] else { return false };
            let mut domain = g.domain.clone();
            if let Some(fit) = self.fit(target, &mut domain, work) {
                self.finish_merge(target, &merged[1..]);
                self.commit(target, domain, fit, work);
                self.note_reads(target);
                return true;
            }
        }
        for (val, home) in moved.into_iter().rev() {
            self.infos[val].home = home;
        }
        if let Some(before) = before {
            self.bodies[target] = Unit::Group(before);
        }
        false
    }

    /// One stores what the other reads from memory: in one body the store might come later, or hit another point's read.
    fn meet_in_memory(&self, a: UnitId, b: UnitId) -> bool {
        let stores_for = |writer: UnitId, reader: UnitId| {
            let (Unit::Group(w), Unit::Group(r)) = (&self.bodies[writer], &self.bodies[reader]) else { return false };
            let read = |s: &ExtraStore| {
                r.reads
                    .iter()
                    .any(|val| matches!(self.infos[*val].home, Some(Home::Memory { buffer, .. }) if buffer == s.buffer))
            };
            let same = |val: &Val| {
                std::iter::successors(self.same_memory.get(val), |v| self.same_memory.get(v)).any(
                    |v| matches!(self.infos[*v].home, Some(Home::Group { unit, .. }) if self.units.find(unit) == writer),
                )
            };
            w.stores.iter().any(read) || r.reads.iter().any(same)
        };
        stores_for(a, b) || stores_for(b, a)
    }

    /// Both are groups with loops of the same sizes in the same order.
    pub(super) fn same_loops(&self, a: UnitId, b: UnitId) -> bool {
        let sizes = |u: UnitId| match &self.bodies[u] {
            Unit::Group(g) => Some(g.domain.leaves().into_iter().map(|a| g.domain.size(a).clone()).collect::<Vec<_>>()),
            _ => None,
        };
        sizes(a).is_some() && sizes(a) == sizes(b)
    }

    /// No third unit stands between the merged ones and `src`.
    pub(super) fn mergeable(&self, merged: &[UnitId], src: UnitId) -> bool {
        let between = |from: UnitId, to: &[UnitId]| {
            let inside = |d: UnitId| d == src || merged.contains(&d);
            self.units.deps(from).iter().any(|d| !inside(*d) && to.iter().any(|t| self.units.depends(*d, *t)))
        };
        !between(src, merged) && !merged.iter().any(|m| between(*m, &[src]))
    }

    /// Fits everything that `src` does into `target` and gives what `target` was; on failure both are as before.
    pub(super) fn replay(
        &mut self,
        target: UnitId,
        src: UnitId,
        moved: &mut Vec<(Val, Option<Home>)>,
    ) -> Option<Box<Group>> {
        let (Unit::Group(from), Unit::Group(to)) = (&self.bodies[src], &self.bodies[target]) else { return None };
        if from.slots.len() + to.slots.len() > self.options.limits.ops
            || from.reads.len() + to.reads.len() > self.options.limits.operands
        {
            return None;
        }
        let works: Vec<Rc<Work>> = from.slots.iter().map(|s| s.work.clone()).collect();
        let (before, start) = (to.clone(), moved.len());
        for w in works {
            let Unit::Group(g) = &self.bodies[target] else { return None };
            let mut domain = g.domain.clone();
            let Some(fit) = self.fit(target, &mut domain, &w) else {
                for (val, home) in moved.drain(start..).rev() {
                    self.infos[val].home = home;
                }
                self.bodies[target] = Unit::Group(before);
                return None;
            };
            moved.push((w.result, self.infos[w.result].home.clone()));
            self.commit(target, domain, fit, &w);
        }
        Some(before)
    }

    pub(super) fn finish_merge(&mut self, target: UnitId, merged: &[UnitId]) {
        for src in merged {
            if let Unit::Group(from) = std::mem::replace(&mut self.bodies[*src], Unit::Merged)
                && let Unit::Group(to) = &mut self.bodies[target]
            {
                to.stores.extend(from.stores);
                // What was made inside is no longer read from memory, but what waits for it waits all the same.
                to.reads.extend(from.reads.into_iter().filter(|r| !to.reads.contains(r)).collect::<Vec<_>>());
            }
            self.units.merge(target, *src);
        }
    }

    pub(super) fn open_group(&mut self, space: &[Dim]) -> UnitId {
        let unit = self.units.add(self.position);
        let (domain, _) = Domain::of_shape(space);
        self.bodies.push(Unit::Group(Box::new(Group { domain, ..Group::default() })));
        unit
    }

    /// Whether an operand made outside of these units waits for one of them (or is not made yet).
    pub(super) fn waits_for(&self, operands: &[Val], units: &[UnitId]) -> bool {
        let waits = |u: UnitId| units.iter().any(|t| self.units.depends(u, *t));
        operands.iter().any(|x| match &self.infos[self.infos[*x].base].home {
            Some(Home::Group { unit, .. }) => !units.contains(unit) && waits(*unit),
            Some(Home::Memory { writers, .. }) => writers.iter().any(|w| waits(*w)),
            Some(_) => false,
            None => true,
        })
    }

    /// Adds the node to the group if it fits; changes nothing else when it does not.
    pub(super) fn try_join(&mut self, unit: UnitId, work: &Rc<Work>) -> bool {
        self.try_join_if(unit, work, |_, _, _| true)
    }

    /// As `try_join`, for a group that merely reads one of the node's operands: it must read it at the same addresses.
    fn try_join_sibling(&mut self, unit: UnitId, work: &Rc<Work>) -> bool {
        self.try_join_if(unit, work, |g, domain, fit| {
            let leaves = domain.leaves();
            let reads = |sources: &[(Source, DType)]| -> Vec<(Val, Access)> {
                let memory = sources.iter().filter_map(|(s, _)| match s {
                    Source::Memory { val, at } => Some((*val, flatten(domain, at, &leaves))),
                    _ => None,
                });
                memory.collect()
            };
            let ours = reads(&fit.sources);
            g.slots.iter().any(|s| reads(&s.sources).iter().any(|r| ours.contains(r)))
        })
    }

    /// As `try_join`, for a group that shares nothing with the node: its loops must be the node's own.
    pub(super) fn try_join_same_space(&mut self, unit: UnitId, work: &Rc<Work>) -> bool {
        self.try_join_if(unit, work, |g, domain, _| domain.leaves() == g.domain.leaves())
    }

    fn try_join_if(&mut self, unit: UnitId, work: &Rc<Work>, ok: impl Fn(&Group, &Domain, &Fit) -> bool) -> bool {
        let Unit::Group(g) = &self.bodies[unit] else { return false };
        if g.slots.len() >= self.options.limits.ops
            || g.reads.len() + work.operands.len() > self.options.limits.operands
        {
            return false;
        }
        if self.waits_for(&work.operands, &[unit]) {
            return false;
        }
        let mut domain = g.domain.clone();
        let Some(fit) = self.fit(unit, &mut domain, work).filter(|f| ok(g, &domain, f)) else { return false };
        self.commit(unit, domain, fit, work);
        self.note_reads(unit);
        true
    }

    /// Finds axes for the node's dims and addresses for its operands.
    fn fit(&self, unit: UnitId, domain: &mut Domain, work: &Work) -> Option<Fit> {
        let Unit::Group(g) = &self.bodies[unit] else { return None };
        let mut dims: Vec<Option<Vec<AxisId>>> =
            work.space.iter().map(|n| if n.is_const(1) { Some(vec![]) } else { None }).collect();
        let load_at = matches!(work.kind, WorkKind::LoadAt { .. });
        for (k, x) in work.operands.iter().enumerate() {
            let info = &self.infos[*x];
            let Some(Home::Group { unit: home, slot, .. }) = &self.infos[info.base].home else { continue };
            if *home != unit {
                continue;
            }
            if g.slots[*slot].after_nest || (load_at && k == 0) {
                return None;
            }
            for (d, got) in domain.match_view(&g.slots[*slot].axes, &info.view)?.into_iter().enumerate() {
                let DimAxes::Axes(got) = got else { continue };
                match &dims[d] {
                    None => dims[d] = Some(got),
                    Some(have) if domain.resolve(have) == domain.resolve(&got) => {}
                    Some(_) => return None,
                }
            }
        }
        // Dims that no operand inside pins down take the axes that are left, in order.
        let used: Vec<AxisId> = dims.iter().flatten().flat_map(|a| domain.resolve(a)).collect();
        // Two operands may pin two dims to one axis (an outer product of a value with itself): no loop does that.
        if (1..used.len()).any(|i| used[..i].contains(&used[i])) {
            return None;
        }
        let rest: Vec<AxisId> = domain.leaves().into_iter().filter(|a| !used.contains(a)).collect();
        let open: Vec<usize> = (0..dims.len()).filter(|d| dims[*d].is_none()).collect();
        let cols: Vec<AxisId> = g.cols.as_ref().map(|c| domain.resolve(c)).unwrap_or_default();
        let sizes: Vec<Dim> = open.iter().map(|d| work.space[*d].clone()).collect();
        // Without columns there is but one way to cut, and a domain cut in vain is not used.
        let before = if cols.is_empty() { None } else { Some(domain.clone()) };
        let (cut, unused) = match domain.cut(&rest, &sizes) {
            Some(cut) => (cut, vec![]),
            None => {
                // A value of rows only: it does not vary over the columns.
                *domain = before?;
                let (inner, outer): (Vec<AxisId>, Vec<AxisId>) = rest.into_iter().partition(|a| cols.contains(a));
                (domain.cut(&outer, &sizes)?, inner)
            }
        };
        for (d, axes) in open.iter().zip(cut) {
            dims[*d] = Some(axes);
        }
        if !unused.is_empty() {
            let (mut unused, mut want) = (unused, cols);
            unused.sort_unstable();
            want.sort_unstable();
            if unused != want || matches!(work.kind, WorkKind::Reduce(..)) {
                return None;
            }
        }
        let dims: Vec<Vec<AxisId>> = dims.into_iter().collect::<Option<_>>()?;
        let mut sources = Vec::with_capacity(work.operands.len());
        for (k, x) in work.operands.iter().enumerate() {
            let info = &self.infos[*x];
            let source = match self.infos[info.base].home.as_ref()? {
                Home::Const(c) => Source::Const(*c),
                Home::Size(d) => Source::Size(d.clone()),
                Home::Iota => Source::Index(domain.address(&dims, &info.view)?),
                Home::Group { unit: home, slot, .. } if *home == unit => Source::Slot(*slot),
                _ => {
                    let view = match &work.kind {
                        WorkKind::LoadAt { view, .. } if k == 0 => view.clone(),
                        _ => self.memory_view(*x, &info.view)?,
                    };
                    Source::Memory { val: info.base, at: domain.address(&dims, &view)? }
                }
            };
            sources.push((source, info.dtype));
        }
        let reduce = match &work.kind {
            WorkKind::Reduce(op, folded) => Some(self.reduction(g, domain, *op, folded, &dims, &work.space)?),
            _ => None,
        };
        Some(Fit { dims, sources, reduce })
    }

    /// `view` over the row-major order of `x`'s base, as a view over its memory.
    pub(super) fn memory_view(&self, x: Val, view: &Rc<View>) -> Option<Rc<View>> {
        let base = self.infos[x].base;
        match self.infos[base].home.as_ref()? {
            Home::Group { .. } => Some(view.clone()),
            Home::Memory { layout, .. } => {
                if layout.is_contiguous(&self.infos[base].shape) {
                    return Some(view.clone());
                }
                relayout(view, &self.infos[base].shape, layout).map(Rc::new)
            }
            _ => None,
        }
    }

    /// Which kind of reduction folds these dims in this group, and the roles it gives to axes.
    fn reduction(
        &self,
        g: &Group,
        domain: &Domain,
        op: PrimOp,
        folded: &[usize],
        dims: &[Vec<AxisId>],
        space: &[Dim],
    ) -> Option<Reduction> {
        let all = domain.leaves();
        let sorted = |mut v: Vec<AxisId>| {
            v.sort_unstable();
            v
        };
        let set: Vec<AxisId> = sorted(folded.iter().flat_map(|d| domain.resolve(&dims[*d])).collect());
        let cols = g.cols.as_ref().map(|c| sorted(domain.resolve(c)));
        let rows = g.rows.as_ref().map(|r| sorted(domain.resolve(r)));
        let in_order = |s: &[AxisId]| all.iter().copied().filter(|a| s.contains(a)).collect::<Vec<_>>();
        let made = |over, cols: &[AxisId], rows: Option<&[AxisId]>| {
            Some(Reduction { over, cols: in_order(cols), rows: rows.map(in_order), divided: false })
        };
        // Columns only.
        let plain = |cols: &[AxisId]| {
            let folded = self.elements(cols.iter().map(|a| domain.size(*a)));
            let limits = self.options.limits;
            let rows = self.elements(space.iter()) / folded.max(1);
            let divided = folded > limits.single_task_reduction && rows < limits.many_rows;
            made(Over::Cols, cols, None).map(|r| Reduction { divided, ..r })
        };
        let single_dim_arg = matches!(op, PrimOp::Argmax | PrimOp::Argmin);
        match (&cols, &rows) {
            (Some(c), None) if *c == set => plain(c),
            (Some(c), r) if *c == set => made(Over::Cols, c, r.as_deref()),
            (Some(c), _) if single_dim_arg => {
                let _ = c;
                None
            }
            (Some(c), Some(r)) if *r == set => made(Over::Rows, c, Some(r)),
            (Some(c), Some(r)) if sorted([c.clone(), r.clone()].concat()) == set => made(Over::All, c, Some(r)),
            (Some(_), Some(_)) => None,
            (Some(c), None) if set.iter().all(|a| !c.contains(a)) && !set.is_empty() => made(Over::Rows, c, Some(&set)),
            (Some(c), None) if c.iter().all(|a| set.contains(a)) => {
                let r: Vec<AxisId> = set.iter().copied().filter(|a| !c.contains(a)).collect();
                made(Over::All, c, Some(&r))
            }
            (Some(_), None) => None,
            (None, _) => {
                if set.is_empty() || single_dim_arg {
                    return made(Over::Cols, &set, None);
                }
                let last = *all.last()?;
                let kept: Vec<AxisId> = all.iter().copied().filter(|a| !set.contains(a)).collect();
                if kept.is_empty()
                    && all.len() > 1
                    && self.elements(space.iter()) > self.options.limits.single_task_reduction
                {
                    let (c, r) = all.split_at(all.len() - 1);
                    return made(Over::All, r, Some(c));
                }
                if set.contains(&last) {
                    return plain(&set);
                }
                // Columns: what is kept inside of the outermost folded axis.
                let first = all.iter().position(|a| set.contains(a))?;
                let inner: Vec<AxisId> = all[first..].iter().copied().filter(|a| !set.contains(a)).collect();
                made(Over::Rows, &inner, Some(&set))
            }
        }
    }

    fn commit(&mut self, unit: UnitId, domain: Domain, fit: Fit, work: &Rc<Work>) {
        let mut after_nest = false;
        let (kind, axes) = match (&work.kind, fit.reduce) {
            (WorkKind::Reduce(op, folded), Some(r)) => {
                after_nest = r.over != Over::Cols || r.divided;
                let Unit::Group(g) = &mut self.bodies[unit] else { return };
                g.cols = Some(r.cols);
                g.rows = r.rows.or(g.rows.take());
                let kept =
                    (0..fit.dims.len()).filter(|d| !folded.contains(d)).flat_map(|d| fit.dims[d].clone()).collect();
                (SlotKind::Reduce(*op, r.over), kept)
            }
            (WorkKind::Pointwise(p), _) => (SlotKind::Pointwise(*p), fit.dims.concat()),
            (WorkKind::LoadAt { stride, size, .. }, _) => {
                (SlotKind::LoadAt { stride: stride.clone(), size: size.clone() }, fit.dims.concat())
            }
            _ => (SlotKind::Copy, fit.dims.concat()),
        };
        let Unit::Group(g) = &mut self.bodies[unit] else { return };
        g.domain = domain;
        let slot = g.slots.len();
        g.slots.push(Slot { work: work.clone(), kind, axes, sources: fit.sources, after_nest });
        let buffer = match self.infos[work.result].home {
            Some(Home::Group { buffer, .. }) => buffer,
            _ => None,
        };
        self.infos[work.result].home = Some(Home::Group { unit, slot, buffer });
    }

    /// Records what the group has come to read from memory. What it read before stays as it was: the memory may be
    /// overwritten by now, after that read.
    pub(super) fn note_reads(&mut self, unit: UnitId) {
        let Unit::Group(g) = &self.bodies[unit] else { return };
        let mut new: Vec<Val> = Vec::new();
        for (source, _) in g.slots.iter().flat_map(|s| &s.sources) {
            if let Source::Memory { val, .. } = source
                && !g.reads.contains(val)
                && !new.contains(val)
            {
                new.push(*val);
            }
        }
        for val in new {
            self.read(unit, val);
        }
    }

    /// Records that a unit reads a value from memory; a group's value gets its buffer now.
    pub(super) fn read(&mut self, unit: UnitId, x: Val) -> Option<BufferId> {
        let base = self.infos[x].base;
        let (buffer, writers) = match self.infos[base].home.clone()? {
            Home::Memory { buffer, writers, .. } => (buffer, writers),
            Home::Group { unit: home, .. } => (self.buffer_of(base)?, vec![home]),
            _ => return None,
        };
        for w in writers {
            self.units.add_dep(unit, w);
        }
        for read in std::iter::successors(Some(base), |v| self.same_memory.get(v).copied()) {
            let readers = self.readers.entry(read).or_default();
            if readers.last() != Some(&unit) {
                readers.push(unit);
            }
        }
        if let Some(Unit::Group(g)) = self.bodies.get_mut(unit)
            && !g.reads.contains(&base)
        {
            g.reads.push(base);
        }
        Some(buffer)
    }

    /// The dense buffer of a value that a group makes, made on first request.
    pub(super) fn buffer_of(&mut self, base: Val) -> Option<BufferId> {
        match self.infos[base].home.clone()? {
            Home::Memory { buffer, .. } => Some(buffer),
            Home::Group { buffer: Some(b), .. } => Some(b),
            Home::Group { unit, slot, buffer: None } => {
                let b = self.dense_buffer(base, BufferKind::Intermediate);
                self.infos[base].home = Some(Home::Group { unit, slot, buffer: Some(b) });
                Some(b)
            }
            _ => None,
        }
    }

    /// A memory operand of a unit that is no group.
    pub(super) fn memory_operand(
        &mut self,
        unit: UnitId,
        x: Val,
        dims: &[Vec<AxisId>],
        domain: &mut Domain,
    ) -> Option<(BufferId, Address)> {
        let view = self.memory_view(x, &self.infos[x].view.clone())?;
        let at = domain.address(dims, &view)?;
        let buffer = self.read(unit, x)?;
        Some((buffer, at))
    }

    pub(super) fn settle(&mut self, unit: UnitId) -> Result<(), String> {
        if self.units.len() == self.bodies.len() { Ok(()) } else { Err(format!("unit {unit} has no body")) }
    }
}

/// What [`Lowering::fit`] found.
struct Fit {
    dims: Vec<Vec<AxisId>>,
    sources: Vec<(Source, DType)>,
    reduce: Option<Reduction>,
}

struct Reduction {
    over: Over,
    cols: Vec<AxisId>,
    rows: Option<Vec<AxisId>>,
    /// Tasks share a row, so the result exists after the nest.
    divided: bool,
}
