//! The kernels that training steps are made of.

use super::build::Case;
use permalloy_ir::{DType, PrimOp::*};
use permalloy_loops::kernel::{AxisRole, BufferId, Over};

fn rows_cols(rows: usize, cols: usize) -> Case {
    Case::new(&[(rows as i64, AxisRole::Row), (cols as i64, AxisRole::Col)])
}

fn flat(rows: usize, cols: usize) -> Case {
    Case::new(&[(rows as i64, AxisRole::Batch), (cols as i64, AxisRole::Batch)])
}

pub fn gelu(rows: usize, cols: usize, dtype: DType) -> Case {
    let mut b = flat(rows, cols);
    let (x, bias) = (b.load(dtype, &[0, 1]), b.load(dtype, &[1]));
    let x = b.bin(Add, x, bias);
    let [k, half, one, scale] = [0.044715, 0.5, 1.0, 0.797_884_560_802_865_4].map(|c| b.constant(c, dtype));
    let x2 = b.bin(Mul, x, x);
    let x3 = b.bin(Mul, x2, x);
    let x3 = b.bin(Mul, x3, k);
    let t = b.bin(Add, x, x3);
    let t = b.bin(Mul, t, scale);
    let t = b.un(Tanh, t);
    let t = b.bin(Add, t, one);
    let x = b.bin(Mul, x, half);
    let y = b.bin(Mul, x, t);
    b.store(y, &[0, 1]);
    b
}

pub fn add(rows: usize, cols: usize, dtype: DType) -> Case {
    let mut b = flat(rows, cols);
    let (x, y) = (b.load(dtype, &[0, 1]), b.load(dtype, &[0, 1]));
    let s = b.bin(Add, x, y);
    b.store(s, &[0, 1]);
    b
}

pub fn add_transposed(rows: usize, cols: usize, dtype: DType) -> Case {
    let mut b = flat(rows, cols);
    let (x, y) = (b.load(dtype, &[0, 1]), b.load(dtype, &[1, 0]));
    let s = b.bin(Add, x, y);
    b.store(s, &[0, 1]);
    b
}

pub fn softmax(rows: usize, cols: usize, dtype: DType) -> Case {
    let mut b = rows_cols(rows, cols);
    let x = b.load(dtype, &[0, 1]);
    let m = b.reduce(Amax, Over::Cols, x);
    let d = b.bin(Sub, x, m);
    let e = b.un(Exp, d);
    let s = b.reduce(Sum, Over::Cols, e);
    let y = b.bin(Div, e, s);
    b.store(y, &[0, 1]);
    b
}

pub fn layer_norm(rows: usize, cols: usize, dtype: DType) -> Case {
    let mut b = rows_cols(rows, cols);
    let x = b.load(dtype, &[0, 1]);
    let (w, bias) = (b.load(dtype, &[1]), b.load(dtype, &[1]));
    let (n, eps) = (b.constant(1.0 / cols as f64, dtype), b.constant(1e-5, dtype));
    let mean = b.reduce(Sum, Over::Cols, x);
    let mean = b.bin(Mul, mean, n);
    let d = b.bin(Sub, x, mean);
    let d2 = b.bin(Mul, d, d);
    let var = b.reduce(Sum, Over::Cols, d2);
    let var = b.bin(Mul, var, n);
    let var = b.bin(Add, var, eps);
    let rstd = b.un(Rsqrt, var);
    let y = b.bin(Mul, d, rstd);
    let y = b.bin(Mul, y, w);
    let y = b.bin(Add, y, bias);
    b.store(y, &[0, 1]);
    b.store_as(mean, DType::F32, &[0]);
    b.store_as(rstd, DType::F32, &[0]);
    b
}

/// dx by rows, dw and db by columns, in one pass.
pub fn layer_norm_backward(rows: usize, cols: usize, dtype: DType) -> Case {
    let mut b = rows_cols(rows, cols);
    let (x, dy) = (b.load(dtype, &[0, 1]), b.load(dtype, &[0, 1]));
    let (w, mean, rstd) = (b.load(dtype, &[1]), b.load(dtype, &[0]), b.load(dtype, &[0]));
    let n = b.constant(1.0 / cols as f64, dtype);
    let d = b.bin(Sub, x, mean);
    let xhat = b.bin(Mul, d, rstd);
    let g = b.bin(Mul, dy, w);
    let gx = b.bin(Mul, g, xhat);
    let (s1, s2) = (b.reduce(Sum, Over::Cols, g), b.reduce(Sum, Over::Cols, gx));
    let (m1, m2) = (b.bin(Mul, s1, n), b.bin(Mul, s2, n));
    let t = b.bin(Mul, xhat, m2);
    let t = b.bin(Add, t, m1);
    let t = b.bin(Sub, g, t);
    let dx = b.bin(Mul, t, rstd);
    b.store(dx, &[0, 1]);
    let dyx = b.bin(Mul, dy, xhat);
    let (dw, db) = (b.reduce(Sum, Over::Rows, dyx), b.reduce(Sum, Over::Rows, dy));
    b.store_as(dw, DType::F32, &[1]);
    b.store_as(db, DType::F32, &[1]);
    b
}

pub fn column_sum(rows: usize, cols: usize, dtype: DType) -> Case {
    let mut b = rows_cols(rows, cols);
    let x = b.load(dtype, &[0, 1]);
    let s = b.reduce(Sum, Over::Rows, x);
    b.store(s, &[1]);
    b
}

pub fn row_sum(rows: usize, cols: usize, dtype: DType) -> Case {
    let mut b = rows_cols(rows, cols);
    let x = b.load(dtype, &[0, 1]);
    let s = b.reduce(Sum, Over::Cols, x);
    b.store(s, &[0]);
    b
}

/// `w[index[t], d]`
pub fn embedding(tokens: usize, table: usize, width: usize, dtype: DType) -> Case {
    use permalloy_ir::Dim;
    use permalloy_loops::kernel::{Access, OpKind};
    let mut b = flat(tokens, width);
    let index = b.load(DType::I64, &[0]);
    b.below[0] = Some(table as i64);
    let buffer: BufferId = b.buffer(dtype, &[table as i64, width as i64], None);
    let access = Access { offset: Dim::ZERO, strides: vec![Dim::ZERO, Dim::ONE], masks: vec![] };
    let (stride, size) = (Dim::from(width as i64), Dim::from(table as i64));
    let x = b.op(OpKind::LoadAt { buffer, access, index, stride, size }, dtype);
    b.store(x, &[0, 1]);
    b
}

/// Mean of `log Σ exp(x) - x[target]`, the log-sum-exp kept for the backward pass.
pub fn cross_entropy(rows: usize, cols: usize, dtype: DType) -> Case {
    use permalloy_ir::Dim;
    use permalloy_loops::kernel::{Access, OpKind};
    let mut b = rows_cols(rows, cols);
    let x16 = b.load(dtype, &[0, 1]);
    let logits = BufferId(0);
    let x = b.cast(x16, DType::F32);
    let m = b.reduce(Amax, Over::Cols, x);
    let d = b.bin(Sub, x, m);
    let e = b.un(Exp, d);
    let s = b.reduce(Sum, Over::Cols, e);
    let l = b.un(Log, s);
    let lse = b.bin(Add, l, m);
    let target = b.load(DType::I64, &[0]);
    b.below[1] = Some(cols as i64);
    let access = Access { offset: Dim::ZERO, strides: vec![Dim::from(cols as i64), Dim::ZERO], masks: vec![] };
    let size = Dim::from(cols as i64);
    let at = b.op(OpKind::LoadAt { buffer: logits, access, index: target, stride: Dim::ONE, size }, dtype);
    let at = b.cast(at, DType::F32);
    let loss = b.bin(Sub, lse, at);
    let n = b.constant(1.0 / rows as f64, DType::F32);
    let loss = b.bin(Mul, loss, n);
    let total = b.reduce(Sum, Over::Rows, loss);
    b.store(lse, &[0]);
    b.store(total, &[]);
    b
}

/// Statistics over images and pixels, one a channel, then the normalised values; NCHW, or NHWC if `last`.
pub fn batch_norm(n: usize, c: usize, hw: usize, last: bool) -> Case {
    let sizes = [(n as i64, AxisRole::Col), (c as i64, AxisRole::Row), (hw as i64, AxisRole::Col)];
    let mut b = Case::new(&sizes);
    let axes: &[usize] = if last { &[0, 2, 1] } else { &[0, 1, 2] };
    let x = b.load(DType::F32, axes);
    let (count, eps) = (b.constant(1.0 / (n * hw) as f64, DType::F32), b.constant(1e-5, DType::F32));
    let s = b.reduce(Sum, Over::Cols, x);
    let mean = b.bin(Mul, s, count);
    let d = b.bin(Sub, x, mean);
    let d2 = b.bin(Mul, d, d);
    let var = b.reduce(Sum, Over::Cols, d2);
    let var = b.bin(Mul, var, count);
    let var = b.bin(Add, var, eps);
    let rstd = b.un(Rsqrt, var);
    let y = b.bin(Mul, d, rstd);
    b.store(y, axes);
    b.store(mean, &[1]);
    b.store(rstd, &[1]);
    b
}

/// One step of AdamW over one flat tensor; parameter and moments are stored where they were read from if `in_place`.
pub fn adamw(n: usize, in_place: bool) -> Case {
    let d = DType::F32;
    let mut b = Case::new(&[(n as i64, AxisRole::Batch)]);
    let [p, g, m, v] = [0; 4].map(|_| b.load(d, &[0]));
    let [decay, b2, c1, c2, step, root, eps] =
        [1.0 - 1e-5, 0.999, 0.1, 0.001, -1e-3, 1.0 / 0.03, 1e-8].map(|x| b.constant(x, d));
    let p = b.bin(Mul, p, decay);
    let diff = b.bin(Sub, g, m);
    let diff = b.bin(Mul, diff, c1);
    let m = b.bin(Add, m, diff);
    let v = b.bin(Mul, v, b2);
    let g2 = b.bin(Mul, g, g);
    let g2 = b.bin(Mul, g2, c2);
    let v = b.bin(Add, v, g2);
    // The second moments of a test may be negative.
    let r = b.un(Abs, v);
    let r = b.un(Sqrt, r);
    let r = b.bin(Mul, r, root);
    let r = b.bin(Add, r, eps);
    let u = b.bin(Div, m, r);
    let u = b.bin(Mul, u, step);
    let p = b.bin(Add, p, u);
    let outs = [p, m, v].map(|x| b.store(x, &[0]).0 as usize);
    if in_place {
        b.alias = outs.into_iter().zip([0, 2, 3]).collect();
    }
    b
}
