//! Straight-line programs over sixteen lanes.

use crate::fold::Join;
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
    /// Writes a vector of f32 that nobody will read soon; in the streaming form of the function past the caches.
    Stream(usize, Value),
    /// Joins into sixteen lanes, which go to the argument at the end.
    Fold(Join, usize, Value),
    /// In the first lane, what a fold of all elements has left in the argument.
    Total(Join, usize),
    /// Adds to a vector of f32.
    AddInto(usize, Value),
    /// A vector that will be read or written soon, with the size of its elements in bytes.
    Prefetch {
        argument: usize,
        write: bool,
        size: u8,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Lane {
    pub op: Op,
    pub ty: Type,
}

impl Op {
    pub(super) fn operands(self) -> [Option<Value>; 3] {
        match self {
            Op::Vector(_) | Op::Scalar(_) | Op::Constant(_) | Op::Iota(_) | Op::Total(..) | Op::Prefetch { .. } => {
                [None; 3]
            }
            Op::Unary(_, x)
            | Op::Widen(x)
            | Op::Save(_, x)
            | Op::Stream(_, x)
            | Op::Fold(_, _, x)
            | Op::AddInto(_, x) => [Some(x), None, None],
            Op::Binary(_, a, b) => [Some(a), Some(b), None],
            Op::Select(c, a, b) => [Some(c), Some(a), Some(b)],
        }
    }

    /// The same with other numbers of arguments.
    pub(super) fn with_arguments(self, of: impl Fn(usize) -> usize) -> Op {
        match self {
            Op::Vector(p) => Op::Vector(of(p)),
            Op::Scalar(p) => Op::Scalar(of(p)),
            Op::Iota(p) => Op::Iota(of(p)),
            Op::Save(p, x) => Op::Save(of(p), x),
            Op::Stream(p, x) => Op::Stream(of(p), x),
            Op::Fold(join, p, x) => Op::Fold(join, of(p), x),
            Op::Total(join, p) => Op::Total(join, of(p)),
            Op::AddInto(p, x) => Op::AddInto(of(p), x),
            Op::Prefetch { argument, write, size } => Op::Prefetch { argument: of(argument), write, size },
            Op::Constant(_) | Op::Unary(..) | Op::Binary(..) | Op::Select(..) | Op::Widen(_) => self,
        }
    }
}

/// There is an instruction sequence for the operation on operands of the type.
pub(super) fn has_unary(op: PrimOp, ty: Type) -> bool {
    use PrimOp::*;
    match ty {
        Type::F32 => {
            matches!(op, Neg | Abs | Sqrt | Rsqrt | Reciprocal | Exp | Floor | Ceil | Round | Trunc | IsNan | IsInf)
        }
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
