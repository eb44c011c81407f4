//! A fast hash for tables that are looked up and never iterated. Its keys come from one graph, not from an opponent.

use std::hash::{BuildHasherDefault, Hasher};

/// Makes [`MixHasher`]s; the same in every run.
pub type MixHash = BuildHasherDefault<MixHasher>;

/// Multiplies and folds, eight bytes at a time.
#[derive(Clone, Copy, Default, Debug)]
pub struct MixHasher(u64);

impl MixHasher {
    fn mix(&mut self, word: u64) {
        // An odd number without pattern: the golden ratio in 64 bits.
        const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.0.rotate_left(23) ^ word) * FACTOR;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for MixHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for w in &mut words {
            self.mix(w.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b)));
        }
        let rest = words.remainder();
        // The length keeps a shorter key from looking like one with zeros at its end.
        self.mix(rest.iter().rev().fold(rest.len() as u64, |word, b| word << 8 | u64::from(*b)));
    }

    fn write_u8(&mut self, n: u8) {
        self.mix(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.mix(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.mix(n);
    }

    fn write_i64(&mut self, n: i64) {
        self.mix(n as u64);
    }

    fn write_usize(&mut self, n: usize) {
        self.mix(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.mix(n as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn names_with_numbers_do_not_collide() {
        let hash = |s: &str| MixHash::default().hash_one(s);
        let names = || (0..100_000).map(|i| format!("v{i}"));
        assert_eq!(names().map(|n| hash(&n)).collect::<HashSet<_>>().len(), 100_000);
        // Tables use the low bits for the place and the high ones for the tag.
        let low: HashSet<u64> = names().map(|n| hash(&n) & 0xffff).collect();
        assert!(low.len() > 45_000, "{} of 65,536 places", low.len());
        assert_ne!(hash("a"), hash("a\0"));
    }
}
