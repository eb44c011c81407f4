//! Error function and gamma function relatives.

use super::exponential::exp2_normal;
use super::{horner, wide};
use crate::isa::Isa;
use crate::math::f64;

/// Below 0.9, erf(x)/x - 1 in x² on [0, 0.81], relative error 2e-8; above, 1 - 2^p with p = log2(erfc(x)) on
/// [0.9, 3.95], where the error is 1.7e-9 of erf; from 3.95 on erf is 1.
#[inline(always)]
pub fn erf<I: Isa>(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    let ratio = horner!(I::fma, z; 0.12837915, -0.37612522, 0.1128214, -0.026778897, 0.005011949, -0.00060902996);
    let small = I::fma(a, ratio, a);
    let b = if a > 3.95 { 3.95 } else { a };
    let t = horner!(I::fma, b;
        -0.00024012104, -1.6270674, -0.9189625, -0.15020391, 0.032193784, -0.0044224793, 0.00028595896);
    let large = 1.0 - exp2_normal::<I>(t);
    (if a < 0.9 { small } else { large }).copysign(x)
}

/// erfc(a)·exp(a²) in t = (a-3)/(a+3) for a in [0, 10.2], relative error 3.2e-11, times exp(-a²); in f64.
#[inline(always)]
pub fn erfc<I: Isa>(x: f32) -> f32 {
    let a = x.abs() as f64;
    let a = if a > 10.2 { 10.2 } else { a };
    let t = (a - 3.0) / (a + 3.0);
    let p = horner!(I::fma64, t;
        0.17900115118091472,
        -0.32623356014602695,
        0.24560380195531306,
        -0.15011593102968582,
        0.07166582880976846,
        -0.024392583885159875,
        0.004269215056764925,
        0.0007083272329273286,
        -0.0005972926204870734,
        4.325847879679064e-05,
        6.395373287675256e-05,
        -9.547052859076283e-06,
        -6.69454919261067e-06);
    let positive = p * wide::exp::<I>(-a * a);
    (if x < 0.0 { 2.0 - positive } else { positive }) as f32
}

/// erfinv(x)/x as a function of w = -ln(1-x²): in w - 2.5 for w in [0, 5] (relative error 4.1e-10), in √w - 3 for √w in
/// [√5, 4] (1.3e-9); in f64.
#[inline(always)]
pub fn erfinv<I: Isa>(x: f32) -> f32 {
    let a = x.abs() as f64;
    let w = -wide::log::<I>((1.0 - a) * (1.0 + a));
    let central = horner!(I::fma64, w - 2.5;
        1.5014093516926414,
        0.2466402757860825,
        -0.004177324636478814,
        -0.0012527048774970135,
        0.00021826355764104907,
        -4.998759352619917e-06,
        -3.4260121900351373e-06,
        4.796987140444555e-07,
        1.6457229695105194e-08,
        -1.1023192030197144e-08,
        4.3703146439027705e-10,
        1.3285768139407543e-10);
    let tail = horner!(I::fma64, w.sqrt() - 3.0;
        2.8329768002020455,
        1.0016752348321227,
        0.0094453913326893,
        -0.007642661089746247,
        0.005686751018416799,
        -0.0035679524489444876,
        0.0014786649165122944,
        -0.00011782838455446882,
        -0.0002830576214080156,
        0.00015880602062344853,
        -2.6346465914279222e-05);
    let y = (a * if w < 5.0 { central } else { tail }) as f32;
    let outside = if a == 1.0 { f32::INFINITY } else { f32::NAN };
    (if a < 1.0 { y } else { outside }).copysign(x)
}

/// ln |Γ(x)|. Scalar.
#[inline(always)]
pub fn lgamma<I: Isa>(x: f32) -> f32 {
    f64::lgamma::<I>(x as f64) as f32
}

/// Γ'(x)/Γ(x); ±0 gives ∓inf and a negative integer NaN, as in PyTorch. Scalar.
#[inline(always)]
pub fn digamma<I: Isa>(x: f32) -> f32 {
    f64::digamma::<I>(x as f64) as f32
}
