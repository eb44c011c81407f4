//! Who reads what.

use crate::simplify::alive;
use permalloy_ir::{Graph, NodeId, Output, ValueId};

/// Readers of each value that are themselves needed.
pub struct Uses {
    nodes: Vec<Vec<NodeId>>,
    returned: Vec<bool>,
}

impl Uses {
    pub fn of(graph: &Graph) -> Uses {
        let mut u = Uses { nodes: vec![vec![]; graph.value_count()], returned: vec![false; graph.value_count()] };
        let alive = alive(graph);
        for (id, node) in graph.nodes().filter(|(id, _)| alive[id.0 as usize]) {
            for v in node.operands() {
                let readers = &mut u.nodes[v.0 as usize];
                if readers.last() != Some(&id) {
                    readers.push(id);
                }
            }
        }
        for o in &graph.outputs {
            if let Output::Value(v) = o {
                u.returned[v.0 as usize] = true;
            }
        }
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
