//! Instructions for the operations of a program over lanes.

use super::assembler::*;
use super::emit::{AT_R8, Emitter, Full, Home};
use super::lanes::{Lane, Op, Type, Value};
use crate::fold::Join;
use crate::math::f32::{LN2_HIGH, LN2_LOW};
use permalloy_ir::PrimOp;

pub(super) const ONE: u64 = 0x3f80_0000;
const SIGN: u64 = 0x8000_0000;
pub(super) const MAGNITUDE: u64 = 0x7fff_ffff;

pub(super) fn bits(x: f32) -> u64 {
    u64::from(x.to_bits())
}

impl Emitter<'_> {
    pub(super) fn scalar(&mut self, v: Value) -> Result<Home, Full> {
        let Op::Scalar(p) = self.lanes[v].op else { return Ok(Home::Nowhere) };
        self.a.argument(R8, p);
        let (at, r) = (AT_R8, self.take()?);
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
                self.give(r);
                self.one_mask(at).map(Home::Mask)
            }
        }
    }

    /// The register of an f32 value; constants get one for a while.
    pub(super) fn vector(&mut self, v: Value) -> Result<u8, Full> {
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
    pub(super) fn operand(&mut self, v: Value) -> Result<Operand, Full> {
        match (self.homes[v], self.lanes[v].op) {
            (Home::Nowhere, Op::Constant(bits)) => Ok(self.pool(bits)),
            _ => self.vector(v).map(Operand::Register),
        }
    }

    /// The two halves of an i64 value as last operands.
    pub(super) fn halves(&mut self, v: Value) -> Result<[Operand; 2], Full> {
        match (self.homes[v], self.lanes[v].op) {
            (Home::Pair(low, high), _) => Ok([Operand::Register(low), Operand::Register(high)]),
            (Home::Nowhere, Op::Constant(bits)) => Ok([self.spread(bits); 2]),
            _ => Err(Full),
        }
    }

    pub(super) fn make(&mut self, at: usize) -> Result<Home, Full> {
        let Lane { op, ty } = self.lanes[at];
        match op {
            Op::Constant(bits) if ty == Type::Mask => self.constant_mask(bits & 1 == 1).map(Home::Mask),
            // Made where it is read.
            Op::Constant(_) => Ok(Home::Nowhere),
            Op::Scalar(_) => self.scalar(at),
            Op::Vector(p) if ty == Type::Mask => self.load_mask(p).map(Home::Mask),
            Op::Vector(p) => {
                let r = self.take()?;
                let memory = self.memory(p, 4);
                self.load(r, memory);
                Ok(Home::Vector(r))
            }
            Op::Iota(p) => {
                let (low, high) = (self.take()?, self.take()?);
                let base = self.base(p);
                let (first, half) = (self.first_lane(), self.a.width.lanes() as u64 / 2);
                self.a.position(R8, base, first);
                let general = Operand::Register(R8);
                if self.a.width == Width::Full {
                    self.a.vector(SPREAD_I64, high, 0, general, Lanes::All, None);
                } else {
                    self.a.vector(SET_I64, high, 0, general, Lanes::All, None);
                    self.a.vector(BROADCAST_I64, high, 0, Operand::Register(high), Lanes::All, None);
                }
                let steps = [0, half].map(|from| (from..from + half).collect::<Vec<_>>());
                let [first, second] = steps.map(|s| Operand::Constants(self.a.constants(&s)));
                self.three(ADD_I64, low, high, first);
                self.three(ADD_I64, high, high, second);
                Ok(Home::Pair(low, high))
            }
            Op::Total(join, p) => {
                let r = self.take()?;
                self.a.argument(R8, p);
                if join == Join::Sum {
                    self.three(XOR, r, r, Operand::Register(r));
                    self.a.vector(NARROW_ONE_F64, r, r, AT_R8, Lanes::All, None);
                } else {
                    self.load(r, AT_R8);
                }
                Ok(Home::Vector(r))
            }
            Op::Widen(x) => self.widen(x).map(Home::Vector),
            Op::Select(c, a, b) => self.select(c, a, b).map(Home::Vector),
            Op::Unary(op, x) if ty == Type::Mask => self.test(op, x).map(Home::Mask),
            Op::Unary(op, x) => self.unary(op, x).map(Home::Vector),
            Op::Binary(op, a, b) => match self.lanes[a].ty {
                Type::F32 if ty == Type::Mask => self.compare(op, a, b).map(Home::Mask),
                Type::F32 => self.arithmetic(op, a, b).map(Home::Vector),
                Type::Mask => self.combine(op, a, b).map(Home::Mask),
                Type::I64 => self.integer(op, a, b),
            },
            Op::Save(..) | Op::Stream(..) | Op::Fold(..) | Op::AddInto(..) | Op::Prefetch { .. } => Ok(Home::Nowhere),
        }
    }

    pub(super) fn save(&mut self, p: usize, x: Value) -> Result<(), Full> {
        if self.lanes[x].ty != Type::Mask {
            let x = self.vector(x)?;
            let memory = self.memory(p, 4);
            self.store(x, memory);
            return Ok(());
        }
        self.save_mask(p, x)
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

    /// `e^x` as `math::f32::exp` computes it; the last step is one instruction of AVX-512.
    fn exp(&mut self, r: u8, x: u8) -> Result<(), Full> {
        // Adding it rounds to an integer, which stands in the low bits; with 254 more, the sum of two biased exponents.
        let full = self.a.width == Width::Full;
        let shift: f32 = if full { 12_582_912.0 } else { 12_582_912.0 + 254.0 };
        let (t, n, u) = (self.take()?, self.take()?, self.take()?);
        // Clamped; the second operand if either is NaN.
        self.constant_into(t, bits(89.0));
        self.three(MIN, t, t, Operand::Register(x));
        self.constant_into(u, bits(-104.0));
        self.three(MAX, t, u, Operand::Register(t));
        self.constant_into(n, bits(shift));
        let constants = [std::f32::consts::LOG2_E, shift, LN2_HIGH, LN2_LOW].map(|c| self.pool(bits(c)));
        self.three(FMA_231, n, t, constants[0]);
        let shifted = (!full).then(|| self.take()).transpose()?;
        if let Some(shifted) = shifted {
            self.a.vector(MOVE, shifted, 0, Operand::Register(n), Lanes::All, None);
        }
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
        if let Some(shifted) = shifted {
            // Twice by half of the power of two, so that one rounding makes a denormal.
            self.shift(RIGHT, n, shifted, 1);
            self.three(SUB_I32, shifted, shifted, Operand::Register(n));
            for half in [n, shifted] {
                self.shift(LEFT, half, half, 23);
                self.three(MUL, r, r, Operand::Register(half));
            }
            self.give(shifted);
        } else {
            self.three(SCALE, r, r, Operand::Register(n));
        }
        [t, n, u].into_iter().for_each(|r| self.give(r));
        Ok(())
    }

    /// `dst = from` shifted by `n`, as integers; AVX2.
    fn shift(&mut self, direction: u8, dst: u8, from: u8, n: u8) {
        self.a.vector(SHIFT_I32, direction, dst, Operand::Register(from), Lanes::All, Some(n));
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
        let nan = self.nan(x, Lanes::All)?;
        self.three(opcode, r, x, y);
        self.put(nan, r, x);
        self.give_mask(nan);
        Ok(r)
    }

    fn integer(&mut self, op: PrimOp, a: Value, b: Value) -> Result<Home, Full> {
        let mut owned = Vec::new();
        let first = self.registers(a, &mut owned)?;
        let home = if let PrimOp::Add | PrimOp::Sub = op {
            let second = self.halves(b)?;
            let opcode = if op == PrimOp::Add { ADD_I64 } else { SUB_I64 };
            let (low, high) = (self.take()?, self.take()?);
            self.three(opcode, low, first[0], second[0]);
            self.three(opcode, high, first[1], second[1]);
            Home::Pair(low, high)
        } else {
            let second = self.registers(b, &mut owned)?;
            Home::Mask(self.compare_i64(op, first, second)?)
        };
        owned.into_iter().for_each(|r| self.give(r));
        Ok(home)
    }

    /// The halves of an i64 value in registers; new ones are added to `owned`.
    fn registers(&mut self, v: Value, owned: &mut Vec<u8>) -> Result<[u8; 2], Full> {
        let mut halves = [0; 2];
        for (half, x) in self.halves(v)?.into_iter().enumerate() {
            halves[half] = match x {
                Operand::Constant(at) | Operand::Constants(at) => {
                    let r = self.take()?;
                    owned.push(r);
                    self.a.vector(BROADCAST_I64, r, 0, Operand::Constants(at), Lanes::All, None);
                    r
                }
                Operand::Register(r) => r,
                Operand::Memory { .. } => return Err(Full),
            };
        }
        Ok(halves)
    }
}
