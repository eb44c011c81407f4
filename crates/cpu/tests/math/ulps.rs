//! Worst distance from the correctly rounded result, over a stride of all f32 bit patterns and the interesting ones.

use permalloy_cpu::math::f64 as reference;

use super::*;

const ALLOWED: u32 = 2;

const SPECIALS: [f32; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.0,
    -2.0,
    2.5,
    -3.0,
    3.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    std::f32::consts::PI,
];

/// Every `stride`-th bit pattern, the specials, and powers of two, both signs, with their neighbours.
fn patterns(stride: usize) -> Vec<f32> {
    let mut bits: Vec<u32> = (0..=u32::MAX).step_by(stride).collect();
    bits.extend(SPECIALS.map(f32::to_bits));
    let powers = (0..255u32).map(|e| e << 23).chain((0..23).map(|d| 1 << d));
    for power in powers {
        for near in [power.saturating_sub(1), power, power + 1] {
            bits.extend([near, near | 0x8000_0000]);
        }
    }
    // Where functions change over, overflow and underflow.
    let edges =
        [0.625f32, 0.9, 3.95, 4.0 / 3.0, 2.0 / 3.0, 88.722_84, 103.972_08, 87.336_55, 9.01, 17.33, 10.05, 128.0, 149.0];
    for edge in edges {
        for near in edge.to_bits() - 500..edge.to_bits() + 500 {
            bits.extend([near, near | 0x8000_0000]);
        }
    }
    bits.into_iter().map(f32::from_bits).collect()
}

/// Distance in representable values; different zeros, or NaN on one side only, are worlds apart.
pub fn distance(a: f32, b: f32) -> u32 {
    let line = |x: f32| if x.is_sign_negative() { -((x.to_bits() & 0x7fff_ffff) as i64) } else { x.to_bits() as i64 };
    match (a.is_nan(), b.is_nan()) {
        (true, true) => 0,
        (false, false) if a == b && a.is_sign_negative() != b.is_sign_negative() => u32::MAX,
        (false, false) => (line(a) - line(b)).unsigned_abs() as u32,
        _ => u32::MAX,
    }
}

/// The worst of `results` against `expected`, with its index.
fn worst(results: &[f32], expected: &[f32]) -> (u32, usize) {
    let distances = results.iter().zip(expected).enumerate().map(|(at, (r, e))| (distance(*r, *e), at));
    distances.max_by_key(|(d, at)| (*d, std::cmp::Reverse(*at))).expect("no results")
}

/// One row of the table; says what exceeded the bound.
fn report(name: &str, mut run: impl FnMut(IsaLevel) -> (u32, String)) -> Option<String> {
    let mut row = format!("{name:10}");
    let mut failure = None;
    for level in levels() {
        let (ulps, case) = run(level);
        row += &format!(" {level:?} {ulps}");
        if ulps > ALLOWED {
            failure = Some(format!("{name} on {level:?}: {ulps} ulp: {case}"));
        }
    }
    println!("{row}");
    failure
}

macro_rules! against_f64 {
    ($($name:ident)*) => { [$((stringify!($name), $name::run as Unary, reference::$name::<Portable> as fn(f64) -> f64)),*] };
}

type Case = (&'static str, Unary, fn(f64) -> f64);

fn check_unary(cases: &[Case], stride: usize) {
    let inputs = patterns(stride);
    let mut results = vec![0.0; inputs.len()];
    let mut failures = Vec::new();
    for (name, run, reference) in cases {
        let expected: Vec<f32> = inputs.iter().map(|x| reference(*x as f64) as f32).collect();
        failures.extend(report(name, |level| {
            // SAFETY: `levels` holds only what the processor has.
            unsafe { run(level, &inputs, &mut results) };
            let (ulps, at) = worst(&results, &expected);
            (ulps, format!("of {:e}: {:e}, not {:e}", inputs[at], results[at], expected[at]))
        }));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn simple_functions() {
    check_unary(&against_f64!(neg abs sign sqrt rsqrt reciprocal floor ceil round trunc), 4099);
}

#[test]
fn exponentials_and_logarithms() {
    check_unary(&against_f64!(exp exp2 expm1 log log2 log10 log1p sigmoid), 4099);
}

#[test]
fn trigonometric_functions() {
    check_unary(&against_f64!(sin cos tan asin acos atan), 4099);
}

#[test]
fn hyperbolic_functions() {
    check_unary(&against_f64!(sinh cosh tanh asinh acosh atanh), 4099);
}

#[test]
fn error_functions() {
    check_unary(&against_f64!(erf erfc), 4099);
    // The references are slower, or are what the function calls: `values` has independent ones.
    check_unary(&against_f64!(erfinv lgamma digamma), 4099 * 16 + 1);
}

/// Pairs of specials, then pseudorandom pairs: of any bit patterns, and of moderate size.
fn pairs(count: usize) -> (Vec<f32>, Vec<f32>) {
    let mut pairs: Vec<(f32, f32)> = SPECIALS.iter().flat_map(|a| SPECIALS.map(|b| (*a, b))).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    for i in 0..count {
        let (a, b) = (next(), next());
        // Exponents of 2^-8..2^8 about 1, and sometimes an integer.
        let moderate = |bits: u32| f32::from_bits((bits & 0x807f_ffff) | ((119 + (bits >> 23 & 15)) << 23));
        pairs.push(match i % 4 {
            0 => (f32::from_bits(a), f32::from_bits(b)),
            1 => (moderate(a), moderate(b)),
            2 => (moderate(a), moderate(b).round()),
            _ => (f32::from_bits(a), moderate(b) * 0.01),
        });
    }
    pairs.into_iter().unzip()
}

#[test]
fn binary_functions() {
    macro_rules! against_f64 {
        ($($name:ident)*) => { [$((stringify!($name), $name::run as Binary, reference::$name::<Portable> as fn(f64, f64) -> f64)),*] };
    }
    let mut cases = against_f64!(pow atan2 hypot copysign fmod modulo floor_div trunc_div min max).to_vec();
    // These round the quotient first, as f32.
    for (name, _, reference) in &mut cases {
        match *name {
            "floor_div" => *reference = |a, b| ((a / b) as f32).floor() as f64,
            "trunc_div" => *reference = |a, b| ((a / b) as f32).trunc() as f64,
            _ => {}
        }
    }
    let (a, b) = pairs(400_000);
    let mut results = vec![0.0; a.len()];
    let mut failures = Vec::new();
    for (name, run, reference) in cases {
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| reference(*a as f64, *b as f64) as f32).collect();
        failures.extend(report(name, |level| {
            // SAFETY: `levels` holds only what the processor has.
            unsafe { run(level, &a, &b, &mut results) };
            let (ulps, at) = worst(&results, &expected);
            (ulps, format!("of {:e}, {:e}: {:e}, not {:e}", a[at], b[at], results[at], expected[at]))
        }));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
