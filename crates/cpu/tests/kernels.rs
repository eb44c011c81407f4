//! The kernels of training steps, and the corners of the contract, one by one.

mod support;

use permalloy_cpu::isa::IsaLevel;
use permalloy_cpu::{CompileError, RunError, Serial, compile_kernel};
use permalloy_ir::{DType, Dim, PrimKind, PrimOp};
use permalloy_loops::kernel::*;
use support::build::{Case, Rng, levels};
use support::guard::{Guard, Guarded};
use support::{V, models, read, write};

const FLOATS: [DType; 3] = [DType::F32, DType::BF16, DType::F64];

/// What all the others rely on to see machine code leave a buffer.
#[test]
fn the_byte_beside_a_buffer_is_out_of_reach() {
    for bytes in [1, 64, 4095, 4096, 5000] {
        let (front, back) = (Guarded::new(bytes, 1, Guard::Front), Guarded::new(bytes, 1, Guard::Back));
        for g in [&front, &back] {
            assert_eq!(permissions(g.pointer()), "rw-p");
            assert_eq!(permissions(g.pointer().wrapping_add(bytes - 1)), "rw-p");
        }
        assert_eq!(permissions(front.pointer().wrapping_sub(1)), "---p");
        assert_eq!(permissions(back.pointer().wrapping_add(bytes)), "---p");
    }
}

/// What the system says of the page at an address.
fn permissions(at: *const u8) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let number = |hex: &str| usize::from_str_radix(hex, 16).unwrap();
    let line = maps.lines().find(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        (number(from)..number(to)).contains(&at.addr())
    });
    line.unwrap().split(' ').nth(1).unwrap().into()
}

#[test]
fn pointwise() {
    for d in FLOATS {
        models::gelu(33, 129, d).check(1);
        models::add(5, 4000, d).check(2);
    }
    models::add_transposed(70, 133, DType::F32).check(3);
    models::add_transposed(70, 133, DType::F16).check(3);
}

#[test]
fn softmax() {
    for d in FLOATS {
        for (rows, cols) in [(64, 128), (7, 1024), (3, 5000), (300, 7), (1, 1), (2, 40_000)] {
            models::softmax(rows, cols, d).check(4);
        }
    }
}

/// Rows too long for the second-level cache are read again in each phase.
#[test]
fn softmax_of_a_very_long_row() {
    models::softmax(2, 300_000, DType::F32).check(5);
}

#[test]
fn softmax_in_place() {
    for cols in [100, 3000, 300_000] {
        let mut k = models::softmax(3, cols, DType::F32);
        k.alias.push((1, 0));
        k.check(6);
    }
}

#[test]
fn layer_norm() {
    for d in FLOATS {
        for (rows, cols) in [(50, 64), (40, 1000), (3, 5000), (1, 1)] {
            models::layer_norm(rows, cols, d).check(7);
            models::layer_norm_backward(rows, cols, d).check(8);
        }
    }
    models::layer_norm_backward(3000, 40, DType::F32).check(9);
    models::layer_norm_backward(3, 150_000, DType::F32).check(9);
}

/// A residual stored by the kernel that normalises it is read back from where it was stored.
#[test]
fn residual_and_norm() {
    for cols in [64, 3000] {
        let mut b = Case::new(&[(9, AxisRole::Row), (cols, AxisRole::Col)]);
        let (x, r) = (b.load(DType::F32, &[0, 1]), b.load(DType::F32, &[0, 1]));
        let t = b.un(PrimOp::Tanh, x);
        let y = b.bin(PrimOp::Add, t, r);
        b.store(y, &[0, 1]);
        let m = b.reduce(PrimOp::Amax, Over::Cols, y);
        let d = b.bin(PrimOp::Sub, y, m);
        b.store(d, &[0, 1]);
        b.check(10);
        // The same with the residual's memory reused.
        b.alias.push((2, 1));
        b.check(11);
    }
}

#[test]
fn batch_norm() {
    for last in [false, true] {
        for (n, c, hw) in [(4, 3, 50), (2, 20, 49), (3, 64, 400), (8, 5, 20_000)] {
            models::batch_norm(n, c, hw, last).check(12);
        }
    }
}

#[test]
fn sums() {
    for d in [DType::F32, DType::BF16, DType::I32, DType::F64, DType::U8] {
        for (rows, cols) in [(1000, 33), (3, 5000), (5000, 3), (257, 1024), (100_000, 1), (2, 100_000)] {
            models::column_sum(rows, cols, d).check(13);
            models::row_sum(rows, cols, d).check(14);
        }
    }
}

/// A sum over 10 million terms is as good as pairwise.
#[test]
fn long_sums_are_accurate() {
    for case in [models::row_sum(1, 4_000_000, DType::F32), models::column_sum(4_000_000, 1, DType::F32)] {
        let mut m = case.fill(&mut Rng(1));
        (0..4_000_000).for_each(|at| write(&mut m[0], DType::F32, at, V::F(0.1, 0.0)));
        let m = case.run(&m, IsaLevel::detect(), 1).unwrap();
        let (got, exact) = (read(&m[1], DType::F32, 0).f(), 4e6 * f64::from(0.1f32));
        assert!(((got - exact) / exact).abs() < 3e-7, "{got} for {exact}");
    }
}

#[test]
fn embedding() {
    for d in [DType::F32, DType::BF16, DType::I64] {
        models::embedding(100, 17, 768, d).check(15);
        models::embedding(1000, 17, 5, d).check(15);
        models::embedding(1000, 3, 1, d).check(15);
    }
}

#[test]
fn cross_entropy() {
    models::cross_entropy(20, 50, DType::F32).check(16);
    models::cross_entropy(5, 5000, DType::BF16).check(17);
    models::cross_entropy(2, 140_000, DType::F32).check(18);
}

/// The gradient of attention scores: rows of a product, masked.
#[test]
fn masked_softmax_over_four_axes() {
    let roles = [AxisRole::Batch, AxisRole::Batch, AxisRole::Row, AxisRole::Col];
    let sizes: Vec<(i64, AxisRole)> = [2, 3, 37, 37].into_iter().zip(roles).collect();
    let mut b = Case::new(&sizes);
    let x = b.load(DType::F32, &[0, 1, 2, 3]);
    let mask = b.load(DType::Bool, &[0, 3]);
    let lowest = b.constant(-1e30, DType::F32);
    let x = b.op(OpKind::Where(mask, x, lowest), DType::F32);
    let m = b.reduce(PrimOp::Amax, Over::Cols, x);
    let d = b.bin(PrimOp::Sub, x, m);
    let e = b.un(PrimOp::Exp, d);
    let s = b.reduce(PrimOp::Sum, Over::Cols, e);
    let y = b.bin(PrimOp::Mul, e, s);
    b.store(y, &[0, 2, 1, 3]);
    b.check(19);
}

/// Padding, by loads with masks: the halo of an image.
#[test]
fn padded_loads() {
    let mut b = Case::new(&[(3, AxisRole::Batch), (40, AxisRole::Batch), (70, AxisRole::Batch)]);
    let buffer = b.buffer(DType::F32, &[3, 38, 66], None);
    let mask = |axis: usize, low: i64, high: i64| Mask { axis, low: Dim::from(low), high: Dim::from(high) };
    let strides = [38 * 66, 66, 1].map(Dim::from).to_vec();
    let access = Access { offset: Dim::from(-66 - 2), strides, masks: vec![mask(1, 1, 39), mask(2, 2, 68)] };
    let x = b.op(OpKind::Load { buffer, access }, DType::F32);
    let y = b.load(DType::F32, &[0, 1, 2]);
    let s = b.bin(PrimOp::Add, x, y);
    b.store(s, &[0, 1, 2]);
    b.check(20);
}

/// Every operation of the table, for every class, at lengths around a vector's, on every instruction set.
#[test]
fn every_operation_has_a_loop() {
    let dtypes = [DType::F32, DType::F64, DType::I64, DType::I8, DType::Bool];
    for op in PrimOp::ALL.iter().copied() {
        for d in dtypes {
            for n in [1, 7, 64, 1000] {
                let mut b = Case::new(&[(n, AxisRole::Batch)]);
                let (x, y) = (b.load(d, &[0]), b.load(d, &[0]));
                let two = matches!(op.kind(), PrimKind::Binary)
                    || op.kind() == PrimKind::Compare && !matches!(op, PrimOp::IsNan | PrimOp::IsInf);
                let one = op.kind() == PrimKind::Unary || matches!(op, PrimOp::IsNan | PrimOp::IsInf);
                let z = match (one, two) {
                    (true, _) => b.un(op, x),
                    (_, true) => b.bin(op, x, y),
                    _ => continue,
                };
                b.store(z, &[0]);
                if compile_kernel(&b.kernel, &b.buffers, &b.symbols, IsaLevel::detect()).is_err() {
                    let float_only = matches!(op, PrimOp::Div | PrimOp::Atan2 | PrimOp::CopySign | PrimOp::Hypot);
                    let int_only = matches!(op, PrimOp::Shl | PrimOp::Shr);
                    let legal = match d {
                        DType::Bool => matches!(op, PrimOp::Not | PrimOp::And | PrimOp::Or | PrimOp::Xor),
                        DType::I64 | DType::I8 => two && !float_only,
                        _ => !matches!(op, PrimOp::And | PrimOp::Or | PrimOp::Xor | PrimOp::Not) && !int_only,
                    };
                    assert!(!legal, "{op} of {d} must compile");
                    continue;
                }
                let start = b.fill(&mut Rng(9));
                for level in levels() {
                    let m = b.run(&start, level, 1).unwrap();
                    for at in 0..n as usize {
                        let (x, y) = (read(&start[0], d, at), read(&start[1], d, at));
                        let got = read(&m[2], b.buffers[2].dtype, at);
                        if let Some(want) = reference(op, x, y, d) {
                            let close = got.f() == want || (got.f() - want).abs() <= 1e-6 * want.abs();
                            let nan = got.f().is_nan() && want.is_nan();
                            assert!(close || nan, "{level:?} {op}({x:?}, {y:?}) of {d} gave {got:?}, not {want}");
                        }
                    }
                }
            }
        }
    }
}

/// What the standard library says, for the operations it has.
fn reference(op: PrimOp, x: V, y: V, d: DType) -> Option<f64> {
    use PrimOp::*;
    if !d.is_float() {
        let made = if op.kind() == PrimKind::Compare { DType::Bool } else { d };
        return Some(match op.kind() {
            PrimKind::Unary => support::unary(op, x, d, made).f(),
            _ if matches!(op, IsNan | IsInf) => 0.0,
            _ => support::binary(op, x, y, d, made).f(),
        });
    }
    let (x, y) = (x.f(), y.f());
    Some(match op {
        Exp => x.exp(),
        Exp2 => x.exp2(),
        Expm1 => x.exp_m1(),
        Log => x.ln(),
        Log2 => x.log2(),
        Log10 => x.log10(),
        Log1p => x.ln_1p(),
        Sqrt => x.sqrt(),
        Rsqrt => 1.0 / x.sqrt(),
        Reciprocal => 1.0 / x,
        Sin => x.sin(),
        Cos => x.cos(),
        Tan => x.tan(),
        Asin => x.asin(),
        Acos => x.acos(),
        Atan => x.atan(),
        Sinh => x.sinh(),
        Cosh => x.cosh(),
        Tanh => x.tanh(),
        Asinh => x.asinh(),
        Acosh => x.acosh(),
        Atanh => x.atanh(),
        Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Floor => x.floor(),
        Ceil => x.ceil(),
        Round => x.round_ties_even(),
        Trunc => x.trunc(),
        Neg => -x,
        Abs => x.abs(),
        Add => x + y,
        Sub => x - y,
        Mul => x * y,
        Div => x / y,
        FloorDiv => (x / y).floor(),
        TruncDiv => (x / y).trunc(),
        Fmod => x % y,
        Pow => x.powf(y),
        Min => x.min(y),
        Max => x.max(y),
        Atan2 => x.atan2(y),
        CopySign => x.copysign(y),
        Hypot => x.hypot(y),
        Eq => f64::from(x == y),
        Ne => f64::from(x != y),
        Lt => f64::from(x < y),
        Le => f64::from(x <= y),
        Gt => f64::from(x > y),
        Ge => f64::from(x >= y),
        IsNan => f64::from(x.is_nan()),
        IsInf => f64::from(x.is_infinite()),
        _ => return None,
    })
}

/// Reductions over nothing store the identity; everything else over nothing stores nothing.
#[test]
fn empty_axes() {
    use AxisRole::*;
    for d in [DType::F32, DType::BF16, DType::I16, DType::F64] {
        for op in [PrimOp::Sum, PrimOp::Prod, PrimOp::Amax, PrimOp::Amin] {
            for (over, roles, axes) in
                [(Over::Cols, [Row, Col], vec![0]), (Over::Rows, [Col, Row], vec![0]), (Over::All, [Row, Col], vec![])]
            {
                let mut b = Case::new(&[(5, roles[0]), (0, roles[1])]);
                let x = b.load(d, &[0, 1]);
                let r = b.reduce(op, over, x);
                let out = b.store(r, &axes).0 as usize;
                let y = b.store(x, &[0, 1]).0 as usize;
                let mut m = b.fill(&mut Rng(1));
                m[out].fill(u64::MAX);
                let done = b.run(&m, IsaLevel::detect(), 1).unwrap();
                let want = match (op, d) {
                    (PrimOp::Sum, _) => 0.0,
                    (PrimOp::Prod, _) => 1.0,
                    (PrimOp::Amax, DType::I16) => -32768.0,
                    (PrimOp::Amin, DType::I16) => 32767.0,
                    (PrimOp::Amax, _) => f64::NEG_INFINITY,
                    _ => f64::INFINITY,
                };
                let n = if axes.is_empty() { 1 } else { 5 };
                for at in 0..n {
                    assert_eq!(read(&done[out], d, at).f(), want, "{op} over {over:?} of {d}");
                }
                assert_eq!(done[y], m[y]);
            }
        }
    }
    let mut b = Case::new(&[(0, Batch), (5, Col)]);
    let x = b.load(DType::F32, &[0, 1]);
    let s = b.reduce(PrimOp::Sum, Over::Cols, x);
    b.store(s, &[0]);
    let m = b.fill(&mut Rng(1));
    assert_eq!(b.run(&m, IsaLevel::detect(), 1).unwrap(), m);
}

#[test]
fn no_axes() {
    let mut b = Case::new(&[]);
    let (x, y) = (b.load(DType::F32, &[]), b.load(DType::F32, &[]));
    let z = b.bin(PrimOp::Mul, x, y);
    let s = b.reduce(PrimOp::Sum, Over::All, z);
    b.store(z, &[]);
    b.store(s, &[]);
    b.check(21);
}

#[test]
fn a_wrong_index_is_an_error_and_touches_nothing_else() {
    for width in [1, 5, 768] {
        let b = models::embedding(300, 17, width, DType::F32);
        for wrong in [17, -1, i64::MAX, i64::MIN] {
            let mut m = b.fill(&mut Rng(2));
            write(&mut m[0], DType::I64, 123, V::I(wrong));
            let error = b.run(&m, IsaLevel::detect(), 1).unwrap_err();
            let RunError::Index { ref buffer, index, size, .. } = error else { panic!("{error}") };
            assert_eq!((&**buffer, index, size), ("t1", wrong, 17));
        }
    }
}

#[test]
fn bad_kernels_do_not_compile() {
    let compile = |b: &Case| {
        compile_kernel(&b.kernel, &b.buffers, &b.symbols, IsaLevel::detect()).err().expect("must not compile")
    };
    // An access that leaves its buffer.
    let mut b = models::add(4, 5, DType::F32);
    b.buffers[0].shape[0] = Dim::from(3);
    assert!(matches!(compile(&b), CompileError::OutOfBounds { low: 0, high: 19, extent: 15, .. }));
    // A negative address.
    let mut b = models::add(4, 5, DType::F32);
    let OpKind::Load { access, .. } = &mut b.kernel.ops[0].kind else { panic!() };
    access.offset = Dim::from(-1);
    assert!(matches!(compile(&b), CompileError::OutOfBounds { low: -1, .. }));
    // A size without a value.
    let mut b = models::add(4, 5, DType::F32);
    b.kernel.axes[0].size = Dim::sym("s0");
    assert!(matches!(compile(&b), CompileError::Size(_)));
    // A dtype without arithmetic.
    let mut b = models::add(4, 5, DType::F32);
    b.kernel.ops[2].dtype = DType::C64;
    assert!(matches!(compile(&b), CompileError::DType(DType::C64)));
    // Operands of different dtypes, and one that does not exist.
    let mut b = Case::new(&[(4, AxisRole::Batch)]);
    let (x, y) = (b.load(DType::F32, &[0]), b.load(DType::I64, &[0]));
    let z = b.bin(PrimOp::Add, x, y);
    b.store(z, &[0]);
    assert!(matches!(compile(&b), CompileError::Malformed(_)));
    b.kernel.ops[2].kind = OpKind::Unary(PrimOp::Exp, OpId(9));
    assert!(matches!(compile(&b), CompileError::Malformed(_)));
    // Arithmetic on the result of a reduction over rows.
    let mut b = Case::new(&[(4, AxisRole::Row), (5, AxisRole::Col)]);
    let x = b.load(DType::F32, &[0, 1]);
    let s = b.reduce(PrimOp::Sum, Over::Rows, x);
    let y = b.bin(PrimOp::Add, x, s);
    b.store(y, &[0, 1]);
    assert!(matches!(compile(&b), CompileError::Malformed(_)));
}

#[test]
fn missing_memory_is_an_error() {
    let b = models::add(4, 5, DType::F32);
    let k = compile_kernel(&b.kernel, &b.buffers, &b.symbols, IsaLevel::detect()).unwrap();
    assert_eq!((k.bytes_read(), k.bytes_written()), (160, 80));
    let mut words = [0u64; 64];
    let p = words.as_mut_ptr().cast::<u8>();
    // SAFETY: the run stops before it touches memory.
    unsafe {
        let null = std::ptr::null_mut();
        assert!(matches!(k.run(&[p, null, p], null, &Serial), Err(RunError::Memory { .. })));
        assert!(matches!(k.run(&[p, p], null, &Serial), Err(RunError::Memory { .. })));
        assert!(matches!(k.run(&[p, p.add(1), p], null, &Serial), Err(RunError::Memory { .. })));
    }
}

/// One step of AdamW, where results replace what was read and where they do not.
#[test]
fn adamw() {
    for n in [1, 15, 64, 321, 5000] {
        for in_place in [false, true] {
            let mut b = models::adamw(n, in_place);
            b.check(22);
            b.special = true;
            b.check(23);
        }
    }
}

/// Chains of cheap operations on tiles, rows' values, columns' values and constants, on both sides of each operation.
#[test]
fn chains_of_cheap_operations() {
    use PrimOp::*;
    for (rows, cols) in [(3, 1024), (5, 300), (37, 70), (1, 4100), (9, 64), (40, 5)] {
        for special in [false, true] {
            for (k, ops) in [[Sub, Mul, Add], [Add, Div, Sub], [Max, Min, Mul], [Div, Sub, Div]].into_iter().enumerate()
            {
                let mut b = Case::new(&[(rows, AxisRole::Row), (cols, AxisRole::Col)]);
                b.special = special;
                let d = DType::F32;
                let (x, y, w, r) = (b.load(d, &[0, 1]), b.load(d, &[0, 1]), b.load(d, &[1]), b.load(d, &[0]));
                let c = b.constant(0.75, d);
                let mut v = x;
                for (i, op) in ops.into_iter().enumerate() {
                    let other = [r, w, y, c][(i + k) % 4];
                    v = if i % 2 == 0 { b.bin(op, v, other) } else { b.bin(op, other, v) };
                }
                // A value read again later, with itself, and by an operation that has no instruction.
                let square = b.bin(Mul, v, v);
                let twice = b.bin(Add, v, v);
                let e = b.un(Tanh, square);
                let e = b.bin(Sub, twice, e);
                let e2 = b.un(Exp, x);
                let out = b.bin(Add, e, e2);
                let first = b.store(v, &[0, 1]);
                b.store(out, &[0, 1]);
                b.check(24);
                // The first result takes the place of the first operand.
                b.alias.push((first.0 as usize, 0));
                b.check(25);
            }
        }
    }
}

/// Sums taken from chains, over columns and rows at once.
#[test]
fn sums_of_chains() {
    use PrimOp::*;
    for (rows, cols) in [(3, 1024), (70, 300), (37, 70), (2, 4100), (400, 65)] {
        let mut b = Case::new(&[(rows, AxisRole::Row), (cols, AxisRole::Col)]);
        let d = DType::F32;
        let (x, y, r) = (b.load(d, &[0, 1]), b.load(d, &[0, 1]), b.load(d, &[0]));
        let t = b.bin(Sub, x, r);
        let p = b.bin(Mul, t, y);
        let s = b.reduce(Sum, Over::Cols, p);
        let sq = b.bin(Mul, t, t);
        let s2 = b.reduce(Sum, Over::Cols, sq);
        let (c1, c2) = (b.reduce(Sum, Over::Rows, p), b.reduce(Sum, Over::Rows, t));
        let z = b.bin(Add, s, s2);
        let z = b.bin(Mul, sq, z);
        b.store(z, &[0, 1]);
        b.store(c1, &[1]);
        b.store(c2, &[1]);
        b.store(s, &[0]);
        b.check(26);
    }
}
