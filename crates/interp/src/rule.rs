//! Operators evaluated by their decomposition rule.

use crate::{InputValue, OutputValue, Scope, Tensor, run_nested};
use permalloy_ir::{Arg, Builder, Dim, Graph, GraphKind, Input, Node, Output, Role, TensorType, ValueId};
use permalloy_ops::{Call, Rule};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Evaluates a node by the first of its operator's rules that accepts it, on a graph of its own with static sizes.
pub(crate) fn eval(name: &str, scope: &Scope<'_>) -> Result<Vec<Option<Tensor>>, String> {
    let Some(decl) = permalloy_ops::lookup(name).filter(|d| !d.rules.is_empty()) else {
        return Err("the interpreter has no meaning for this operator: it is not built in and has no rule".to_string());
    };
    if scope.depth >= crate::MAX_NESTING {
        return Err(format!("rules nest deeper than {} levels", crate::MAX_NESTING));
    }
    let mut scratch = Graph::new(name, GraphKind::Inference);
    let mut inputs = Vec::new();
    let node = static_node(scope, &mut scratch, &mut inputs)?;
    let results = scope.node.results.iter().map(|v| v.map(|v| static_type(scope, v)).transpose());
    let results: Vec<Option<TensorType>> = results.collect::<Result<_, String>>()?;
    let (rule, made) = apply_rules(&mut scratch, &node, &results, decl.rules).map_err(RuleError::message)?;
    let wanted = |(v, ty): (&Option<ValueId>, &Option<TensorType>)| match (v, ty) {
        (Some(v), Some(_)) => Output::Value(*v),
        _ => Output::None,
    };
    scratch.outputs = made.iter().zip(&results).map(wanted).collect();
    let outputs = run_nested(&scratch, &inputs, scope.options, scope.depth + 1)
        .map_err(|e| format!("in rule {}: {e}", rule.name))?;
    Ok(outputs.into_iter().map(|o| if let OutputValue::Tensor(t) = o { Some(t) } else { None }).collect())
}

/// No rule gave the results. The message names each rule tried with its reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RuleError {
    /// Every rule declined: the operator stays as it is.
    Declined(String),
    /// A rule made something else than PyTorch promised, or was given operands that it cannot take.
    Failed(String),
}

impl RuleError {
    pub fn message(self) -> String {
        match self {
            RuleError::Declined(m) | RuleError::Failed(m) => m,
        }
    }
}

/// Emits the first of `rules` that accepts the node into `graph`, where the node's operands already are values.
/// Gives the rule and one value a result. A rule that declines late may leave nodes that nothing reads.
pub fn apply_rules<'r>(
    graph: &mut Graph,
    node: &Node,
    results: &[Option<TensorType>],
    rules: &'r [Rule],
) -> Result<(&'r Rule, Vec<Option<ValueId>>), RuleError> {
    let mut reasons = Vec::new();
    for rule in rules {
        let mut b = Builder::new(graph);
        b.loc = node.loc.clone();
        // The builder panics on an ill-typed prim, which a rule makes when the operator's own arguments are ill-typed.
        // The graph may then hold nodes that nothing reads, no broken ones.
        let emitted = catch_unwind(AssertUnwindSafe(|| (rule.apply)(&mut Call { b: &mut b, node, results })));
        match emitted {
            Ok(Ok(made)) => {
                check(graph, &made, results).map_err(|e| RuleError::Failed(format!("rule {}: {e}", rule.name)))?;
                return Ok((rule, made));
            }
            Ok(Err(decline)) => reasons.push(format!("rule {} declines: {}", rule.name, decline.0)),
            Err(panic) => {
                return Err(RuleError::Failed(format!("rule {} fails: {}", rule.name, panic_text(&*panic))));
            }
        }
    }
    Err(RuleError::Declined(reasons.join("; ")))
}

/// The rule made what PyTorch promised.
fn check(graph: &Graph, made: &[Option<ValueId>], results: &[Option<TensorType>]) -> Result<(), String> {
    if made.len() != results.len() {
        return Err(format!("made {} results, not {}", made.len(), results.len()));
    }
    for (i, (v, promised)) in made.iter().zip(results).enumerate() {
        let Some(promised) = promised else { continue };
        let Some(v) = v else { return Err(format!("did not make result {i}")) };
        let ty = graph.ty(*v);
        if (ty.dtype, &ty.shape) != (promised.dtype, &promised.shape) {
            return Err(format!("made {ty} for result {i}, not {promised}"));
        }
    }
    Ok(())
}

/// The node with its operands as inputs of the scratch graph and every size a constant.
fn static_node(scope: &Scope<'_>, scratch: &mut Graph, inputs: &mut Vec<InputValue>) -> Result<Node, String> {
    let mut node = scope.node.clone();
    let args = node.args.iter_mut().chain(node.kwargs.iter_mut().map(|(_, a)| a));
    for a in args {
        *a = a.map_values(&mut |v| {
            let ty = static_type(scope, v)?;
            let tensor = scope.values[v.0 as usize].clone().ok_or_else(|| "an operand was not computed".to_string())?;
            let name = &scope.graph.value(v).name;
            let known = scratch.inputs.iter().find_map(|i| match i {
                Input::Tensor { value, .. } if scratch.value(*value).name == *name => Some(*value),
                _ => None,
            });
            Ok::<_, String>(known.unwrap_or_else(|| {
                inputs.push(InputValue::Tensor(tensor));
                scratch.add_input(name, ty, Role::Primal)
            }))
        })?;
        *a = static_arg(scope, a)?;
    }
    Ok(node)
}

fn static_arg(scope: &Scope<'_>, a: &Arg) -> Result<Arg, String> {
    Ok(match a {
        Arg::Int(d) => Arg::Int(Dim::from(scope.dim(d)?)),
        Arg::List(items) => Arg::List(items.iter().map(|a| static_arg(scope, a)).collect::<Result<_, _>>()?),
        other => other.clone(),
    })
}

fn static_type(scope: &Scope<'_>, v: ValueId) -> Result<TensorType, String> {
    let ty = scope.graph.ty(v);
    let shape = scope.type_sizes(ty)?.into_iter().map(|s| Dim::from(s as i64)).collect();
    Ok(TensorType { dtype: ty.dtype, shape, strides: None, device: ty.device })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}
