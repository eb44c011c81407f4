//! Decisions that the user's options turn into errors.

use permalloy_ir::Graph;
use permalloy_ops::lookup;
use permalloy_ops::policy::glob;
use permalloy_passes::{Record, RouteTaken};
use std::fmt;

/// `native:PATTERN`, `decompose:PATTERN` or `decompose:RULE:PATTERN`: this route for these operators is an error.
/// In PATTERN `*` matches any characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deny {
    text: String,
    native: bool,
    rule: Option<String>,
    pattern: String,
}

impl Deny {
    /// Reads an entry; the message says what it should look like.
    pub fn parse(text: &str) -> Result<Deny, String> {
        let bad = || {
            format!(
                "deny entry `{text}` is none of native:OPERATOR, decompose:OPERATOR, decompose:RULE:OPERATOR \
                 (OPERATOR such as aten.gelu.default or aten.gelu.*)"
            )
        };
        let (route, rest) = text.split_once(':').ok_or_else(bad)?;
        // A rule's name may hold colons, an operator's does not.
        let (rule, pattern) = match rest.rsplit_once(':') {
            Some((rule, pattern)) => (Some(rule), pattern),
            None => (None, rest),
        };
        let native = route == "native";
        if pattern.is_empty() || (route != "decompose" && !native) || (native && rule.is_some()) {
            return Err(bad());
        }
        Ok(Deny { text: text.to_string(), native, rule: rule.map(str::to_string), pattern: pattern.to_string() })
    }

    /// The operators it speaks of.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether it forbids PyTorch's own kernel for an operator.
    pub fn forbids_native(&self, op: &str) -> bool {
        self.native && glob(&self.pattern, op)
    }

    fn forbids(&self, r: &Record) -> bool {
        match r.route {
            RouteTaken::Native => self.forbids_native(&r.op),
            RouteTaken::Decomposed(rule) => {
                !self.native && glob(&self.pattern, &r.op) && self.rule.as_ref().is_none_or(|x| x == rule)
            }
            // What a rewrite calls is in the graph.
            RouteTaken::Rewritten(_) | RouteTaken::AsWritten => false,
        }
    }
}

/// A forbidden decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forbidden {
    pub reason: String,
    pub operator: String,
    /// Source line of the user's model.
    pub location: Option<String>,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.reason, self.operator)?;
        self.location.as_ref().map_or(Ok(()), |l| write!(f, " at {l}"))
    }
}

/// The first forbidden decision, with how many more there are. `graph` is the routed one: what a rule or a rewrite left to PyTorch
/// has no record, and counts as native too.
pub(crate) fn check(records: &[Record], graph: &Graph, deny: &[Deny], strict: bool) -> Result<(), Forbidden> {
    if deny.is_empty() && !strict {
        return Ok(());
    }
    let mut found: Vec<Forbidden> = records.iter().filter_map(|r| of_record(r, deny, strict)).collect();
    if found.is_empty() {
        let judged = |op: &str| records.iter().any(|r| r.route == RouteTaken::Native && *r.op == *op);
        found.extend(graph.nodes().filter_map(|(_, node)| {
            let op = node.op.external()?;
            let reason = of_native_call(op, deny, strict).filter(|_| !judged(op))?;
            Some(Forbidden { reason, operator: op.to_string(), location: node.loc.as_deref().map(str::to_string) })
        }));
    }
    let more = found.len().saturating_sub(1);
    let Some(mut first) = found.into_iter().next() else { return Ok(()) };
    if more > 0 {
        first.reason += &format!(" (and {more} more)");
    }
    Err(first)
}

fn of_record(r: &Record, deny: &[Deny], strict: bool) -> Option<Forbidden> {
    let why = match r.detail.as_str() {
        "" => r.reason.name().to_string(),
        detail => format!("{}, {detail}", r.reason.name()),
    };
    let reason = if let Some(d) = deny.iter().find(|d| d.forbids(r)) {
        format!("config.deny has {}; the route is {}: {why}", d.text, r.route_name())
    } else if strict && r.lacks_support() {
        format!("strict: runs as PyTorch's own kernel: {why}")
    } else {
        return None;
    };
    Some(Forbidden { reason, operator: r.op.to_string(), location: r.loc.as_deref().map(str::to_string) })
}

fn of_native_call(op: &str, deny: &[Deny], strict: bool) -> Option<String> {
    if let Some(d) = deny.iter().find(|d| d.forbids_native(op)) {
        return Some(format!("config.deny has {}; a rule or a rewrite left the operator to PyTorch", d.text));
    }
    // An operator with rules that is native here was left so by one of them.
    let supported = lookup(op).is_some_and(|d| d.library().is_some() || !d.rules.is_empty());
    let reason = || "strict: runs as PyTorch's own kernel: a rule made it, and it has none".to_string();
    (strict && !supported).then(reason)
}

#[cfg(test)]
mod tests {
    use crate::{Error, Options, front};

    fn forbidden(options: &Options) -> Option<(String, String, Option<String>)> {
        let text = r#"graph "g" inference {
  input %x: f32[2, 2]
  input %b: f32[2]
  input %i: i64[2]
  %y: f32[2, 2] = aten.addmm.default(%b, %x, %x) loc="model.py:3 in forward"
  %z: f32[2, 2] = aten.gelu.default(%y) loc="model.py:4 in forward"
  %s: f32[2, 2] = aten.cumsum.default(%z, 0) loc="model.py:5 in forward"
  %t: f32[2, 2] = aten.cumsum.default(%s, 1) loc="model.py:6 in forward"
  output %t
}"#;
        match front(text, options, &mut Default::default()) {
            Ok(_) => None,
            Err(Error::Forbidden(f)) => Some((f.reason, f.operator, f.location)),
            Err(e) => panic!("{e}"),
        }
    }

    fn deny(entry: &str) -> Option<(String, String, Option<String>)> {
        forbidden(&Options { deny: vec![entry.to_string()], ..Options::default() })
    }

    #[test]
    fn denied_decisions_name_operator_and_line() {
        let (reason, op, loc) = deny("native:aten.cumsum.*").unwrap();
        assert!(
            reason.contains("native:aten.cumsum.*") && reason.contains("no-rule") && reason.ends_with("(and 1 more)")
        );
        assert_eq!((&*op, loc.as_deref()), ("aten.cumsum.default", Some("model.py:5 in forward")));
        let (reason, op, loc) = deny("decompose:aten.gelu.default").unwrap();
        assert!(reason.contains("decompose:gelu"), "{reason}");
        assert_eq!((&*op, loc.as_deref()), ("aten.gelu.default", Some("model.py:4 in forward")));
        assert_eq!(deny("decompose:gelu:aten.*").unwrap().1, "aten.gelu.default");
        assert_eq!(deny("decompose:addmm::mm_add:aten.*").unwrap().1, "aten.addmm.default");
        assert_eq!(deny("decompose:addmm::other:aten.*"), None);
        assert_eq!(deny("native:aten.gelu.*"), None);
        assert_eq!(deny("native:aten.tanh.*"), None);
    }

    #[test]
    fn what_a_rule_leaves_to_pytorch_is_native_too() {
        let (reason, op, loc) = deny("native:aten.mm.*").unwrap();
        assert!(reason.contains("a rule or a rewrite left the operator to PyTorch"), "{reason}");
        assert_eq!((&*op, loc.as_deref()), ("aten.mm.default", Some("model.py:3 in forward")));
    }

    #[test]
    fn strict_forbids_what_lacks_support_and_not_what_is_chosen() {
        let strict = Options { strict: true, ..Options::default() };
        let (reason, op, loc) = forbidden(&strict).unwrap();
        assert!(reason.starts_with("strict: ") && reason.contains("no-rule"), "{reason}");
        assert_eq!((&*op, loc.as_deref()), ("aten.cumsum.default", Some("model.py:5 in forward")));
        let routes = vec![("aten.cumsum.*".to_string(), "native".to_string())];
        assert_eq!(forbidden(&Options { routes, ..strict }), None, "the user chose the kernel; GEMMs are PyTorch's");
    }

    #[test]
    fn entries_that_are_no_decision_are_errors() {
        for entry in ["aten.gelu.default", "nativ:aten.gelu.*", "native:", "native:gelu:aten.gelu.*"] {
            let options = Options { deny: vec![entry.to_string()], ..Options::default() };
            let e = front("graph \"g\" inference {\n}", &options, &mut Default::default()).unwrap_err().to_string();
            assert!(e.contains(entry) && e.contains("decompose:RULE:OPERATOR"), "{e}");
        }
    }
}
