//! Scatters against a loop that does what the definition says.

mod support;

use permalloy_cpu::{RunError, Serial, Threads, compile_scatter};
use permalloy_ir::{DType, Dim, SymbolValues};
use permalloy_loops::kernel::*;
use support::build::{Case, Rng, levels};
use support::guard::Guard;
use support::{Memory, V, agrees, guarded, read, write};

struct Plan {
    case: Case,
    scatter: Scatter,
}

/// `sizes` of the nest; which of its axes the index and the output vary over; the output has the scattered dim at `at`.
fn plan(sizes: &[usize], index: &[usize], out: &[usize], at: usize, size: usize, dtype: DType, wide: DType) -> Plan {
    let axes: Vec<(i64, AxisRole)> = sizes.iter().map(|n| (*n as i64, AxisRole::Batch)).collect();
    let mut case = Case::new(&axes);
    let all: Vec<usize> = (0..sizes.len()).collect();
    let src = case.dense(dtype, &all);
    let index = case.dense(DType::I64, index);
    case.below[1] = Some(size as i64);
    let mut shape: Vec<i64> = out.iter().map(|a| sizes[*a] as i64).collect();
    shape.insert(at, size as i64);
    let b = case.buffer(wide, &shape, None);
    let strides = case.buffers[2].strides.clone();
    let mut access = Access { offset: Dim::ZERO, strides: vec![Dim::ZERO; sizes.len()], masks: vec![] };
    for (k, a) in out.iter().enumerate() {
        access.strides[*a] = strides[if k < at { k } else { k + 1 }].clone();
    }
    let scatter = Scatter {
        name: "scatter".into(),
        axes: sizes.iter().map(|n| Dim::from(*n as i64)).collect(),
        src,
        index,
        out: (b, access),
        stride: strides[at].clone(),
        size: Dim::from(size as i64),
        fused: vec![],
    };
    Plan { case, scatter }
}

impl Plan {
    fn run(&self, start: &Memory, threads: usize) -> Result<Memory, RunError> {
        let mut results = Vec::new();
        for level in levels() {
            let s = compile_scatter(&self.scatter, &self.case.buffers, &SymbolValues::new(), level).unwrap();
            let guard = if threads == 1 { Guard::Back } else { Guard::Front };
            let run = |p: Vec<*mut u8>, scratch| {
                // SAFETY: buffers span what their shapes say; scratch is as long as asked for, and aligned.
                unsafe {
                    if threads == 1 { s.run(&p, scratch, &Serial) } else { s.run(&p, scratch, &Threads(threads)) }
                }
            };
            let symbols = SymbolValues::new();
            let m = guarded((&self.case.buffers, &symbols), start, s.scratch_bytes(), guard, run)?;
            results.push(m);
        }
        let first = results.swap_remove(0);
        assert!(results.iter().all(|m| *m == first), "levels differ");
        Ok(first)
    }

    fn check(&self, seed: u64) {
        if self.case.is_left_out() {
            return;
        }
        let mut start = self.case.fill(&mut Rng(seed));
        // Whatever was there goes away.
        let elements = |b: usize| self.case.buffers[b].extent().as_const().unwrap() as usize;
        let (src, index, out) = (&self.case.buffers[0], &self.case.buffers[1], &self.case.buffers[2]);
        let sizes: Vec<i64> = self.scatter.axes.iter().map(|a| a.as_const().unwrap()).collect();
        let step = |a: &Access, point: &[i64]| -> usize {
            a.strides.iter().zip(point).map(|(s, i)| s.as_const().unwrap() * i).sum::<i64>() as usize
        };
        let mut sums = vec![(0.0f64, 0.0f64, 0i64); elements(2)];
        for p in 0..sizes.iter().product::<i64>() {
            let (mut rest, mut point) = (p, vec![0; sizes.len()]);
            for a in (0..sizes.len()).rev() {
                point[a] = rest % sizes[a];
                rest /= sizes[a];
            }
            let x = read(&start[0], src.dtype, step(&self.scatter.src.1, &point));
            let i = read(&start[1], index.dtype, step(&self.scatter.index.1, &point)).i();
            let at = step(&self.scatter.out.1, &point) + (i * self.scatter.stride.as_const().unwrap()) as usize;
            sums[at].0 += x.f();
            sums[at].1 += x.f().abs();
            sums[at].2 += x.i();
        }
        for at in 0..elements(2) {
            write(&mut start[2], out.dtype, at, V::F(7.0, 0.0));
        }
        let one = self.run(&start, 1).unwrap();
        assert_eq!(one, self.run(&start, 3).unwrap());
        for (at, (sum, size, int)) in sums.into_iter().enumerate() {
            let expected = if src.dtype.is_float() { V::F(sum, size * 2e-6) } else { V::I(int) };
            let got = read(&one[2], out.dtype, at);
            assert!(agrees(got, expected, out.dtype), "{:?} at {at}: {got:?}, expected {expected:?}", self.scatter);
        }
    }
}

#[test]
fn embedding_gradient() {
    for (tokens, table, width) in
        [(1, 1, 1), (7, 3, 5), (1000, 13, 64), (300, 2000, 33), (5000, 50, 300), (64, 4, 3000)]
    {
        plan(&[tokens, width], &[0], &[1], 0, table, DType::F32, DType::F32).check(3);
        plan(&[tokens, width], &[0], &[1], 0, table, DType::BF16, DType::BF16).check(4);
        plan(&[tokens, width], &[0], &[1], 0, table, DType::BF16, DType::F32).check(5);
        plan(&[tokens, width], &[0], &[1], 0, table, DType::I32, DType::I32).check(6);
    }
}

#[test]
fn scattered_dim_anywhere() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I8] {
        // [batch, tokens, width], index over tokens, or over batch and tokens, or everything.
        plan(&[6, 40, 9], &[1], &[0, 2], 1, 11, dtype, dtype).check(1);
        plan(&[6, 40, 9], &[0, 1], &[0, 2], 1, 11, dtype, dtype).check(2);
        plan(&[6, 40, 9], &[0, 1, 2], &[0, 2], 1, 11, dtype, dtype).check(3);
        plan(&[20, 9, 40], &[0, 1, 2], &[0, 1], 2, 300, dtype, dtype).check(4);
        plan(&[20, 9, 40], &[0, 1, 2], &[1, 2], 0, 4, dtype, dtype).check(5);
        plan(&[900, 1], &[0, 1], &[0], 1, 70, dtype, dtype).check(6);
        plan(&[5, 6, 70], &[0, 1], &[2], 0, 8, dtype, dtype).check(7);
    }
}

#[test]
fn random_scatters() {
    for seed in 0..150 {
        let mut rng = Rng(seed * 77 + 5);
        let rank = 1 + rng.below(4);
        let sizes: Vec<usize> = (0..rank).map(|_| rng.pick(&[1, 2, 3, 8, 17, 40])).collect();
        let index: Vec<usize> = (0..rank).filter(|_| !rng.once_in(3)).collect();
        let out: Vec<usize> = (0..rank).filter(|_| rng.once_in(2)).collect();
        let at = rng.below(out.len() + 1);
        let dtype = rng.pick(&[DType::F32, DType::BF16, DType::F64, DType::I64, DType::U8]);
        let size = rng.pick(&[1, 2, 9, 100, 1500]);
        plan(&sizes, &index, &out, at, size, dtype, dtype).check(seed + 1);
    }
}

/// A thousand ones in bf16 are a thousand: the sum is not kept in bf16.
#[test]
fn sixteen_bit_sums_are_exact() {
    let p = plan(&[1000, 4], &[0], &[1], 0, 2, DType::BF16, DType::BF16);
    let mut m = p.case.fill(&mut Rng(1));
    (0..4000).for_each(|at| write(&mut m[0], DType::BF16, at, V::F(1.0, 0.0)));
    (0..1000).for_each(|at| write(&mut m[1], DType::I64, at, V::I(1)));
    let m = p.run(&m, 1).unwrap();
    assert_eq!(read(&m[2], DType::BF16, 4), V::F(1000.0, 0.0));
    assert_eq!(read(&m[2], DType::BF16, 0), V::F(0.0, 0.0));
}

/// One hot row of many terms: the error does not grow with their number.
#[test]
fn hot_rows_stay_accurate() {
    let p = plan(&[100_000, 1], &[0], &[1], 0, 3, DType::F32, DType::F32);
    let mut m = p.case.fill(&mut Rng(1));
    (0..100_000).for_each(|at| write(&mut m[0], DType::F32, at, V::F(0.1, 0.0)));
    (0..100_000).for_each(|at| write(&mut m[1], DType::I64, at, V::I(1)));
    let sum = read(&p.run(&m, 1).unwrap()[2], DType::F32, 1).f();
    assert!((sum - 100_000.0 * f64::from(0.1f32)).abs() < 0.01, "{sum}");
}

#[test]
fn empty_scatters_zero_the_output() {
    let p = plan(&[0, 6], &[0], &[1], 0, 5, DType::F32, DType::F32);
    let mut m = p.case.fill(&mut Rng(1));
    (0..30).for_each(|at| write(&mut m[2], DType::F32, at, V::F(7.0, 0.0)));
    let m = p.run(&m, 1).unwrap();
    assert!((0..30).all(|at| read(&m[2], DType::F32, at) == V::F(0.0, 0.0)));
    let none = plan(&[4, 0], &[0], &[1], 0, 5, DType::F32, DType::F32);
    assert!(none.run(&none.case.fill(&mut Rng(1)), 1).is_ok());
    let no_rows = plan(&[0, 6], &[0], &[1], 0, 0, DType::F32, DType::F32);
    assert!(no_rows.run(&no_rows.case.fill(&mut Rng(1)), 1).is_ok());
}

#[test]
fn a_wrong_index_is_an_error() {
    for (sizes, wrong) in [([50usize, 200], 9i64), ([50, 2], -1), ([5000, 30], 8)] {
        let p = plan(&sizes, &[0], &[1], 0, 8, DType::F32, DType::F32);
        let mut m = p.case.fill(&mut Rng(1));
        write(&mut m[1], DType::I64, 33, V::I(wrong));
        let error = p.run(&m, 1).unwrap_err();
        let RunError::Index { ref buffer, index, size, .. } = error else { panic!("{error}") };
        assert_eq!((&**buffer, index, size), ("t1", wrong, 8));
    }
    let p = plan(&[4, 2], &[0], &[1], 0, 0, DType::F32, DType::F32);
    let mut m = p.case.fill(&mut Rng(1).clone());
    m.iter_mut().for_each(|w| w.fill(0));
    assert!(p.run(&m, 1).is_err());
}
