//! Ranges of addresses that are free, by place and by size.

use std::collections::{BTreeMap, BTreeSet};

/// Gaps that do not touch each other: neighbours become one.
pub struct Gaps {
    by_place: BTreeMap<usize, usize>,
    by_size: BTreeSet<(usize, usize)>,
}

impl Gaps {
    pub const fn new() -> Gaps {
        Gaps { by_place: BTreeMap::new(), by_size: BTreeSet::new() }
    }

    /// The beginning of the smallest gap that fits; what is left of it stays a gap.
    pub fn take(&mut self, size: usize) -> Option<usize> {
        let &(gap, place) = self.by_size.range((size, 0)..).next()?;
        self.remove(place, gap);
        if gap > size {
            self.insert(place + size, gap - size);
        }
        Some(place)
    }

    /// Place and size of the gap that lies last.
    pub fn last(&self) -> Option<(usize, usize)> {
        self.by_place.last_key_value().map(|(place, size)| (*place, *size))
    }

    /// Removes the smallest gap, or `most` bytes at the end of it: its place and size.
    pub fn pop_smallest(&mut self, most: usize) -> Option<(usize, usize)> {
        let &(gap, place) = self.by_size.first()?;
        self.remove(place, gap);
        if gap <= most {
            return Some((place, gap));
        }
        self.insert(place, gap - most);
        Some((place + gap - most, most))
    }

    pub fn put(&mut self, mut place: usize, mut size: usize) {
        if size == 0 {
            return;
        }
        if let Some((&before, &gap)) = self.by_place.range(..place).next_back()
            && before + gap == place
        {
            self.remove(before, gap);
            (place, size) = (before, size + gap);
        }
        if let Some(&gap) = self.by_place.get(&(place + size)) {
            self.remove(place + size, gap);
            size += gap;
        }
        self.insert(place, size);
    }

    /// Removes a gap.
    pub fn remove(&mut self, place: usize, size: usize) {
        self.by_place.remove(&place);
        self.by_size.remove(&(size, place));
    }

    fn insert(&mut self, place: usize, size: usize) {
        self.by_place.insert(place, size);
        self.by_size.insert((size, place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_and_the_smallest_fit_is_taken() {
        let mut gaps = Gaps::new();
        gaps.put(0, 10);
        gaps.put(20, 10);
        gaps.put(10, 10);
        gaps.put(100, 12);
        assert_eq!(gaps.last(), Some((100, 12)));
        assert_eq!(gaps.take(11), Some(100));
        assert_eq!(gaps.take(30), Some(0));
        assert_eq!((gaps.take(2), gaps.take(1)), (None, Some(111)));
        gaps.put(0, 30);
        gaps.put(50, 4);
        assert_eq!(gaps.pop_smallest(100), Some((50, 4)));
        assert_eq!(gaps.pop_smallest(10), Some((20, 10)));
        assert_eq!((gaps.pop_smallest(20), gaps.pop_smallest(20)), (Some((0, 20)), None));
    }
}
