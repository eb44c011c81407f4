//! Pattern rewrites over a graph that is routed but for the operators that patterns are found by.
//!
//! Views, masks and arithmetic come in many spellings, and routing makes them one; a softmax, on the other hand, is
//! easier found whole. So the caller routes with [`held`] operators kept, rewrites, and routes what is left.

mod aligned;
mod attention;
mod attention_gradients;
mod attention_mask;
mod channels_last;
mod chunked;
mod constants;
mod region;
mod sdpa_mask;
mod uses;

pub use chunked::Chunks;

use crate::record::{Reason, Record, RouteTaken};
use crate::simplify::{VERIFIED, simplify};
use permalloy_ir::{Graph, Node, Rebuild, did_you_mean};
use permalloy_ops::policy::{Entry, Route};
use std::sync::Arc;

/// A rewrite that the user can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rewrite {
    pub name: &'static str,
    /// One line for people.
    pub doc: &'static str,
}

/// Every rewrite, in the order they are tried.
pub const REWRITES: &[Rewrite] = &[
    Rewrite {
        name: "constants",
        doc: "a value that is provably one constant becomes that constant; what changes nothing goes",
    },
    Rewrite { name: "sdpa_mask", doc: "attention drops a mask that hides nothing, and is told when a mask is causal" },
    Rewrite {
        name: "attention",
        doc: "softmax(q·kᵀ·scale + mask)·v written by hand, with its gradients, becomes one kernel",
    },
    Rewrite {
        name: "chunked_loss",
        doc: "logits of a large vocabulary are made, used and forgotten in pieces; with the option `chunked_loss`",
    },
    Rewrite {
        name: "aligned_products",
        doc: "large products of 16 bits over sizes that are no multiple of 8 are padded with zeros, on CUDA",
    },
    Rewrite {
        name: "channels_last",
        doc: "images and weights of convolutions of 16 bits lie channels last in memory, on CUDA",
    },
];

/// Which rewrites run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RewriteOptions {
    off: Vec<&'static str>,
    always: Vec<&'static str>,
}

impl RewriteOptions {
    /// From pairs of a rewrite's name and `on` (where it pays), `off` or `always`; the last one counts.
    pub fn of(lines: &[(String, String)]) -> Result<RewriteOptions, String> {
        let mut out = RewriteOptions::default();
        for (name, state) in lines {
            let Some(rewrite) = REWRITES.iter().find(|r| r.name == name) else {
                let names: Vec<&str> = REWRITES.iter().map(|r| r.name).collect();
                let hint = did_you_mean(name, names.iter().copied());
                return Err(format!("there is no rewrite `{name}`{hint} (rewrites: {})", names.join(", ")));
            };
            out.off.retain(|n| *n != rewrite.name);
            out.always.retain(|n| *n != rewrite.name);
            match state.as_str() {
                "on" => {}
                "off" => out.off.push(rewrite.name),
                "always" => out.always.push(rewrite.name),
                other => return Err(format!("rewrite {name} is on, off or always, not `{other}`")),
            }
        }
        Ok(out)
    }

    pub fn is_on(&self, name: &str) -> bool {
        !self.off.contains(&name)
    }

    /// Whether a rewrite is made where it does not pay, too.
    pub fn is_always(&self, name: &str) -> bool {
        self.always.contains(&name)
    }
}

/// Overrides that keep the operators patterns are found by. Empty when there is nothing to find, or when the user has
/// said how one of them is run.
pub fn held(graph: &Graph, options: &RewriteOptions, overrides: &[Entry]) -> Vec<Entry> {
    let decided = |name: &str| overrides.iter().any(|e| permalloy_ops::policy::glob(&e.pattern, name));
    if !options.is_on("attention") || !graph.nodes().any(|(_, n)| attention::is_softmax(n)) {
        return vec![];
    }
    if attention::HELD.iter().chain([&attention::PRODUCT]).any(|n| decided(n)) {
        return vec![];
    }
    let entry = |n: &&str| Entry {
        pattern: (*n).to_string(),
        route: Route::Native,
        reason: String::new(),
        evidence: String::new(),
    };
    attention::HELD.iter().map(entry).collect()
}

/// Whether anything in a traced graph could be rewritten, with [`held`] operators.
pub fn rewrites_apply(graph: &Graph, options: &RewriteOptions, held: &[Entry]) -> bool {
    !held.is_empty()
        || (options.is_on("sdpa_mask") && graph.nodes().any(|(_, n)| sdpa_mask::has_mask(n)))
        || (options.is_on("aligned_products") && graph.nodes().any(|(_, n)| aligned::is_odd(graph, n)))
        || (options.is_on("channels_last") && graph.nodes().any(|(_, n)| channels_last::is_convolution(graph, n)))
}

/// The rewritten graph. Masks that it no longer needs are left in it for the cleaning that follows.
#[derive(Clone, Debug)]
pub struct Rewritten {
    pub graph: Graph,
    /// What was rewritten, and what looked like it but was not.
    pub records: Vec<Record>,
    /// Operators that are gone, by name and place; their earlier records say nothing any more.
    pub gone: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// Names of new values that a backward may need.
    pub made: Vec<Arc<str>>,
}

/// Applies every rewrite that is on to a clean graph that was routed with `held` operators kept.
pub fn rewrite(graph: Graph, options: &RewriteOptions, held: &[Entry]) -> Rewritten {
    let mut out = Rewritten { graph, records: vec![], gone: vec![], made: vec![] };
    if options.is_on("constants") && constants::apply(&mut out) {
        out.graph = simplify(&out.graph);
    }
    if options.is_on("sdpa_mask") {
        sdpa_mask::apply(&mut out);
    }
    if !held.is_empty() && attention::apply(&mut out, options.is_always("attention")) {
        // What the kernels replace is not routed again.
        out.graph = simplify(&out.graph);
    }
    if options.is_on("aligned_products") {
        aligned::apply(&mut out);
    }
    if options.is_on("channels_last") {
        channels_last::apply(&mut out);
    }
    out
}

/// The records of a graph routed with [`held`] operators, rewritten, and routed again.
pub fn merge_records(first: Vec<Record>, held: &[Entry], rewritten: &Rewritten, last: Vec<Record>) -> Vec<Record> {
    let is_held = |r: &Record| held.iter().any(|e| e.pattern == *r.op);
    let mut out: Vec<Record> = first.into_iter().filter(|r| !is_held(r)).collect();
    for (op, loc) in &rewritten.gone {
        if let Some(i) = out.iter().position(|r| r.op == *op && r.loc == *loc) {
            out.remove(i);
        }
    }
    out.extend(rewritten.records.iter().cloned());
    out.extend(last.into_iter().filter(is_held));
    out
}

fn record(op: Arc<str>, route: RouteTaken, loc: Option<Arc<str>>, detail: String) -> Record {
    let reason = if route == RouteTaken::AsWritten { Reason::Declined } else { Reason::Pattern };
    Record { op, loc, route, reason, detail, alternatives: vec![] }
}

/// Copies a node, unless all it makes has already become something else.
fn copy(new: &mut Rebuild<'_>, node: &Node) {
    let mut results = node.results.iter().flatten().peekable();
    if results.peek().is_none() || results.any(|v| new.get(*v).is_none()) {
        new.copy(node).expect(VERIFIED);
    }
}
