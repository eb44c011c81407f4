//! That the functions vectorise: time per element against the standard library's.

use std::hint::black_box;
use std::time::Instant;

use permalloy_cpu::math::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

use super::*;

const ELEMENTS: usize = 4096;

/// Nanoseconds per element, the best of many rounds.
fn time(mut pass: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..40 {
        let start = Instant::now();
        for _ in 0..4 {
            pass();
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    best * 1e9 / (4 * ELEMENTS) as f64
}

fn measure(run: Unary, level: IsaLevel, inputs: &[f32]) -> f64 {
    let mut results = vec![0.0; inputs.len()];
    time(|| {
        // SAFETY: `levels` holds only what the processor has.
        unsafe { run(level, black_box(inputs), &mut results) };
        black_box(&results);
    })
}

#[test]
fn vectorised_beats_scalar() {
    if cfg!(debug_assertions) {
        println!("skipped: the loops vectorise only when optimised");
        return;
    }
    let inputs: Vec<f32> = (0..ELEMENTS).map(|i| 0.001 + i as f32 * 0.002).collect();
    let scalar = |function: fn(f32) -> f32| {
        let mut results = vec![0.0; inputs.len()];
        time(|| {
            for (r, x) in results.iter_mut().zip(black_box(&inputs)) {
                *r = function(*x);
            }
            black_box(&results);
        })
    };
    type Rival = (&'static str, Unary, fn(f32) -> f32);
    let rivals: [Rival; 4] = [
        ("exp", exp::run, f32::exp),
        ("tanh", tanh::run, f32::tanh),
        ("erf", erf::run, libm::erff),
        ("log", log::run, f32::ln),
    ];
    for (name, run, rival) in rivals {
        let slow = scalar(rival);
        for level in levels() {
            let fast = measure(run, level, &inputs);
            println!("{name:10} {level:?} {fast:.2} ns, scalar {slow:.2} ns");
            assert!(level == IsaLevel::Portable || slow > 2.0 * fast, "{name} on {level:?}: {fast} against {slow}");
        }
    }
}

fn widen(convert: impl Fn(u16) -> f32) -> impl Fn(&[u16], &mut [f32]) {
    move |source, result| {
        result.iter_mut().zip(source).for_each(|(r, x)| *r = convert(*x));
        black_box(result);
    }
}

fn narrow(convert: impl Fn(f32) -> u16) -> impl Fn(&[f32], &mut [u16]) {
    move |source, result| {
        result.iter_mut().zip(source).for_each(|(r, x)| *r = convert(*x));
        black_box(result);
    }
}

/// Nothing to assert: a table for whoever changes a function.
#[test]
#[ignore = "a table of timings"]
fn timings() {
    macro_rules! table {
        ($($name:ident)*) => { [$((stringify!($name), $name::run as Unary)),*] };
    }
    let inputs: Vec<f32> = (0..ELEMENTS).map(|i| 0.001 + i as f32 * 0.0002).collect();
    let functions = table!(
        exp exp2 expm1 log log1p sigmoid tanh erf sqrt rsqrt reciprocal floor round trunc sign
        log2 log10 sin cos tan asin acos atan sinh cosh asinh acosh atanh erfc erfinv lgamma digamma);
    for (name, run) in functions {
        let row: Vec<String> = levels().iter().map(|l| format!("{l:?} {:.2}", measure(run, *l, &inputs))).collect();
        println!("{name:10} {}", row.join("  "));
    }
    let other: Vec<f32> = inputs.iter().map(|x| 3.0 * x - 1.0).collect();
    macro_rules! pairs {
        ($($name:ident)*) => { [$((stringify!($name), $name::run as Binary)),*] };
    }
    for (name, run) in pairs!(pow atan2 hypot copysign fmod modulo floor_div min max) {
        let mut results = vec![0.0; ELEMENTS];
        let mut row = String::new();
        for level in levels() {
            // SAFETY: `levels` holds only what the processor has.
            let ns = time(|| unsafe { run(level, black_box(&inputs), &other, &mut results) });
            row += &format!(" {level:?} {ns:.2} ");
        }
        println!("{name:10}{row}");
    }
    let halves: Vec<u16> = (0..ELEMENTS).map(|i| i as u16).collect();
    let (mut wide, mut short) = (vec![0.0; ELEMENTS], vec![0; ELEMENTS]);
    let conversions = [
        ("f16_to_f32", time(|| widen(f16_to_f32)(black_box(&halves), &mut wide))),
        ("bf16_to_f32", time(|| widen(bf16_to_f32)(black_box(&halves), &mut wide))),
        ("f32_to_f16", time(|| narrow(f32_to_f16)(black_box(&inputs), &mut short))),
        ("f32_to_bf16", time(|| narrow(f32_to_bf16)(black_box(&inputs), &mut short))),
    ];
    for (name, ns) in conversions {
        println!("{name:11} baseline {ns:.2}");
    }
}
