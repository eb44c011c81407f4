//! From a straight-line program over lanes to a loop of machine code.
//!
//! The function takes an array and a number of elements. The array holds the arguments (pointers to vectors and to single
//! values), by how many bytes each moves from row to row, and the number of rows, which is at least one. For each row it runs
//! its sections one after the other: a program over all elements of the row, a vector at a time, several times in a row where
//! registers allow, or over one value of the row. Of the last vector, lanes are masked off where there are mask registers;
//! elsewhere the last few elements are taken one by one. Values live in registers throughout a section; one that needs more
//! than there are is refused, and the caller cuts it.

use super::assembler::*;
use super::lanes::{Lane, Op, Type, Value};
use super::operations::bits;
use crate::fold::Join;

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Home {
    Nowhere,
    Vector(u8),
    Mask(u8),
    /// Low and high eight lanes.
    Pair(u8, u8),
}

/// More values are alive than there are registers.
#[derive(Debug)]
pub(super) struct Full;

/// Registers for pointers; others are loaded when they are needed.
const POINTERS: [u8; 9] = [9, 10, 11, 3, 5, 12, 13, 14, 15];
/// Those of them that belong to the caller.
const KEPT: [u8; 6] = [3, 5, 12, 13, 14, 15];
pub(super) const TAIL: u8 = 1;
/// Bytes of a line of the caches.
const LINE: i32 = 64;
/// Columns after which sums start anew, so that rounding errors do not pile up.
const STOP: i32 = 2048;
/// Most values that are loaded once for the whole row.
const MOST_HELD: usize = 8;

/// Where register 8 points.
pub(super) const AT_R8: Operand = Operand::Memory { base: R8, scale: 0, displacement: 0 };

pub(super) const INFINITY: u64 = 0x7f80_0000;

/// A part of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'a> {
    pub lanes: &'a [Lane],
    /// Runs over the first element alone.
    pub once: bool,
}

/// Machine code for the sections, or None if one needs too many registers. `arguments`: how many there are. Where something is
/// written by [`Op::Stream`], a second form of the function follows, at the place that is returned: it writes that past the
/// caches, which must be aligned to 64 bytes in each row.
pub(super) fn emit(sections: &[Section<'_>], arguments: usize, width: Width) -> Option<(Vec<u8>, Option<usize>)> {
    let mut code = function(sections, arguments, false, width)?;
    let mut streaming = None;
    if sections.iter().flat_map(|s| s.lanes).any(|l| matches!(l.op, Op::Stream(..))) {
        streaming = Some(code.len());
        code.extend(function(sections, arguments, true, width)?);
    }
    Some((code, streaming))
}

fn function(sections: &[Section<'_>], arguments: usize, streaming: bool, width: Width) -> Option<Vec<u8>> {
    let mut a = Assembler::new(width);
    let pointers = sections.iter().map(|s| walked(s.lanes).len()).max()?.min(POINTERS.len());
    let used: Vec<u8> = KEPT.into_iter().filter(|r| POINTERS[..pointers].contains(r)).collect();
    used.iter().for_each(|r| a.push(*r));
    let row = a.label();
    a.bind(row);
    for s in sections {
        a = section(*s, arguments, streaming, &a)?;
    }
    for p in 0..arguments {
        a.argument(R8, arguments + p);
        a.add_to_argument(p);
    }
    a.count_argument(2 * arguments);
    a.jump_if(When::NotEqual, row);
    used.iter().rev().for_each(|r| a.pop(*r));
    a.ret();
    a.finish()
}

/// Writes a section behind what is there.
fn section(s: Section<'_>, arguments: usize, streaming: bool, before: &Assembler) -> Option<Assembler> {
    let folds = s.lanes.iter().filter(|l| matches!(l.op, Op::Fold(..))).count();
    // With half as many lanes, twice as many sums keep their rounding errors as small.
    let unrolls: &[usize] = match (folds, before.width) {
        _ if s.once => &[1],
        (1, Width::Half) => &[8, 4, 2, 1],
        (0, _) if s.lanes.len() >= 12 => &[2, 1],
        _ => &[4, 2, 1],
    };
    for hold in [true, false] {
        for unroll in unrolls {
            let emitter = Emitter::new(s.lanes, arguments, *unroll, hold, before.clone());
            let emitter = emitter.map(|e| Emitter { streaming, ..e });
            if let Ok(a) = emitter.and_then(|e| if s.once { e.one_value() } else { e.row() }) {
                return Some(a);
            }
        }
    }
    None
}

/// Arguments that are walked element by element.
fn walked(lanes: &[Lane]) -> Vec<usize> {
    let mut walked: Vec<usize> = Vec::new();
    for l in lanes {
        if let Op::Vector(p)
        | Op::Save(p, _)
        | Op::Stream(p, _)
        | Op::AddInto(p, _)
        | Op::Iota(p)
        | Op::Prefetch { argument: p, .. } = l.op
            && !walked.contains(&p)
        {
            walked.push(p);
        }
    }
    walked
}

pub(super) struct Emitter<'a> {
    pub(super) a: Assembler,
    pub(super) lanes: &'a [Lane],
    /// Last operation that reads each value.
    last: Vec<usize>,
    /// Values that are the same for the whole row and held in registers.
    held: Vec<Value>,
    pub(super) homes: Vec<Home>,
    /// Accumulators of folds, in order of the folds; one for each copy of the body.
    accumulators: Vec<Vec<u8>>,
    pointers: Vec<Option<u8>>,
    free: u32,
    pub(super) free_masks: u8,
    unroll: usize,
    streaming: bool,
    /// Which copy is being written; `None` in the masked one.
    pub(super) copy: Option<usize>,
}

impl<'a> Emitter<'a> {
    fn new(lanes: &'a [Lane], arguments: usize, unroll: usize, hold: bool, a: Assembler) -> Result<Emitter<'a>, Full> {
        let mut last = vec![0; lanes.len()];
        for (i, l) in lanes.iter().enumerate() {
            l.op.operands().into_iter().flatten().for_each(|o| last[o] = i);
        }
        let scalars = (0..lanes.len()).filter(|v| matches!(lanes[*v].op, Op::Scalar(_)) && lanes[*v].ty != Type::Mask);
        let held: Vec<Value> = scalars.take(if hold { MOST_HELD } else { 0 }).collect();
        let mut pointers = vec![None; arguments];
        for (p, r) in walked(lanes).into_iter().zip(POINTERS) {
            pointers[p] = Some(r);
        }
        let mut e = Emitter {
            free: if a.width == Width::Half { 0xffff } else { u32::MAX },
            a,
            lanes,
            last,
            held,
            homes: vec![Home::Nowhere; lanes.len()],
            accumulators: Vec::new(),
            pointers,
            free_masks: 0b1111_1100,
            unroll,
            streaming: false,
            copy: None,
        };
        for l in lanes {
            if matches!(l.op, Op::Fold(..)) {
                let registers = (0..unroll).map(|_| e.take()).collect::<Result<_, _>>()?;
                e.accumulators.push(registers);
            }
        }
        Ok(e)
    }

    pub(super) fn take(&mut self) -> Result<u8, Full> {
        let r = self.free.trailing_zeros();
        if r == 32 {
            return Err(Full);
        }
        self.free &= !(1 << r);
        Ok(r as u8)
    }

    pub(super) fn give(&mut self, r: u8) {
        self.free |= 1 << r;
    }

    /// Loads the pointers.
    fn enter(&mut self) {
        for p in 0..self.pointers.len() {
            if let Some(r) = self.pointers[p] {
                self.a.argument(r, p);
            }
        }
        self.a.zero_rax();
    }

    /// The program on the first element.
    fn one_value(mut self) -> Result<Assembler, Full> {
        self.enter();
        if self.a.width == Width::Full {
            self.a.first_lane_mask();
        }
        self.copy = None;
        self.body()?;
        Ok(self.a)
    }

    /// The program on all elements of a row.
    fn row(mut self) -> Result<Assembler, Full> {
        self.enter();
        for v in self.held.clone() {
            self.homes[v] = self.scalar(v)?;
        }
        let folds: Vec<(Join, usize)> =
            self.lanes.iter().filter_map(|l| if let Op::Fold(j, p, _) = l.op { Some((j, p)) } else { None }).collect();
        for (k, (join, p)) in folds.iter().enumerate() {
            self.start(k, *join);
            if *join == Join::Sum {
                self.a.argument(R8, *p);
                self.a.vector(STORE, self.accumulators[k][0], 0, AT_R8, Lanes::All, None);
            }
        }
        let sums = folds.iter().any(|(join, _)| *join == Join::Sum);

        let (width, vector) = (self.a.width, self.a.width.lanes() as i32);
        let granule = vector * self.unroll as i32;
        let [outer, body, tail, end] = std::array::from_fn(|_| self.a.label());
        self.a.whole_part(granule);
        self.a.test_rcx();
        self.a.jump_if(When::Equal, tail);
        self.a.bind(outer);
        if sums {
            self.a.next_stop(STOP);
        }
        self.a.bind(body);
        for copy in 0..self.unroll {
            self.copy = Some(copy);
            self.body()?;
        }
        self.a.add_rax(granule);
        self.a.compare_rax(if sums { RDX } else { RCX });
        self.a.jump_if(When::Below, body);
        if sums {
            self.a.compare_rax(RCX);
            self.a.jump_if(When::AboveOrEqual, tail);
            for (k, (join, p)) in folds.iter().enumerate() {
                if *join == Join::Sum {
                    self.leave(k, *join, *p, false)?;
                    self.start(k, *join);
                }
            }
            self.a.jump(outer);
        }
        self.a.bind(tail);
        if width == Width::Half && self.unroll > 1 {
            // What is left, but for the last few elements, is less than once more of all copies.
            let [vectors, few] = std::array::from_fn(|_| self.a.label());
            self.a.whole_part(vector);
            self.a.compare_rax(RCX);
            self.a.jump_if(When::AboveOrEqual, few);
            self.a.bind(vectors);
            self.copy = Some(0);
            self.body()?;
            self.a.add_rax(vector);
            self.a.compare_rax(RCX);
            self.a.jump_if(When::Below, vectors);
            self.a.bind(few);
        }
        let single = self.a.label();
        self.a.bind(single);
        self.a.compare_rax(RSI);
        self.a.jump_if(When::AboveOrEqual, end);
        self.copy = None;
        if width == Width::Full {
            self.a.tail_mask();
        }
        self.body()?;
        self.a.add_rax(if width == Width::Full { vector } else { 1 });
        self.a.jump(single);
        self.a.bind(end);

        for (k, (join, p)) in folds.into_iter().enumerate() {
            self.leave(k, join, p, true)?;
        }
        Ok(self.a)
    }

    /// Sets the accumulators of a fold to its identity.
    fn start(&mut self, fold: usize, join: Join) {
        for r in self.accumulators[fold].clone() {
            match join {
                Join::Max => self.constant_into(r, bits(f32::NEG_INFINITY)),
                Join::Min => self.constant_into(r, INFINITY),
                _ => self.a.vector(XOR, r, r, Operand::Register(r), Lanes::All, None),
            }
        }
    }

    /// Joins the accumulators of a fold and leaves sixteen lanes in its argument; sums are added to what is there. After the
    /// `last` lanes of a row each lane is the result.
    fn leave(&mut self, fold: usize, join: Join, argument: usize, last: bool) -> Result<(), Full> {
        let registers = self.accumulators[fold].clone();
        let total = registers[0];
        // Neighbours first: fewer steps that wait for each other.
        let mut distance = 1;
        while distance < registers.len() {
            for pair in registers.chunks(2 * distance).filter(|p| p.len() > distance) {
                self.join(join, pair[0], pair[distance], Lanes::All)?;
            }
            distance *= 2;
        }
        self.a.argument(R8, argument);
        if join == Join::Sum {
            self.a.vector(ADD, total, total, AT_R8, Lanes::All, None);
        }
        if last {
            self.join_lanes(join, total)?;
        }
        self.a.vector(STORE, total, 0, AT_R8, Lanes::All, None);
        Ok(())
    }

    /// Joins the lanes of a register; afterwards each holds the result, for sums in f64.
    fn join_lanes(&mut self, join: Join, total: u8) -> Result<(), Full> {
        let other = self.take()?;
        let from = Operand::Register(total);
        let halves = match self.a.width {
            Width::Full => (SHUFFLE_QUARTERS, total, 0x4e),
            Width::Half => (SHUFFLE_HALVES, total, 0x01),
        };
        // Halves of the halves: there are some in the wider vectors alone.
        let quarters = (self.a.width == Width::Full).then_some((SHUFFLE_QUARTERS, total, 0xb1));
        let pairs = (SHUFFLE_LANES, 0, 0x4e);
        let lanes = (SHUFFLE_LANES, 0, 0xb1);
        let join_by = |e: &mut Self, (op, src1, order): (Opcode, u8, u8), wide: bool| {
            e.a.vector(op, other, src1, from, Lanes::All, Some(order));
            if wide {
                e.three(ADD_F64, total, total, Operand::Register(other));
                return Ok(());
            }
            e.join(join, total, other, Lanes::All)
        };
        if join == Join::Sum {
            let (op, src1, order) = halves;
            self.a.vector(op, other, src1, from, Lanes::All, Some(order));
            self.a.vector(WIDEN_F32, other, 0, Operand::Register(other), Lanes::All, None);
            self.a.vector(WIDEN_F32, total, 0, from, Lanes::All, None);
            self.three(ADD_F64, total, total, Operand::Register(other));
            for step in [Some(halves), quarters, Some(pairs)].into_iter().flatten() {
                join_by(self, step, true)?;
            }
        } else {
            for step in [Some(halves), quarters, Some(pairs), Some(lanes)].into_iter().flatten() {
                join_by(self, step, false)?;
            }
        }
        self.give(other);
        Ok(())
    }

    fn body(&mut self) -> Result<(), Full> {
        let mut fold = 0;
        for at in 0..self.lanes.len() {
            let lane = self.lanes[at];
            match lane.op {
                Op::Fold(join, _, x) => {
                    let (accumulator, x) = (self.accumulators[fold][self.copy.unwrap_or(0)], self.vector(x)?);
                    fold += 1;
                    match (self.copy, self.a.width) {
                        (Some(_), _) => self.join(join, accumulator, x, Lanes::All)?,
                        (None, Width::Full) => self.join(join, accumulator, x, Lanes::Merged(TAIL))?,
                        (None, Width::Half) => self.join_one(join, accumulator, x)?,
                    }
                }
                Op::Stream(p, x) if self.streaming && self.copy.is_some() => {
                    let (x, memory) = (self.vector(x)?, self.memory(p, 4));
                    self.a.vector(STORE_STREAMING, x, 0, memory, Lanes::All, None);
                }
                Op::Save(p, x) | Op::Stream(p, x) => self.save(p, x)?,
                // Streaming stores need no lines of the caches.
                Op::Prefetch { write: true, .. } if self.streaming => {}
                Op::Prefetch { argument, write, size } => {
                    let step = self.a.width.lanes() as i32 * i32::from(size);
                    if let Some(copy) = self.copy
                        && copy as i32 * step % LINE < step
                    {
                        let base = self.base(argument);
                        self.a.prefetch(write, base, size, copy as i32 * step);
                    }
                }
                Op::AddInto(p, x) => {
                    let (x, sum) = (self.vector(x)?, self.take()?);
                    let memory = self.memory(p, 4);
                    self.load(sum, memory);
                    self.three(ADD, sum, sum, Operand::Register(x));
                    self.store(sum, memory);
                    self.give(sum);
                }
                _ => {
                    if !self.held.contains(&at) {
                        self.homes[at] = self.make(at)?;
                    }
                }
            }
            for o in lane.op.operands().into_iter().flatten() {
                if self.last[o] == at && !self.held.contains(&o) {
                    self.release(o);
                }
            }
        }
        Ok(())
    }

    fn release(&mut self, v: Value) {
        match std::mem::replace(&mut self.homes[v], Home::Nowhere) {
            Home::Nowhere => {}
            Home::Vector(r) => self.give(r),
            Home::Mask(k) => self.give_mask(k),
            Home::Pair(low, high) => {
                self.give(low);
                self.give(high);
            }
        }
    }

    /// Loads f32: a vector, or what is left of it.
    pub(super) fn load(&mut self, r: u8, memory: Operand) {
        match (self.copy, self.a.width) {
            (Some(_), _) => self.a.vector(LOAD, r, 0, memory, Lanes::All, None),
            (None, Width::Full) => self.a.vector(LOAD, r, 0, memory, Lanes::Zeroed(TAIL), None),
            (None, Width::Half) => self.a.vector(LOAD_ONE, r, 0, memory, Lanes::All, None),
        }
    }

    /// Stores f32: a vector, or what is left of it.
    pub(super) fn store(&mut self, r: u8, memory: Operand) {
        match (self.copy, self.a.width) {
            (Some(_), _) => self.a.vector(STORE, r, 0, memory, Lanes::All, None),
            (None, Width::Full) => self.a.vector(STORE, r, 0, memory, Lanes::Merged(TAIL), None),
            (None, Width::Half) => self.a.vector(STORE_ONE, r, 0, memory, Lanes::All, None),
        }
    }

    /// The register of an argument.
    pub(super) fn base(&mut self, p: usize) -> u8 {
        self.pointers[p].unwrap_or_else(|| {
            self.a.argument(R8, p);
            R8
        })
    }

    /// Elements before those of this copy of the body.
    pub(super) fn first_lane(&self) -> i32 {
        (self.copy.unwrap_or(0) * self.a.width.lanes()) as i32
    }

    pub(super) fn memory(&mut self, p: usize, size: u8) -> Operand {
        let base = self.base(p);
        Operand::Memory { base, scale: size, displacement: self.first_lane() * i32::from(size) }
    }

    /// `dst = op(a, b)` on all lanes.
    pub(super) fn three(&mut self, op: Opcode, dst: u8, a: u8, b: Operand) {
        self.a.vector(op, dst, a, b, Lanes::All, None);
    }

    /// A constant f32 as the last operand.
    pub(super) fn pool(&mut self, bits: u64) -> Operand {
        self.spread(bits | bits << 32)
    }

    /// Eight bytes again and again as the last operand.
    pub(super) fn spread(&mut self, bits: u64) -> Operand {
        match self.a.width {
            Width::Full => Operand::Constant(self.a.constants(&[bits])),
            Width::Half => Operand::Constants(self.a.constants(&[bits; 4])),
        }
    }

    pub(super) fn constant_into(&mut self, r: u8, bits: u64) {
        let (Operand::Constant(at) | Operand::Constants(at)) = self.pool(bits) else { return };
        self.a.vector(BROADCAST, r, 0, Operand::Constants(at), Lanes::All, None);
    }

    /// `to = join(to, x)`; NaN wins in maxima and minima.
    fn join(&mut self, join: Join, to: u8, x: u8, lanes: Lanes) -> Result<(), Full> {
        let op = match join {
            Join::Max => MAX,
            Join::Min => MIN,
            _ => {
                self.a.vector(ADD, to, to, Operand::Register(x), lanes, None);
                return Ok(());
            }
        };
        // The instruction gives its second operand if either is NaN: right for a NaN of the accumulator's.
        let nan = self.nan(x, lanes)?;
        self.a.vector(op, to, x, Operand::Register(to), lanes, None);
        self.put(nan, to, x);
        self.give_mask(nan);
        Ok(())
    }

    /// The same for the first lane alone.
    fn join_one(&mut self, join: Join, to: u8, x: u8) -> Result<(), Full> {
        let one = self.take()?;
        // Elsewhere what changes nothing.
        let mut others = to;
        if join == Join::Sum {
            self.three(XOR, one, one, Operand::Register(one));
            others = one;
        }
        self.a.vector(BLEND_LANES, one, others, Operand::Register(x), Lanes::All, Some(1));
        self.join(join, to, one, Lanes::All)?;
        self.give(one);
        Ok(())
    }
}
