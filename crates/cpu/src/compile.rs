//! From a laid-out kernel to its program.

use crate::access::TileAccess;
use crate::concrete::{Concrete, Node, identity};
use crate::error::CompileError;
use crate::fold::Join;
use crate::layout::Layout;
use crate::program::{ColAcc, Fold, Kind, Memory, Micro, Phase, Place, Program, RowAcc, Shape, Slot, SlotInfo};
use crate::regs::{Registers, lines};
use permalloy_ir::{PrimKind, PrimOp};
use permalloy_loops::kernel::{AxisRole, Over};

/// Bytes of values that may be kept from one phase to a later one: what the second-level cache holds.
const KEEP: usize = 1 << 20;

/// Facts of a value.
#[derive(Clone, Copy, Default)]
struct Facts {
    /// Is held with one value a row, a column.
    rows: bool,
    cols: bool,
    /// Varies over rows; a column reduction of what does not is held for each row nevertheless.
    differs: bool,
    /// Column reductions below it.
    depth: usize,
    /// Elements' worth of work to make it again from what row-level values give, capped.
    cost: u32,
}

struct Compiler<'a> {
    k: &'a Concrete,
    layout: &'a Layout,
    row_axes: usize,
    /// No stored buffer shares memory with another one of the kernel.
    exclusive: bool,
    facts: Vec<Facts>,
    program: Program,
    registers: Registers,
    /// Slot of a value; the same in all phases.
    slot: Vec<Slot>,
    /// Memory of a load or store, by value.
    memory: Vec<usize>,
    col_acc: Vec<Option<usize>>,
}

/// Compiles for tiles. With `exclusive` unset, loads and stores of a tile are ordered so that a stored buffer may share
/// memory with a loaded one that is read at the same addresses.
pub(crate) fn compile(
    k: &Concrete,
    layout: &Layout,
    row_axes: usize,
    exclusive: bool,
) -> Result<Program, CompileError> {
    let mut c = Compiler {
        k,
        layout,
        row_axes,
        exclusive,
        facts: Vec::with_capacity(k.values.len()),
        program: Program {
            once: Vec::new(),
            phases: Vec::new(),
            memories: Vec::new(),
            slots: Vec::new(),
            col_accs: Vec::new(),
            row_accs: Vec::new(),
            registers: 0,
            spare: [0; 3],
            spare_row: 0,
            code: None,
            cost: 1,
        },
        registers: Registers::default(),
        slot: Vec::new(),
        memory: vec![usize::MAX; k.values.len()],
        col_acc: vec![None; k.values.len()],
    };
    c.analyse()?;
    c.slots();
    c.accumulators()?;
    c.phases()?;
    c.program.registers = c.registers.size();
    Ok(c.program)
}

fn fold_of(op: PrimOp) -> Fold {
    match Join::of(op) {
        Some(j) => Fold::Join(j),
        None => Fold::Arg(op == PrimOp::Argmax),
    }
}

fn cost_of(node: &Node) -> u32 {
    match node {
        Node::Load { .. } | Node::Const(_) => 0,
        Node::LoadAt { .. } => 4,
        Node::Unary(op, _) => match op {
            PrimOp::Neg | PrimOp::Abs | PrimOp::Sign | PrimOp::Not | PrimOp::IsNan | PrimOp::IsInf => 1,
            PrimOp::Floor | PrimOp::Ceil | PrimOp::Round | PrimOp::Trunc => 1,
            PrimOp::Sqrt | PrimOp::Reciprocal => 3,
            _ => 8,
        },
        Node::Binary(op, ..) => match op {
            PrimOp::Div => 3,
            PrimOp::Pow | PrimOp::Atan2 | PrimOp::Fmod | PrimOp::Mod | PrimOp::FloorDiv | PrimOp::TruncDiv => 12,
            _ if op.kind() == PrimKind::Compare => 1,
            _ => 1,
        },
        _ => 1,
    }
}

impl Compiler<'_> {
    fn malformed<T>(&self, what: &str) -> Result<T, CompileError> {
        Err(CompileError::Malformed(what.to_string()))
    }

    fn shape(&self, rows: bool, cols: bool) -> Shape {
        if self.layout.rows_inner { Shape { outer: cols, inner: rows } } else { Shape { outer: rows, inner: cols } }
    }

    fn access(&self, v: usize) -> Option<TileAccess> {
        let node = &self.k.values[v].node;
        let is_store = matches!(node, Node::Store { .. });
        node.access().map(|a| TileAccess::new(a, self.layout, self.row_axes, is_store))
    }

    fn analyse(&mut self) -> Result<(), CompileError> {
        for (i, v) in self.k.values.iter().enumerate() {
            let mut f = Facts { cost: cost_of(&v.node), ..Facts::default() };
            for o in v.node.operands() {
                let g = self.facts[o];
                let after_nest = matches!(self.k.values[o].node, Node::Reduce { over: Over::Rows | Over::All, .. });
                if after_nest && !matches!(v.node, Node::Store { .. }) {
                    return self.malformed("a reduction over rows is read by something else than a store");
                }
                f.rows |= g.rows;
                f.differs |= g.differs;
                f.cols |= g.cols;
                f.depth = f.depth.max(g.depth);
                if g.cols {
                    f.cost = f.cost.saturating_add(g.cost).min(1000);
                }
            }
            if let Some(a) = self.access(i) {
                let (rows, cols) = if self.layout.rows_inner { (&a.inner, &a.outer) } else { (&a.outer, &a.inner) };
                if matches!(v.node, Node::Store { .. }) {
                    let value = v.node.operands()[0];
                    let after = matches!(self.k.values[value].node, Node::Reduce { over: Over::Rows | Over::All, .. });
                    if !after && (f.differs && !rows.varies || f.cols && !cols.varies) {
                        return self.malformed("a store's address does not vary where its value does");
                    }
                    f.rows = rows.varies || f.rows && !after;
                    f.cols = cols.varies;
                } else {
                    f.rows |= rows.varies;
                    f.differs |= rows.varies;
                    f.cols |= cols.varies;
                }
            }
            if let Node::Reduce { over: Over::Cols, .. } = v.node {
                f.rows = true;
                f.cols = false;
                f.depth += 1;
                f.cost = 0;
            }
            self.facts.push(f);
        }
        Ok(())
    }

    /// One slot a value, memories for loads and stores, fixed places for everything that is not per chunk.
    fn slots(&mut self) {
        for (i, v) in self.k.values.iter().enumerate() {
            let f = self.facts[i];
            let shape = self.shape(f.rows, f.cols);
            self.slot.push(self.program.slots.len());
            self.program.slots.push(SlotInfo { dtype: v.dtype, class: v.class, shape });
            if let Node::Load { buffer, .. } | Node::LoadAt { buffer, .. } | Node::Store { buffer, .. } = v.node
                && let Some(access) = self.access(i)
            {
                self.memory[i] = self.program.memories.len();
                self.program.memories.push(Memory { buffer, dtype: v.dtype, access });
            }
        }
        let tile = self.layout.row_block * self.layout.col_block * 8;
        for i in 0..3 {
            self.program.spare[i] = self.registers.take(tile);
        }
        self.program.spare_row = self.registers.take(self.layout.row_block.max(self.layout.col_block) * 8);
    }

    fn accumulators(&mut self) -> Result<(), CompileError> {
        let rows = self.layout.row_block * 8;
        for (i, v) in self.k.values.iter().enumerate() {
            let Node::Reduce { op, over, x } = v.node else { continue };
            let (fold, class) = (fold_of(op), self.k.values[x].class);
            let start = identity(op, class.dtype(), class);
            let total = match fold {
                Fold::Join(j) => j.accumulator(class),
                Fold::Arg(_) => class,
            };
            let start_total = identity(op, total.dtype(), total);
            if over == Over::Cols {
                self.col_acc[i] = Some(self.program.col_accs.len());
                let (value_at, index_at) = (self.registers.take(rows), self.registers.take(rows));
                self.program.col_accs.push(ColAcc { fold, class, start: start_total, value_at, index_at });
                continue;
            }
            let all = over == Over::All;
            let wide = !all && self.facts[x].cols;
            let mut stores = Vec::new();
            for (s, w) in self.k.values.iter().enumerate() {
                if !matches!(w.node, Node::Store { value, .. } if value == i) {
                    continue;
                }
                let folded = |a: usize| match self.k.axes[a].role {
                    AxisRole::Row => true,
                    AxisRole::Col => all,
                    AxisRole::Batch => false,
                };
                let access = w.node.access();
                if access.is_some_and(|x| (0..self.k.axes.len()).any(|a| folded(a) && x.strides[a] != 0)) {
                    return self.malformed("a reduction is stored to addresses that vary along what it folds");
                }
                if wide && !self.facts[s].cols {
                    return self.malformed("a store's address does not vary where its value does");
                }
                stores.push(self.memory[s]);
            }
            self.program.row_accs.push(RowAcc { fold, class, start, start_total, wide, all, stores });
        }
        Ok(())
    }

    fn bytes(&self, slot: Slot) -> usize {
        let s = self.program.slots[slot];
        let (rows, cols) = (self.layout.row_block, self.layout.col_block);
        let (o, i) = if self.layout.rows_inner { (cols, rows) } else { (rows, cols) };
        s.class.size() * if s.shape.outer { o } else { 1 } * if s.shape.inner { i } else { 1 }
    }

    fn is_body(&self, v: usize) -> bool {
        self.facts[v].cols && !matches!(self.k.values[v].node, Node::Reduce { .. })
    }

    /// Store of a value made by the nest itself.
    fn stored(&self, v: usize) -> Option<usize> {
        match self.k.values[v].node {
            Node::Store { value, .. } => match self.k.values[value].node {
                Node::Reduce { over: Over::Rows | Over::All, .. } => None,
                _ => Some(value),
            },
            _ => None,
        }
    }

    /// Phase in which a body op that nothing reads (a fold, a store) runs.
    fn sink_phase(&self, v: usize, last: usize) -> Option<(usize, usize)> {
        match self.k.values[v].node {
            Node::Reduce { over: Over::Cols, x, .. } => Some((x, self.facts[x].depth)),
            Node::Reduce { over, x, .. } => {
                let narrow = over == Over::Rows && !self.facts[x].cols;
                (!narrow).then_some((x, self.facts[x].depth))
            }
            _ => {
                let value = self.stored(v)?;
                if !self.facts[v].cols {
                    return None;
                }
                Some((value, if self.exclusive { self.facts[value].depth } else { last }))
            }
        }
    }

    fn phases(&mut self) -> Result<(), CompileError> {
        let n = self.k.values.len();
        let depth = (0..n).map(|v| self.facts[v].depth).max().unwrap_or(0);
        // The last phase that has a body; stores go there when memory may be shared.
        let last = (0..n).filter_map(|v| self.sink_phase(v, 0)).map(|(_, p)| p).max().unwrap_or(0);
        self.program.phases = vec![Phase::default(); depth.max(last) + 1];
        let last = if self.exclusive { last } else { depth.max(last) };

        self.row_level();

        // What each phase must make, and what it takes from an earlier one.
        let tile = self.layout.row_block * self.layout.cols.total;
        let mut made = vec![usize::MAX; n];
        let mut keep = vec![false; n];
        let mut kept_bytes = 0;
        let mut plans = Vec::new();
        for p in 0..=last {
            let mut needed = vec![false; n];
            let mut from_memory: Vec<(usize, usize)> = Vec::new();
            for v in 0..n {
                if let Some((x, phase)) = self.sink_phase(v, last)
                    && phase == p
                    && self.is_body(x)
                {
                    needed[x] = true;
                }
            }
            for v in (0..n).rev() {
                if !needed[v] {
                    continue;
                }
                if made[v] < p && self.facts[v].cost > 2 {
                    let bytes = lines(tile * self.k.values[v].class.size());
                    let memory = self.direct_store(v).filter(|s| self.sink_phase(*s, last).is_some_and(|x| x.1 < p));
                    if let Some(s) = memory {
                        needed[v] = false;
                        from_memory.push((v, self.memory[s]));
                        continue;
                    }
                    if keep[v] || kept_bytes + bytes <= KEEP {
                        kept_bytes += if keep[v] { 0 } else { bytes };
                        keep[v] = true;
                        needed[v] = false;
                        continue;
                    }
                }
                made[v] = made[v].min(p);
                for o in self.k.values[v].node.operands() {
                    needed[o] |= self.is_body(o);
                }
            }
            plans.push(Plan { phase: p, needed, from_memory });
        }
        let mut kept_at = vec![None; n];
        for v in (0..n).filter(|v| keep[*v]) {
            let size = self.k.values[v].class.size();
            let chunks = self.layout.cols.total.div_ceil(self.layout.col_block);
            let step = self.layout.row_block * self.layout.col_block * size;
            kept_at[v] = Some(Place { offset: self.registers.take(step * chunks), step });
        }
        let mut cost = 1;
        for plan in &plans {
            let made = (0..n).filter(|v| plan.needed[*v]);
            cost += made.map(|v| 1 + cost_of(&self.k.values[v].node) as usize).sum::<usize>();
            self.body(plan, last, &kept_at);
        }
        self.program.cost = cost;
        Ok(())
    }

    /// The store through which `v` can be written to memory at once and read back unchanged.
    fn direct_store(&self, v: usize) -> Option<usize> {
        if !self.exclusive || matches!(self.k.values[v].node, Node::Load { .. }) {
            return None;
        }
        (0..self.k.values.len()).find(|s| {
            let w = &self.k.values[*s];
            self.stored(*s) == Some(v)
                && w.dtype == self.k.values[v].class.dtype()
                && self.facts[*s].rows == self.facts[v].rows
                && self.facts[*s].cols == self.facts[v].cols
                && (self.facts[v].differs || self.layout.rows.total == 1)
                && !self.program.memories[self.memory[*s]].access.has_masks()
        })
    }

    /// Ops that run once a task, and once a block of rows.
    fn row_level(&mut self) {
        let mut narrow = 0;
        // Where memory may be shared, stores come after all loads: another result may lie where a later one is read.
        let (mut late, mut late_rows) = (Vec::new(), Vec::new());
        for v in 0..self.k.values.len() {
            let f = self.facts[v];
            let node = &self.k.values[v].node;
            if let Node::Reduce { over, x, .. } = node {
                match over {
                    Over::Cols => {
                        let (acc, depth) = (self.col_acc[v], f.depth);
                        if let Some(acc) = acc {
                            let m = self.fixed(v, Kind::FinishCols(acc));
                            self.program.phases[depth].rows.push(m);
                        }
                    }
                    _ => {
                        let acc = narrow;
                        narrow += 1;
                        if *over == Over::Rows && !f.cols {
                            let x = *x;
                            let mut list = Vec::new();
                            let x = self.spread(x, self.shape(true, false), &mut list, None);
                            list.push(self.sink(Kind::FoldRows { acc, x }));
                            self.program.phases[f.depth].rows.extend(list);
                        }
                    }
                }
                continue;
            }
            if f.cols || matches!(node, Node::Store { .. }) && self.stored(v).is_none() {
                continue;
            }
            let m = match self.stored(v) {
                Some(value) => self.sink(Kind::Store { memory: self.memory[v], value: self.slot[value] }),
                None => {
                    let kind = self.kind(v);
                    self.fixed(v, kind)
                }
            };
            match (f.rows, self.stored(v).is_some() && !self.exclusive) {
                (true, true) => late_rows.push(m),
                (true, false) => self.program.phases[f.depth].rows.push(m),
                (false, true) => late.push(m),
                (false, false) => self.program.once.push(m),
            }
        }
        self.program.once.extend(late);
        if let Some(phase) = self.program.phases.last_mut() {
            phase.rows.extend(late_rows);
        }
    }

    fn kind(&self, v: usize) -> Kind {
        let s = |x: &usize| self.slot[*x];
        match &self.k.values[v].node {
            Node::Const(bits) => Kind::Const(*bits),
            Node::Load { .. } => {
                // Where memory may be shared, what outlives the tile, or is stored as it is, must not be read in place.
                let stored = || (0..self.k.values.len()).any(|w| self.stored(w) == Some(v));
                let copy = !self.exclusive && (!self.is_body(v) || stored());
                Kind::Load { memory: self.memory[v], copy }
            }
            Node::LoadAt { index, stride, size, .. } => {
                Kind::LoadAt { memory: self.memory[v], index: s(index), stride: *stride, size: *size, copy: false }
            }
            Node::Index(a) => Kind::Index(TileAccess::new(a, self.layout, self.row_axes, false)),
            Node::Unary(op, x) => Kind::Unary(*op, s(x)),
            Node::Binary(op, a, b) => Kind::Binary(*op, s(a), s(b)),
            Node::Where(c, a, b) => Kind::Select(s(c), s(a), s(b)),
            Node::Cast(x) | Node::Reduce { x, .. } => Kind::Cast(s(x)),
            Node::Store { value, .. } => Kind::Store { memory: self.memory[v], value: s(value) },
        }
    }

    /// A micro-op whose result stays in place for the whole task.
    fn fixed(&mut self, v: usize, kind: Kind) -> Micro {
        let slot = self.slot[v];
        let offset = self.registers.take(self.bytes(slot));
        Micro { kind, dst: slot, at: Place { offset, step: 0 }, direct: None }
    }

    fn sink(&self, kind: Kind) -> Micro {
        Micro { kind, dst: usize::MAX, at: Place::default(), direct: None }
    }

    /// Slot of `x` repeated to `shape`; emits the micro-op that does it. `owned` collects places to give back.
    fn spread(&mut self, x: usize, shape: Shape, out: &mut Vec<Micro>, owned: Option<&mut Vec<(Slot, usize)>>) -> Slot {
        let from = self.slot[x];
        let info = self.program.slots[from];
        if info.shape == shape {
            return from;
        }
        let slot = self.program.slots.len();
        self.program.slots.push(SlotInfo { shape, ..info });
        let offset = self.registers.take(self.bytes(slot));
        out.push(Micro { kind: Kind::Spread(from), dst: slot, at: Place { offset, step: 0 }, direct: None });
        if let Some(owned) = owned {
            owned.push((slot, offset));
        }
        slot
    }

    /// Emits the body of phase `p`.
    fn body(&mut self, plan: &Plan, last: usize, kept_at: &[Option<Place>]) {
        let n = self.k.values.len();
        let mut b = Body { reads: vec![0; n], emitted: vec![false; n], place: vec![None; n], out: Vec::new() };
        let sink = |c: &Self, v: usize| c.sink_phase(v, last).filter(|(_, p)| *p == plan.phase).map(|(x, _)| x);
        for v in 0..n {
            if plan.needed[v] {
                for o in self.k.values[v].node.operands() {
                    b.reads[o] += 1;
                }
            }
            if let Some(x) = sink(self, v) {
                b.reads[x] += 1;
            }
        }
        let mut accs = Vec::new();
        let mut row_acc = 0;
        let mut stores = Vec::new();
        for v in 0..n {
            let node = &self.k.values[v].node;
            let this_acc = row_acc;
            row_acc += usize::from(matches!(node, Node::Reduce { over: Over::Rows | Over::All, .. }));
            if plan.needed[v] {
                // Loads come right before their first reader.
                if matches!(node, Node::Load { .. }) {
                    continue;
                }
                let operands = node.operands();
                for o in &operands {
                    self.available(*o, plan, kept_at, &mut b);
                }
                self.emit(v, plan, kept_at, &mut b);
                operands.into_iter().for_each(|o| self.read(o, &mut b));
            } else if let Some(x) = sink(self, v) {
                self.available(x, plan, kept_at, &mut b);
                if matches!(node, Node::Store { .. }) {
                    let m = self.sink(Kind::Store { memory: self.memory[v], value: self.slot[x] });
                    if self.exclusive {
                        b.out.push(m);
                        self.read(x, &mut b);
                    } else {
                        // All reads of the tile come before its writes; the value stays in its register till then.
                        stores.push(m);
                    }
                } else {
                    self.fold(v, x, this_acc, &mut accs, &mut b);
                    self.read(x, &mut b);
                }
            }
        }
        b.out.extend(stores);
        for (v, offset) in b.place.iter().enumerate() {
            if let Some(offset) = offset {
                self.registers.give(*offset, self.bytes(self.slot[v]));
            }
        }
        let phase = &mut self.program.phases[plan.phase];
        phase.body = b.out;
        phase.accs = accs;
    }

    /// One reader less; gives the register back after the last.
    fn read(&mut self, v: usize, b: &mut Body) {
        b.reads[v] -= 1;
        if b.reads[v] == 0
            && let Some(offset) = b.place[v].take()
        {
            self.registers.give(offset, self.bytes(self.slot[v]));
        }
    }

    /// Makes sure that the slot of a body value points to it.
    fn available(&mut self, v: usize, plan: &Plan, kept_at: &[Option<Place>], b: &mut Body) {
        if !self.is_body(v) || b.emitted[v] {
            return;
        }
        if plan.needed[v] {
            self.emit(v, plan, kept_at, b);
            return;
        }
        b.emitted[v] = true;
        let dst = self.slot[v];
        if let Some((_, memory)) = plan.from_memory.iter().find(|(x, _)| *x == v) {
            let offset = self.registers.take(self.bytes(dst));
            b.place[v] = Some(offset);
            let kind = Kind::Load { memory: *memory, copy: false };
            b.out.push(Micro { kind, dst, at: Place { offset, step: 0 }, direct: None });
        } else if let Some(at) = kept_at[v] {
            b.out.push(Micro { kind: Kind::Recall, dst, at, direct: None });
        }
    }

    fn emit(&mut self, v: usize, plan: &Plan, kept_at: &[Option<Place>], b: &mut Body) {
        b.emitted[v] = true;
        let dst = self.slot[v];
        let at = kept_at[v].unwrap_or_else(|| {
            let offset = self.registers.take(self.bytes(dst));
            b.place[v] = Some(offset);
            Place { offset, step: 0 }
        });
        let direct =
            self.direct_store(v).filter(|s| self.facts[self.k.values[*s].node.operands()[0]].depth == plan.phase);
        let direct = direct.map(|s| self.memory[s]);
        let mut kind = self.kind(v);
        if let Kind::LoadAt { copy, .. } = &mut kind {
            // Later phases look for it where it is kept.
            *copy = kept_at[v].is_some();
        }
        b.out.push(Micro { kind, dst, at, direct });
    }

    /// Emits the fold of `x` that value `v` is.
    fn fold(&mut self, v: usize, x: usize, row_acc: usize, accs: &mut Vec<usize>, b: &mut Body) {
        let mut owned = Vec::new();
        let wide_only = matches!(self.k.values[v].node, Node::Reduce { over: Over::Rows, .. });
        let mut out = std::mem::take(&mut b.out);
        debug_assert!(!wide_only || self.facts[x].cols);
        let x = self.spread(x, Shape::FULL, &mut out, Some(&mut owned));
        let kind = match self.col_acc[v] {
            Some(acc) => {
                accs.push(acc);
                Kind::FoldCols { acc, x }
            }
            None => Kind::FoldRows { acc: row_acc, x },
        };
        let m = self.sink(kind);
        out.push(m);
        b.out = out;
        for (slot, offset) in owned {
            self.registers.give(offset, self.bytes(slot));
        }
    }
}

/// What a phase makes, and which values it reads back from memory stored by an earlier one.
struct Plan {
    phase: usize,
    needed: Vec<bool>,
    from_memory: Vec<(usize, usize)>,
}

/// A body being written.
struct Body {
    /// How often each value is still read.
    reads: Vec<usize>,
    emitted: Vec<bool>,
    /// Registers to give back.
    place: Vec<Option<usize>>,
    out: Vec<Micro>,
}
