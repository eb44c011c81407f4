//! Sizes of the processor's caches.

use std::sync::LazyLock;

/// Assumed where the system does not say.
const USUAL: usize = 32 << 20;

/// Bytes of the last-level cache.
pub(crate) fn last_level_cache() -> usize {
    static SIZE: LazyLock<usize> = LazyLock::new(|| {
        let read = |level| {
            let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{level}/size")).ok()?;
            let text = text.trim();
            let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
            let scale = match unit {
                "K" => 1 << 10,
                "M" => 1 << 20,
                _ => 1,
            };
            digits.parse::<usize>().ok()?.checked_mul(scale)
        };
        read(3).or_else(|| read(2)).filter(|n| *n > 0).unwrap_or(USUAL)
    });
    *SIZE
}
