//! f64 kernels behind the f32 functions: relative error below 1e-12, arguments within f32's range.

use super::horner;
use crate::isa::Isa;

/// 1.5·2^52: adding it rounds to an integer, which then stands in the low bits.
pub const ROUND: f64 = 6_755_399_441_055_744.0;

/// 2^t, for t clamped to ±1000. 2^f on [-0.5005, 0.5005], relative error 7.8e-13.
#[inline(always)]
pub fn exp2<I: Isa>(t: f64) -> f64 {
    let t = if t > 1000.0 { 1000.0 } else { t };
    let t = if t < -1000.0 { -1000.0 } else { t };
    let shifted = t + ROUND;
    let f = t - (shifted - ROUND);
    let p = horner!(I::fma64, f;
        0.9999999999997599,
        0.6931471805464037,
        0.2402265069890425,
        0.055504109397838626,
        0.009618128539478273,
        0.0013333451635567123,
        0.0001540385303690948,
        1.5309851791025967e-05,
        1.317577664130985e-06);
    p * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

/// e^x by way of [`exp2`]; the argument's rounding costs |x|·2^-53.
#[inline(always)]
pub fn exp<I: Isa>(x: f64) -> f64 {
    exp2::<I>(x * std::f64::consts::LOG2_E)
}

/// Base-2 logarithm with its special values: 0 gives -inf, a negative NaN.
///
/// x = 2^k·m, m in [√½, √2); ln m = 2·atanh(s), s = (m-1)/(m+1). (atanh(s)/s - 1)/s² in s² on [0, 0.0296], relative
/// error of the logarithm 2e-16 before rounding.
#[inline(always)]
pub fn log2<I: Isa>(x: f64) -> f64 {
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const TWO_POW_52: u64 = 0x4330_0000_0000_0000;
    let bits = x.to_bits();
    let above = bits.wrapping_add(ONE - SQRT_HALF);
    let m = f64::from_bits(bits.wrapping_sub(above & 0xfff0_0000_0000_0000).wrapping_add(ONE));
    let k = f64::from_bits((above >> 52) | TWO_POW_52) - (4_503_599_627_370_496.0 + 1023.0);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let p = horner!(I::fma64, z;
        0.3333333333329225,
        0.20000000026881523,
        0.1428570843435778,
        0.11111695705732906,
        0.09061486277514749,
        0.08414108852738257);
    let y = I::fma64(I::fma64(s * z, p, s), 2.0 * std::f64::consts::LOG2_E, k);
    let y = if x < f64::INFINITY { y } else { x };
    let at_zero = if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    if x <= 0.0 { at_zero } else { y }
}

#[inline(always)]
pub fn log<I: Isa>(x: f64) -> f64 {
    log2::<I>(x) * std::f64::consts::LN_2
}
