//! Instructions on masks: in registers of their own with AVX-512, vectors of all ones and zeros with AVX2.

use super::assembler::*;
use super::emit::{Emitter, Full, Home, INFINITY, TAIL};
use super::lanes::Value;
use super::operations::{MAGNITUDE, ONE};
use permalloy_ir::PrimOp;

impl Emitter<'_> {
    pub(super) fn take_mask(&mut self) -> Result<u8, Full> {
        if self.a.width == Width::Half {
            return self.take();
        }
        let k = self.free_masks.trailing_zeros();
        if k >= 8 {
            return Err(Full);
        }
        self.free_masks &= !(1 << k);
        Ok(k as u8)
    }

    pub(super) fn give_mask(&mut self, k: u8) {
        match self.a.width {
            Width::Half => self.give(k),
            Width::Full => self.free_masks |= 1 << k,
        }
    }

    fn mask(&self, v: Value) -> Result<u8, Full> {
        match self.homes[v] {
            Home::Mask(k) => Ok(k),
            _ => Err(Full),
        }
    }

    pub(super) fn constant_mask(&mut self, set: bool) -> Result<u8, Full> {
        let k = self.take_mask()?;
        match self.a.width {
            Width::Full => self.a.mask(if set { MaskOp::Xnor } else { MaskOp::Xor }, k, k, k),
            Width::Half => {
                self.three(XOR, k, k, Operand::Register(k));
                if set {
                    self.invert(k, k);
                }
            }
        }
        Ok(k)
    }

    /// The one bool in memory, for all lanes.
    pub(super) fn one_mask(&mut self, memory: Operand) -> Result<u8, Full> {
        let (r, k) = (self.take()?, self.take_mask()?);
        self.a.vector(BROADCAST_BYTE, r, 0, memory, Lanes::All, None);
        match self.a.width {
            Width::Full => self.a.vector(TEST_BYTES, k, r, Operand::Register(r), Lanes::All, None),
            Width::Half => {
                self.three(XOR, k, k, Operand::Register(k));
                self.three(EQUAL_BYTES, k, k, Operand::Register(r));
                self.invert(k, k);
            }
        }
        self.give(r);
        Ok(k)
    }

    pub(super) fn load_mask(&mut self, argument: usize) -> Result<u8, Full> {
        let memory = self.memory(argument, 1);
        if self.a.width == Width::Half && self.copy.is_none() {
            return self.one_mask(memory);
        }
        let (r, k) = (self.take()?, self.take_mask()?);
        match self.a.width {
            Width::Full => {
                let lanes = if self.copy.is_none() { Lanes::Zeroed(TAIL) } else { Lanes::All };
                self.a.vector(LOAD_BYTES, r, 0, memory, lanes, None);
                self.a.vector(TEST_BYTES, k, r, Operand::Register(r), Lanes::All, None);
            }
            Width::Half => {
                self.three(XOR, k, k, Operand::Register(k));
                self.a.vector(WIDEN_BYTES, r, 0, memory, Lanes::All, None);
                self.three(GREATER_I32, k, r, Operand::Register(k));
            }
        }
        self.give(r);
        Ok(k)
    }

    pub(super) fn save_mask(&mut self, argument: usize, x: Value) -> Result<(), Full> {
        let (k, r) = (self.mask(x)?, self.take()?);
        let memory = self.memory(argument, 1);
        match (self.a.width, self.copy) {
            (Width::Full, copy) => {
                self.a.vector(MASK_TO_BYTES, r, 0, Operand::Register(k), Lanes::All, None);
                self.a.vector(ABS_BYTES, r, 0, Operand::Register(r), Lanes::All, None);
                let lanes = if copy.is_none() { Lanes::Merged(TAIL) } else { Lanes::All };
                self.a.vector(STORE_BYTES, r, 0, memory, lanes, None);
            }
            (Width::Half, Some(_)) => {
                self.a.vector(SHUFFLE_HALVES, r, k, Operand::Register(k), Lanes::All, Some(1));
                self.three(PACK_I32, r, k, Operand::Register(r));
                self.three(PACK_I16, r, r, Operand::Register(r));
                self.a.vector(ABS_BYTES, r, 0, Operand::Register(r), Lanes::All, None);
                self.a.vector(STORE_EIGHT_BYTES, r, 0, memory, Lanes::All, None);
            }
            (Width::Half, None) => {
                self.a.vector(ABS_BYTES, r, 0, Operand::Register(k), Lanes::All, None);
                self.a.vector(STORE_BYTE, r, 0, memory, Lanes::All, Some(0));
            }
        }
        self.give(r);
        Ok(())
    }

    /// Lanes in which `x` is NaN.
    pub(super) fn nan(&mut self, x: u8, lanes: Lanes) -> Result<u8, Full> {
        let k = self.take_mask()?;
        let tested = match lanes {
            Lanes::All => Lanes::All,
            Lanes::Zeroed(k) | Lanes::Merged(k) => Lanes::Merged(k),
        };
        self.a.vector(COMPARE, k, x, Operand::Register(x), tested, Some(3));
        Ok(k)
    }

    /// `to = x` where the mask is set.
    pub(super) fn put(&mut self, k: u8, to: u8, x: u8) {
        match self.a.width {
            Width::Full => self.a.vector(MOVE, to, 0, Operand::Register(x), Lanes::Merged(k), None),
            Width::Half => self.a.vector(BLEND_VECTOR, to, to, Operand::Register(x), Lanes::All, Some(k << 4)),
        }
    }

    pub(super) fn widen(&mut self, x: Value) -> Result<u8, Full> {
        let (k, r) = (self.mask(x)?, self.take()?);
        let one = self.pool(ONE);
        match (self.a.width, one) {
            (Width::Full, Operand::Constant(at)) => {
                self.a.vector(BROADCAST, r, 0, Operand::Constants(at), Lanes::Zeroed(k), None);
            }
            _ => self.three(AND, r, k, one),
        }
        Ok(r)
    }

    pub(super) fn select(&mut self, condition: Value, yes: Value, no: Value) -> Result<u8, Full> {
        let (k, r) = (self.mask(condition)?, self.take()?);
        let no = self.vector(no)?;
        let yes = self.operand(yes)?;
        match self.a.width {
            Width::Full => self.a.vector(BLEND, r, no, yes, Lanes::Merged(k), None),
            Width::Half => self.a.vector(BLEND_VECTOR, r, no, yes, Lanes::All, Some(k << 4)),
        }
        Ok(r)
    }

    /// A test of one operand.
    pub(super) fn test(&mut self, op: PrimOp, x: Value) -> Result<u8, Full> {
        match op {
            PrimOp::Not => {
                let (x, k) = (self.mask(x)?, self.take_mask()?);
                self.invert(k, x);
                Ok(k)
            }
            PrimOp::IsNan => {
                let x = self.vector(x)?;
                self.nan(x, Lanes::All)
            }
            _ => {
                let (k, x, r) = (self.take_mask()?, self.vector(x)?, self.take()?);
                let (magnitude, infinity) = (self.pool(MAGNITUDE), self.pool(INFINITY));
                self.three(AND, r, x, magnitude);
                self.a.vector(COMPARE, k, r, infinity, Lanes::All, Some(0));
                self.give(r);
                Ok(k)
            }
        }
    }

    pub(super) fn compare(&mut self, op: PrimOp, a: Value, b: Value) -> Result<u8, Full> {
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
        Ok(k)
    }

    /// An operation on two masks.
    pub(super) fn combine(&mut self, op: PrimOp, a: Value, b: Value) -> Result<u8, Full> {
        let (k, x, y) = (self.take_mask()?, self.mask(a)?, self.mask(b)?);
        let (on_masks, on_vectors) = match op {
            PrimOp::And | PrimOp::Mul | PrimOp::Min => (MaskOp::And, AND),
            PrimOp::Or | PrimOp::Add | PrimOp::Max => (MaskOp::Or, OR),
            PrimOp::Eq => (MaskOp::Xnor, XOR),
            _ => (MaskOp::Xor, XOR),
        };
        match self.a.width {
            Width::Full => self.a.mask(on_masks, k, x, y),
            Width::Half => {
                self.three(on_vectors, k, x, Operand::Register(y));
                if op == PrimOp::Eq {
                    self.invert(k, k);
                }
            }
        }
        Ok(k)
    }

    /// Compares i64 values, given by their halves.
    pub(super) fn compare_i64(&mut self, op: PrimOp, a: [u8; 2], b: [u8; 2]) -> Result<u8, Full> {
        let (low, high) = (self.take_mask()?, self.take_mask()?);
        match self.a.width {
            Width::Full => {
                let predicate = match op {
                    PrimOp::Eq => 0,
                    PrimOp::Lt => 1,
                    PrimOp::Le => 2,
                    PrimOp::Ne => 4,
                    PrimOp::Ge => 5,
                    _ => 6,
                };
                for (k, half) in [(low, 0), (high, 1)] {
                    let second = Operand::Register(b[half]);
                    self.a.vector(COMPARE_I64, k, a[half], second, Lanes::All, Some(predicate));
                }
                self.a.mask_join(low, high, low);
            }
            Width::Half => {
                // There are only "equal" and "greater".
                let (opcode, swapped, inverted) = match op {
                    PrimOp::Eq => (EQUAL_I64, false, false),
                    PrimOp::Ne => (EQUAL_I64, false, true),
                    PrimOp::Lt => (GREATER_I64, true, false),
                    PrimOp::Ge => (GREATER_I64, true, true),
                    PrimOp::Le => (GREATER_I64, false, true),
                    _ => (GREATER_I64, false, false),
                };
                let (a, b) = if swapped { (b, a) } else { (a, b) };
                for (k, half) in [(low, 0), (high, 1)] {
                    self.three(opcode, k, a[half], Operand::Register(b[half]));
                }
                self.a.vector(SHUFFLE_PAIRS, low, low, Operand::Register(high), Lanes::All, Some(0x88));
                self.a.vector(ORDER_QUARTERS, low, 0, Operand::Register(low), Lanes::All, Some(0xd8));
                if inverted {
                    self.invert(low, low);
                }
            }
        }
        self.give_mask(high);
        Ok(low)
    }

    fn invert(&mut self, to: u8, from: u8) {
        match self.a.width {
            Width::Full => self.a.mask_not(to, from),
            Width::Half => {
                let ones = self.spread(u64::MAX);
                self.three(XOR, to, from, ones);
            }
        }
    }
}
