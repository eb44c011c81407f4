//! Who reads what.

use crate::simplify::must_run;
use permalloy_ir::{Graph, NodeId, ValueId, needed, output_values};

/// Readers of each value that are themselves needed.
pub struct Uses {
    nodes: Vec<Vec<NodeId>>,
    returned: Vec<bool>,
}

impl Uses {
    pub fn of(graph: &Graph) -> Uses {
        let mut u = Uses { nodes: vec![vec![]; graph.value_count()], returned: vec![false; graph.value_count()] };
        let alive = needed(graph, output_values(&graph.outputs), |_| false, |_, n| must_run(&n.op));
        for (id, node) in graph.nodes().filter(|(id, _)| alive[id.0 as usize]) {
            for v in node.operands() {
                let readers = &mut u.nodes[v.0 as usize];
                if readers.last() != Some(&id) {
                    readers.push(id);
                }
            }
        }
        output_values(&graph.outputs).for_each(|v| u.returned[v.0 as usize] = true);
        u
    }

    /// Nodes that read a value, each once.
    pub fn readers(&self, v: ValueId) -> &[NodeId] {
        &self.nodes[v.0 as usize]
    }

    pub fn returned(&self, v: ValueId) -> bool {
        self.returned[v.0 as usize]
    }

    /// The one node that reads a value, if nobody else does.
    pub fn only_reader(&self, v: ValueId) -> Option<NodeId> {
        match self.readers(v) {
            [one] if !self.returned(v) => Some(*one),
            _ => None,
        }
    }
}
