//! Maximum flow by Dinic's method, for the partitioner.

/// Capacity that no cut may pay.
pub const INFINITE: u64 = u64::MAX / 4;

#[derive(Clone, Debug)]
struct Edge {
    to: usize,
    capacity: u64,
}

/// A directed network; edges are stored in pairs, each beside its reverse.
#[derive(Clone, Debug)]
pub struct Network {
    edges: Vec<Edge>,
    adjacent: Vec<Vec<usize>>,
}

impl Network {
    pub fn new(nodes: usize) -> Network {
        Network { edges: Vec::new(), adjacent: vec![Vec::new(); nodes] }
    }

    pub fn add_edge(&mut self, from: usize, to: usize, capacity: u64) {
        self.adjacent[from].push(self.edges.len());
        self.edges.push(Edge { to, capacity });
        self.adjacent[to].push(self.edges.len());
        self.edges.push(Edge { to: from, capacity: 0 });
    }

    /// Saturates the network and says which nodes can no longer reach `sink`: the source side of the minimum cut that
    /// lies nearest to the sink.
    pub fn min_cut(&mut self, source: usize, sink: usize) -> Vec<bool> {
        loop {
            let level = self.levels(source);
            if level[sink] == usize::MAX {
                return self.cannot_reach(sink);
            }
            let mut next = vec![0; self.adjacent.len()];
            while self.augment(source, sink, &level, &mut next) {}
        }
    }

    fn cannot_reach(&self, sink: usize) -> Vec<bool> {
        let mut cannot = vec![true; self.adjacent.len()];
        cannot[sink] = false;
        let mut stack = vec![sink];
        while let Some(n) = stack.pop() {
            for e in &self.adjacent[n] {
                // The pair of an edge out of `n` is an edge into it.
                let (from, capacity) = (self.edges[*e].to, self.edges[*e ^ 1].capacity);
                if capacity > 0 && cannot[from] {
                    cannot[from] = false;
                    stack.push(from);
                }
            }
        }
        cannot
    }

    fn levels(&self, source: usize) -> Vec<usize> {
        let mut level = vec![usize::MAX; self.adjacent.len()];
        level[source] = 0;
        let mut queue = std::collections::VecDeque::from([source]);
        while let Some(n) = queue.pop_front() {
            for e in self.adjacent[n].iter().map(|e| &self.edges[*e]) {
                if e.capacity > 0 && level[e.to] == usize::MAX {
                    level[e.to] = level[n] + 1;
                    queue.push_back(e.to);
                }
            }
        }
        level
    }

    /// Sends flow along one shortest path; an explicit stack, since paths are as long as the graph is deep.
    fn augment(&mut self, source: usize, sink: usize, level: &[usize], next: &mut [usize]) -> bool {
        let mut path: Vec<usize> = Vec::new();
        let mut at = source;
        while at != sink {
            let step = loop {
                let Some(e) = self.adjacent[at].get(next[at]) else { break None };
                let edge = &self.edges[*e];
                if edge.capacity > 0 && level[edge.to] == level[at] + 1 {
                    break Some(*e);
                }
                next[at] += 1;
            };
            match step {
                Some(e) => {
                    path.push(e);
                    at = self.edges[e].to;
                }
                None => {
                    let Some(e) = path.pop() else { return false };
                    at = self.edges[e ^ 1].to;
                    next[at] += 1;
                }
            }
        }
        let amount = path.iter().map(|e| self.edges[*e].capacity).min().unwrap_or(0);
        for e in path {
            self.edges[e].capacity -= amount;
            self.edges[e ^ 1].capacity += amount;
        }
        amount > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_cheapest_cut() {
        // 0 -> 1 -> 3 and 0 -> 2 -> 3, with the cheap edges on different sides.
        let mut n = Network::new(4);
        n.add_edge(0, 1, 5);
        n.add_edge(1, 3, 2);
        n.add_edge(0, 2, 1);
        n.add_edge(2, 3, 7);
        assert_eq!(n.min_cut(0, 3), [true, true, false, false]);
    }

    #[test]
    fn reroutes_flow_through_reverse_edges() {
        let mut n = Network::new(4);
        for (a, b) in [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)] {
            n.add_edge(a, b, 1);
        }
        assert_eq!(n.min_cut(0, 3), [true, true, true, false]);
    }
}
