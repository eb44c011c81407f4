//! Rewriting a node by a decomposition rule.

use crate::decl::{Call, Rule};
use permalloy_ir::{Builder, Graph, Node, TensorType, ValueId};
use std::cell::OnceCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A rule did not give the results; the graph is as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleError {
    /// It does not cover these arguments: the operator stays as it is. The rule's own words.
    Declined(String),
    /// It made something else than PyTorch promised, or an ill-typed prim: a bug of the rule, or a node that is no call of
    /// the operator.
    Failed(String),
}

impl RuleError {
    pub fn message(self) -> String {
        match self {
            RuleError::Declined(m) | RuleError::Failed(m) => m,
        }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleError::Declined(m) | RuleError::Failed(m) => f.write_str(m),
        }
    }
}

impl std::error::Error for RuleError {}

/// Emits what the rule makes of the node, whose operands already are values of the graph. `results` are the types that
/// PyTorch promised; gives one value for each.
pub fn apply_rule(
    graph: &mut Graph,
    node: &Node,
    results: &[Option<TensorType>],
    rule: &Rule,
) -> Result<Vec<Option<ValueId>>, RuleError> {
    let mark = graph.mark();
    let made = emit(graph, node, results, rule).and_then(|made| {
        let checked = check(graph, &made, results);
        checked.map_err(|e| RuleError::Failed(format!("{} {e}", rule.name))).map(|()| made)
    });
    if made.is_err() {
        graph.rollback(mark);
    }
    made
}

/// As [`apply_rule`], by the first of the rules that accepts the node; gives the rule too. When all decline, the message
/// names each with its reason.
pub fn apply_rules<'r>(
    graph: &mut Graph,
    node: &Node,
    results: &[Option<TensorType>],
    rules: &'r [Rule],
) -> Result<(&'r Rule, Vec<Option<ValueId>>), RuleError> {
    let mut reasons = Vec::new();
    for rule in rules {
        match apply_rule(graph, node, results, rule) {
            Ok(made) => return Ok((rule, made)),
            Err(RuleError::Declined(m)) => reasons.push(format!("rule {} declines: {m}", rule.name)),
            Err(RuleError::Failed(m)) => return Err(RuleError::Failed(format!("rule {m}"))),
        }
    }
    Err(RuleError::Declined(reasons.join("; ")))
}

fn emit(
    graph: &mut Graph,
    node: &Node,
    results: &[Option<TensorType>],
    rule: &Rule,
) -> Result<Vec<Option<ValueId>>, RuleError> {
    let error = OnceCell::new();
    let mut b = Builder::checked(graph, &error);
    b.loc = node.loc.clone();
    // Constants are made where the results are wanted.
    b.device = results.iter().flatten().next().map_or(b.device, |ty| ty.device);
    // What the builder checks is no panic; what is left is a rule that takes an argument for granted.
    let made = catch_unwind(AssertUnwindSafe(|| (rule.apply)(&mut Call { b: &mut b, node, results })));
    let failed = |m: &str| RuleError::Failed(format!("{} fails: {m}", rule.name));
    match (error.get(), made) {
        // After the first error the rule works on values that are not what it takes them for.
        (Some(e), _) => Err(failed(&format!("ill-typed prim: {e}"))),
        (None, Ok(Ok(made))) => Ok(made),
        (None, Ok(Err(decline))) => Err(RuleError::Declined(decline.0)),
        (None, Err(panic)) => Err(failed(panic_text(&*panic))),
    }
}

/// The rule made what PyTorch promised.
fn check(graph: &Graph, made: &[Option<ValueId>], results: &[Option<TensorType>]) -> Result<(), String> {
    if made.len() != results.len() {
        return Err(format!("made {} results, {} promised", made.len(), results.len()));
    }
    for (i, (v, promised)) in made.iter().zip(results).enumerate() {
        let Some(promised) = promised else { continue };
        let Some(v) = v else { return Err(format!("made no value for the promised result {i}")) };
        let ty = graph.ty(*v);
        if (ty.dtype, &ty.shape) != (promised.dtype, &promised.shape) {
            let text = |t: &TensorType| format!("{}{}", t.dtype, permalloy_ir::shape_text(&t.shape));
            return Err(format!("made {} for result {i}, promised {}", text(ty), text(promised)));
        }
    }
    Ok(())
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decl::RuleResult;
    use permalloy_ir::{Arg, DType, Device, Dim, PrimOp, output_values};

    fn graph() -> Graph {
        let text = "graph \"g\" inference {\n  input %x: f32[2, 3] @cuda:0\n  input %y: f32[4] @cuda:0\n  \
                    %z: f32[2, 3] @cuda:0 = aten.op.default(%x, %y)\n  output %z\n}\n";
        Graph::parse(text).unwrap()
    }

    /// Applies rules to the graph's node, in a graph with its inputs.
    fn apply(rules: &[Rule]) -> (Graph, Result<Vec<Option<ValueId>>, RuleError>) {
        let old = graph();
        let mut g = old.clone();
        let node = old.nodes().next().unwrap().1.clone();
        let results: Vec<_> = output_values(&old.outputs).map(|v| Some(old.ty(v).clone())).collect();
        let made = apply_rules(&mut g, &node, &results, rules).map(|(_, made)| made);
        (g, made)
    }

    const fn rule(name: &'static str, apply: fn(&mut Call<'_, '_>) -> RuleResult) -> Rule {
        Rule { name, apply }
    }

    const DECLINES: Rule = rule("late", |c| {
        let x = c.tensor(0, "x")?;
        c.b.unary(PrimOp::Exp, x);
        Err("not today".into())
    });

    #[test]
    fn the_first_rule_that_accepts_is_taken_and_constants_are_where_the_result_is() {
        let twice = rule("twice", |c| {
            let x = c.tensor(0, "x")?;
            let two = c.b.full(Arg::Float(2.0), &[], DType::F32);
            Ok(vec![Some(c.b.mul(two, x))])
        });
        let (g, made) = apply(&[DECLINES, twice]);
        assert_eq!(g.ty(made.unwrap()[0].unwrap()).device, Device::Cuda(0));
        let ops: Vec<String> = g.nodes().map(|(_, n)| n.op.name()).collect();
        assert_eq!(
            ops,
            ["aten.op.default", "prim.full", "prim.reshape", "prim.expand", "prim.mul"],
            "nothing of `late`"
        );
        assert!(g.values().all(|(_, v)| v.ty.device == Device::Cuda(0)));
    }

    #[test]
    fn reasons_of_all_that_decline_are_given() {
        let (g, made) = apply(&[DECLINES, DECLINES]);
        let message = "rule late declines: not today; rule late declines: not today";
        assert_eq!((g, made), (graph(), Err(RuleError::Declined(message.into()))));
    }

    #[test]
    fn failures_are_errors_that_leave_the_graph_alone() {
        let broken: [(Rule, &str); 5] = [
            (
                rule("ill_typed", |c| {
                    let (x, y) = (c.tensor(0, "x")?, c.tensor(1, "y")?);
                    let sum = c.b.add(x, y);
                    Ok(vec![Some(c.b.unary(PrimOp::Exp, sum))])
                }),
                "rule ill_typed fails: ill-typed prim: sizes 3 and 4 do not broadcast",
            ),
            (rule("panics", |c| panic!("argument {}", c.node.args.len())), "rule panics fails: argument 2"),
            (rule("nothing", |_| Ok(vec![])), "rule nothing made 0 results, 1 promised"),
            (rule("none", |_| Ok(vec![None])), "rule none made no value for the promised result 0"),
            (
                rule("other", |c| {
                    let x = c.tensor(0, "x")?;
                    Ok(vec![Some(c.b.reshape(x, &[Dim::from(6)]))])
                }),
                "rule other made f32[6] for result 0, promised f32[2, 3]",
            ),
        ];
        for (rule, message) in broken {
            assert_eq!(apply(&[rule]), (graph(), Err(RuleError::Failed(message.into()))));
        }
    }
}
