//! Gives every operator its route: decompose by a rule, or stay native.

use crate::memory::{output_roots, overlap, root};
use crate::record::{Reason, Record, RouteTaken};
use crate::tuning::{Measured, Readers, Tuner, routes_to_time};
use permalloy_ir::{Arg, Graph, Node, Op, Output, Rebuild, TensorType, ValueId, did_you_mean};
use permalloy_ops::policy::{Entry, Policy, Route};
use permalloy_ops::{OpDecl, Rule, RuleError, apply_rule};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What decides beside the operator table.
#[derive(Clone, Debug)]
pub struct RouteOptions {
    pub policy: Policy,
    /// The user's own lines; the last matching one wins over the policy.
    pub overrides: Vec<Entry>,
    /// Decides before the policy, by measurement.
    pub tuner: Option<Arc<dyn Tuner>>,
    /// Operators, by the name of a result, that were measured already and stay as they are.
    pub settled: BTreeSet<Arc<str>>,
}

impl RouteOptions {
    /// By a policy and the user's lines alone.
    pub fn of(policy: Policy, overrides: Vec<Entry>) -> RouteOptions {
        RouteOptions { policy, overrides, tuner: None, settled: BTreeSet::new() }
    }
}

/// A routed graph, with one record for each operator of PyTorch's that was in it.
#[derive(Clone, Debug)]
pub struct Routed {
    pub graph: Graph,
    pub records: Vec<Record>,
    /// Operators, by the name of a result, that are native because that was faster.
    pub settled: BTreeSet<Arc<str>>,
}

/// Rewrites every operator of a verified graph by its route. Values keep the names they had where they still exist.
pub fn route(graph: &Graph, options: &RouteOptions) -> Routed {
    let mut new = Rebuild::of(graph);
    new.reserve_names();
    let mut router = Router {
        named: vec![true; new.graph.value_count()],
        new,
        records: vec![],
        owns: output_roots(graph),
        owned: BTreeSet::new(),
        readers: options.tuner.as_ref().map(|_| Readers::of(graph)),
        settled: BTreeSet::new(),
    };
    for (_, node) in graph.nodes() {
        router.node(graph, node, options);
    }
    for o in &graph.outputs {
        if let Output::Value(v) = o {
            router.keep_promise(*v);
        }
    }
    Routed { graph: router.new.finish().expect(VERIFIED), records: router.records, settled: router.settled }
}

const VERIFIED: &str = "a verified graph defines values before it uses them";

struct Router<'g> {
    new: Rebuild<'g>,
    /// Values of the new graph that carry a name of the old one.
    named: Vec<bool>,
    /// Values of the old graph that must have memory of their own.
    owns: Vec<bool>,
    /// Values of the new graph whose memory is taken by one of those.
    owned: BTreeSet<ValueId>,
    records: Vec<Record>,
    /// There if somebody measures.
    readers: Option<Readers<'g>>,
    settled: BTreeSet<Arc<str>>,
}

impl Router<'_> {
    /// `new` stands for `old`, and has its name.
    fn bind(&mut self, old: ValueId, new: ValueId) {
        self.new.bind(old, new);
        self.named.resize(self.new.graph.value_count(), false);
        self.named[new.0 as usize] = true;
    }

    /// An output gets the strides it was promised with, unless it has others already.
    fn keep_promise(&mut self, old: ValueId) {
        let new = self.new.value(old).expect(VERIFIED);
        let promised = &self.new.old().ty(old).strides;
        let open = self.new.graph.ty(new).strides.is_none();
        if promised.is_some() && open && self.new.graph.producer(new).is_some_and(|n| n.prim().is_some()) {
            self.new.graph.set_strides(new, promised.clone());
        }
    }

    fn node(&mut self, graph: &Graph, node: &Node, options: &RouteOptions) {
        let moved = self.new.moved(node).expect(VERIFIED);
        let Op::External(name) = &node.op else {
            self.keep(node, moved);
            return;
        };
        let mut results = node.results.iter().flatten().map(|v| &graph.value(*v).name);
        if results.any(|r| options.settled.contains(r)) {
            self.keep(node, moved);
            return;
        }
        let decl = permalloy_ops::lookup(name);
        let by_table = choose(name, decl, options);
        let measured = self.measured(graph, node, &by_table, options);
        let (rule, reason, detail) = measured.unwrap_or(by_table);
        if let (Reason::Measured, None) = (reason, rule) {
            self.settled.extend(node.results.iter().flatten().map(|v| graph.value(*v).name.clone()));
        }
        let alternatives = alternatives(decl, rule);
        let mut record =
            Record { op: name.clone(), loc: node.loc.clone(), route: RouteTaken::Native, reason, detail, alternatives };
        if let Some(rule) = rule {
            let made = if overlapping_operand(graph, node) {
                Err(RuleError::Declined("writes into a copy whose elements overlap".to_string()))
            } else {
                let types: Vec<Option<TensorType>> =
                    node.results.iter().map(|r| r.map(|v| graph.ty(v).clone())).collect();
                apply_rule(&mut self.new.graph, &moved, &types, rule)
            };
            match made {
                Ok(values) => {
                    record.route = RouteTaken::Decomposed(rule.name);
                    for (old, new) in node.results.iter().zip(values) {
                        if let (Some(old), Some(new)) = (old, new) {
                            let own = self.own(graph, *old, new, node);
                            if own != new {
                                record.detail =
                                    "its result is returned, and may not be one of its operands".to_string();
                            }
                            self.rename(*old, own);
                        }
                    }
                    self.records.push(record);
                    return;
                }
                Err(e) => {
                    record.reason = match e {
                        RuleError::Declined(_) => Reason::Declined,
                        RuleError::Failed(_) => Reason::Mismatch,
                    };
                    record.detail = e.message();
                }
            }
        }
        self.records.push(record);
        self.keep(node, moved);
    }

    /// What the tuner says of an operator that the user does not.
    fn measured(&self, graph: &Graph, node: &Node, by_table: &Choice, options: &RouteOptions) -> Option<Choice> {
        let decl = permalloy_ops::lookup(node.op.external()?).filter(|_| by_table.1 != Reason::Override)?;
        let (tuner, readers) = (options.tuner.as_ref()?, self.readers.as_ref()?);
        routes_to_time(decl)?;
        if overlapping_operand(graph, node) {
            return None;
        }
        let default = by_table.0.map_or_else(|| "native".to_string(), |r| format!("decompose:{}", r.name));
        let Measured { route, detail } = tuner.choose(&readers.isolate(node, decl, default)?)?;
        match route {
            Route::Native if decl.native => Some((None, Reason::Measured, detail)),
            Route::Decompose(Some(name)) => {
                decl.rules.iter().find(|r| r.name == name).map(|r| (Some(r), Reason::Measured, detail))
            }
            _ => None,
        }
    }

    /// `new`, or a copy of it when a rule gave back an operand (or a view of one) for a result that an output shows and
    /// the operand's memory belongs to the caller or to another output.
    fn own(&mut self, graph: &Graph, old: ValueId, new: ValueId, node: &Node) -> ValueId {
        if !self.owns[old.0 as usize] {
            return new;
        }
        let base = root(&self.new.graph, new);
        if self.new.graph.producer(base).is_some() && !self.owned.contains(&base) {
            self.owned.insert(base);
            return new;
        }
        let (op, result) = (Op::External("aten.clone.default".into()), ("".into(), graph.shared_ty(old)));
        let copy = self.new.graph.add_node(op, vec![Arg::Value(new)], vec![], vec![Some(result)], node.loc.clone());
        self.new.graph.node(copy).result().unwrap_or(new)
    }

    fn keep(&mut self, node: &Node, moved: Node) {
        let id = self.new.push(moved);
        for (i, old) in node.results.iter().enumerate() {
            if let (Some(old), Some(new)) = (old, self.new.graph.node(id).results[i]) {
                if self.owns[old.0 as usize] {
                    self.owned.insert(new);
                }
                self.bind(*old, new);
            }
        }
    }

    /// The rule's values become the results; a value made just now takes over the result's name.
    fn rename(&mut self, old: ValueId, new: ValueId) {
        self.named.resize(self.new.graph.value_count(), false);
        if !self.named[new.0 as usize] {
            self.new.take_name(old, new);
        }
        self.bind(old, new);
    }
}

/// Whether an operator writes into a copy of its operand that keeps the operand's strides, and by those several elements
/// are one. PyTorch leaves what the last write left in them, which no rule says.
fn overlapping_operand(graph: &Graph, node: &Node) -> bool {
    const KEEP_STRIDES: [&str; 3] =
        ["aten.diagonal_scatter.default", "aten.select_scatter.default", "aten.slice_scatter.default"];
    let Some(ty) = node.operand(0).map(|v| graph.ty(v)) else { return false };
    let Some(strides) = ty.strides.as_ref().filter(|_| node.op.external().is_some_and(|n| KEEP_STRIDES.contains(&n)))
    else {
        return false;
    };
    let hints = permalloy_ir::hints(&graph.symbols);
    // A copy of an expanded tensor is dense.
    let expanded = strides.iter().zip(&ty.shape).any(|(s, n)| s.is_const(0) && !n.is_const(1));
    !expanded && overlap(&ty.shape, strides, &hints)
}

/// A rule, or none for PyTorch's kernel, with reason and detail.
type Choice = (Option<&'static Rule>, Reason, String);

fn choose(name: &str, decl: Option<&'static OpDecl>, options: &RouteOptions) -> Choice {
    let Some(decl) = decl else {
        return (None, Reason::Unknown, "the operator table does not have it".to_string());
    };
    let asked = |e: &&Entry| permalloy_ops::policy::glob(&e.pattern, name) && possible(decl, &e.route);
    let overridden = options.overrides.iter().rev().find(asked);
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
            None => match decl.library() {
                Some(why) => (None, Reason::Library, why.to_string()),
                None => (None, Reason::NoRule, "the table has no rule for it".to_string()),
            },
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

/// The user's lines, pattern and route: `native`, `decompose` (the first rule), or a rule by name (`decompose:RULE` too).
///
/// A pattern must match a declared operator, and one of those it matches must have the route; where it is a name it is
/// that operator. Errors give the nearest names.
pub fn parse_overrides(lines: &[(String, String)]) -> Result<Vec<Entry>, String> {
    lines.iter().map(|(pattern, route)| parse_override(pattern, route)).collect()
}

fn parse_override(pattern: &str, text: &str) -> Result<Entry, String> {
    let matched: Vec<&OpDecl> =
        permalloy_ops::table().values().copied().filter(|d| permalloy_ops::policy::glob(pattern, d.name)).collect();
    if matched.is_empty() {
        return Err(format!("route override `{pattern}` matches no operator of the table{}", operator_hint(pattern)));
    }
    let route = match text {
        "native" => Route::Native,
        "decompose" => Route::Decompose(None),
        rule => Route::Decompose(Some(rule.strip_prefix("decompose:").unwrap_or(rule).to_string())),
    };
    if !matched.iter().any(|d| possible(d, &route)) {
        let has = |d: &&OpDecl| d.rules.iter().map(|r| r.name).chain(d.native.then_some("native"));
        let routes: BTreeSet<&str> = matched.iter().flat_map(has).collect();
        let hint = did_you_mean(text, routes.iter().copied());
        let known = if routes.len() > 8 { String::new() } else { format!(" ({})", Vec::from_iter(routes).join(", ")) };
        return Err(format!("`{text}` is no route of {pattern}{hint}{known}"));
    }
    Ok(Entry {
        pattern: pattern.to_string(),
        route,
        reason: "asked for by the user".to_string(),
        evidence: String::new(),
    })
}

/// Declared operators that resemble a pattern; `aten.gelo.*` is compared without overloads.
fn operator_hint(pattern: &str) -> String {
    let names = permalloy_ops::table().keys().copied();
    match pattern.strip_suffix(".*") {
        Some(stem) => {
            did_you_mean(stem, names.filter_map(|n| n.rsplit_once('.')).map(|(n, _)| n).collect::<BTreeSet<_>>())
        }
        None => did_you_mean(pattern, names),
    }
}

fn possible(decl: &OpDecl, route: &Route) -> bool {
    match route {
        Route::Native => decl.native,
        Route::Decompose(None) => !decl.rules.is_empty(),
        Route::Decompose(Some(rule)) => decl.rules.iter().any(|r| r.name == rule),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pattern: &str, route: &str) -> Result<Route, String> {
        parse_overrides(&[(pattern.to_string(), route.to_string())]).map(|e| e[0].route.clone())
    }

    #[test]
    fn routes_are_native_decompose_or_a_rule() {
        let fold = Route::Decompose(Some("matmul::fold".to_string()));
        assert_eq!(parsed("aten.gelu.default", "native"), Ok(Route::Native));
        assert_eq!(parsed("aten.gelu.*", "decompose"), Ok(Route::Decompose(None)));
        assert_eq!(parsed("aten.matmul.default", "matmul::fold"), Ok(fold.clone()));
        assert_eq!(parsed("aten.matmul.default", "decompose:matmul::fold"), Ok(fold));
    }

    #[test]
    fn mistakes_give_the_nearest_names() {
        let e = parsed("aten.gelo.default", "native").unwrap_err();
        assert!(
            e.contains("`aten.gelo.default` matches no operator") && e.contains("did you mean aten.gelu.default"),
            "{e}"
        );
        let e = parsed("aten.gelu", "native").unwrap_err();
        assert!(e.contains("did you mean aten.gelu.default"), "{e}");
        let e = parsed("aten.gelo.*", "native").unwrap_err();
        assert!(e.contains("did you mean aten.gelu"), "{e}");
        let e = parsed("aten.matmul.default", "matmul::fald").unwrap_err();
        assert!(e.contains("did you mean matmul::fold?") && e.contains("matmul::batched, matmul::fold, native"), "{e}");
        assert!(
            parsed("aten.mm.default", "decompose").unwrap_err().contains("is no route of aten.mm.default (native)")
        );
        let e = parsed("aten.matmul_backward.default", "native").unwrap_err();
        assert!(e.contains("matmul_backward::batched, matmul_backward::fold"), "{e}");
    }

    #[test]
    fn a_pattern_decides_for_those_that_have_the_route() {
        let overrides = parse_overrides(&[("aten.*".to_string(), "native".to_string())]).unwrap();
        let options = RouteOptions::of(Policy::of("cpu").unwrap(), overrides);
        let chosen = |name| {
            let (rule, reason, _) = choose(name, permalloy_ops::lookup(name), &options);
            (rule.map(|r| r.name), reason)
        };
        assert_eq!(chosen("aten.gelu.default"), (None, Reason::Override));
        // PyTorch has no kernel for it.
        assert_eq!(chosen("aten.matmul_backward.default"), (Some("matmul_backward::fold"), Reason::Policy));
    }
}
