//! The 16-bit formats' conversions, which are exact or correctly rounded.

use permalloy_cpu::math::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

/// An f16's value from its fields.
fn f16_value(x: u16) -> f64 {
    let (exponent, fraction) = ((x >> 10 & 31) as i32, (x & 1023) as f64);
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if x & 0x8000 != 0 { -magnitude } else { magnitude }
}

#[test]
fn every_16_bit_value_survives() {
    for x in 0..=u16::MAX {
        let (from_f16, from_bf16) = (f16_to_f32(x), bf16_to_f32(x));
        let value = f16_value(x) as f32;
        if value.is_nan() {
            assert!(from_f16.is_nan());
            assert_eq!(f32_to_f16(from_f16), x | 0x0200);
        } else {
            assert_eq!(from_f16.to_bits(), value.to_bits(), "{x:#06x}");
            assert_eq!(f32_to_f16(from_f16), x);
        }
        let quiet = if from_bf16.is_nan() { 0x0040 } else { 0 };
        assert_eq!(f32_to_bf16(from_bf16), x | quiet);
    }
}

/// Between two neighbours: just below, at, and just above the midpoint.
fn check_midpoint(low: u16, midpoint: f32, convert: fn(f32) -> u16) {
    let even = low + (low & 1);
    assert_eq!(convert(f32::from_bits(midpoint.to_bits() - 1)), low, "below {midpoint:e}");
    assert_eq!(convert(midpoint), even, "at {midpoint:e}");
    assert_eq!(convert(f32::from_bits(midpoint.to_bits() + 1)), low + 1, "above {midpoint:e}");
    assert_eq!(convert(-midpoint), even | 0x8000);
}

#[test]
fn rounding_is_to_nearest_even() {
    for low in 0..0x7c00u16 {
        // The largest's upper neighbour would be 2^16, and stands for infinity.
        let high = if low == 0x7bff { 65536.0 } else { f16_value(low + 1) };
        check_midpoint(low, (0.5 * (f16_value(low) + high)) as f32, f32_to_f16);
    }
    for low in 0..0x7f80u16 {
        check_midpoint(low, f32::from_bits((low as u32) << 16 | 0x8000), f32_to_bf16);
    }
}

#[test]
fn extremes() {
    assert_eq!(f32_to_f16(f32::MAX), 0x7c00);
    assert_eq!(f32_to_f16(f32::NEG_INFINITY), 0xfc00);
    assert_eq!(f32_to_f16(f32::from_bits(1)), 0);
    assert_eq!(f32_to_f16(f32::from_bits(0x8000_0001)), 0x8000);
    assert!(f16_to_f32(f32_to_f16(f32::from_bits(0x7f80_0001))).is_nan());
    assert_eq!(f32_to_bf16(f32::MAX), 0x7f80);
    assert!(bf16_to_f32(f32_to_bf16(f32::from_bits(0x7fff_ffff))).is_nan());
    assert!(bf16_to_f32(f32_to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
}
