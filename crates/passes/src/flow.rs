//! Maximum flow by Dinic's method, for the partitioner.

/// Capacity that no cut may pay.
pub const INFINITE: u64 = u64::MAX / 4;

/// A directed network being put together; edges are stored in pairs, each beside its reverse.
#[derive(Clone, Debug)]
pub struct Network {
    nodes: usize,
    /// Where each edge leads.
    to: Vec<u32>,
    /// What each edge still can carry.
    capacity: Vec<u64>,
}

/// Edges out of each node, one node after the other.
struct Adjacent {
    edges: Vec<u32>,
    /// Where a node's edges begin; those of the next node follow.
    start: Vec<u32>,
}

impl Adjacent {
    fn of(&self, n: u32) -> &[u32] {
        &self.edges[self.start[n as usize] as usize..self.start[n as usize + 1] as usize]
    }
}

impl Network {
    pub fn new(nodes: usize) -> Network {
        Network { nodes, to: Vec::new(), capacity: Vec::new() }
    }

    pub fn add_edge(&mut self, from: usize, to: usize, capacity: u64) {
        self.to.extend([to as u32, from as u32]);
        self.capacity.extend([capacity, 0]);
    }

    /// The edges sorted by the node they leave, in the order they were added.
    fn adjacent(&self) -> Adjacent {
        let mut start = vec![0u32; self.nodes + 2];
        // The pair of an edge leads to where it comes from.
        let from = |e: usize| self.to[e ^ 1] as usize;
        (0..self.to.len()).for_each(|e| start[from(e) + 2] += 1);
        (2..start.len()).for_each(|n| start[n] += start[n - 1]);
        let mut edges = vec![0u32; self.to.len()];
        for e in 0..self.to.len() {
            let at = &mut start[from(e) + 1];
            edges[*at as usize] = e as u32;
            *at += 1;
        }
        Adjacent { edges, start }
    }

    /// Saturates the network and says which nodes can no longer reach `sink`: the source side of the minimum cut that
    /// lies nearest to the sink.
    pub fn min_cut(mut self, source: usize, sink: usize) -> Vec<bool> {
        let adjacent = self.adjacent();
        let (source, sink) = (source as u32, sink as u32);
        let (mut next, mut path) = (vec![0u32; self.nodes], Vec::new());
        loop {
            let level = self.levels(&adjacent, source);
            if level[sink as usize] == FAR {
                return self.cannot_reach(&adjacent, sink);
            }
            next.fill(0);
            while self.augment(&adjacent, source, sink, &level, &mut next, &mut path) {}
        }
    }

    fn cannot_reach(&self, adjacent: &Adjacent, sink: u32) -> Vec<bool> {
        let mut cannot = vec![true; self.nodes];
        cannot[sink as usize] = false;
        let mut stack = vec![sink];
        while let Some(n) = stack.pop() {
            for e in adjacent.of(n) {
                // The pair of an edge out of `n` is an edge into it.
                let from = self.to[*e as usize];
                if self.capacity[*e as usize ^ 1] > 0 && cannot[from as usize] {
                    cannot[from as usize] = false;
                    stack.push(from);
                }
            }
        }
        cannot
    }

    fn levels(&self, adjacent: &Adjacent, source: u32) -> Vec<u32> {
        let mut level = vec![FAR; self.nodes];
        level[source as usize] = 0;
        let mut queue = std::collections::VecDeque::from([source]);
        while let Some(n) = queue.pop_front() {
            for e in adjacent.of(n) {
                let to = self.to[*e as usize];
                if self.capacity[*e as usize] > 0 && level[to as usize] == FAR {
                    level[to as usize] = level[n as usize] + 1;
                    queue.push_back(to);
                }
            }
        }
        level
    }

    /// Sends flow along one shortest path; an explicit stack, since paths are as long as the graph is deep.
    fn augment(
        &mut self,
        adjacent: &Adjacent,
        source: u32,
        sink: u32,
        level: &[u32],
        next: &mut [u32],
        path: &mut Vec<u32>,
    ) -> bool {
        path.clear();
        let mut at = source;
        while at != sink {
            let open =
                |e: u32| self.capacity[e as usize] > 0 && level[self.to[e as usize] as usize] == level[at as usize] + 1;
            let edges = adjacent.of(at);
            let tried = &mut next[at as usize];
            while edges.get(*tried as usize).is_some_and(|e| !open(*e)) {
                *tried += 1;
            }
            match edges.get(*tried as usize) {
                Some(e) => {
                    path.push(*e);
                    at = self.to[*e as usize];
                }
                None => {
                    let Some(e) = path.pop() else { return false };
                    at = self.to[e as usize ^ 1];
                    next[at as usize] += 1;
                }
            }
        }
        let amount = path.iter().map(|e| self.capacity[*e as usize]).min().unwrap_or(0);
        for e in path {
            self.capacity[*e as usize] -= amount;
            self.capacity[*e as usize ^ 1] += amount;
        }
        amount > 0
    }
}

/// The level of a node that cannot be reached.
const FAR: u32 = u32::MAX;

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
