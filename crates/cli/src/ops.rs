//! `permalloy ops`: the operator table, with the route each operator takes on a target by its policy.

use crate::CliError;
use lexopt::{Arg, Parser, ValueExt};
use permalloy_ir::{did_you_mean, quote};
use permalloy_ops::policy::{Policy, Route, TARGETS};
use permalloy_ops::{OpDecl, lookup, table};
use permalloy_tune::{Store, cpu_name};
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub fn command(mut parser: Parser) -> Result<String, CliError> {
    let (mut target, mut json, mut why, mut name) = ("cpu".to_string(), false, false, None);
    let mut cache = cache_folder();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("target") => target = parser.value()?.string()?,
            Arg::Long("json") => json = true,
            Arg::Long("why") => why = true,
            Arg::Long("cache") => cache = Some(PathBuf::from(parser.value()?)),
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
            let decl = lookup(name).or_else(|| lookup(&format!("{name}.default"))).ok_or_else(|| {
                let hint = did_you_mean(name, table().keys().copied());
                CliError::Failed(format!("operator `{name}` is not declared{hint}"))
            })?;
            vec![Row::of(decl, &policy)]
        }
    };
    if why {
        let [row] = rows.as_slice() else {
            return Err(CliError::Usage("--why wants the name of one operator".into()));
        };
        return Ok(row.why(&policy) + &measurements(row.decl, &target, cache.as_deref()));
    }
    Ok(match (json, name, rows.as_slice()) {
        (true, Some(_), [row]) => row.json() + "\n",
        (true, _, rows) => format!("[\n{}\n]\n", rows.iter().map(Row::json).collect::<Vec<_>>().join(",\n")),
        (false, Some(_), [row]) => row.details(&target),
        (false, _, rows) => listing(rows),
    })
}

/// Where the compiler keeps what it measured, unless `config.cache_dir` says otherwise.
fn cache_folder() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|h| Path::new(&h).join(".cache").join("permalloy"));
    std::env::var_os("PERMALLOY_CACHE_DIR").filter(|d| !d.is_empty()).map(PathBuf::from).or_else(home)
}

/// What `config.tune` measured of an operator: on this machine's processor, or on any CUDA device.
fn measurements(decl: &OpDecl, target: &str, cache: Option<&Path>) -> String {
    let here = |device: &str| if target == "cpu" { device == cpu_name() } else { device.starts_with(target) };
    let kept = cache.map_or_else(Vec::new, |c| Store::under(c).of_operator(decl.name));
    let mut out = String::new();
    for (key, times) in kept.iter().filter(|(key, _)| here(&key.device)) {
        let call = key.call.lines().find(|l| l.contains(decl.name)).unwrap_or("").trim();
        let arguments: Vec<&str> = key.call.lines().filter_map(|l| l.trim().strip_prefix("input ")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  measured  {}", times.text());
        let _ = writeln!(out, "            {call}\n            with {}", arguments.join(", "));
        let _ = writeln!(out, "            on {}; {}", key.device, key.with);
    }
    out
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

    /// Which line decided, with its reason and evidence, and what else could be chosen.
    fn why(&self, policy: &Policy) -> String {
        let entry = policy.entry(self.decl.name);
        let decided =
            entry.map_or("no line of the policy".to_string(), |e| format!("the policy's line for {}", e.pattern));
        let evidence = entry.map_or("", |e| &e.evidence);
        let native = self.decl.native.then(|| "native".to_string());
        let others: Vec<String> = (self.decl.rules.iter().map(|r| format!("decompose:{}", r.name)))
            .chain(native)
            .filter(|route| *route != self.route)
            .collect();
        let or_none = |text: &str| if text.is_empty() { "none".to_string() } else { text.to_string() };
        format!(
            "{} on {}\n  route     {}\n  decided   by {decided}\n  reason    {}\n  evidence  {}\n  others    {}\n",
            self.decl.name,
            policy.target,
            self.route,
            self.reason,
            or_none(evidence),
            or_none(&others.join(", "))
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
