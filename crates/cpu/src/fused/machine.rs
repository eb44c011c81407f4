//! The accumulator machine.

/// Lanes of the largest block.
pub(crate) const LANES: usize = 256;

/// Operations on the accumulator. Those with an operand read a vector, or one value where the name says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Op {
    Load,
    LoadScalar,
    Add,
    AddScalar,
    Sub,
    SubScalar,
    SubFrom,
    SubFromScalar,
    Mul,
    MulScalar,
    Div,
    DivScalar,
    DivInto,
    DivIntoScalar,
    Max,
    MaxScalar,
    Min,
    MinScalar,
    Square,
    Neg,
    Abs,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Exp,
    /// Any other operation of one operand.
    Call,
    /// Writes the accumulator.
    Save,
    /// Adds the accumulator to 64 lanes.
    SumLanes,
    /// Adds the accumulator to a vector in memory.
    AddInto,
}

impl Op {
    /// The same with one value as the operand.
    pub(crate) fn scalar(self) -> Op {
        match self {
            Op::Load => Op::LoadScalar,
            Op::Add => Op::AddScalar,
            Op::Sub => Op::SubScalar,
            Op::SubFrom => Op::SubFromScalar,
            Op::Mul => Op::MulScalar,
            Op::Div => Op::DivScalar,
            Op::DivInto => Op::DivIntoScalar,
            Op::Max => Op::MaxScalar,
            Op::Min => Op::MinScalar,
            other => other,
        }
    }
}

/// An instruction: its operand in row `r` and column `c` is at `at + r · row + c · col`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instr {
    pub op: Op,
    pub prim: permalloy_ir::PrimOp,
    pub at: *mut f32,
    pub row: usize,
    pub col: usize,
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Instr, LANES, Op};
    use crate::class::Class;
    use crate::isa::{Avx512, IsaLevel};
    use crate::pointwise;
    use std::arch::x86_64::*;

    /// Runs the code on one block of `V` vectors, the last lanes of which may be masked off.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
    unsafe fn block<const V: usize, const MASKED: bool>(
        code: &[Instr],
        (row, column): (usize, usize),
        mask: __mmask16,
        call: *mut f32,
    ) {
        // SAFETY: the caller vouches for the operands; masked lanes are not touched.
        unsafe {
            let load = |p: *const f32, i: usize| match MASKED {
                true => _mm512_maskz_loadu_ps(mask, p.add(16 * i)),
                false => _mm512_loadu_ps(p.add(16 * i)),
            };
            let store = |p: *mut f32, i: usize, x: __m512| match MASKED {
                true => _mm512_mask_storeu_ps(p.add(16 * i), mask, x),
                false => _mm512_storeu_ps(p.add(16 * i), x),
            };
            let abs = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fff_ffff));
            let sign = _mm512_set1_ps(-0.0);
            let one = _mm512_set1_ps(1.0);
            // NaN if either is.
            let max = |a: __m512, b: __m512| {
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
                _mm512_mask_mov_ps(_mm512_max_ps(a, b), nan, a)
            };
            let min = |a: __m512, b: __m512| {
                let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
                _mm512_mask_mov_ps(_mm512_min_ps(a, b), nan, a)
            };
            let mut acc = [_mm512_setzero_ps(); V];
            for ins in code {
                let p = ins.at.add(row * ins.row + column * ins.col);
                macro_rules! vector {
                    (|$x:ident, $y:ident| $e:expr) => {
                        for i in 0..V {
                            let ($x, $y) = (acc[i], load(p, i));
                            acc[i] = $e;
                        }
                    };
                }
                macro_rules! scalar {
                    (|$x:ident, $y:ident| $e:expr) => {{
                        let $y = _mm512_set1_ps(p.read());
                        for i in 0..V {
                            let $x = acc[i];
                            acc[i] = $e;
                        }
                    }};
                }
                macro_rules! each {
                    (|$x:ident| $e:expr) => {
                        for i in 0..V {
                            let $x = acc[i];
                            acc[i] = $e;
                        }
                    };
                }
                match ins.op {
                    Op::Load => vector!(|_x, y| y),
                    Op::LoadScalar => scalar!(|_x, y| y),
                    Op::Add => vector!(|x, y| _mm512_add_ps(x, y)),
                    Op::AddScalar => scalar!(|x, y| _mm512_add_ps(x, y)),
                    Op::Sub => vector!(|x, y| _mm512_sub_ps(x, y)),
                    Op::SubScalar => scalar!(|x, y| _mm512_sub_ps(x, y)),
                    Op::SubFrom => vector!(|x, y| _mm512_sub_ps(y, x)),
                    Op::SubFromScalar => scalar!(|x, y| _mm512_sub_ps(y, x)),
                    Op::Mul => vector!(|x, y| _mm512_mul_ps(x, y)),
                    Op::MulScalar => scalar!(|x, y| _mm512_mul_ps(x, y)),
                    Op::Div => vector!(|x, y| _mm512_div_ps(x, y)),
                    Op::DivScalar => scalar!(|x, y| _mm512_div_ps(x, y)),
                    Op::DivInto => vector!(|x, y| _mm512_div_ps(y, x)),
                    Op::DivIntoScalar => scalar!(|x, y| _mm512_div_ps(y, x)),
                    Op::Max => vector!(|x, y| max(x, y)),
                    Op::MaxScalar => scalar!(|x, y| max(x, y)),
                    Op::Min => vector!(|x, y| min(x, y)),
                    Op::MinScalar => scalar!(|x, y| min(x, y)),
                    Op::Square => each!(|x| _mm512_mul_ps(x, x)),
                    Op::Neg => each!(|x| _mm512_xor_ps(x, sign)),
                    Op::Abs => each!(|x| _mm512_and_ps(x, abs)),
                    Op::Sqrt => each!(|x| _mm512_sqrt_ps(x)),
                    Op::Rsqrt => each!(|x| _mm512_div_ps(one, _mm512_sqrt_ps(x))),
                    Op::Reciprocal => each!(|x| _mm512_div_ps(one, x)),
                    Op::Exp => {
                        (0..V).for_each(|i| _mm512_storeu_ps(call.add(16 * i), acc[i]));
                        for i in 0..16 * V {
                            let x = call.add(i);
                            x.write(crate::math::f32::exp::<Avx512>(x.read()));
                        }
                        (0..V).for_each(|i| acc[i] = _mm512_loadu_ps(call.add(16 * i)));
                    }
                    Op::Call => {
                        let to = call.add(16 * V);
                        (0..V).for_each(|i| _mm512_storeu_ps(call.add(16 * i), acc[i]));
                        let n = 16 * V;
                        pointwise::unary(IsaLevel::Avx512, Class::F32, ins.prim, to.cast(), call.cast(), n);
                        (0..V).for_each(|i| acc[i] = _mm512_loadu_ps(to.add(16 * i)));
                    }
                    Op::Save => {
                        for (i, x) in acc.iter().enumerate() {
                            store(p, i, *x);
                        }
                    }
                    Op::SumLanes => {
                        let quarter = V.min(4);
                        for l in 0..quarter {
                            let mut sum = if MASKED { _mm512_maskz_mov_ps(mask, acc[l]) } else { acc[l] };
                            for k in 1..V / quarter {
                                sum = _mm512_add_ps(sum, acc[k * quarter + l]);
                            }
                            let lanes = p.add(16 * l);
                            _mm512_storeu_ps(lanes, _mm512_add_ps(_mm512_loadu_ps(lanes), sum));
                        }
                    }
                    Op::AddInto => {
                        for (i, x) in acc.iter().enumerate() {
                            store(p, i, _mm512_add_ps(load(p, i), *x));
                        }
                    }
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
    pub(super) unsafe fn row(code: &[Instr], row: usize, n: usize, call: *mut f32) {
        let mut c = 0;
        // SAFETY: passed on; blocks lie in the row.
        unsafe {
            while c + LANES <= n {
                block::<16, false>(code, (row, c), 0xffff, call);
                c += LANES;
            }
            while c + 64 <= n {
                block::<4, false>(code, (row, c), 0xffff, call);
                c += 64;
            }
            while c < n {
                let mask = if n - c >= 16 { 0xffff } else { (1u16 << (n - c)) - 1 };
                block::<1, true>(code, (row, c), mask, call);
                c += 16;
            }
        }
    }
}

/// Runs the code on row `row` of `n` columns; `call` has room for two blocks.
///
/// # Safety
/// This processor has AVX-512. Operands hold `n` values from where their steps say, those written may be written, and what
/// is written is read at no other column of the run.
pub(crate) unsafe fn run(code: &[Instr], row: usize, n: usize, call: *mut f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by the contract.
    unsafe {
        avx512::row(code, row, n, call);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (code, row, n, call);
}
