//! `permalloy ops`: the operator table, with the route each operator takes on a target by its policy.

use crate::CliError;
use lexopt::{Arg, Parser, ValueExt};
use permalloy_ir::{did_you_mean, quote};
use permalloy_ops::policy::{Policy, Route, TARGETS};
use permalloy_ops::{OpDecl, lookup, table};

pub fn command(mut parser: Parser) -> Result<String, CliError> {
    let (mut target, mut json, mut name) = ("cpu".to_string(), false, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("target") => target = parser.value()?.string()?,
            Arg::Long("json") => json = true,
            Arg::Value(v) if name.is_none() => name = Some(v.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let policy = Policy::of(&target).ok_or_else(|| {
        let hint = did_you_mean(&target, TARGETS);
        CliError::Usage(format!("there is no target `{target}`{hint} (targets: {})", TARGETS.join(", ")))
    })?;
    let rows: Vec<Row> = match &name {
        None => table().values().map(|d| Row::of(d, &policy)).collect(),
        Some(name) => {
            let decl = lookup(name).ok_or_else(|| {
                let hint = did_you_mean(name, table().keys().copied());
                CliError::Failed(format!("operator `{name}` is not declared{hint}"))
            })?;
            vec![Row::of(decl, &policy)]
        }
    };
    Ok(match (json, name, rows.as_slice()) {
        (true, Some(_), [row]) => row.json() + "\n",
        (true, _, rows) => format!("[\n{}\n]\n", rows.iter().map(Row::json).collect::<Vec<_>>().join(",\n")),
        (false, Some(_), [row]) => row.details(&target),
        (false, _, rows) => listing(rows),
    })
}

/// An operator on a target.
struct Row {
    decl: &'static OpDecl,
    cost: String,
    route: String,
    reason: String,
}

impl Row {
    fn of(decl: &'static OpDecl, policy: &Policy) -> Row {
        let first = decl.rules.first().map(|r| r.name);
        let decompose = |rule: Option<&str>| match rule.or(first) {
            Some(rule) => format!("decompose:{rule}"),
            None => "decompose".to_string(),
        };
        let (route, reason) = match (policy.entry(decl.name), first) {
            (Some(e), _) => {
                let route = match &e.route {
                    Route::Decompose(rule) => decompose(rule.as_deref()),
                    Route::Native => "native".to_string(),
                };
                (route, e.reason.clone())
            }
            (None, Some(_)) => (decompose(None), "default: it has a rule".to_string()),
            (None, None) => ("native".to_string(), "default: it has no rule".to_string()),
        };
        Row { decl, cost: format!("{:?}", decl.cost).to_lowercase(), route, reason }
    }

    fn effect(&self) -> String {
        format!("{:?}", self.decl.effect).to_lowercase()
    }

    fn json(&self) -> String {
        let rules: Vec<String> = self.decl.rules.iter().map(|r| quote(r.name)).collect();
        format!(
            "{{\"name\": {}, \"cost\": {}, \"effect\": {}, \"rules\": [{}], \"native\": {}, \"route\": {}, \"reason\": {}, \"doc\": {}}}",
            quote(self.decl.name),
            quote(&self.cost),
            quote(&self.effect()),
            rules.join(", "),
            self.decl.native,
            quote(&self.route),
            quote(&self.reason),
            quote(self.decl.doc)
        )
    }

    fn details(&self, target: &str) -> String {
        let rules: Vec<&str> = self.decl.rules.iter().map(|r| r.name).collect();
        let rules = if rules.is_empty() { "none".to_string() } else { rules.join(", ") };
        let native = if self.decl.native { "yes" } else { "no" };
        format!(
            "{}\n  {}\n  cost    {}\n  effect  {}\n  rules   {rules}\n  native  {native}\n  route   {} on {target}: {}\n",
            self.decl.name,
            self.decl.doc,
            self.cost,
            self.effect(),
            self.route,
            self.reason
        )
    }
}

/// Columns name, cost, route, reason, doc.
fn listing(rows: &[Row]) -> String {
    let columns =
        |r: &Row| [r.decl.name.to_string(), r.cost.clone(), r.route.clone(), r.reason.clone(), r.decl.doc.to_string()];
    let head = ["operator", "cost", "route", "reason", "doc"].map(str::to_string);
    let cells: Vec<[String; 5]> = std::iter::once(head).chain(rows.iter().map(columns)).collect();
    let width = |i: usize| cells.iter().map(|c| c[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..4).map(width).collect();
    let line = |c: &[String; 5]| {
        let padded: Vec<String> = c
            .iter()
            .enumerate()
            .map(|(i, text)| format!("{text:<w$}", w = widths.get(i).copied().unwrap_or(0)))
            .collect();
        padded.join("  ").trim_end().to_string() + "\n"
    };
    cells.iter().map(line).collect()
}
