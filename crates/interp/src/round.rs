//! What a dtype can hold.

use permalloy_ir::DType;

/// The nearest value of a float dtype, ties to even, beyond its range infinity. Other dtypes: unchanged.
pub fn round_to(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(x as f32),
        DType::BF16 => round_bits(x, 8, -126, f64::from(f32::from_bits(0x7f7f_0000))),
        DType::F16 => round_bits(x, 11, -14, 65504.0),
        _ => x,
    }
}

/// Wraps an integer to the width of its dtype; for bool: is it non-zero.
pub fn wrap(dtype: DType, x: i64) -> i64 {
    match dtype {
        DType::I32 => i64::from(x as i32),
        DType::I16 => i64::from(x as i16),
        DType::I8 => i64::from(x as i8),
        DType::U8 => i64::from(x as u8),
        DType::Bool => i64::from(x != 0),
        _ => x,
    }
}

/// Lowest and highest value of an integer dtype.
pub(crate) fn int_range(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DType::U8 => (0, 255),
        DType::Bool => (0, 1),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Rounds to `precision` significant bits with the lowest normal exponent `min_exponent`, straight from f64: a detour
/// over f32 would round twice.
fn round_bits(x: f64, precision: i32, min_exponent: i32, max: f64) -> f64 {
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let quantum = libm::ldexp(1.0, exponent.max(min_exponent) - (precision - 1));
    let rounded = (x / quantum).round_ties_even() * quantum;
    if rounded.abs() > max { f64::INFINITY.copysign(x) } else { rounded.copysign(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_and_f16_round_to_nearest_even_once() {
        let bf16 = |x| round_to(DType::BF16, x);
        assert_eq!(bf16(1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(bf16(1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        // Just above a tie, by less than f32 can see.
        assert_eq!(bf16(1.0 + 1.0 / 256.0 + 1e-12), 1.0 + 2.0 / 256.0);
        assert_eq!(bf16(3.4e38), f64::INFINITY);
        assert_eq!(bf16(3.38e38), f64::from(f32::from_bits(0x7f7e_0000)));
        let f16 = |x| round_to(DType::F16, x);
        assert_eq!(f16(65519.9), 65504.0);
        assert_eq!(f16(-65520.0), f64::NEG_INFINITY);
        let tiny = 2f64.powi(-24);
        assert_eq!(f16(0.5 * tiny), 0.0);
        assert_eq!(f16(0.50001 * tiny), tiny);
        assert!(f16(-0.1 * tiny).is_sign_negative());
        assert!(f16(f64::NAN).is_nan());
        assert_eq!(f16(0.1), 0.0999755859375);
        assert_eq!(round_to(DType::F64, 0.1), 0.1);
    }

    #[test]
    fn integers_wrap_to_their_width() {
        assert_eq!(wrap(DType::I8, 128), -128);
        assert_eq!(wrap(DType::U8, -1), 255);
        assert_eq!(wrap(DType::I32, 1 << 31), -(1 << 31));
        assert_eq!(wrap(DType::Bool, -7), 1);
    }
}
