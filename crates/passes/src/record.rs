//! Decisions as values: what was chosen for each operator, and why.

use std::sync::Arc;

/// How an operator of the traced graph is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteTaken {
    /// Rewritten by the named rule; what it became is fused.
    Decomposed(&'static str),
    /// PyTorch's own kernel.
    Native,
    /// The named rewrite put something else in its place.
    Rewritten(&'static str),
    /// A pattern that a rewrite looks for, left as it was.
    AsWritten,
}

/// Where a decision came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// `config.routes` or `PERMALLOY_ROUTES`.
    Override,
    /// The operator's routes were timed on this device.
    Measured,
    /// A line of the target's policy table.
    Policy,
    /// The table has a rule and no policy line says otherwise.
    DefaultRule,
    /// No rule, and none is missed: PyTorch's kernel is the route to want (`OpDecl::library` says why).
    Library,
    /// The table has no rule.
    NoRule,
    /// The operator is not in the table.
    Unknown,
    /// The rule (or rewrite) does not cover these arguments.
    Declined,
    /// What the rule made does not have the promised type.
    Mismatch,
    /// What its rule made has no kernel on the device, or none that compiles.
    NoKernel,
    /// A rewrite found its pattern.
    Pattern,
}

/// One decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub op: Arc<str>,
    pub loc: Option<Arc<str>>,
    pub route: RouteTaken,
    pub reason: Reason,
    /// The policy line's reason, what was measured, or what the rule said when it declined.
    pub detail: String,
    /// Other routes the table has.
    pub alternatives: Vec<String>,
}

impl Record {
    /// `decompose:gelu`, `native`, `rewrite:attention` or `as-written`.
    pub fn route_name(&self) -> String {
        match self.route {
            RouteTaken::Decomposed(rule) => format!("decompose:{rule}"),
            RouteTaken::Native => "native".to_string(),
            RouteTaken::Rewritten(name) => format!("rewrite:{name}"),
            RouteTaken::AsWritten => "as-written".to_string(),
        }
    }

    /// Whether it is native because the compiler cannot do better, not because someone chose so.
    pub fn lacks_support(&self) -> bool {
        if self.route != RouteTaken::Native {
            return false;
        }
        match self.reason {
            Reason::Override
            | Reason::Measured
            | Reason::Policy
            | Reason::DefaultRule
            | Reason::Library
            | Reason::Pattern => false,
            Reason::NoRule | Reason::Unknown | Reason::Mismatch | Reason::NoKernel => true,
            // A product whose bias no rule adds is still a product.
            Reason::Declined => permalloy_ops::lookup(&self.op).is_none_or(|d| d.library().is_none()),
        }
    }
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Reason::Override => "override",
            Reason::Measured => "measured",
            Reason::Policy => "policy",
            Reason::DefaultRule => "default-rule",
            Reason::Library => "library",
            Reason::NoRule => "no-rule",
            Reason::Unknown => "unknown-op",
            Reason::Declined => "rule-declined",
            Reason::Mismatch => "rule-mismatch",
            Reason::NoKernel => "no-kernel",
            Reason::Pattern => "pattern",
        }
    }
}
