//! Operators evaluated by their decomposition rule.

use crate::{InputValue, OutputValue, Scope, Tensor, run_nested};
use permalloy_ir::{Arg, Dim, Graph, GraphKind, Input, Node, Output, Role, TensorType, ValueId};
use permalloy_ops::{RuleError, apply_rules};

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
