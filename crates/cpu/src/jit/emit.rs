//! From a straight-line program over sixteen lanes to a loop of machine code.
//!
//! The function takes an array and a number of lanes. The array holds the arguments (pointers to vectors and to single
//! values), by how many bytes each moves from row to row, and the number of rows, which is at least one. For each row it runs
//! the program over all lanes, sixteen at a time, two or four times in a row where registers allow; the last lanes are masked
//! off. Values live in registers throughout; a program that needs more than there are is refused, and the caller cuts it.

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
const TAIL: u8 = 1;
/// Bytes of a line of the caches.
const LINE: i32 = 64;
/// Columns after which sums start anew, so that rounding errors do not pile up.
const STOP: i32 = 2048;
/// Most values that are loaded once for the whole row.
const MOST_HELD: usize = 8;

/// Where register 8 points.
pub(super) const AT_R8: Operand = Operand::Memory { base: R8, scale: 0, displacement: 0 };

pub(super) const INFINITY: u64 = 0x7f80_0000;

/// Machine code for the program, or None if it needs too many registers. `arguments`: how many there are. `streaming`: what
/// is written by [`Op::Stream`] goes past the caches, and must be aligned to 64 bytes in each row.
pub(super) fn emit(lanes: &[Lane], arguments: usize, streaming: bool) -> Option<Vec<u8>> {
    let folds = lanes.iter().any(|l| matches!(l.op, Op::Fold(..)));
    let unrolls: &[usize] = if folds || lanes.len() < 12 { &[4, 2, 1] } else { &[2, 1] };
    for hold in [true, false] {
        for unroll in unrolls {
            let emitter = Emitter::new(lanes, arguments, *unroll, hold).map(|e| Emitter { streaming, ..e });
            if let Ok(a) = emitter.and_then(Emitter::function) {
                return a.finish();
            }
        }
    }
    None
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
    free_masks: u8,
    unroll: usize,
    streaming: bool,
    /// Which copy is being written; `None` in the masked one.
    pub(super) copy: Option<usize>,
}

impl<'a> Emitter<'a> {
    fn new(lanes: &'a [Lane], arguments: usize, unroll: usize, hold: bool) -> Result<Emitter<'a>, Full> {
        let mut last = vec![0; lanes.len()];
        for (i, l) in lanes.iter().enumerate() {
            l.op.operands().into_iter().flatten().for_each(|o| last[o] = i);
        }
        let scalars = (0..lanes.len()).filter(|v| matches!(lanes[*v].op, Op::Scalar(_)) && lanes[*v].ty != Type::Mask);
        let held: Vec<Value> = scalars.take(if hold { MOST_HELD } else { 0 }).collect();
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
        let mut pointers = vec![None; arguments];
        for (p, r) in walked.into_iter().zip(POINTERS) {
            pointers[p] = Some(r);
        }
        let mut e = Emitter {
            a: Assembler::default(),
            lanes,
            last,
            held,
            homes: vec![Home::Nowhere; lanes.len()],
            accumulators: Vec::new(),
            pointers,
            free: u32::MAX,
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

    pub(super) fn take_mask(&mut self) -> Result<u8, Full> {
        let k = self.free_masks.trailing_zeros();
        if k >= 8 {
            return Err(Full);
        }
        self.free_masks &= !(1 << k);
        Ok(k as u8)
    }

    pub(super) fn give_mask(&mut self, k: u8) {
        self.free_masks |= 1 << k;
    }

    fn function(mut self) -> Result<Assembler, Full> {
        let used: Vec<u8> = KEPT.into_iter().filter(|r| self.pointers.contains(&Some(*r))).collect();
        used.iter().for_each(|r| self.a.push(*r));
        let row = self.a.label();
        self.a.bind(row);
        for p in 0..self.pointers.len() {
            if let Some(r) = self.pointers[p] {
                self.a.argument(r, p);
            }
        }
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

        let granule = 16 * self.unroll as i32;
        let [outer, body, tail, end] = std::array::from_fn(|_| self.a.label());
        self.a.zero_rax();
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
        self.a.compare_rax(RSI);
        self.a.jump_if(When::AboveOrEqual, end);
        self.a.tail_mask();
        self.copy = None;
        self.body()?;
        self.a.add_rax(16);
        self.a.jump(tail);
        self.a.bind(end);

        for (k, (join, p)) in folds.into_iter().enumerate() {
            self.leave(k, join, p, true)?;
        }
        let arguments = self.pointers.len();
        for p in 0..arguments {
            self.a.argument(R8, arguments + p);
            self.a.add_to_argument(p);
        }
        self.a.count_argument(2 * arguments);
        self.a.jump_if(When::NotEqual, row);
        used.iter().rev().for_each(|r| self.a.pop(*r));
        self.a.ret();
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
        for r in &registers[1..] {
            self.join(join, total, *r, Lanes::All)?;
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
        let halves = (SHUFFLE_QUARTERS, total, 0x4e);
        let quarters = (SHUFFLE_QUARTERS, total, 0xb1);
        let pairs = (SHUFFLE_LANES, 0, 0x4e);
        let lanes = (SHUFFLE_LANES, 0, 0xb1);
        if join == Join::Sum {
            let (op, src1, order) = halves;
            self.a.vector(op, other, src1, from, Lanes::All, Some(order));
            self.a.vector(WIDEN_F32, other, 0, Operand::Register(other), Lanes::All, None);
            self.a.vector(WIDEN_F32, total, 0, from, Lanes::All, None);
            self.three(ADD_F64, total, total, Operand::Register(other));
            for (op, src1, order) in [halves, quarters, pairs] {
                self.a.vector(op, other, src1, from, Lanes::All, Some(order));
                self.three(ADD_F64, total, total, Operand::Register(other));
            }
        } else {
            for (op, src1, order) in [halves, quarters, pairs, lanes] {
                self.a.vector(op, other, src1, from, Lanes::All, Some(order));
                self.join(join, total, other, Lanes::All)?;
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
                    let lanes = if self.copy.is_none() { Lanes::Merged(TAIL) } else { Lanes::All };
                    self.join(join, accumulator, x, lanes)?;
                }
                Op::Stream(p, x) if self.streaming && self.copy.is_some() => {
                    let (x, memory) = (self.vector(x)?, self.memory(p, 4));
                    self.a.vector(STORE_STREAMING, x, 0, memory, Lanes::All, None);
                }
                Op::Save(p, x) | Op::Stream(p, x) => self.save(p, x)?,
                // Streaming stores need no lines of the caches.
                Op::Prefetch { write: true, .. } if self.streaming => {}
                Op::Prefetch { argument, write, size } => {
                    let step = 16 * i32::from(size);
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
                    self.a.vector(ADD, sum, x, memory, self.lanes(), None);
                    self.a.vector(STORE, sum, 0, memory, self.written(), None);
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

    /// Lanes of a load.
    pub(super) fn lanes(&self) -> Lanes {
        if self.copy.is_none() { Lanes::Zeroed(TAIL) } else { Lanes::All }
    }

    /// Lanes of a store.
    pub(super) fn written(&self) -> Lanes {
        if self.copy.is_none() { Lanes::Merged(TAIL) } else { Lanes::All }
    }

    /// The register of an argument.
    pub(super) fn base(&mut self, p: usize) -> u8 {
        self.pointers[p].unwrap_or_else(|| {
            self.a.argument(R8, p);
            R8
        })
    }

    pub(super) fn memory(&mut self, p: usize, size: u8) -> Operand {
        let base = self.base(p);
        Operand::Memory { base, scale: size, displacement: self.copy.unwrap_or(0) as i32 * 16 * i32::from(size) }
    }

    /// `dst = op(a, b)` on all lanes.
    pub(super) fn three(&mut self, op: Opcode, dst: u8, a: u8, b: Operand) {
        self.a.vector(op, dst, a, b, Lanes::All, None);
    }

    pub(super) fn pool(&mut self, bits: u64) -> Operand {
        Operand::Constant(self.a.constant(bits))
    }

    pub(super) fn constant_into(&mut self, r: u8, bits: u64) {
        let at = self.a.constant(bits);
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
        let nan = self.take_mask()?;
        let tested = match lanes {
            Lanes::All => Lanes::All,
            Lanes::Zeroed(k) | Lanes::Merged(k) => Lanes::Merged(k),
        };
        self.a.vector(COMPARE, nan, x, Operand::Register(x), tested, Some(3));
        self.a.vector(op, to, x, Operand::Register(to), lanes, None);
        self.a.vector(MOVE, to, 0, Operand::Register(x), Lanes::Merged(nan), None);
        self.give_mask(nan);
        Ok(())
    }
}
