//! The operator table: one declaration per ATen operator, decomposition rules by topic, policy tables by target.
//!
//! To add an operator, add one [`OpDecl`] with its rule to the topic file under `rules/`; the tests and the policy
//! check name whatever is left to fill. A rule is pure: it emits prims and decides nothing about the target.
//!
//! ```
//! let gelu = permalloy_ops::lookup("aten.gelu.default").unwrap();
//! assert_eq!(gelu.rules[0].name, "gelu");
//! assert!(permalloy_ops::lookup("aten.no_such_op.default").is_none());
//! ```

mod apply;
mod decl;
mod operands;
pub mod policy;
pub mod rules;

pub use apply::{RuleError, apply_rule, apply_rules};
pub use decl::{Call, Cost, Decline, Effect, OpDecl, Rule, RuleResult};
pub use operands::index_bound;

use std::collections::BTreeMap;
use std::sync::LazyLock;

static TABLE: LazyLock<BTreeMap<&'static str, &'static OpDecl>> =
    LazyLock::new(|| rules::TOPICS.iter().flat_map(|(_, decls)| decls.iter()).map(|d| (d.name, d)).collect());

/// Every declared operator, by name.
pub fn table() -> &'static BTreeMap<&'static str, &'static OpDecl> {
    &TABLE
}

/// The declaration of one operator, overload included.
pub fn lookup(name: &str) -> Option<&'static OpDecl> {
    TABLE.get(name).copied()
}
