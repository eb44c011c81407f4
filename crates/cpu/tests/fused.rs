//! What becomes machine code where the processor allows: each kind of operation, more values than registers, rows of every
//! remainder, special values. Every case also runs with the other instruction sets, which do without.

mod support;

use permalloy_cpu::{compile_kernel, isa::IsaLevel};
use permalloy_ir::{DType, Dim, PrimOp, PrimOp::*};
use permalloy_loops::kernel::*;
use support::build::{self, Case};

fn rows_cols(rows: i64, cols: i64) -> Case {
    Case::new(&[(rows, AxisRole::Row), (cols, AxisRole::Col)])
}

/// Every f32 operation with an instruction, over infinities, NaN, zeros and denormals.
#[test]
fn operations_on_special_values() {
    let unary = [Neg, Abs, Sqrt, Rsqrt, Reciprocal, Exp, Floor, Ceil, Round, Trunc];
    let binary = [Add, Sub, Mul, Div, Max, Min];
    for cols in [1, 15, 16, 17, 63, 64, 65, 200] {
        let mut b = rows_cols(9, cols);
        b.special = true;
        let (x, y) = (b.load(DType::F32, &[0, 1]), b.load(DType::F32, &[0, 1]));
        for op in unary {
            let once = b.un(op, x);
            let twice = b.un(Neg, once);
            b.store(twice, &[0, 1]);
        }
        for op in binary {
            let once = b.bin(op, x, y);
            let twice = b.un(Abs, once);
            b.store(twice, &[0, 1]);
        }
        b.check(1);
    }
}

/// Comparisons make masks, masks are stored as bytes, loaded, combined and chosen by.
#[test]
fn masks() {
    for cols in [3, 16, 33, 130] {
        let mut b = rows_cols(7, cols);
        b.special = true;
        let (x, y) = (b.load(DType::F32, &[0, 1]), b.load(DType::F32, &[1]));
        let (stored, per_row) = (b.load(DType::Bool, &[0, 1]), b.load(DType::Bool, &[0]));
        for op in [Eq, Ne, Lt, Le, Gt, Ge] {
            let c = b.op(OpKind::Binary(op, x, y), DType::Bool);
            let c = b.bin(And, c, stored);
            let c = b.bin(Xor, c, per_row);
            let c = b.un(Not, c);
            b.store(c, &[0, 1]);
            let chosen = b.op(OpKind::Where(c, x, y), DType::F32);
            let counted = b.cast(c, DType::F32);
            let sum = b.bin(Add, chosen, counted);
            b.store(sum, &[0, 1]);
        }
        for op in [IsNan, IsInf] {
            let c = b.op(OpKind::Unary(op, x), DType::Bool);
            let c = b.bin(Or, c, stored);
            b.store(c, &[0, 1]);
        }
        b.check(2);
    }
}

/// The gradient of a cross-entropy: positions compared with one index a row.
#[test]
fn positions() {
    for (rows, cols) in [(5, 7), (6, 100), (3, 9000)] {
        let mut b = rows_cols(rows, cols);
        let x = b.load(DType::F32, &[0, 1]);
        let target = b.load(DType::I64, &[0]);
        b.below[1] = Some(cols);
        let access = Access { offset: Dim::from(2), strides: vec![Dim::ZERO, Dim::ONE], masks: vec![] };
        let position = b.op(OpKind::AxisIndex { access }, DType::I64);
        let slanted = Access { offset: Dim::ZERO, strides: vec![Dim::from(-1), Dim::ONE], masks: vec![] };
        let diagonal = b.op(OpKind::AxisIndex { access: slanted }, DType::I64);
        let hit = b.op(OpKind::Binary(Eq, position, target), DType::Bool);
        let below = b.op(OpKind::Binary(Le, diagonal, target), DType::Bool);
        let both = b.bin(Or, hit, below);
        let zero = b.constant(0.0, DType::F32);
        let kept = b.op(OpKind::Where(both, x, zero), DType::F32);
        let total = b.reduce(Sum, Over::Cols, kept);
        let y = b.bin(Sub, kept, total);
        b.store(y, &[0, 1]);
        b.check(3);
    }
}

/// More values alive than there are registers, more operands than pointers fit.
#[test]
fn many_values() {
    for count in [12, 33, 70] {
        let mut b = rows_cols(5, 150);
        let loads: Vec<OpId> = (0..count).map(|_| b.load(DType::F32, &[0, 1])).collect();
        let scalars: Vec<OpId> = (0..count / 3).map(|_| b.load(DType::F32, &[0])).collect();
        let values: Vec<OpId> = loads.iter().map(|x| b.bin(Mul, *x, *x)).collect();
        let mut sum = values[0];
        for (x, y) in values.iter().rev().zip(loads.iter().cycle()) {
            let difference = b.bin(Sub, *x, *y);
            sum = b.bin(Add, sum, difference);
        }
        for s in scalars {
            sum = b.bin(Max, sum, s);
        }
        let total = b.reduce(Sum, Over::Cols, sum);
        let y = b.bin(Sub, sum, total);
        b.store(y, &[0, 1]);
        b.check(4);
    }
}

fn several_reductions(rows: i64, cols: i64) -> Case {
    let mut b = rows_cols(rows, cols);
    let (x, y) = (b.load(DType::F32, &[0, 1]), b.load(DType::F32, &[1]));
    let xy = b.bin(Mul, x, y);
    let reduced: Vec<OpId> = [(Amax, x), (Amin, xy), (Sum, xy)].map(|(op, v)| b.reduce(op, Over::Cols, v)).into();
    let d = b.bin(Sub, xy, reduced[0]);
    let d = b.bin(Add, d, reduced[1]);
    let d = b.bin(Mul, d, reduced[2]);
    b.store(d, &[0, 1]);
    for (op, v) in [(Sum, d), (Sum, x)] {
        let r = b.reduce(op, Over::Rows, v);
        b.store(r, &[1]);
    }
    b
}

/// Sums, maxima and minima of one row, and sums over rows, in one pass; rows across every stop of the sums.
#[test]
fn several_reductions_at_once() {
    for (rows, cols) in [(1, 1), (40, 17), (3, 2047), (3, 2049), (2, 4100), (100, 64)] {
        several_reductions(rows, cols).check(5);
    }
    let mut b = several_reductions(20, 40);
    b.special = true;
    b.check(6);
}

/// Phases of a row follow each other in one function: with row-level arithmetic between reductions, values kept from phase to
/// phase, some of them stored too, and row-level results that are stored although no later phase reads them.
#[test]
fn phases_of_a_row() {
    let sizes = [(1, 25), (5, 24), (19, 100), (40, 1024), (33, 1027), (3, 4099), (700, 64)];
    for (x_type, (rows, cols)) in [DType::F32, DType::BF16].into_iter().flat_map(|t| sizes.map(|s| (t, s))) {
        for stored in [false, true] {
            let mut b = rows_cols(rows, cols);
            let x = b.load(x_type, &[0, 1]);
            let x = b.cast(x, DType::F32);
            let (weight, shift) = (b.load(DType::F32, &[1]), b.load(DType::F32, &[0]));
            let n = b.constant(cols as f64, DType::F32);
            let total = b.reduce(Sum, Over::Cols, x);
            let mean = b.bin(Div, total, n);
            b.store(mean, &[0]);
            let d = b.bin(Sub, x, mean);
            let square = b.bin(Mul, d, d);
            let squares = b.reduce(Sum, Over::Cols, square);
            let variance = b.bin(Div, squares, n);
            let one = b.constant(1.0, DType::F32);
            let more = b.bin(Add, variance, one);
            let scale = b.un(Rsqrt, more);
            b.store(scale, &[0]);
            let half = b.bin(Mul, d, scale);
            let kept = b.un(Exp, half);
            if stored {
                b.store_as(kept, x_type, &[0, 1]);
            }
            let top = b.reduce(Amax, Over::Cols, kept);
            let shifted = b.bin(Add, top, shift);
            let logarithm = b.un(Log, squares);
            b.store(logarithm, &[0]);
            let y = b.bin(Div, kept, shifted);
            let y = b.bin(Mul, y, weight);
            b.store_as(y, x_type, &[0, 1]);
            let columns = b.reduce(Sum, Over::Rows, y);
            b.store(columns, &[1]);
            b.check(8);
            // The others have too short or too long rows.
            if (64..2000).contains(&cols) {
                for level in build::levels().into_iter().filter(|l| *l != IsaLevel::Portable) {
                    let compiled = compile_kernel(&b.kernel, &b.buffers, &b.symbols, level).unwrap();
                    assert_eq!(compiled.passes(), 1, "{level:?}, {rows} x {cols}:\n{}", b.kernel);
                }
            }
        }
    }
}

/// Results larger than the caches are written past them where rows are aligned, and as usual where they are not.
#[test]
fn large_results() {
    for cols in [1024, 1023] {
        let mut b = rows_cols(2100, cols);
        let (x, y) = (b.load(DType::F32, &[0, 1]), b.load(DType::F32, &[1]));
        let d = b.bin(PrimOp::Sub, x, y);
        let d = b.bin(Mul, d, d);
        b.store(d, &[0, 1]);
        b.check(7);
    }
}
