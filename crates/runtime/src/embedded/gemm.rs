//! Matrix products in plain Rust: `out = alpha · a b + beta · c`, for f32 and f64.

use super::PlainTensor;
use crate::provider::{ResolvedCall, TensorSpec};
use permalloy_ir::DType;

/// Rows of `b` that stay in the first-level cache.
const BLOCK: usize = 64;

/// Positions of the operands, and the factors.
pub struct Gemm {
    pub c: Option<usize>,
    pub a: usize,
    pub b: usize,
    pub alpha: f64,
    pub beta: f64,
}

impl Gemm {
    /// Shapes and dtypes fit together.
    pub fn check(&self, call: &ResolvedCall) -> Result<(), String> {
        let spec = |i: usize| call.tensors.get(i).ok_or("a missing operand");
        let (a, b) = (spec(self.a)?, spec(self.b)?);
        let [Some(out)] = call.results.as_slice() else { return Err("one result expected".into()) };
        let misfit = || format!("{}: shapes {:?} and {:?} do not give {:?}", call.op, a.shape, b.shape, out.shape);
        let dims = match (a.shape.as_slice(), b.shape.as_slice()) {
            ([m, k], [k2, n]) if k == k2 => vec![*m, *n],
            ([batch, m, k], [batch2, k2, n]) if k == k2 && batch == batch2 => vec![*batch, *m, *n],
            _ => return Err(misfit()),
        };
        if dims != out.shape {
            return Err(misfit());
        }
        let c = self.c.map(spec).transpose()?;
        if c.is_some_and(|c| broadcast(&c.shape, &c.strides, &dims).is_none()) {
            return Err(format!("{}: the added tensor does not broadcast", call.op));
        }
        let computed = |t: &TensorSpec| t.dtype == a.dtype && matches!(t.dtype, DType::F32 | DType::F64);
        if !computed(a) || !computed(b) || !computed(out) || !c.is_none_or(computed) {
            return Err(format!("{}: the embedded provider multiplies f32 or f64", call.op));
        }
        Ok(())
    }

    pub fn run(&self, operands: &[PlainTensor], out: &PlainTensor) -> Result<(), String> {
        match out.dtype() {
            DType::F32 => self.typed::<f32>(operands, out, self.alpha as f32, self.beta as f32),
            DType::F64 => self.typed::<f64>(operands, out, self.alpha, self.beta),
            other => return Err(format!("no matrix product of {other}")),
        }
        Ok(())
    }

    fn typed<T>(&self, operands: &[PlainTensor], out: &PlainTensor, alpha: T, beta: T)
    where
        T: Copy + Default + PartialEq + std::ops::Mul<Output = T> + std::ops::AddAssign,
    {
        let (a, b) = (&operands[self.a], &operands[self.b]);
        let c = self.c.map(|i| &operands[i]);
        let rank = out.shape().len();
        let batch = if rank == 3 { out.shape()[0] } else { 1 };
        let (m, n) = (out.shape()[rank - 2], out.shape()[rank - 1]);
        let k = a.shape()[rank - 1] as usize;
        let c_strides = c.and_then(|c| broadcast(c.shape(), c.strides(), out.shape()));
        let at = |t: &PlainTensor, strides: &[i64], z: i64, i: i64, j: i64| {
            let outer = if rank == 3 { z * strides[0] } else { 0 };
            let offset = outer + i * strides[rank - 2] + j * strides[rank - 1];
            t.data_ptr().cast::<T>().wrapping_offset(offset as isize)
        };
        let mut row = vec![T::default(); n as usize];
        for (z, i) in (0..batch).flat_map(|z| (0..m).map(move |i| (z, i))) {
            row.fill(T::default());
            for block in (0..k).step_by(BLOCK) {
                for p in block..k.min(block + BLOCK) {
                    // SAFETY: indices are inside of the shapes that `check` compared.
                    let x = unsafe { at(a, a.strides(), z, i, p as i64).read_unaligned() };
                    for (j, sum) in row.iter_mut().enumerate() {
                        // SAFETY: as above.
                        *sum += x * unsafe { at(b, b.strides(), z, p as i64, j as i64).read_unaligned() };
                    }
                }
            }
            for (j, sum) in row.iter().enumerate() {
                let mut value = alpha * *sum;
                if let (Some(c), Some(strides)) = (c, &c_strides)
                    && beta != T::default()
                {
                    // SAFETY: as above, broadcast dims having stride 0.
                    value += beta * unsafe { at(c, strides, z, i, j as i64).read_unaligned() };
                }
                // SAFETY: as above.
                unsafe { at(out, out.strides(), z, i, j as i64).write_unaligned(value) };
            }
        }
    }
}

/// Strides under which the shape reads as `to`.
fn broadcast(shape: &[i64], strides: &[i64], to: &[i64]) -> Option<Vec<i64>> {
    let missing = to.len().checked_sub(shape.len())?;
    (0..to.len())
        .map(|d| match d.checked_sub(missing).map(|s| (shape[s], strides[s])) {
            None => Some(0),
            Some((n, s)) if n == to[d] => Some(s),
            Some((1, _)) => Some(0),
            Some(_) => None,
        })
        .collect()
}
