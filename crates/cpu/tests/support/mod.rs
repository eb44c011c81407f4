//! A slow and obvious evaluator of kernels, with bounds on the error an engine may make, and helpers to build kernels.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod build;
pub mod guard;
pub mod models;
pub mod random;

use guard::{Guard, Guarded};
use permalloy_cpu::math::half;
use permalloy_ir::{DType, PrimKind, PrimOp, SymbolValues};
use permalloy_loops::kernel::*;

/// A value and by how much an engine may be off; integers and bools are exact.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum V {
    F(f64, f64),
    I(i64),
}

impl V {
    pub fn f(self) -> f64 {
        match self {
            V::F(x, _) => x,
            V::I(x) => x as f64,
        }
    }
    fn e(self) -> f64 {
        match self {
            V::F(_, e) => e,
            V::I(_) => 0.0,
        }
    }
    pub fn i(self) -> i64 {
        match self {
            V::F(x, _) => x as i64,
            V::I(x) => x,
        }
    }
}

pub type Memory = Vec<Vec<u64>>;

/// Memory for every buffer, zeroed.
pub fn memory(buffers: &[Buffer], symbols: &SymbolValues) -> Memory {
    buffers.iter().map(|b| vec![0; span_bytes(b, symbols).div_ceil(8)]).collect()
}

pub fn pointers(memory: &mut Memory) -> Vec<*mut u8> {
    memory.iter_mut().map(|m| m.as_mut_ptr().cast()).collect()
}

/// Bytes that a buffer spans.
pub fn span_bytes(b: &Buffer, symbols: &SymbolValues) -> usize {
    b.extent().eval(symbols).unwrap().max(0) as usize * b.dtype.size()
}

/// Runs `f` on a copy of the memory of each buffer and on scratch memory, all with one end at a page that faults.
/// The next byte of a buffer at the back guard is none of the process's, and its address is a multiple of its elements' size.
pub fn guarded<E>(
    (buffers, symbols): (&[Buffer], &SymbolValues),
    start: &Memory,
    scratch_bytes: usize,
    guard: Guard,
    f: impl FnOnce(Vec<*mut u8>, *mut u8) -> Result<(), E>,
) -> Result<Memory, E> {
    let copy = |(b, words): (&Buffer, &Vec<u64>)| Guarded::of(words, span_bytes(b, symbols), b.dtype.size(), guard);
    let copies: Vec<Guarded> = buffers.iter().zip(start).map(copy).collect();
    let scratch = Guarded::new(scratch_bytes, 64, guard);
    f(copies.iter().map(Guarded::pointer).collect(), scratch.pointer())?;
    scratch.check();
    let mut end = start.clone();
    copies.into_iter().zip(&mut end).for_each(|(copy, words)| copy.into_words(words));
    Ok(end)
}

pub fn read(memory: &[u64], dtype: DType, at: usize) -> V {
    let bytes: Vec<u8> = (0..dtype.size())
        .map(|k| {
            let b = at * dtype.size() + k;
            memory[b / 8].to_le_bytes()[b % 8]
        })
        .collect();
    let two = || u16::from_le_bytes([bytes[0], bytes[1]]);
    match dtype {
        DType::F64 => V::F(f64::from_le_bytes(bytes.try_into().unwrap()), 0.0),
        DType::F32 => V::F(f32::from_le_bytes(bytes.try_into().unwrap()).into(), 0.0),
        DType::BF16 => V::F(half::bf16_to_f32(two()).into(), 0.0),
        DType::F16 => V::F(half::f16_to_f32(two()).into(), 0.0),
        DType::I64 => V::I(i64::from_le_bytes(bytes.try_into().unwrap())),
        DType::I32 => V::I(i32::from_le_bytes(bytes.try_into().unwrap()).into()),
        DType::I16 => V::I((two() as i16).into()),
        DType::I8 => V::I((bytes[0] as i8).into()),
        _ => V::I(bytes[0].into()),
    }
}

pub fn write(memory: &mut [u64], dtype: DType, at: usize, v: V) {
    let bytes: Vec<u8> = match dtype {
        DType::F64 => v.f().to_le_bytes().to_vec(),
        DType::F32 => (v.f() as f32).to_le_bytes().to_vec(),
        DType::BF16 => half::f32_to_bf16(v.f() as f32).to_le_bytes().to_vec(),
        DType::F16 => half::f32_to_f16(v.f() as f32).to_le_bytes().to_vec(),
        _ => v.i().to_le_bytes()[..dtype.size()].to_vec(),
    };
    for (k, byte) in bytes.into_iter().enumerate() {
        let b = at * dtype.size() + k;
        let mut word = memory[b / 8].to_le_bytes();
        word[b % 8] = byte;
        memory[b / 8] = u64::from_le_bytes(word);
    }
}

fn wrap(x: i64, d: DType) -> i64 {
    match d {
        DType::I32 => (x as i32).into(),
        DType::I16 => (x as i16).into(),
        DType::I8 => (x as i8).into(),
        DType::U8 => (x as u8).into(),
        DType::Bool => i64::from(x != 0),
        _ => x,
    }
}

/// Half an ulp of the dtype a float is held in, relative.
fn eps(d: DType) -> f64 {
    if d == DType::F64 { 1.2e-16 } else { 6e-8 }
}

/// Rounds to the dtype a float is held in.
fn hold(x: f64, d: DType) -> f64 {
    if d == DType::F64 { x } else { f64::from(x as f32) }
}

fn float(x: f64, e: f64, d: DType) -> V {
    let e = if e == 0.0 { 0.0 } else { e + eps(d) * 2.0 * x.abs() };
    V::F(hold(x, d), e)
}

/// A function that is not correctly rounded.
fn inexact(x: f64, e: f64, d: DType) -> V {
    V::F(hold(x, d), e + eps(d) * 8.0 * x.abs() + if d == DType::F64 { 1e-300 } else { 1e-44 })
}

fn max(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

pub fn unary(op: PrimOp, x: V, from: DType, d: DType) -> V {
    use PrimOp::*;
    if let V::I(x) = x {
        return V::I(match op {
            Neg => wrap(x.wrapping_neg(), d),
            Abs => wrap(x.wrapping_abs(), d),
            Sign => x.signum(),
            Not if from == DType::Bool => i64::from(x == 0),
            Not => wrap(!x, d),
            IsNan | IsInf => 0,
            _ => x,
        });
    }
    let (v, e) = (x.f(), x.e());
    match op {
        Neg => float(-v, e, d),
        Abs => float(v.abs(), e, d),
        Sign => float(if v.is_nan() { v } else { f64::from(i8::from(v > 0.0)) - f64::from(i8::from(v < 0.0)) }, e, d),
        Sqrt => float(v.sqrt(), e, d),
        Reciprocal => float(1.0 / v, e, d),
        Floor => float(v.floor(), e, d),
        Ceil => float(v.ceil(), e, d),
        Round => float(v.round_ties_even(), e, d),
        Trunc => float(v.trunc(), e, d),
        IsNan => V::I(v.is_nan().into()),
        IsInf => V::I(v.is_infinite().into()),
        Exp => inexact(v.exp(), e * v.exp(), d),
        Tanh => inexact(v.tanh(), e, d),
        Sigmoid => inexact(1.0 / (1.0 + (-v).exp()), e, d),
        Atan => inexact(v.atan(), e, d),
        Log => inexact(v.ln(), e / v.abs(), d),
        Rsqrt => inexact(1.0 / v.sqrt(), e / (v.sqrt() * v), d),
        other => panic!("the evaluator has no {other}"),
    }
}

pub fn binary(op: PrimOp, a: V, b: V, from: DType, d: DType) -> V {
    use PrimOp::*;
    if op.kind() == PrimKind::Compare {
        let (lt, eq, gt) = match (a, b) {
            (V::I(a), V::I(b)) => (a < b, a == b, a > b),
            _ => (a.f() < b.f(), a.f() == b.f(), a.f() > b.f()),
        };
        return V::I(i64::from(match op {
            Eq => eq,
            Ne => !eq,
            Lt => lt,
            Le => lt || eq,
            Gt => gt,
            _ => gt || eq,
        }));
    }
    if let (V::I(a), V::I(b)) = (a, b) {
        let floor = |a: i64, b: i64| {
            let (q, r) = (a.wrapping_div(b), a.wrapping_rem(b));
            if r != 0 && (r < 0) != (b < 0) { (q - 1, r + b) } else { (q, r) }
        };
        let x = match op {
            And => a & b,
            Or => a | b,
            Xor => a ^ b,
            Min => a.min(b),
            Max => a.max(b),
            Add if from == DType::Bool => a | b,
            Mul if from == DType::Bool => a & b,
            Add => a.wrapping_add(b),
            Sub => a.wrapping_sub(b),
            Mul => a.wrapping_mul(b),
            FloorDiv | TruncDiv | Mod | Fmod if b == 0 => 0,
            FloorDiv => floor(a, b).0,
            Mod => floor(a, b).1,
            TruncDiv => a.wrapping_div(b),
            Fmod => a.wrapping_rem(b),
            Pow if b < 0 => match a {
                1 => 1,
                -1 => 1 - 2 * (b & 1),
                _ => 0,
            },
            Pow => (0..b).fold(1i64, |r, _| r.wrapping_mul(a)),
            Shl => {
                if (0..64).contains(&b) {
                    a << b
                } else {
                    0
                }
            }
            Shr => a >> if (0..64).contains(&b) { b } else { 63 },
            other => panic!("the evaluator has no integer {other}"),
        };
        return V::I(wrap(x, d));
    }
    let ((x, ex), (y, ey)) = ((a.f(), a.e()), (b.f(), b.e()));
    let times = |a: f64, e: f64| if e == 0.0 { 0.0 } else { a.abs() * e };
    match op {
        Add => float(x + y, ex + ey, d),
        Sub => float(x - y, ex + ey, d),
        Mul => float(x * y, times(x, ey) + times(y, ex) + ex * ey, d),
        Div => float(x / y, if ex + ey == 0.0 { 0.0 } else { (ex + (x / y).abs() * ey) / (y.abs() - ey) }, d),
        Min => float(min(x, y), ex.max(ey), d),
        Max => float(max(x, y), ex.max(ey), d),
        CopySign => float(x.copysign(y), ex, d),
        other => panic!("the evaluator has no float {other}"),
    }
}

pub fn cast(x: V, from: DType, d: DType) -> V {
    match (x, d.is_float()) {
        (V::F(v, e), true) => {
            let narrow = match d {
                DType::BF16 => f64::from(half::bf16_to_f32(half::f32_to_bf16(v as f32))),
                DType::F16 => f64::from(half::f16_to_f32(half::f32_to_f16(v as f32))),
                _ => hold(v, d),
            };
            let rounds = if matches!(d, DType::BF16 | DType::F16) { 0.008 * v.abs() + 1e-7 } else { eps(d) * v.abs() };
            V::F(narrow, if e == 0.0 { 0.0 } else { e + rounds })
        }
        (V::F(v, _), false) if d == DType::Bool => V::I(i64::from(v != 0.0)),
        (V::F(v, _), false) => V::I(wrap(v as i64, d)),
        (V::I(v), true) if d == DType::F64 => V::F(v as f64, 0.0),
        (V::I(v), true) => cast(V::F(f64::from(v as f32), 0.0), DType::F32, d),
        (V::I(v), false) => V::I(if from == DType::Bool { v } else { wrap(v, d) }),
    }
}

/// Neumaier's compensated sum.
fn exact_sum(items: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for x in items {
        let next = sum + x;
        lost += if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
        sum = next;
    }
    if sum.is_finite() { sum + lost } else { sum }
}

fn reduce(op: PrimOp, d: DType, items: &[V]) -> V {
    use PrimOp::*;
    let lowest = match d {
        DType::I64 => i64::MIN,
        DType::I32 => i32::MIN.into(),
        DType::I16 => i16::MIN.into(),
        DType::I8 => i8::MIN.into(),
        _ => 0,
    };
    let highest = match d {
        DType::U8 => 255,
        DType::Bool => 1,
        _ => !lowest,
    };
    if matches!(op, Argmax | Argmin) {
        let mut best: Option<(V, usize)> = None;
        for (i, x) in items.iter().enumerate() {
            let wins = match (best, *x) {
                (None, _) => true,
                (Some((V::I(b), _)), V::I(x)) => {
                    if op == Argmax {
                        x > b
                    } else {
                        x < b
                    }
                }
                (Some((b, _)), x) => {
                    let (b, x) = (b.f(), x.f());
                    !b.is_nan() && (x.is_nan() || if op == Argmax { x > b } else { x < b })
                }
            };
            if wins {
                best = Some((*x, i));
            }
        }
        return V::I(best.map_or(0, |b| b.1 as i64));
    }
    if d.is_float() {
        let worst = items.iter().map(|x| x.e()).fold(0.0, f64::max);
        return match op {
            Sum => {
                let total = exact_sum(items.iter().map(|x| x.f()));
                let size: f64 = items.iter().map(|x| x.f().abs()).sum();
                let e: f64 = items.iter().map(|x| x.e()).sum();
                // Far less than n rounding errors.
                let steps = if d == DType::F64 { 64.0 } else { 24.0 };
                V::F(hold(total, d), e + size * eps(d) * steps + 1e-300)
            }
            Prod => {
                let total: f64 = items.iter().map(|x| x.f()).product();
                let size: f64 = items.iter().map(|x| x.f().abs()).filter(|x| *x > 1.0).product();
                let e = total.abs() * eps(d) * (items.len() as f64 + 1.0) * 2.0 + 1e-37;
                // Where part of the product overflows, order decides.
                V::F(hold(total, d), if size < 1e38 { e } else { f64::INFINITY })
            }
            Amax => V::F(items.iter().map(|x| x.f()).fold(f64::NEG_INFINITY, max), worst),
            _ => V::F(items.iter().map(|x| x.f()).fold(f64::INFINITY, min), worst),
        };
    }
    let all = items.iter().map(|x| x.i());
    V::I(match op {
        Sum => wrap(all.fold(0, i64::wrapping_add), d),
        Prod => wrap(all.fold(1, i64::wrapping_mul), d),
        Amax => all.fold(lowest, i64::max),
        Amin => all.fold(highest, i64::min),
        Any => all.fold(0, |a, b| a | b),
        _ => all.fold(1, |a, b| a & b),
    })
}

/// A stored element: buffer, position, dtype, expected value.
pub type Expected = Vec<(usize, usize, DType, V)>;

/// Every element that the kernel stores, or the index error it runs into.
pub fn evaluate(
    kernel: &Kernel,
    buffers: &[Buffer],
    symbols: &SymbolValues,
    memory: &Memory,
) -> Result<Expected, String> {
    let sizes: Vec<i64> = kernel.axes.iter().map(|a| a.size.eval(symbols).unwrap()).collect();
    let points: i64 = sizes.iter().product();
    let at = |mut p: i64| {
        let mut index = vec![0; sizes.len()];
        for a in (0..sizes.len()).rev() {
            index[a] = p % sizes[a];
            p /= sizes[a];
        }
        index
    };
    let address = |x: &Access, index: &[i64]| -> Option<i64> {
        let inside = x
            .masks
            .iter()
            .all(|m| m.low.eval(symbols).unwrap() <= index[m.axis] && index[m.axis] < m.high.eval(symbols).unwrap());
        let step = |(s, i): (&permalloy_ir::Dim, &i64)| s.eval(symbols).unwrap() * i;
        inside.then(|| x.offset.eval(symbols).unwrap() + x.strides.iter().zip(index).map(step).sum::<i64>())
    };
    let zero = |d: DType| if d.is_float() { V::F(0.0, 0.0) } else { V::I(0) };
    let indices: Vec<Vec<i64>> = (0..points).map(at).collect();
    let mut values: Vec<Vec<V>> = Vec::new();
    let mut expected = Expected::new();
    for op in &kernel.ops {
        let d = op.dtype;
        let get = |x: &OpId, p: usize| values[x.0 as usize][p];
        let dtype_of = |x: &OpId| kernel.op(*x).dtype;
        let mut out = Vec::with_capacity(indices.len());
        if let OpKind::Reduce { op: r, over, x } = &op.kind {
            let folded = |role: AxisRole| match over {
                Over::Cols => role == AxisRole::Col,
                Over::Rows => role == AxisRole::Row,
                Over::All => role != AxisRole::Batch,
            };
            let key = |index: &[i64]| -> Vec<i64> {
                index.iter().zip(&kernel.axes).map(|(i, a)| if folded(a.role) { 0 } else { *i }).collect()
            };
            let mut groups = std::collections::BTreeMap::<Vec<i64>, Vec<V>>::new();
            for (p, index) in indices.iter().enumerate() {
                groups.entry(key(index)).or_default().push(get(x, p));
            }
            let results: std::collections::BTreeMap<_, V> =
                groups.into_iter().map(|(k, items)| (k, reduce(*r, dtype_of(x), &items))).collect();
            out.extend(indices.iter().map(|i| results[&key(i)]));
            values.push(out);
            continue;
        }
        for (p, index) in indices.iter().enumerate() {
            let v = match &op.kind {
                OpKind::Load { buffer, access } => match address(access, index) {
                    Some(a) => read(&memory[buffer.0 as usize], d, a as usize),
                    None => zero(d),
                },
                OpKind::LoadAt { buffer, access, index: i, stride, size } => match address(access, index) {
                    Some(a) => {
                        let i = get(i, p).i();
                        let n = size.eval(symbols).unwrap();
                        if i < 0 || i >= n {
                            return Err(format!("index {i} is out of range 0..{n}"));
                        }
                        read(&memory[buffer.0 as usize], d, (a + i * stride.eval(symbols).unwrap()) as usize)
                    }
                    None => zero(d),
                },
                OpKind::AxisIndex { access } => V::I(address(access, index).unwrap()),
                OpKind::Const(Scalar::Float(x)) if d.is_float() => V::F(hold(*x, d), 0.0),
                OpKind::Const(Scalar::Float(x)) => V::I(*x as i64),
                OpKind::Const(Scalar::Int(x)) if d.is_float() => V::F(*x as f64, 0.0),
                OpKind::Const(Scalar::Int(x)) => V::I(wrap(*x, d)),
                OpKind::Const(Scalar::Bool(x)) => V::I((*x).into()),
                OpKind::Size(n) => cast(V::I(n.eval(symbols).unwrap()), DType::I64, d),
                OpKind::Unary(o, x) => unary(*o, get(x, p), dtype_of(x), d),
                OpKind::Binary(o, a, b) => binary(*o, get(a, p), get(b, p), dtype_of(a), d),
                OpKind::Where(c, a, b) => {
                    if get(c, p).i() != 0 {
                        get(a, p)
                    } else {
                        get(b, p)
                    }
                }
                OpKind::Cast(x) => cast(get(x, p), dtype_of(x), d),
                OpKind::Store { buffer, access, value } => {
                    let v = get(value, p);
                    let d = buffers[buffer.0 as usize].dtype;
                    expected.push((buffer.0 as usize, address(access, index).unwrap() as usize, d, v));
                    v
                }
                OpKind::Reduce { .. } => continue,
            };
            out.push(v);
        }
        // A reduction over nothing is stored all the same.
        values.push(out);
    }
    Ok(expected)
}

/// Whether `got` is what was expected, give or take what an engine may be off and one rounding to the stored dtype.
pub fn agrees(got: V, expected: V, d: DType) -> bool {
    match (got, expected) {
        (V::I(a), b) => a == if let V::I(b) = b { wrap(b, d) } else { cast(b, DType::F64, d).i() },
        (V::F(a, _), b) => {
            let (b, e) = (b.f(), b.e());
            if e == f64::INFINITY {
                return true;
            }
            let mut slot = vec![0u64; 2];
            write(&mut slot, d, 0, V::F(b, 0.0));
            let rounded = read(&slot, d, 0).f();
            if rounded.is_nan() || a.is_nan() {
                return rounded.is_nan() && a.is_nan();
            }
            let ulp = match d {
                DType::BF16 => 1.0 / 128.0,
                DType::F16 => 1.0 / 1024.0,
                DType::F32 => 1.2e-7,
                _ => 2.3e-16,
            };
            let slack = if e == 0.0 { 0.0 } else { e + ulp * b.abs() + if d == DType::F16 { 1e-7 } else { 0.0 } };
            a == rounded || (a - rounded).abs() <= slack
        }
    }
}
