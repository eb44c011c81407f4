//! Instructions for the operations of a program over lanes.

use super::assembler::*;
use super::emit::{AT_R8, Emitter, Full, Home, INFINITY};
use super::lanes::{Lane, Op, Type, Value};
use crate::math::f32::{LN2_HIGH, LN2_LOW};
use permalloy_ir::PrimOp;

const ONE: u64 = 0x3f80_0000;
const SIGN: u64 = 0x8000_0000;
const MAGNITUDE: u64 = 0x7fff_ffff;

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
                let k = self.take_mask()?;
                self.a.vector(BROADCAST_BYTE, r, 0, at, Lanes::All, None);
                self.a.vector(TEST_BYTES, k, r, Operand::Register(r), Lanes::All, None);
                self.give(r);
                Ok(Home::Mask(k))
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

    pub(super) fn mask(&mut self, v: Value) -> Result<u8, Full> {
        match self.homes[v] {
            Home::Mask(k) => Ok(k),
            _ => Err(Full),
        }
    }

    /// The two halves of an i64 value as last operands.
    pub(super) fn halves(&mut self, v: Value) -> Result<[Operand; 2], Full> {
        match (self.homes[v], self.lanes[v].op) {
            (Home::Pair(low, high), _) => Ok([Operand::Register(low), Operand::Register(high)]),
            (Home::Nowhere, Op::Constant(bits)) => Ok([self.pool(bits); 2]),
            _ => Err(Full),
        }
    }

    pub(super) fn make(&mut self, at: usize) -> Result<Home, Full> {
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
            Op::Save(..) | Op::Stream(..) | Op::Fold(..) | Op::AddInto(..) | Op::Prefetch { .. } => Ok(Home::Nowhere),
        }
    }

    pub(super) fn save(&mut self, p: usize, x: Value) -> Result<(), Full> {
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
