//! The dependence graph of units (fused groups, scatters, native calls) while fusion grows it, and their final order.

use std::cell::RefCell;

/// Handle of a unit.
pub type UnitId = usize;

/// How many units a reachability question may visit before the answer is taken to be yes.
const SEARCH_LIMIT: usize = 256;

/// Units with what each must wait for. Levels are longest-path depths: a unit can only depend on units of lower level.
#[derive(Clone, Debug, Default)]
pub struct Units {
    deps: Vec<Vec<UnitId>>,
    users: Vec<Vec<UnitId>>,
    level: Vec<u32>,
    /// Position in the graph of the unit's first node; keeps the order near the graph's own.
    first: Vec<u32>,
    /// Set once a unit has become part of another.
    merged: Vec<Option<UnitId>>,
    seen: RefCell<Seen>,
}

/// Which units a search has visited: marks of earlier searches are stale, so none is ever cleared.
#[derive(Clone, Debug, Default)]
struct Seen {
    marks: Vec<u32>,
    last: u32,
}

impl Seen {
    fn next(&mut self, units: usize) -> u32 {
        self.marks.resize(units, 0);
        self.last += 1;
        self.last
    }
}

impl Units {
    pub fn add(&mut self, first: u32) -> UnitId {
        self.deps.push(Vec::new());
        self.users.push(Vec::new());
        self.level.push(0);
        self.first.push(first);
        self.merged.push(None);
        self.deps.len() - 1
    }

    pub fn len(&self) -> usize {
        self.deps.len()
    }

    /// What a unit waits for.
    pub fn deps(&self, u: UnitId) -> &[UnitId] {
        &self.deps[u]
    }

    pub fn level(&self, u: UnitId) -> u32 {
        self.level[u]
    }

    /// The unit that does this one's work now.
    pub fn find(&self, mut u: UnitId) -> UnitId {
        while let Some(into) = self.merged[u] {
            u = into;
        }
        u
    }

    /// Makes `src` part of `into`; the caller has made sure that nothing stands between them.
    pub fn merge(&mut self, into: UnitId, src: UnitId) {
        self.merged[src] = Some(into);
        for d in std::mem::take(&mut self.deps[src]) {
            self.users[d].retain(|x| *x != src);
            self.add_dep(into, d);
        }
        for u in std::mem::take(&mut self.users[src]) {
            self.deps[u].retain(|x| *x != src);
            self.add_dep(u, into);
        }
        self.first[into] = self.first[into].min(self.first[src]);
    }

    /// Whether `u` waits for `on`, directly or not. May say yes without knowing when the search grows long.
    pub fn depends(&self, u: UnitId, on: UnitId) -> bool {
        let (u, on) = (self.find(u), self.find(on));
        if u == on {
            return true;
        }
        if self.users[on].is_empty() || self.level[u] <= self.level[on] {
            return false;
        }
        let mut seen = self.seen.borrow_mut();
        let (mark, mut visited) = (seen.next(self.deps.len()), 0);
        let mut stack = vec![u];
        while let Some(x) = stack.pop() {
            for d in &self.deps[x] {
                if *d == on {
                    return true;
                }
                // Only what lies deeper than `on` can wait for it.
                if self.level[*d] > self.level[on] && seen.marks[*d] != mark {
                    if visited == SEARCH_LIMIT {
                        return true;
                    }
                    visited += 1;
                    seen.marks[*d] = mark;
                    stack.push(*d);
                }
            }
        }
        false
    }

    /// Makes `u` wait for `on`; the caller has made sure that `on` does not depend on `u`.
    pub fn add_dep(&mut self, u: UnitId, on: UnitId) {
        let (u, on) = (self.find(u), self.find(on));
        if u == on || self.deps[u].contains(&on) {
            return;
        }
        self.deps[u].push(on);
        self.users[on].push(u);
        let mut stack = vec![(u, self.level[on] + 1)];
        while let Some((x, least)) = stack.pop() {
            assert!(x != on, "a unit would wait for itself");
            if self.level[x] < least {
                self.level[x] = least;
                stack.extend(self.users[x].iter().map(|y| (*y, least + 1)));
            }
        }
    }

    /// An order in which every unit follows what it waits for, as near to the graph's as that allows.
    pub fn order(&self) -> Vec<UnitId> {
        use std::cmp::Reverse;
        let mut waiting: Vec<usize> = self.deps.iter().map(Vec::len).collect();
        let mut ready: std::collections::BinaryHeap<Reverse<(u32, UnitId)>> =
            (0..self.len()).filter(|u| waiting[*u] == 0).map(|u| Reverse((self.first[u], u))).collect();
        let mut order = Vec::with_capacity(self.len());
        while let Some(Reverse((_, u))) = ready.pop() {
            order.push(u);
            for x in &self.users[u] {
                waiting[*x] -= 1;
                if waiting[*x] == 0 {
                    ready.push(Reverse((self.first[*x], *x)));
                }
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_for_a_new_unit_however_long_the_graph() {
        let mut u = Units::default();
        let mut last = u.add(0);
        for i in 1..2000 {
            let next = u.add(i);
            u.add_dep(next, last);
            last = next;
        }
        let new = u.add(2000);
        assert!(!u.depends(last, new));
    }

    #[test]
    fn levels_follow_late_dependences() {
        let mut u = Units::default();
        let ids: Vec<UnitId> = (0..4).map(|i| u.add(i)).collect();
        u.add_dep(ids[1], ids[0]);
        u.add_dep(ids[2], ids[1]);
        assert!(u.depends(ids[2], ids[0]) && !u.depends(ids[0], ids[2]));
        u.add_dep(ids[0], ids[3]);
        assert!(u.depends(ids[2], ids[3]));
        assert_eq!(u.order(), [3, 0, 1, 2]);
    }
}
