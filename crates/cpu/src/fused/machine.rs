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
    /// The same with the maximum, NaN winning.
    MaxLanes,
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
    use crate::isa::IsaLevel;
    use crate::math::f32::{LN2_HIGH, LN2_LOW};
    use crate::pointwise;
    use std::arch::x86_64::*;

    /// The block once for each vector, without a loop, so that the accumulator stays in registers.
    macro_rules! unroll {
        ($v:ident, $i:ident => $body:block) => {
            unroll!(@ $v, $i, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
        };
        (@ $v:ident, $i:ident, $body:block, $($n:literal)*) => {{
            $(if $n < $v {
                let $i: usize = $n;
                $body
            })*
        }};
    }

    /// Divisors and radicands of the fast ways lie between these.
    const LOW: f32 = f32::from_bits((127 - 60) << 23);
    const HIGH: f32 = f32::from_bits((127 + 60) << 23);

    /// Lanes whose magnitude lies between the limits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
    fn moderate(x: __m512) -> __mmask16 {
        let bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fff_ffff));
        let low = LOW.to_bits();
        let above = _mm512_sub_epi32(bits, _mm512_set1_epi32(low as i32));
        _mm512_cmplt_epu32_mask(above, _mm512_set1_epi32((HIGH.to_bits() - low) as i32))
    }

    /// x / y, where r is 1 / y to the last bit and y moderate: a product, and one correction where that cannot fail.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
    fn quotient(x: __m512, y: __m512, r: __m512) -> __m512 {
        let q = _mm512_mul_ps(x, r);
        let rest = _mm512_fnmadd_ps(q, y, x);
        _mm512_mask3_fmadd_ps(rest, r, q, moderate(q))
    }

    /// x / y for moderate y; the instruction takes 16 cycles, this about five.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
    fn divide(x: __m512, y: __m512) -> __m512 {
        let r = _mm512_rcp14_ps(y);
        let r = _mm512_fmadd_ps(_mm512_fnmadd_ps(y, r, _mm512_set1_ps(1.0)), r, r);
        quotient(x, y, r)
    }

    /// e^x as `math::f32::exp` computes it, but for the last step, which is one instruction.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
    fn exp(x: __m512) -> __m512 {
        const ROUND: f32 = 12_582_912.0;
        let c = |x: f32| _mm512_set1_ps(x);
        // The second operand if either is NaN.
        let x = _mm512_max_ps(c(-104.0), _mm512_min_ps(c(89.0), x));
        let n = _mm512_sub_ps(_mm512_fmadd_ps(x, c(std::f32::consts::LOG2_E), c(ROUND)), c(ROUND));
        let r = _mm512_fnmadd_ps(n, c(LN2_LOW), _mm512_fnmadd_ps(n, c(LN2_HIGH), x));
        let q = _mm512_fmadd_ps(r, c(0.001_383_628), c(0.008_369_126));
        let q = _mm512_fmadd_ps(r, q, c(0.041_668_106));
        let q = _mm512_fmadd_ps(r, q, c(0.166_665_17));
        let q = _mm512_fmadd_ps(r, q, c(0.499_999_94));
        let y = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r), c(1.0));
        _mm512_scalef_ps(y, n)
    }

    /// The square root of a moderate positive value, from an approximation of its reciprocal.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
    fn root(x: __m512) -> __m512 {
        let y = _mm512_rsqrt14_ps(x);
        let s = _mm512_mul_ps(x, y);
        let half = _mm512_mul_ps(y, _mm512_set1_ps(0.5));
        _mm512_fmadd_ps(_mm512_fnmadd_ps(s, s, x), half, s)
    }

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
                        unroll!(V, i => {
                            let ($x, $y) = (acc[i], load(p, i));
                            acc[i] = $e;
                        })
                    };
                }
                macro_rules! scalar {
                    (|$x:ident, $y:ident| $e:expr) => {{
                        let $y = _mm512_set1_ps(p.read());
                        unroll!(V, i => {
                            let $x = acc[i];
                            acc[i] = $e;
                        })
                    }};
                }
                macro_rules! each {
                    (|$x:ident| $e:expr) => {
                        unroll!(V, i => {
                            let $x = acc[i];
                            acc[i] = $e;
                        })
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
                    Op::Div => {
                        let mut fast = 0xffff;
                        unroll!(V, i => {
                            fast &= moderate(load(p, i));
                        });
                        if fast == 0xffff {
                            vector!(|x, y| divide(x, y));
                        } else {
                            vector!(|x, y| _mm512_div_ps(x, y));
                        }
                    }
                    Op::DivScalar => {
                        let y = p.read();
                        if (LOW..HIGH).contains(&y.abs()) {
                            let (y, r) = (_mm512_set1_ps(y), _mm512_set1_ps(1.0 / y));
                            each!(|x| quotient(x, y, r));
                        } else {
                            let y = _mm512_set1_ps(y);
                            each!(|x| _mm512_div_ps(x, y));
                        }
                    }
                    Op::DivInto => {
                        let mut fast = 0xffff;
                        each!(|x| {
                            fast &= moderate(x);
                            x
                        });
                        if fast == 0xffff {
                            vector!(|x, y| divide(y, x));
                        } else {
                            vector!(|x, y| _mm512_div_ps(y, x));
                        }
                    }
                    Op::DivIntoScalar => scalar!(|x, y| _mm512_div_ps(y, x)),
                    Op::Max => vector!(|x, y| max(x, y)),
                    Op::MaxScalar => scalar!(|x, y| max(x, y)),
                    Op::Min => vector!(|x, y| min(x, y)),
                    Op::MinScalar => scalar!(|x, y| min(x, y)),
                    Op::Square => each!(|x| _mm512_mul_ps(x, x)),
                    Op::Neg => each!(|x| _mm512_xor_ps(x, sign)),
                    Op::Abs => each!(|x| _mm512_and_ps(x, abs)),
                    Op::Sqrt => {
                        let mut fast = 0xffff;
                        each!(|x| {
                            fast &= moderate(x) & !_mm512_movepi32_mask(_mm512_castps_si512(x));
                            x
                        });
                        if fast == 0xffff {
                            each!(|x| root(x));
                        } else {
                            each!(|x| _mm512_sqrt_ps(x));
                        }
                    }
                    Op::Rsqrt => each!(|x| _mm512_div_ps(one, _mm512_sqrt_ps(x))),
                    Op::Reciprocal => each!(|x| _mm512_div_ps(one, x)),
                    Op::Exp => each!(|x| exp(x)),
                    Op::Call => {
                        let to = call.add(16 * V);
                        unroll!(V, i => { _mm512_storeu_ps(call.add(16 * i), acc[i]) });
                        let n = 16 * V;
                        pointwise::unary(IsaLevel::Avx512, Class::F32, ins.prim, to.cast(), call.cast(), n);
                        unroll!(V, i => { acc[i] = _mm512_loadu_ps(to.add(16 * i)) });
                    }
                    Op::Save => {
                        unroll!(V, i => {
                            store(p, i, acc[i]);
                        })
                    }
                    Op::SumLanes => {
                        if MASKED {
                            acc[0] = _mm512_maskz_mov_ps(mask, acc[0]);
                        }
                        let mut sums = [_mm512_setzero_ps(); 4];
                        unroll!(V, i => {
                            sums[i % 4] = if i < 4 { acc[i] } else { _mm512_add_ps(sums[i % 4], acc[i]) };
                        });
                        let quarter = if V < 4 { V } else { 4 };
                        for (l, sum) in sums.iter().enumerate().take(quarter) {
                            let lanes = p.add(16 * l);
                            _mm512_storeu_ps(lanes, _mm512_add_ps(_mm512_loadu_ps(lanes), *sum));
                        }
                    }
                    Op::MaxLanes => {
                        if MASKED {
                            acc[0] = _mm512_mask_mov_ps(_mm512_set1_ps(f32::NEG_INFINITY), mask, acc[0]);
                        }
                        let mut tops = [_mm512_set1_ps(f32::NEG_INFINITY); 4];
                        unroll!(V, i => {
                            tops[i % 4] = if i < 4 { acc[i] } else { max(acc[i], tops[i % 4]) };
                        });
                        let quarter = if V < 4 { V } else { 4 };
                        for (l, top) in tops.iter().enumerate().take(quarter) {
                            let lanes = p.add(16 * l);
                            _mm512_storeu_ps(lanes, max(_mm512_loadu_ps(lanes), *top));
                        }
                    }
                    Op::AddInto => {
                        unroll!(V, i => {
                            store(p, i, _mm512_add_ps(load(p, i), acc[i]));
                        })
                    }
                }
            }
        }
    }

    /// The sum of 64 lanes.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")]
    pub(super) unsafe fn sum(lanes: *const f32) -> f32 {
        // SAFETY: the caller vouches for the lanes.
        let [a, b, c, d] = [0, 16, 32, 48].map(|i| unsafe { _mm512_loadu_ps(lanes.add(i)) });
        _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, c), _mm512_add_ps(b, d)))
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
            while c + 128 <= n {
                block::<8, false>(code, (row, c), 0xffff, call);
                c += 128;
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

/// The sum of 64 lanes.
///
/// # Safety
/// This processor has AVX-512; there are 64 values.
pub(crate) unsafe fn sum(lanes: *const f32) -> f32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by the contract.
    unsafe {
        avx512::sum(lanes)
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: by the contract.
    unsafe {
        (0..64).map(|i| lanes.add(i).read()).sum()
    }
}
