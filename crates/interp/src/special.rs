//! The two special functions that no library at hand has.

use std::f64::consts::PI;

/// Inverse of erf: ±∞ at ±1, NaN beyond.
pub(crate) fn erfinv(y: f64) -> f64 {
    let a = y.abs();
    if a.is_nan() || a > 1.0 {
        return f64::NAN;
    }
    if a == 1.0 || a == 0.0 {
        return if a == 0.0 { y } else { f64::INFINITY.copysign(y) };
    }
    // Winitzki's approximation, then Halley's iteration on erf(x) = a, or on erfc(x) = 1 - a (exact) near 1.
    let log = libm::log((1.0 - a) * (1.0 + a));
    let t = 2.0 / (PI * 0.147) + log / 2.0;
    let mut x = ((t * t - log / 0.147).sqrt() - t).sqrt();
    if a < 1e-4 {
        x = a * PI.sqrt() / 2.0;
    }
    for _ in 0..4 {
        let error = if a < 0.5 { libm::erf(x) - a } else { (1.0 - a) - libm::erfc(x) };
        let slope = 2.0 / PI.sqrt() * libm::exp(-x * x);
        let newton = error / slope;
        x -= newton / (1.0 + x * newton);
    }
    x.copysign(y)
}

/// Derivative of lgamma: ∓∞ at ±0, NaN at the negative integers.
pub(crate) fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == x.trunc() {
            return f64::NAN;
        }
        // ψ(x) = ψ(1 - x) - π / tan(πx), whose period is 1.
        return digamma(1.0 - x) - PI / libm::tan(PI * (x % 1.0));
    }
    // ψ(x) = ψ(x + 1) - 1/x up to where the asymptotic series holds.
    let (mut x, mut shift) = (x, 0.0);
    while x < 16.0 {
        shift -= 1.0 / x;
        x += 1.0;
    }
    // ln x - 1/2x - Σ B₂ₙ / (2n x²ⁿ)
    const TERMS: [f64; 7] =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32760.0, 1.0 / 12.0];
    let inverse = 1.0 / (x * x);
    let series = TERMS.iter().rev().fold(0.0, |sum, t| (sum + t) * inverse);
    libm::log(x) - 0.5 / x - series + shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erfinv_inverts_erf() {
        for x in [1e-300, 1e-8, 1e-4, 0.01, 0.3, 0.5, 1.0, 2.0, 3.0] {
            let y = erfinv(libm::erf(x));
            // Near 1 erf itself loses the digits.
            let tolerance = 4.0 * f64::EPSILON * (1.0 + libm::erf(x) / (libm::exp(-x * x) * 1.128 * x.max(1.0)));
            assert!((y - x).abs() <= tolerance * x, "{x}: {y}");
            assert_eq!(erfinv(-libm::erf(x)), -y);
        }
        assert_eq!(erfinv(1.0), f64::INFINITY);
        assert_eq!(erfinv(-1.0), f64::NEG_INFINITY);
        assert!(erfinv(1.1).is_nan() && erfinv(f64::NAN).is_nan());
        // Known value: erfinv(0.5).
        assert!((erfinv(0.5) - 0.476_936_276_204_469_9).abs() < 1e-15);
        // The largest double below 1 has erfinv 5.863584748755167.
        assert!((erfinv(1.0 - f64::EPSILON / 2.0) - 5.863_584_748_755_167).abs() < 1e-13);
    }

    #[test]
    fn digamma_of_known_points() {
        const EULER: f64 = 0.577_215_664_901_532_9;
        assert!((digamma(1.0) + EULER).abs() < 1e-15);
        assert!((digamma(0.5) + EULER + 2.0 * 2f64.ln()).abs() < 2e-15);
        assert!((digamma(-0.5) - (digamma(0.5) + 2.0)).abs() < 4e-15);
        assert!((digamma(100.0) - 4.600_161_852_738_087).abs() < 1e-14);
        assert_eq!(digamma(0.0), f64::NEG_INFINITY);
        assert_eq!(digamma(-0.0), f64::INFINITY);
        assert!(digamma(-3.0).is_nan() && digamma(f64::NAN).is_nan());
        assert_eq!(digamma(f64::INFINITY), f64::INFINITY);
    }
}
