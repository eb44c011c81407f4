//! Policy tables: which route an operator takes on a target when nobody says otherwise.
//!
//! One text file per target, `policy/TARGET.policy`. A line is `PATTERN ROUTE REASON… [| EVIDENCE…]`; `#` starts a comment;
//! the last matching line wins. Evidence is what the reason rests on: a measurement, or what a compiler refuses. PATTERN is an operator name, where `*` matches any characters. ROUTE is `decompose`,
//! `decompose:RULE` or `native`. Operators in the table that no line matches decompose with their first rule when they have
//! one and run natively otherwise.

/// Where an operator goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// By the rule of this name, or the operator's first.
    Decompose(Option<String>),
    Native,
}

/// One line of a policy file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub pattern: String,
    pub route: Route,
    pub reason: String,
    /// What the reason rests on; empty where nothing was measured.
    pub evidence: String,
}

/// A target's table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    pub target: String,
    pub entries: Vec<Entry>,
}

/// Targets with a policy file.
pub const TARGETS: [&str; 4] = ["cpu", "cuda", "ascend-a2", "ascend-a5"];

impl Policy {
    /// The table of a target, or None if there is no such target.
    pub fn of(target: &str) -> Option<Policy> {
        let text = match target {
            "cpu" => include_str!("../policy/cpu.policy"),
            "cuda" => include_str!("../policy/cuda.policy"),
            "ascend-a2" => include_str!("../policy/ascend-a2.policy"),
            "ascend-a5" => include_str!("../policy/ascend-a5.policy"),
            _ => return None,
        };
        let policy = Policy::parse(target, text);
        Some(policy.unwrap_or_else(|e| panic!("built-in policy file: {e}")))
    }

    /// Reads a table; the message names the line.
    pub fn parse(target: &str, text: &str) -> Result<Policy, String> {
        let mut entries = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let mut words = line.splitn(3, char::is_whitespace);
            let at = |what: &str| format!("{target}.policy line {}: {what}: `{line}`", i + 1);
            let pattern = words.next().unwrap_or("").to_string();
            let rest: Vec<&str> = words.map(str::trim).filter(|w| !w.is_empty()).collect();
            let text = rest.join(" ");
            let (route, reason) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
            let route = match route.split_once(':') {
                None if route == "decompose" => Route::Decompose(None),
                None if route == "native" => Route::Native,
                Some(("decompose", rule)) => Route::Decompose(Some(rule.to_string())),
                _ => return Err(at("the route is none of decompose, decompose:RULE, native")),
            };
            let (reason, evidence) = reason.split_once(" | ").unwrap_or((reason, ""));
            let [reason, evidence] = [reason, evidence].map(|text| text.trim().to_string());
            if reason.is_empty() {
                return Err(at("an entry needs its reason"));
            }
            entries.push(Entry { pattern, route, reason, evidence });
        }
        Ok(Policy { target: target.to_string(), entries })
    }

    /// The entry that decides for an operator.
    pub fn entry(&self, op: &str) -> Option<&Entry> {
        self.entries.iter().rev().find(|e| glob(&e.pattern, op))
    }
}

/// `*` matches any run of characters.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or("")) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for p in parts {
        match rest.find(p) {
            Some(i) => rest = &rest[i + p.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_matching_line_wins() {
        let p = Policy::parse("t", "aten.* native all\naten.mul.* decompose fuses | 3x in a chain # note").unwrap();
        assert_eq!(p.entry("aten.mul.Tensor").map(|e| (&*e.reason, &*e.evidence)), Some(("fuses", "3x in a chain")));
        assert_eq!(p.entry("aten.mul.Tensor").map(|e| e.route.clone()), Some(Route::Decompose(None)));
        assert_eq!(p.entry("aten.mm.default").map(|e| e.route.clone()), Some(Route::Native));
        assert_eq!(p.entry("prims.x"), None);
    }

    #[test]
    fn errors_name_the_line() {
        let e = Policy::parse("t", "\naten.x fast because").unwrap_err();
        assert!(e.contains("line 2"), "{e}");
        assert!(Policy::parse("t", "aten.x native").unwrap_err().contains("reason"));
    }

    #[test]
    fn glob_matches_in_order() {
        assert!(glob("aten.*_backward.*", "aten.gelu_backward.default"));
        assert!(!glob("aten.*_backward.*", "aten.gelu.default"));
        assert!(glob("a", "a") && !glob("a", "ab"));
    }

    #[test]
    fn every_entry_of_every_target_names_a_declared_operator_and_rule() {
        for target in TARGETS {
            for e in Policy::of(target).unwrap().entries {
                let matched: Vec<_> = crate::table().values().filter(|d| glob(&e.pattern, d.name)).collect();
                assert!(!matched.is_empty(), "{target}: {} matches no declared operator", e.pattern);
                if let Route::Decompose(rule) = &e.route {
                    for d in matched {
                        let known = rule.as_ref().map_or(!d.rules.is_empty(), |r| d.rules.iter().any(|x| x.name == r));
                        assert!(known, "{target}: {} has no rule {rule:?}", d.name);
                    }
                }
            }
        }
    }
}
