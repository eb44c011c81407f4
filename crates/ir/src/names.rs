//! Which names of values are taken.

use crate::graph::Value;
use crate::hash::MixHash;
use std::collections::HashSet;
use std::sync::Arc;

/// Names of a graph's values and those kept for others, asked for membership only. Values are looked at when a name has to
/// be made up: a copy of a graph, whose names are distinct as they are, never needs it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    taken: HashSet<Arc<str>, MixHash>,
    /// Values looked at so far.
    seen: usize,
}

impl Names {
    /// Takes the names of these values out of the choice.
    pub fn reserve<'v>(&mut self, values: impl ExactSizeIterator<Item = &'v Value>) {
        self.taken.reserve(values.len());
        self.taken.extend(values.map(|v| v.name.clone()));
    }

    /// The name that the next value gets: the wanted one when free, else with a number appended; `v` and its number when
    /// none is wanted.
    pub fn unique(&mut self, values: &[Value], wanted: Arc<str>) -> Arc<str> {
        self.look_at(values);
        let id = values.len();
        let base = if wanted.is_empty() { numbered(id) } else { wanted };
        let mut name = base.clone();
        // The value's number makes the first attempt almost always free, so that n equal names cost n steps.
        let mut suffix = id;
        while !self.taken.insert(name.clone()) {
            name = format!("{base}_{suffix}").into();
            suffix += 1;
        }
        name
    }

    /// As [`Names::unique`], for the value that is added right after it.
    pub fn unique_of_next(&mut self, values: &[Value], wanted: Arc<str>) -> Arc<str> {
        let name = self.unique(values, wanted);
        self.seen = values.len() + 1;
        name
    }

    /// The values from `first` on are about to go.
    pub fn forget(&mut self, values: &[Value], first: usize) {
        for v in values[first..].iter().take(self.seen.saturating_sub(first)) {
            self.taken.remove(&v.name);
        }
        self.seen = self.seen.min(first);
    }

    fn look_at(&mut self, values: &[Value]) {
        if let Some(new) = values.get(self.seen..) {
            self.taken.extend(new.iter().map(|v| v.name.clone()));
            self.seen = values.len();
        }
    }
}

/// `v17`, without a string in between.
fn numbered(id: usize) -> Arc<str> {
    let mut text = [0u8; 21];
    let (mut at, mut rest) = (text.len(), id);
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    at -= 1;
    text[at] = b'v';
    std::str::from_utf8(&text[at..]).expect("digits are ASCII").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_without_a_name_get_their_number() {
        assert_eq!([0, 9, 10, 1234].map(|n| numbered(n).to_string()), ["v0", "v9", "v10", "v1234"]);
        assert_eq!(&*numbered(usize::MAX), "v18446744073709551615");
    }
}
