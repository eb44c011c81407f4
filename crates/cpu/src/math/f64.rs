//! f64 functions: the standard library's and libm's, plus digamma and erfinv. Not written to vectorise.

use crate::isa::Isa;

macro_rules! unary {
    ($($name:ident = $body:expr;)*) => {$(
        #[inline(always)]
        pub fn $name<I: Isa>(x: f64) -> f64 {
            let body: fn(f64) -> f64 = $body;
            body(x)
        }
    )*};
}

macro_rules! binary {
    ($($name:ident = $body:expr;)*) => {$(
        #[inline(always)]
        pub fn $name<I: Isa>(a: f64, b: f64) -> f64 {
            let body: fn(f64, f64) -> f64 = $body;
            body(a, b)
        }
    )*};
}

unary! {
    neg = |x| -x;
    abs = f64::abs;
    sign = |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x + 0.0 };
    exp = f64::exp;
    exp2 = f64::exp2;
    expm1 = f64::exp_m1;
    log = f64::ln;
    log2 = f64::log2;
    log10 = f64::log10;
    log1p = f64::ln_1p;
    sqrt = f64::sqrt;
    rsqrt = |x| 1.0 / x.sqrt();
    reciprocal = |x| 1.0 / x;
    sin = f64::sin;
    cos = f64::cos;
    tan = f64::tan;
    asin = f64::asin;
    acos = f64::acos;
    atan = f64::atan;
    sinh = f64::sinh;
    cosh = f64::cosh;
    tanh = f64::tanh;
    asinh = libm::asinh;
    // libm's gives numbers, not NaN, for large negative arguments.
    acosh = |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) };
    atanh = libm::atanh;
    erf = libm::erf;
    erfc = libm::erfc;
    erfinv = erfinv_scalar;
    lgamma = libm::lgamma;
    digamma = digamma_scalar;
    sigmoid = |x| { let e = (-x.abs()).exp(); (if x < 0.0 { e } else { 1.0 }) / (1.0 + e) };
    floor = f64::floor;
    ceil = f64::ceil;
    round = f64::round_ties_even;
    trunc = f64::trunc;
}

binary! {
    pow = f64::powf;
    atan2 = f64::atan2;
    hypot = f64::hypot;
    copysign = f64::copysign;
    fmod = |a, b| a % b;
    modulo = |a, b| { let r = a % b; if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r } };
    floor_div = |a, b| (a / b).floor();
    trunc_div = |a, b| (a / b).trunc();
    min = |a, b| if a < b || a.is_nan() { a } else { b };
    max = |a, b| if a > b || a.is_nan() { a } else { b };
}

/// Inverse of erf: Winitzki's closed form (relative error 2e-3), then three Halley steps.
fn erfinv_scalar(x: f64) -> f64 {
    const HALF_SQRT_PI: f64 = 0.886_226_925_452_758;
    let a = x.abs();
    if a >= 1.0 || a.is_nan() {
        return if a == 1.0 { x * f64::INFINITY } else { f64::NAN };
    }
    if a < 1e-9 {
        return x * HALF_SQRT_PI;
    }
    let complement = 1.0 - a;
    let w = (-a * a).ln_1p();
    let t = 2.0 / (std::f64::consts::PI * 0.147) + 0.5 * w;
    let mut y = ((t * t - w / 0.147).sqrt() - t).sqrt();
    for _ in 0..3 {
        let off = if a < 0.5 { libm::erf(y) - a } else { complement - libm::erfc(y) };
        let newton = off * HALF_SQRT_PI * (y * y).exp();
        y -= newton / (1.0 + y * newton);
    }
    y.copysign(x)
}

/// Taylor coefficients of digamma at its positive root: digamma's k-th derivative there over k!, k = 1, 2, ….
const DIGAMMA_AT_ROOT: [f64; 22] = [
    0.9676722454476212,
    -0.4427631689835921,
    0.258499760955651,
    -0.16394270544240652,
    0.10782405069126237,
    -0.07219956125645471,
    0.04880428816414311,
    -0.03316112647484736,
    0.022597648232218104,
    -0.01542476590494896,
    0.010538791616612175,
    -0.007204534386356869,
    0.004926781395729853,
    -0.003369801655439328,
    0.002305126326734928,
    -0.0015769367714301972,
    0.0010788252019162967,
    -0.0007380709389960052,
    0.000504953265834602,
    -0.0003454680251063077,
    0.00023635601564027053,
    -0.00016170622091974803,
];
const DIGAMMA_ROOT: f64 = 1.4616321449683622;
const DIGAMMA_ROOT_LOW: f64 = 9.549995429965697e-17;

/// Reflection for negative arguments, Taylor's series about the positive root, and elsewhere recurrence up to x >= 10
/// and the asymptotic series. As in PyTorch, ±0 gives ∓inf and a negative integer NaN.
fn digamma_scalar(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == x.trunc() {
            return f64::NAN;
        }
        let from_integer = x - x.round_ties_even();
        let cotangent = std::f64::consts::PI / (std::f64::consts::PI * from_integer).tan();
        return digamma_scalar(1.0 - x) - cotangent;
    }
    let from_root = (x - DIGAMMA_ROOT) - DIGAMMA_ROOT_LOW;
    if from_root.abs() < 0.25 {
        return from_root * DIGAMMA_AT_ROOT.iter().rev().fold(0.0, |sum, c| sum * from_root + c);
    }
    let (mut x, mut shift) = (x, 0.0);
    while x < 10.0 {
        shift += 1.0 / x;
        x += 1.0;
    }
    // ln x - 1/(2x) - Σ B(2n) / (2n x^2n).
    let z = 1.0 / (x * x);
    let series = [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32760.0, 1.0 / 12.0];
    let tail = z * series.iter().rev().fold(0.0, |sum, c| sum * z + c);
    x.ln() - 0.5 / x - tail - shift
}
