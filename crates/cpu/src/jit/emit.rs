//! From a straight-line program over sixteen lanes to a loop of machine code.
//!
//! The function takes an array of arguments (pointers to vectors and to single values) and a number of lanes. It runs the
//! program over all of them, sixteen at a time, two or four times in a row where registers allow; the last lanes are masked
//! off. Values live in registers throughout; a program that needs more than there are is refused, and the caller cuts it.

use super::assembler::*;
use crate::fold::Join;
use crate::math::f32::{LN2_HIGH, LN2_LOW};
use permalloy_ir::PrimOp;

/// A value of the program, by its place.
pub(super) type Value = usize;

/// What the lanes of a value are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Type {
    F32,
    /// bool: a mask register here, a byte in memory.
    Mask,
    I64,
}

/// An operation on all lanes. Numbers are those of arguments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Op {
    /// A vector of f32 or bool in memory.
    Vector(usize),
    /// One value in memory for all lanes.
    Scalar(usize),
    /// Bits of a constant.
    Constant(u64),
    /// The argument itself plus the number of the lane.
    Iota(usize),
    Unary(PrimOp, Value),
    Binary(PrimOp, Value, Value),
    /// Condition, value where it holds, value elsewhere; f32.
    Select(Value, Value, Value),
    /// bool to f32.
    Widen(Value),
    /// Writes a vector of f32 or bool.
    Save(usize, Value),
    /// Joins into sixteen lanes, which go to the argument at the end.
    Fold(Join, usize, Value),
    /// Adds to a vector of f32.
    AddInto(usize, Value),
    /// A vector that will be read or written soon, with the size of its elements in bytes.
    Prefetch { argument: usize, write: bool, size: u8 },
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Lane {
    pub op: Op,
    pub ty: Type,
}

impl Op {
    fn operands(self) -> [Option<Value>; 3] {
        match self {
            Op::Vector(_) | Op::Scalar(_) | Op::Constant(_) | Op::Iota(_) | Op::Prefetch { .. } => [None; 3],
            Op::Unary(_, x) | Op::Widen(x) | Op::Save(_, x) | Op::Fold(_, _, x) | Op::AddInto(_, x) => {
                [Some(x), None, None]
            }
            Op::Binary(_, a, b) => [Some(a), Some(b), None],
            Op::Select(c, a, b) => [Some(c), Some(a), Some(b)],
        }
    }
}

/// There is an instruction sequence for the operation on operands of the type.
pub(super) fn has_unary(op: PrimOp, ty: Type) -> bool {
    use PrimOp::*;
    match ty {
        Type::F32 => matches!(
            op,
            Neg | Abs | Sqrt | Rsqrt | Reciprocal | Exp | Floor | Ceil | Round | Trunc | IsNan | IsInf
        ),
        Type::Mask => op == Not,
        Type::I64 => false,
    }
}

/// The same for two operands.
pub(super) fn has_binary(op: PrimOp, ty: Type) -> bool {
    use PrimOp::*;
    let compare = matches!(op, Eq | Ne | Lt | Le | Gt | Ge);
    match ty {
        Type::F32 => compare || matches!(op, Add | Sub | Mul | Div | Max | Min),
        Type::Mask => matches!(op, And | Or | Xor | Add | Mul | Max | Min | Eq | Ne),
        Type::I64 => compare || matches!(op, Add | Sub),
    }
}

/// Where a value is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Home {
    Nowhere,
    Vector(u8),
    Mask(u8),
    /// Low and high eight lanes.
    Pair(u8, u8),
}

/// More values are alive than there are registers.
#[derive(Debug)]
struct Full;

/// Registers for pointers; others are loaded when they are needed.
const POINTERS: [u8; 10] = [9, 10, 11, 2, 3, 5, 12, 13, 14, 15];
/// Those of them that belong to the caller.
const KEPT: [u8; 6] = [3, 5, 12, 13, 14, 15];
const TAIL: u8 = 1;
/// Bytes of a line of the caches.
const LINE: i32 = 64;
/// Most values that are loaded once for the whole row.
const MOST_HELD: usize = 8;

const ONE: u64 = 0x3f80_0000;
const SIGN: u64 = 0x8000_0000;
const MAGNITUDE: u64 = 0x7fff_ffff;
const INFINITY: u64 = 0x7f80_0000;

fn bits(x: f32) -> u64 {
    u64::from(x.to_bits())
}

/// Machine code for the program, or None if it needs too many registers. `arguments`: how many there are.
pub(super) fn emit(lanes: &[Lane], arguments: usize) -> Option<Vec<u8>> {
    let folds = lanes.iter().any(|l| matches!(l.op, Op::Fold(..)));
    let unrolls: &[usize] = if folds || lanes.len() < 12 { &[4, 2, 1] } else { &[2, 1] };
    for hold in [true, false] {
        for unroll in unrolls {
            if let Ok(a) = Emitter::new(lanes, arguments, *unroll, hold).and_then(Emitter::function) {
                return a.finish();
            }
        }
    }
    None
}

struct Emitter<'a> {
    a: Assembler,
    lanes: &'a [Lane],
    /// Last operation that reads each value.
    last: Vec<usize>,
    /// Values that are the same for the whole row and held in registers.
    held: Vec<Value>,
    homes: Vec<Home>,
    /// Accumulators of folds, in order of the folds; one for each copy of the body.
    accumulators: Vec<Vec<u8>>,
    pointers: Vec<Option<u8>>,
    free: u32,
    free_masks: u8,
    unroll: usize,
    /// Which copy is being written; `None` in the masked one.
    copy: Option<usize>,
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
            if let Op::Vector(p) | Op::Save(p, _) | Op::AddInto(p, _) | Op::Iota(p) | Op::Prefetch { argument: p, .. } = l.op
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

    fn take(&mut self) -> Result<u8, Full> {
        let r = self.free.trailing_zeros();
        if r == 32 {
            return Err(Full);
        }
        self.free &= !(1 << r);
        Ok(r as u8)
    }

    fn give(&mut self, r: u8) {
        self.free |= 1 << r;
    }

    fn take_mask(&mut self) -> Result<u8, Full> {
        let k = self.free_masks.trailing_zeros();
        if k >= 8 {
            return Err(Full);
        }
        self.free_masks &= !(1 << k);
        Ok(k as u8)
    }

    fn give_mask(&mut self, k: u8) {
        self.free_masks |= 1 << k;
    }

    fn function(mut self) -> Result<Assembler, Full> {
        let used: Vec<u8> = KEPT.into_iter().filter(|r| self.pointers.contains(&Some(*r))).collect();
        used.iter().for_each(|r| self.a.push(*r));
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
        for (k, (join, _)) in folds.iter().enumerate() {
            for r in self.accumulators[k].clone() {
                match join {
                    Join::Max => self.constant_into(r, bits(f32::NEG_INFINITY)),
                    Join::Min => self.constant_into(r, INFINITY),
                    _ => self.a.vector(XOR, r, r, Operand::Register(r), Lanes::All, None),
                }
            }
        }

        let granule = 16 * self.unroll as i32;
        let (body, tail, end) = (self.a.label(), self.a.label(), self.a.label());
        self.a.zero_rax();
        self.a.whole_part(granule);
        self.a.test_rcx();
        self.a.jump_if(When::Equal, tail);
        self.a.bind(body);
        for copy in 0..self.unroll {
            self.copy = Some(copy);
            self.body()?;
        }
        self.a.add_rax(granule);
        self.a.compare_rax(RCX);
        self.a.jump_if(When::Below, body);
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
            let registers = self.accumulators[k].clone();
            for r in &registers[1..] {
                self.join(join, registers[0], *r, Lanes::All)?;
            }
            self.a.argument(R8, p);
            let lanes = Operand::Memory { base: R8, scale: 0, displacement: 0 };
            self.a.vector(STORE, registers[0], 0, lanes, Lanes::All, None);
        }
        used.iter().rev().for_each(|r| self.a.pop(*r));
        self.a.ret();
        Ok(self.a)
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
                Op::Save(p, x) => self.save(p, x)?,
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
    fn lanes(&self) -> Lanes {
        if self.copy.is_none() { Lanes::Zeroed(TAIL) } else { Lanes::All }
    }

    /// Lanes of a store.
    fn written(&self) -> Lanes {
        if self.copy.is_none() { Lanes::Merged(TAIL) } else { Lanes::All }
    }

    /// The register of an argument.
    fn base(&mut self, p: usize) -> u8 {
        self.pointers[p].unwrap_or_else(|| {
            self.a.argument(R8, p);
            R8
        })
    }

    fn memory(&mut self, p: usize, size: u8) -> Operand {
        let base = self.base(p);
        Operand::Memory { base, scale: size, displacement: self.copy.unwrap_or(0) as i32 * 16 * i32::from(size) }
    }

    /// `dst = op(a, b)` on all lanes.
    fn three(&mut self, op: Opcode, dst: u8, a: u8, b: Operand) {
        self.a.vector(op, dst, a, b, Lanes::All, None);
    }

    fn pool(&mut self, bits: u64) -> Operand {
        Operand::Constant(self.a.constant(bits))
    }

    fn constant_into(&mut self, r: u8, bits: u64) {
        let at = self.a.constant(bits);
        self.a.vector(BROADCAST, r, 0, Operand::Constants(at), Lanes::All, None);
    }

    /// `to = join(to, x)`; NaN wins in maxima and minima.
    fn join(&mut self, join: Join, to: u8, x: u8, lanes: Lanes) -> Result<(), Full> {
        let op = match join {
            Join::Max => MAX,
            Join::Min => MIN,
            _ => return Ok(self.a.vector(ADD, to, to, Operand::Register(x), lanes, None)),
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

    fn scalar(&mut self, v: Value) -> Result<Home, Full> {
        let Op::Scalar(p) = self.lanes[v].op else { return Ok(Home::Nowhere) };
        self.a.argument(R8, p);
        let at = Operand::Memory { base: R8, scale: 0, displacement: 0 };
        let r = self.take()?;
        match self.lanes[v].ty {
            Type::F32 => {
                self.a.vector(BROADCAST, r, 0, at, Lanes::All, None);
                Ok(Home::Vector(r))
            }
            Type::I64 => {
                self.a.vector(BROADCAST_I64, r, 0, at, Lanes::All, None);
                Ok(Home::Pair(r, r))
            }
            Type::Mask => {
                let k = self.take_mask()?;
                self.a.vector(BROADCAST_BYTE, r, 0, at, Lanes::All, None);
                self.a.vector(TEST_BYTES, k, r, Operand::Register(r), Lanes::All, None);
                self.give(r);
                Ok(Home::Mask(k))
            }
        }
    }

    /// The register of an f32 value; constants get one for a while.
    fn vector(&mut self, v: Value) -> Result<u8, Full> {
        match (self.homes[v], self.lanes[v].op) {
            (Home::Vector(r), _) => Ok(r),
            (Home::Nowhere, Op::Constant(bits)) => {
                let r = self.take()?;
                self.constant_into(r, bits);
                self.homes[v] = Home::Vector(r);
                Ok(r)
            }
            _ => Err(Full),
        }
    }

    /// An f32 value as the last operand.
    fn operand(&mut self, v: Value) -> Result<Operand, Full> {
        match (self.homes[v], self.lanes[v].op) {
            (Home::Nowhere, Op::Constant(bits)) => Ok(self.pool(bits)),
            _ => self.vector(v).map(Operand::Register),
        }
    }

    fn mask(&mut self, v: Value) -> Result<u8, Full> {
        match self.homes[v] {
            Home::Mask(k) => Ok(k),
            _ => Err(Full),
        }
    }

    /// The two halves of an i64 value as last operands.
    fn halves(&mut self, v: Value) -> Result<[Operand; 2], Full> {
        match (self.homes[v], self.lanes[v].op) {
            (Home::Pair(low, high), _) => Ok([Operand::Register(low), Operand::Register(high)]),
            (Home::Nowhere, Op::Constant(bits)) => Ok([self.pool(bits); 2]),
            _ => Err(Full),
        }
    }

    fn make(&mut self, at: usize) -> Result<Home, Full> {
        let Lane { op, ty } = self.lanes[at];
        match op {
            Op::Constant(bits) if ty == Type::Mask => {
                let k = self.take_mask()?;
                self.a.mask(if bits & 1 == 1 { MaskOp::Xnor } else { MaskOp::Xor }, k, k, k);
                Ok(Home::Mask(k))
            }
            // Made where it is read.
            Op::Constant(_) => Ok(Home::Nowhere),
            Op::Scalar(_) => self.scalar(at),
            Op::Vector(p) if ty == Type::Mask => {
                let (r, k) = (self.take()?, self.take_mask()?);
                let memory = self.memory(p, 1);
                self.a.vector(LOAD_BYTES, r, 0, memory, self.lanes(), None);
                self.a.vector(TEST_BYTES, k, r, Operand::Register(r), Lanes::All, None);
                self.give(r);
                Ok(Home::Mask(k))
            }
            Op::Vector(p) => {
                let r = self.take()?;
                let memory = self.memory(p, 4);
                self.a.vector(LOAD, r, 0, memory, self.lanes(), None);
                Ok(Home::Vector(r))
            }
            Op::Iota(p) => {
                let (low, high) = (self.take()?, self.take()?);
                let base = self.base(p);
                self.a.position(R8, base, self.copy.unwrap_or(0) as i32 * 16);
                self.a.vector(SPREAD_I64, high, 0, Operand::Register(R8), Lanes::All, None);
                let steps = [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]];
                let [first, second] = steps.map(|s| Operand::Constants(self.a.constants(&s)));
                self.three(ADD_I64, low, high, first);
                self.three(ADD_I64, high, high, second);
                Ok(Home::Pair(low, high))
            }
            Op::Widen(x) => {
                let (k, r) = (self.mask(x)?, self.take()?);
                let one = self.a.constant(ONE);
                self.a.vector(BROADCAST, r, 0, Operand::Constants(one), Lanes::Zeroed(k), None);
                Ok(Home::Vector(r))
            }
            Op::Select(c, a, b) => {
                let (k, r) = (self.mask(c)?, self.take()?);
                let b = self.vector(b)?;
                let a = self.operand(a)?;
                self.a.vector(BLEND, r, b, a, Lanes::Merged(k), None);
                Ok(Home::Vector(r))
            }
            Op::Unary(op, x) if ty == Type::Mask => self.test(op, x),
            Op::Unary(op, x) => self.unary(op, x).map(Home::Vector),
            Op::Binary(op, a, b) => match self.lanes[a].ty {
                Type::F32 if ty == Type::Mask => {
                    let (k, x, y) = (self.take_mask()?, self.vector(a)?, self.operand(b)?);
                    let predicate = match op {
                        PrimOp::Eq => 0x00,
                        PrimOp::Ne => 0x04,
                        PrimOp::Lt => 0x11,
                        PrimOp::Le => 0x12,
                        PrimOp::Ge => 0x1d,
                        _ => 0x1e,
                    };
                    self.a.vector(COMPARE, k, x, y, Lanes::All, Some(predicate));
                    Ok(Home::Mask(k))
                }
                Type::F32 => self.arithmetic(op, a, b).map(Home::Vector),
                Type::Mask => {
                    let (k, x, y) = (self.take_mask()?, self.mask(a)?, self.mask(b)?);
                    let op = match op {
                        PrimOp::And | PrimOp::Mul | PrimOp::Min => MaskOp::And,
                        PrimOp::Or | PrimOp::Add | PrimOp::Max => MaskOp::Or,
                        PrimOp::Eq => MaskOp::Xnor,
                        _ => MaskOp::Xor,
                    };
                    self.a.mask(op, k, x, y);
                    Ok(Home::Mask(k))
                }
                Type::I64 => self.integer(op, a, b),
            },
            Op::Save(..) | Op::Fold(..) | Op::AddInto(..) | Op::Prefetch { .. } => Ok(Home::Nowhere),
        }
    }

    fn save(&mut self, p: usize, x: Value) -> Result<(), Full> {
        if self.lanes[x].ty != Type::Mask {
            let x = self.vector(x)?;
            let memory = self.memory(p, 4);
            self.a.vector(STORE, x, 0, memory, self.written(), None);
            return Ok(());
        }
        let (k, r) = (self.mask(x)?, self.take()?);
        self.a.vector(MASK_TO_BYTES, r, 0, Operand::Register(k), Lanes::All, None);
        self.a.vector(ABS_BYTES, r, 0, Operand::Register(r), Lanes::All, None);
        let memory = self.memory(p, 1);
        self.a.vector(STORE_BYTES, r, 0, memory, self.written(), None);
        self.give(r);
        Ok(())
    }

    /// A test of one operand.
    fn test(&mut self, op: PrimOp, x: Value) -> Result<Home, Full> {
        let k = self.take_mask()?;
        match op {
            PrimOp::Not => {
                let x = self.mask(x)?;
                self.a.mask_not(k, x);
            }
            PrimOp::IsNan => {
                let x = self.vector(x)?;
                self.a.vector(COMPARE, k, x, Operand::Register(x), Lanes::All, Some(3));
            }
            _ => {
                let (x, r) = (self.vector(x)?, self.take()?);
                let (magnitude, infinity) = (self.pool(MAGNITUDE), self.pool(INFINITY));
                self.three(AND, r, x, magnitude);
                self.a.vector(COMPARE, k, r, infinity, Lanes::All, Some(0));
                self.give(r);
            }
        }
        Ok(Home::Mask(k))
    }

    fn unary(&mut self, op: PrimOp, x: Value) -> Result<u8, Full> {
        let (x, r) = (self.vector(x)?, self.take()?);
        let from = Operand::Register(x);
        match op {
            PrimOp::Neg => {
                let sign = self.pool(SIGN);
                self.three(XOR, r, x, sign);
            }
            PrimOp::Abs => {
                let magnitude = self.pool(MAGNITUDE);
                self.three(AND, r, x, magnitude);
            }
            PrimOp::Sqrt => self.a.vector(SQRT, r, 0, from, Lanes::All, None),
            PrimOp::Rsqrt | PrimOp::Reciprocal => {
                let one = self.take()?;
                self.constant_into(one, ONE);
                match op {
                    PrimOp::Rsqrt => {
                        self.a.vector(SQRT, r, 0, from, Lanes::All, None);
                        self.three(DIV, r, one, Operand::Register(r));
                    }
                    _ => self.three(DIV, r, one, from),
                }
                self.give(one);
            }
            PrimOp::Exp => self.exp(r, x)?,
            // Nearest even, down, up, towards zero; without raising inexactness.
            PrimOp::Round => self.a.vector(ROUND, r, 0, from, Lanes::All, Some(8)),
            PrimOp::Floor => self.a.vector(ROUND, r, 0, from, Lanes::All, Some(9)),
            PrimOp::Ceil => self.a.vector(ROUND, r, 0, from, Lanes::All, Some(10)),
            _ => self.a.vector(ROUND, r, 0, from, Lanes::All, Some(11)),
        }
        Ok(r)
    }

    /// `e^x` as `math::f32::exp` computes it, but for the last step, which is one instruction.
    fn exp(&mut self, r: u8, x: u8) -> Result<(), Full> {
        const SHIFT: f32 = 12_582_912.0;
        let (t, n, u) = (self.take()?, self.take()?, self.take()?);
        // Clamped; the second operand if either is NaN.
        self.constant_into(t, bits(89.0));
        self.three(MIN, t, t, Operand::Register(x));
        self.constant_into(u, bits(-104.0));
        self.three(MAX, t, u, Operand::Register(t));
        self.constant_into(n, bits(SHIFT));
        let constants = [std::f32::consts::LOG2_E, SHIFT, LN2_HIGH, LN2_LOW].map(|c| self.pool(bits(c)));
        self.three(FMA_231, n, t, constants[0]);
        self.three(SUB, n, n, constants[1]);
        self.three(FNMA_231, t, n, constants[2]);
        self.three(FNMA_231, t, n, constants[3]);
        self.constant_into(r, bits(0.001_383_628));
        for c in [0.008_369_126, 0.041_668_106, 0.166_665_17, 0.499_999_94] {
            let c = self.pool(bits(c));
            self.three(FMA_213, r, t, c);
        }
        self.three(MUL, u, t, Operand::Register(t));
        self.three(FMA_213, r, u, Operand::Register(t));
        let one = self.pool(ONE);
        self.three(ADD, r, r, one);
        self.three(SCALE, r, r, Operand::Register(n));
        [t, n, u].into_iter().for_each(|r| self.give(r));
        Ok(())
    }

    fn arithmetic(&mut self, op: PrimOp, a: Value, b: Value) -> Result<u8, Full> {
        let constant = |e: &Self, v: Value| e.homes[v] == Home::Nowhere;
        let swap = constant(self, a) && !constant(self, b) && matches!(op, PrimOp::Add | PrimOp::Mul);
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let opcode = match op {
            PrimOp::Add => ADD,
            PrimOp::Sub => SUB,
            PrimOp::Mul => MUL,
            PrimOp::Div => DIV,
            PrimOp::Max => MAX,
            _ => MIN,
        };
        let (x, y) = (self.vector(a)?, self.operand(b)?);
        let r = self.take()?;
        if !matches!(op, PrimOp::Max | PrimOp::Min) {
            self.three(opcode, r, x, y);
            return Ok(r);
        }
        // The second operand if either is NaN, so a NaN of the first one has to be put in.
        let nan = self.take_mask()?;
        self.a.vector(COMPARE, nan, x, Operand::Register(x), Lanes::All, Some(3));
        self.three(opcode, r, x, y);
        self.a.vector(MOVE, r, 0, Operand::Register(x), Lanes::Merged(nan), None);
        self.give_mask(nan);
        Ok(r)
    }

    fn integer(&mut self, op: PrimOp, a: Value, b: Value) -> Result<Home, Full> {
        // The first operand must be in registers.
        let mut owned = Vec::new();
        let mut first = [0; 2];
        for (half, x) in self.halves(a)?.into_iter().enumerate() {
            first[half] = match x {
                Operand::Register(r) => r,
                other => {
                    let r = self.take()?;
                    owned.push(r);
                    let at = if let Operand::Constant(at) = other { at } else { 0 };
                    self.a.vector(BROADCAST_I64, r, 0, Operand::Constants(at), Lanes::All, None);
                    r
                }
            };
        }
        let second = self.halves(b)?;
        let home = if let PrimOp::Add | PrimOp::Sub = op {
            let opcode = if op == PrimOp::Add { ADD_I64 } else { SUB_I64 };
            let (low, high) = (self.take()?, self.take()?);
            self.three(opcode, low, first[0], second[0]);
            self.three(opcode, high, first[1], second[1]);
            Home::Pair(low, high)
        } else {
            let predicate = match op {
                PrimOp::Eq => 0,
                PrimOp::Lt => 1,
                PrimOp::Le => 2,
                PrimOp::Ne => 4,
                PrimOp::Ge => 5,
                _ => 6,
            };
            let (low, high) = (self.take_mask()?, self.take_mask()?);
            self.a.vector(COMPARE_I64, low, first[0], second[0], Lanes::All, Some(predicate));
            self.a.vector(COMPARE_I64, high, first[1], second[1], Lanes::All, Some(predicate));
            self.a.mask_join(low, high, low);
            self.give_mask(high);
            Home::Mask(low)
        };
        owned.into_iter().for_each(|r| self.give(r));
        Ok(home)
    }
}
