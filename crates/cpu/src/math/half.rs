//! Conversions between f32 and the 16-bit formats, in bits: to nearest even, branch-free, exact with denormals.

#[inline(always)]
pub fn bf16_to_f32(x: u16) -> f32 {
    f32::from_bits((x as u32) << 16)
}

/// NaN stays NaN, made quiet.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    let kept = if x.is_nan() { bits | 0x0040_0000 } else { rounded };
    (kept >> 16) as u16
}

#[inline(always)]
pub fn f16_to_f32(x: u16) -> f32 {
    let sign = ((x & 0x8000) as u32) << 16;
    let fields = ((x & 0x7fff) as u32) << 13;
    let normal = fields + (112 << 23);
    // A denormal's fraction under the exponent of 2^-14, less that leading one; f32 denormals would be slow.
    let denormal = (f32::from_bits(fields + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let finite = if fields < 0x0080_0000 { denormal } else { normal };
    let bits = if fields >= 0x0f80_0000 { fields | 0x7f80_0000 } else { finite };
    f32::from_bits(sign | bits)
}

/// Overflow gives infinity; NaN stays NaN, made quiet.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // 0.5's last bit weighs 2^-24, as the last bit of an f16 denormal: the addition rounds there.
    let denormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let normal = magnitude.wrapping_add(0x0fff + ((magnitude >> 13) & 1)).wrapping_sub(112 << 23) >> 13;
    let finite = if magnitude < 0x3880_0000 { denormal } else { normal };
    // 65520 is half way between the largest f16 and 2^16.
    let special = if magnitude > 0x7f80_0000 { 0x7e00 | ((magnitude >> 13) & 0x03ff) } else { 0x7c00 };
    let result = if magnitude >= 0x477f_f000 { special } else { finite };
    (result | ((bits & 0x8000_0000) >> 16)) as u16
}
