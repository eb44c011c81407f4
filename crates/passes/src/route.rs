//! Gives every operator its route: decompose by a rule, or stay native.

use crate::record::{Reason, Record, RouteTaken};
use permalloy_ir::{Arg, Builder, Graph, Input, Node, Op, Output, PrimKind, PrimOp, TensorType, ValueId};
use permalloy_ops::policy::{Entry, Policy, Route};
use permalloy_ops::{Call, Cost, OpDecl, Rule};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What decides beside the operator table.
#[derive(Clone, Debug)]
pub struct RouteOptions {
    pub policy: Policy,
    /// The user's own lines; the last matching one wins over the policy.
    pub overrides: Vec<Entry>,
}

/// A routed graph with its records, and the first name under which each value was known in the graph before.
#[derive(Clone, Debug)]
pub struct Routed {
    pub graph: Graph,
    pub records: Vec<Record>,
}

/// Rewrites every operator by its route. Values keep the names they had where they still exist.
pub fn route(graph: &Graph, options: &RouteOptions) -> Routed {
    let mut router = Router {
        out: Graph::new(&graph.name, graph.kind),
        map: vec![None; graph.value_count()],
        named: vec![],
        returned: returned(graph),
        records: vec![],
    };
    router.out.symbols = graph.symbols.clone();
    for input in &graph.inputs {
        match input {
            Input::Int(d) => router.out.add_int_input(d.clone()),
            Input::Tensor { value, role } => {
                let old = graph.value(*value);
                let new = router.out.add_input(&old.name, old.ty.clone(), *role);
                router.bind(*value, new);
            }
        }
    }
    for (_, node) in graph.nodes() {
        router.node(graph, node, options);
    }
    router.out.outputs = graph
        .outputs
        .iter()
        .map(|o| match o {
            Output::Value(v) => Output::Value(router.output(graph, *v)),
            other => other.clone(),
        })
        .collect();
    Routed { graph: router.out, records: router.records }
}

struct Router {
    out: Graph,
    map: Vec<Option<ValueId>>,
    /// Values of the new graph that carry a name of the old one.
    named: Vec<bool>,
    /// Values of the old graph that an output is, or is a view of.
    returned: Vec<bool>,
    records: Vec<Record>,
}

/// Values that an output is, or is a view of.
fn returned(graph: &Graph) -> Vec<bool> {
    let mut returned = vec![false; graph.value_count()];
    for o in &graph.outputs {
        if let Output::Value(v) = o {
            returned[v.0 as usize] = true;
        }
    }
    for (_, node) in graph.nodes().rev() {
        if is_view(&node.op) && node.results.iter().flatten().any(|r| returned[r.0 as usize]) {
            node.operands().iter().for_each(|v| returned[v.0 as usize] = true);
        }
    }
    returned
}

/// In eager the results share memory with the operand.
fn is_view(op: &Op) -> bool {
    match op {
        Op::Prim(p) => p.kind() == PrimKind::View && *p != PrimOp::Concat && *p != PrimOp::Pad,
        Op::External(name) => permalloy_ops::lookup(name).is_some_and(|d| d.cost == Cost::View),
    }
}

impl Router {
    fn bind(&mut self, old: ValueId, new: ValueId) {
        self.map[old.0 as usize] = Some(new);
        self.named.resize(self.out.value_count(), false);
        self.named[new.0 as usize] = true;
    }

    fn get(&self, old: ValueId) -> ValueId {
        self.map[old.0 as usize].expect("a verified graph defines values before it uses them")
    }

    /// An output keeps the strides it was promised with; a value that already has other promises gets a twin.
    fn output(&mut self, graph: &Graph, old: ValueId) -> ValueId {
        let new = self.get(old);
        let promised = graph.ty(old).strides.clone();
        if self.out.ty(new).strides == promised || self.out.producer(new).is_none() {
            return new;
        }
        if self.out.ty(new).strides.is_none() && self.out.producer(new).is_some_and(|n| n.prim().is_some()) {
            self.out.value_mut(new).ty.strides = promised;
        }
        new
    }

    fn node(&mut self, graph: &Graph, node: &Node, options: &RouteOptions) {
        let mapped = self.mapped(node);
        let types: Vec<Option<TensorType>> = node.results.iter().map(|r| r.map(|v| graph.ty(v).clone())).collect();
        let Op::External(name) = &node.op else {
            self.keep(graph, node, mapped);
            return;
        };
        let decl = permalloy_ops::lookup(name);
        let (rule, reason, detail) = choose(name, decl, options);
        let alternatives = alternatives(decl, rule);
        let mut record =
            Record { op: name.clone(), loc: node.loc.clone(), route: RouteTaken::Native, reason, detail, alternatives };
        if let Some(rule) = rule {
            match self.apply(rule, &mapped, &types) {
                Ok(values) => {
                    record.route = RouteTaken::Decomposed(rule.name);
                    for (old, new) in node.results.iter().zip(values) {
                        if let (Some(old), Some(new)) = (old, new) {
                            let new = self.own_memory(graph, node, *old, new);
                            self.rename(graph, *old, new);
                        }
                    }
                    self.records.push(record);
                    return;
                }
                Err((reason, detail)) => {
                    record.reason = reason;
                    record.detail = detail;
                }
            }
        }
        self.records.push(record);
        self.keep(graph, node, mapped);
    }

    /// What eager returns in memory of its own must not become a view of an input because the rule found nothing to do.
    fn own_memory(&mut self, graph: &Graph, node: &Node, old: ValueId, new: ValueId) -> ValueId {
        if !self.returned[old.0 as usize] || is_view(&node.op) {
            return new;
        }
        let mut root = new;
        while let Some(n) = self.out.producer(root) {
            match n.operand(0) {
                Some(x) if is_view(&n.op) => root = x,
                _ => return new,
            }
        }
        let mut b = Builder::new(&mut self.out);
        b.loc = node.loc.clone();
        b.external("aten.clone.default", vec![Arg::Value(new)], vec![Some(graph.ty(old).clone())])[0].unwrap_or(new)
    }

    fn mapped(&self, node: &Node) -> Node {
        let mut one = |v: ValueId| Ok::<_, ()>(self.get(v));
        let mut map = |a: &Arg| a.map_values(&mut one).unwrap_or(Arg::None);
        Node {
            op: node.op.clone(),
            args: node.args.iter().map(&mut map).collect(),
            kwargs: node.kwargs.iter().map(|(n, a)| (n.clone(), map(a))).collect(),
            results: node.results.clone(),
            loc: node.loc.clone(),
        }
    }

    fn keep(&mut self, graph: &Graph, node: &Node, mapped: Node) {
        let results =
            node.results.iter().map(|r| r.map(|v| (graph.value(v).name.clone(), graph.ty(v).clone()))).collect();
        let id = self.out.add_node(mapped.op, mapped.args, mapped.kwargs, results, mapped.loc);
        let made = self.out.node(id).results.clone();
        for (old, new) in node.results.iter().zip(made) {
            if let (Some(old), Some(new)) = (old, new) {
                self.bind(*old, new);
            }
        }
    }

    /// The rule's values become the results; a value made just now takes over the result's name.
    fn rename(&mut self, graph: &Graph, old: ValueId, new: ValueId) {
        self.named.resize(self.out.value_count(), false);
        if !self.named[new.0 as usize] {
            self.out.value_mut(new).name = graph.value(old).name.clone();
        }
        self.bind(old, new);
    }

    fn apply(
        &mut self,
        rule: &Rule,
        node: &Node,
        types: &[Option<TensorType>],
    ) -> Result<Vec<Option<ValueId>>, (Reason, String)> {
        let made = catch_unwind(AssertUnwindSafe(|| {
            let mut b = Builder::new(&mut self.out);
            b.loc = node.loc.clone();
            (rule.apply)(&mut Call { b: &mut b, node, results: types })
        }));
        let values = match made {
            Ok(Ok(values)) => values,
            Ok(Err(decline)) => return Err((Reason::Declined, decline.0)),
            Err(panic) => return Err((Reason::Mismatch, format!("{} failed: {}", rule.name, panic_text(&panic)))),
        };
        if values.len() != types.len() {
            return Err((
                Reason::Mismatch,
                format!("{} made {} results, {} promised", rule.name, values.len(), types.len()),
            ));
        }
        for (v, ty) in values.iter().zip(types) {
            let (Some(v), Some(ty)) = (v, ty) else {
                if ty.is_some() {
                    return Err((Reason::Mismatch, format!("{} made no value for a promised result", rule.name)));
                }
                continue;
            };
            let got = self.out.ty(*v);
            if got.dtype != ty.dtype || got.shape != ty.shape {
                let text = |t: &TensorType| format!("{}{}", t.dtype, permalloy_ir::shape_text(&t.shape));
                return Err((Reason::Mismatch, format!("{} made {}, promised {}", rule.name, text(got), text(ty))));
            }
        }
        Ok(values)
    }
}

fn choose<'d>(name: &str, decl: Option<&'d OpDecl>, options: &RouteOptions) -> (Option<&'d Rule>, Reason, String) {
    let Some(decl) = decl else {
        return (None, Reason::Unknown, "the operator table does not have it".to_string());
    };
    let overridden = options.overrides.iter().rev().find(|e| permalloy_ops::policy::glob(&e.pattern, name));
    let (entry, reason) = match overridden {
        Some(e) => (Some(e), Reason::Override),
        None => (options.policy.entry(name), Reason::Policy),
    };
    match entry {
        Some(Entry { route: Route::Native, reason: why, .. }) if decl.native => (None, reason, why.clone()),
        Some(Entry { route: Route::Decompose(Some(rule)), reason: why, .. }) => {
            (decl.rules.iter().find(|r| r.name == rule), reason, why.clone())
        }
        Some(Entry { route: Route::Decompose(None), reason: why, .. }) => (decl.rules.first(), reason, why.clone()),
        _ => match decl.rules.first() {
            Some(r) => (Some(r), Reason::DefaultRule, String::new()),
            None => (None, Reason::NoRule, decl.doc.to_string()),
        },
    }
}

fn alternatives(decl: Option<&OpDecl>, taken: Option<&Rule>) -> Vec<String> {
    let Some(decl) = decl else { return vec![] };
    let mut out: Vec<String> = decl
        .rules
        .iter()
        .filter(|r| taken.is_none_or(|t| t.name != r.name))
        .map(|r| format!("decompose:{}", r.name))
        .collect();
    if taken.is_some() && decl.native {
        out.push("native".to_string());
    }
    out
}

fn panic_text(panic: &Box<dyn std::any::Any + Send>) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()))
        .unwrap_or_else(|| "panic".to_string())
}

/// An override must name operators and routes that exist; the message gives the nearest names.
pub fn parse_overrides(lines: &[(String, String)]) -> Result<Vec<Entry>, String> {
    let mut out = Vec::new();
    for (pattern, route) in lines {
        let matched: Vec<&OpDecl> =
            permalloy_ops::table().values().copied().filter(|d| permalloy_ops::policy::glob(pattern, d.name)).collect();
        if matched.is_empty() {
            let names: Vec<&str> = permalloy_ops::table().keys().copied().collect();
            let near = permalloy_ir::nearest(pattern, names.iter().copied());
            return Err(format!("route override `{pattern}` matches no operator; nearest: {}", near.join(", ")));
        }
        let route = match route.split_once(':') {
            None if route == "native" => Route::Native,
            None if route == "decompose" => Route::Decompose(None),
            Some(("decompose", rule)) => Route::Decompose(Some(rule.to_string())),
            _ => return Err(format!("route `{route}` for {pattern} is none of native, decompose, decompose:RULE")),
        };
        for d in matched {
            let possible = match &route {
                Route::Native => d.native,
                Route::Decompose(None) => !d.rules.is_empty(),
                Route::Decompose(Some(r)) => d.rules.iter().any(|x| x.name == r),
            };
            if !possible {
                let has: Vec<String> = d
                    .rules
                    .iter()
                    .map(|r| format!("decompose:{}", r.name))
                    .chain(d.native.then(|| "native".to_string()))
                    .collect();
                return Err(format!("{} has no such route; it has: {}", d.name, has.join(", ")));
            }
        }
        out.push(Entry { pattern: pattern.clone(), route, reason: "asked for by the user".to_string() });
    }
    Ok(out)
}
