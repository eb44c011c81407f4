//! How far a correct engine may be from the exact result: running error bounds, as a graph of their own.
//!
//! [`run_bounded`] runs a graph in f64 together with a bound for each element. An engine that rounds after any operator
//! it likes, to the operator's dtype (16-bit floats may stay in f32 until a store or a cast), and that sums in any order
//! stays within the bound. Elementwise prims are evaluated at the ends of their operands' ranges, so that no derivative
//! is written down; where a range decides a comparison, a cast to an integer or an index either way, the result is
//! *uncertain*: its bound is infinite. Exact values have no bound at all, so that views, integers and bools cost little.

mod folds;

use crate::{InputValue, InterpError, Options, OutputValue, run};
use permalloy_ir::{Arg, Builder, DType, Graph, Input, Node, Op, Output, PrimKind, PrimOp, ValueId};
use std::sync::Arc;

/// A result with the bound of each element; None: exact.
#[derive(Clone, PartialEq, Debug)]
pub struct Bounded {
    pub value: OutputValue,
    pub error: Option<Vec<f64>>,
}

/// What a run gives.
#[derive(Clone, PartialEq, Debug)]
pub struct BoundedRun {
    pub outputs: Vec<Bounded>,
    /// Inputs that `copy_` overwrote, by position, with their last contents.
    pub overwritten: Vec<(usize, Bounded)>,
}

/// Runs a graph of prims and matrix products in f64, with bounds. Inputs must hold values that their dtypes can.
pub fn run_bounded(graph: &Graph, inputs: &[InputValue]) -> Result<BoundedRun, InterpError> {
    let mut errors = Errors::of(graph).map_err(|message| InterpError { statement: None, message })?;
    let mut places: Vec<(Option<usize>, bool)> = Vec::new();
    for o in &graph.outputs {
        let (value, error) = match o {
            Output::Value(v) => (Output::Value(errors.map[v.0 as usize]), errors.errors[v.0 as usize]),
            other => (other.clone(), None),
        };
        errors.graph.outputs.push(value);
        errors.graph.outputs.extend(error.map(Output::Value));
        places.push((None, error.is_some()));
    }
    for (input, value, error) in std::mem::take(&mut errors.overwritten) {
        errors.graph.outputs.push(Output::Value(value));
        errors.graph.outputs.extend(error.map(Output::Value));
        places.push((Some(input), error.is_some()));
    }
    let mut results = run(&errors.graph, inputs, Options::default())?.into_iter();
    let mut out = BoundedRun { outputs: Vec::new(), overwritten: Vec::new() };
    for (input, bounded) in places {
        let Some(value) = results.next() else { break };
        let error = match bounded.then(|| results.next()).flatten() {
            Some(OutputValue::Tensor(t)) => t.as_floats().map(<[f64]>::to_vec),
            _ => None,
        };
        let bounded = Bounded { value, error };
        match input {
            Some(i) => out.overwritten.push((i, bounded)),
            None => out.outputs.push(bounded),
        }
    }
    Ok(out)
}

/// Largest relative error of one rounding, smallest step, and a size below which nothing overflows.
fn format(dtype: DType) -> (f64, f64, f64) {
    match dtype {
        DType::F64 => (f64::EPSILON / 2.0, 5e-324, 1e300),
        DType::BF16 => (1.0 / 256.0, 1e-40, 1e37),
        DType::F16 => (1.0 / 2048.0, 6e-8, 6e4),
        _ => (f64::from(f32::EPSILON) / 2.0, 1.5e-45, 1e37),
    }
}

struct Errors {
    graph: Graph,
    /// The given graph's values in the new one.
    map: Vec<ValueId>,
    /// f64 of the value's shape; None: exact.
    errors: Vec<Option<ValueId>>,
    overwritten: Vec<(usize, ValueId, Option<ValueId>)>,
}

impl Errors {
    fn of(graph: &Graph) -> Result<Errors, String> {
        let mut e = Errors {
            graph: Graph::new(&graph.name, permalloy_ir::GraphKind::Inference),
            map: vec![ValueId(0); graph.value_count()],
            errors: vec![None; graph.value_count()],
            overwritten: Vec::new(),
        };
        e.graph.symbols = graph.symbols.clone();
        for input in &graph.inputs {
            match input {
                Input::Int(d) => e.graph.add_int_input(d.clone()),
                Input::Tensor { value, role } => {
                    let v = graph.value(*value);
                    e.map[value.0 as usize] = e.graph.add_input(&v.name, v.ty.clone(), *role);
                }
            }
        }
        for (_, node) in graph.nodes() {
            e.node(graph, node)?;
        }
        Ok(e)
    }

    fn node(&mut self, graph: &Graph, node: &Node) -> Result<(), String> {
        let mut moved = node.clone();
        for a in moved.args.iter_mut().chain(moved.kwargs.iter_mut().map(|(_, a)| a)) {
            *a = a.map_values(&mut |v| Ok::<_, String>(self.map[v.0 as usize]))?;
        }
        let results = node.results.iter().map(|r| r.map(|v| (Arc::from(""), graph.ty(v).clone()))).collect();
        let id = self.graph.add_node(moved.op.clone(), moved.args.clone(), moved.kwargs.clone(), results, None);
        let Some(old) = node.result() else { return Ok(()) };
        let Some(new) = self.graph.node(id).result() else { return Ok(()) };
        self.map[old.0 as usize] = new;
        let operands: Vec<(ValueId, Option<ValueId>)> =
            node.operands().iter().map(|v| (self.map[v.0 as usize], self.errors[v.0 as usize])).collect();
        let error = match &node.op {
            Op::Prim(p) => self.prim(*p, &moved, &operands, new),
            Op::External(name) => self.external(name, &moved, &operands, new)?,
        };
        self.errors[old.0 as usize] = error;
        if node.op.external() == Some("aten.copy_.default")
            && let Some(permalloy_ir::Def::Input(i)) = node.operand(0).map(|v| graph.value(v).def)
        {
            self.overwritten.retain(|(j, ..)| *j != i as usize);
            self.overwritten.push((i as usize, new, error));
        }
        Ok(())
    }

    fn b(&mut self) -> Builder<'_> {
        Builder::new(&mut self.graph)
    }

    fn external(
        &mut self,
        name: &str,
        node: &Node,
        x: &[(ValueId, Option<ValueId>)],
        y: ValueId,
    ) -> Result<Option<ValueId>, String> {
        match name {
            "aten.mm.default" | "aten.bmm.default" => Ok(self.product(name, x[0], x[1], y)),
            "aten.clone.default" => Ok(x[0].1),
            "aten.copy_.default" => {
                let Some(e) = x[1].1 else { return Ok(self.rounded(None, y, 1.0)) };
                let shape = self.graph.shape(y).to_vec();
                let e = self.b().expand(e, &shape);
                Ok(self.rounded(Some(e), y, 1.0))
            }
            _ => Err(format!("{}: no error bound is known for this operator", node.op)),
        }
    }

    /// Σ |a| e_b + e_a |b| + e_a e_b, and the accumulation.
    fn product(
        &mut self,
        name: &str,
        a: (ValueId, Option<ValueId>),
        b: (ValueId, Option<ValueId>),
        y: ValueId,
    ) -> Option<ValueId> {
        let dtype = self.graph.dtype(y);
        if !dtype.is_float() {
            return self.any_uncertain(&[a, b], y);
        }
        let rank = self.graph.shape(a.0).len();
        let terms = self.graph.shape(a.0)[rank - 1].clone();
        let (ea, eb) = (self.or_zero(a.1, a.0), self.or_zero(b.1, b.0));
        let (ma, mb) = (self.magnitude(a.0), self.magnitude(b.0));
        let mut multiply = |l, r| {
            let ty = permalloy_ir::TensorType { dtype: DType::F64, strides: None, ..self.graph.ty(y).clone() };
            let made = self.b().external(name, vec![Arg::Value(l), Arg::Value(r)], vec![Some(ty)]);
            made[0].expect("a product has a result")
        };
        let size = multiply(ma, mb);
        let (first, second, both) = (multiply(ma, eb), multiply(ea, mb), multiply(ea, eb));
        let mut e = self.accumulation(size, dtype, terms);
        for part in [first, second, both] {
            e = self.b().add(e, part);
        }
        self.rounded(Some(e), y, 1.0)
    }

    fn prim(&mut self, p: PrimOp, node: &Node, x: &[(ValueId, Option<ValueId>)], y: ValueId) -> Option<ValueId> {
        let float = self.graph.dtype(y).is_float();
        match p.kind() {
            PrimKind::Source => match node.kwarg("value") {
                Some(Arg::Float(c)) if float && (*c as f32 as f64 != *c || self.graph.dtype(y).size() == 2) => {
                    self.rounded(None, y, 1.0)
                }
                _ => None,
            },
            PrimKind::Unary if !float => x[0].1,
            PrimKind::Binary if !float => self.any_uncertain(x, y),
            PrimKind::Unary => {
                let exact = matches!(
                    p,
                    PrimOp::Neg | PrimOp::Abs | PrimOp::Sign | PrimOp::Floor | PrimOp::Ceil | PrimOp::Round
                ) || p == PrimOp::Trunc;
                let ulps = match p {
                    _ if exact => 0.0,
                    PrimOp::Lgamma | PrimOp::Digamma | PrimOp::Erfinv => 64.0,
                    _ => 4.0,
                };
                let poles = matches!(p, PrimOp::Reciprocal | PrimOp::Rsqrt);
                self.corners(p, x, y, ulps, poles)
            }
            PrimKind::Binary => {
                let ulps = match p {
                    PrimOp::Min | PrimOp::Max | PrimOp::CopySign => 0.0,
                    PrimOp::Add | PrimOp::Sub | PrimOp::Mul | PrimOp::Div => 1.0,
                    _ => 4.0,
                };
                let poles = matches!(
                    p,
                    PrimOp::Div
                        | PrimOp::Atan2
                        | PrimOp::CopySign
                        | PrimOp::Pow
                        | PrimOp::FloorDiv
                        | PrimOp::TruncDiv
                        | PrimOp::Mod
                        | PrimOp::Fmod
                );
                self.corners(p, x, y, ulps, poles)
            }
            PrimKind::Compare => self.comparison(p, x, y),
            PrimKind::Select if p == PrimOp::Cast => self.cast(x[0], y),
            PrimKind::Select => self.select(x, y),
            PrimKind::Reduce => self.reduce(p, node, x[0], y),
            PrimKind::View => {
                if x.iter().all(|(_, e)| e.is_none()) {
                    return None;
                }
                let errors: Vec<ValueId> = x.iter().map(|(v, e)| self.or_zero(*e, *v)).collect();
                Some(self.again(p, node, &errors))
            }
            PrimKind::Index => self.indexed(p, node, x, y),
            PrimKind::Scan => {
                let zero = self.or_zero(x[0].1, x[0].0);
                Some(self.b().add_scalar(zero, f64::INFINITY))
            }
        }
    }

    /// The same prim on other operands.
    fn again(&mut self, p: PrimOp, node: &Node, operands: &[ValueId]) -> ValueId {
        self.b().prim(p, operands, node.attributes())
    }

    fn or_zero(&mut self, error: Option<ValueId>, like: ValueId) -> ValueId {
        error.unwrap_or_else(|| self.constant(like, 0.0))
    }

    fn constant(&mut self, like: ValueId, c: f64) -> ValueId {
        let shape = self.graph.shape(like).to_vec();
        self.b().full(Arg::Float(c), &shape, DType::F64)
    }

    fn wide(&mut self, v: ValueId) -> ValueId {
        self.b().cast(v, DType::F64)
    }

    fn magnitude(&mut self, v: ValueId) -> ValueId {
        let v = self.wide(v);
        self.b().unary(PrimOp::Abs, v)
    }

    /// Uncertain wherever an operand is not exact; all have `y`'s shape.
    fn any_uncertain(&mut self, x: &[(ValueId, Option<ValueId>)], y: ValueId) -> Option<ValueId> {
        let shape = self.graph.shape(y).to_vec();
        let errors: Vec<ValueId> = x.iter().filter_map(|(_, e)| *e).collect();
        let (first, rest) = errors.split_first()?;
        if rest.iter().chain([first]).any(|e| self.graph.shape(*e) != shape) {
            return Some(self.constant(y, f64::INFINITY));
        }
        let sum = rest.iter().fold(*first, |a, b| self.b().add(a, *b));
        Some(self.infinite_where_positive(sum))
    }

    fn infinite_where_positive(&mut self, e: ValueId) -> ValueId {
        let (zero, inf) = (self.constant(e, 0.0), self.constant(e, f64::INFINITY));
        let exact = self.b().prim(PrimOp::Eq, &[e, zero], vec![]);
        self.b().select(exact, zero, inf)
    }

    /// Adds `ulps` roundings to the dtype of `y`; what is no number or may overflow becomes uncertain.
    fn rounded(&mut self, error: Option<ValueId>, y: ValueId, ulps: f64) -> Option<ValueId> {
        let dtype = self.graph.dtype(y);
        if !dtype.is_float() {
            return error;
        }
        // A 16-bit value may be rounded whatever the operator.
        let ulps = if dtype.size() == 2 { ulps + 1.0 } else { ulps };
        if error.is_none() && ulps == 0.0 {
            return None;
        }
        let (unit, step, large) = format(dtype);
        let size = self.magnitude(y);
        let inf = self.constant(y, f64::INFINITY);
        let zero = self.constant(y, 0.0);
        let finite = self.b().prim(PrimOp::Lt, &[size, inf], vec![]);
        let mut e = error.unwrap_or(zero);
        if ulps > 0.0 {
            let part = self.b().mul_scalar(size, unit * ulps);
            let part = self.b().add_scalar(part, step);
            let part = self.b().select(finite, part, zero);
            e = self.b().add(e, part);
        }
        let reach = self.b().add(size, e);
        let limit = self.constant(y, large);
        let over = self.b().prim(PrimOp::Gt, &[reach, limit], vec![]);
        let over = self.b().prim(PrimOp::And, &[finite, over], vec![]);
        let nan = self.b().prim(PrimOp::IsNan, &[e], vec![]);
        let bad = self.b().prim(PrimOp::Or, &[over, nan], vec![]);
        Some(self.b().select(bad, inf, e))
    }

    /// Evaluates an elementwise float prim at the ends of its operands' ranges.
    fn corners(
        &mut self,
        p: PrimOp,
        x: &[(ValueId, Option<ValueId>)],
        y: ValueId,
        ulps: f64,
        poles: bool,
    ) -> Option<ValueId> {
        let dtype = self.graph.dtype(y);
        let centre: Vec<ValueId> = x.iter().map(|(v, _)| self.wide(*v)).collect();
        let ends: Vec<Vec<ValueId>> = (x.iter().zip(&centre))
            .map(|((_, e), c)| match e {
                None => vec![*c],
                Some(e) => vec![self.b().add(*c, *e), self.b().sub(*c, *e)],
            })
            .collect();
        let wide = self.wide(y);
        let mut error = None;
        if x.iter().any(|(_, e)| e.is_some()) {
            let mut worst = self.constant(y, 0.0);
            let combinations: usize = ends.iter().map(Vec::len).product();
            for mut k in 0..combinations {
                let at: Vec<ValueId> = (ends.iter())
                    .map(|e| {
                        let v = e[k % e.len()];
                        k /= e.len();
                        v
                    })
                    .collect();
                let z = self.b().prim(p, &at, vec![]);
                let off = self.distance(z, wide);
                worst = self.b().prim(PrimOp::Max, &[worst, off], vec![]);
            }
            // Extremes between the ends of a short range are not far beyond them.
            worst = self.b().mul_scalar(worst, 2.0);
            for (_, e) in x {
                // An uncertain operand: 0 · ∞ is no number.
                if let Some(e) = e {
                    let poison = self.b().mul_scalar(*e, 0.0);
                    worst = self.b().add(worst, poison);
                }
            }
            error = Some(worst);
        }
        if matches!(p, PrimOp::FloorDiv | PrimOp::TruncDiv | PrimOp::Mod) {
            error = Some(self.near_step(p, &centre, dtype, error, y));
        }
        if matches!(p, PrimOp::Lgamma | PrimOp::Digamma | PrimOp::Erfinv) {
            let e = self.or_zero(error, y);
            error = Some(self.b().add_scalar(e, 64.0 * format(dtype.compute()).0));
        }
        if poles {
            // Where the range reaches 0 there is no bound; the sign of a zero itself depends on the order of operations.
            let (last, e) = (*centre.last()?, x.last()?.1);
            let (size, reach) = (self.b().unary(PrimOp::Abs, last), self.or_zero(e, y));
            let near = self.b().prim(PrimOp::Le, &[size, reach], vec![]);
            error = Some(self.uncertain_where(near, error, y));
        }
        if p == PrimOp::CopySign {
            // No number has a sign that anything specifies.
            let nan = self.b().prim(PrimOp::IsNan, &[centre[1]], vec![]);
            error = Some(self.uncertain_where(nan, error, y));
        }
        if p == PrimOp::Pow && x[1].1.is_some() {
            // A negative number has a power only where the exponent is exactly an integer.
            let (zero, reach) = (self.constant(y, 0.0), self.or_zero(x[0].1, y));
            let low = self.b().sub(centre[0], reach);
            let negative = self.b().prim(PrimOp::Lt, &[low, zero], vec![]);
            error = Some(self.uncertain_where(negative, error, y));
        }
        self.rounded(error, y, ulps)
    }

    fn uncertain_where(&mut self, c: ValueId, error: Option<ValueId>, y: ValueId) -> ValueId {
        let (e, inf) = (self.or_zero(error, y), self.constant(y, f64::INFINITY));
        self.b().select(c, inf, e)
    }

    /// |a - b|, 0 where both are the same infinity or no number.
    fn distance(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let same = self.b().prim(PrimOp::Eq, &[a, b], vec![]);
        let (na, nb) = (self.b().prim(PrimOp::IsNan, &[a], vec![]), self.b().prim(PrimOp::IsNan, &[b], vec![]));
        let both = self.b().prim(PrimOp::And, &[na, nb], vec![]);
        let same = self.b().prim(PrimOp::Or, &[same, both], vec![]);
        let off = self.b().sub(a, b);
        let off = self.b().unary(PrimOp::Abs, off);
        let zero = self.constant(a, 0.0);
        self.b().select(same, zero, off)
    }

    /// The quotient is rounded before it is cut: near an integer either side is right.
    fn near_step(&mut self, p: PrimOp, x: &[ValueId], dtype: DType, error: Option<ValueId>, y: ValueId) -> ValueId {
        let cut = if p == PrimOp::TruncDiv { PrimOp::Trunc } else { PrimOp::Floor };
        let quotient = self.b().div(x[0], x[1]);
        let size = self.b().unary(PrimOp::Abs, quotient);
        let e = self.b().mul_scalar(size, 4.0 * format(dtype).0);
        let (low, high) = (self.b().sub(quotient, e), self.b().add(quotient, e));
        let (low, high) = (self.b().unary(cut, low), self.b().unary(cut, high));
        let same = self.b().prim(PrimOp::Eq, &[low, high], vec![]);
        let inf = self.constant(y, f64::INFINITY);
        let mut rest = self.or_zero(error, y);
        if p == PrimOp::Mod {
            let (a, b) = (self.b().unary(PrimOp::Abs, x[0]), self.b().unary(PrimOp::Abs, x[1]));
            let size = self.b().add(a, b);
            let part = self.b().mul_scalar(size, 4.0 * format(dtype).0);
            rest = self.b().add(rest, part);
        }
        self.b().select(same, rest, inf)
    }

    /// Certain where the operands are exact or farther apart than their bounds.
    fn comparison(&mut self, p: PrimOp, x: &[(ValueId, Option<ValueId>)], y: ValueId) -> Option<ValueId> {
        if x.iter().all(|(_, e)| e.is_none()) {
            return None;
        }
        let (zero, inf) = (self.constant(y, 0.0), self.constant(y, f64::INFINITY));
        let errors: Vec<ValueId> = x.iter().filter_map(|(_, e)| *e).collect();
        let e = errors[1..].iter().fold(errors[0], |a, b| self.b().add(a, *b));
        if matches!(p, PrimOp::IsNan | PrimOp::IsInf) {
            let certain = self.b().prim(PrimOp::Lt, &[e, inf], vec![]);
            return Some(self.b().select(certain, zero, inf));
        }
        let (a, b) = (self.wide(x[0].0), self.wide(x[1].0));
        let off = self.b().sub(a, b);
        let off = self.b().unary(PrimOp::Abs, off);
        let apart = self.b().prim(PrimOp::Gt, &[off, e], vec![]);
        let exact = self.b().prim(PrimOp::Eq, &[e, zero], vec![]);
        let certain = self.b().prim(PrimOp::Or, &[apart, exact], vec![]);
        Some(self.b().select(certain, zero, inf))
    }

    fn cast(&mut self, x: (ValueId, Option<ValueId>), y: ValueId) -> Option<ValueId> {
        let (from, to) = (self.graph.dtype(x.0), self.graph.dtype(y));
        if to.is_float() {
            let widening = from.is_float() && (from == to || to == DType::F64 || from.size() == 2 && to.size() == 4);
            let exact = widening || from == DType::Bool || matches!(from, DType::I8 | DType::U8) && to != DType::BF16;
            return self.rounded(x.1, y, if exact { 0.0 } else { 1.0 });
        }
        let e = x.1?;
        if !from.is_float() {
            return self.any_uncertain(&[x], y);
        }
        let c = self.wide(x.0);
        let (low, high) = (self.b().sub(c, e), self.b().add(c, e));
        let (zero, inf) = (self.constant(y, 0.0), self.constant(y, f64::INFINITY));
        let same = if to == DType::Bool {
            let size = self.b().unary(PrimOp::Abs, c);
            let apart = self.b().prim(PrimOp::Gt, &[size, e], vec![]);
            let exact = self.b().prim(PrimOp::Eq, &[e, zero], vec![]);
            self.b().prim(PrimOp::Or, &[apart, exact], vec![])
        } else {
            let (low, high) = (self.b().unary(PrimOp::Trunc, low), self.b().unary(PrimOp::Trunc, high));
            self.b().prim(PrimOp::Eq, &[low, high], vec![])
        };
        Some(self.b().select(same, zero, inf))
    }

    fn select(&mut self, x: &[(ValueId, Option<ValueId>)], y: ValueId) -> Option<ValueId> {
        let mut e = match (x[1].1, x[2].1) {
            (None, None) => None,
            (a, b) => {
                let (a, b) = (self.or_zero(a, y), self.or_zero(b, y));
                Some(self.b().select(x[0].0, a, b))
            }
        };
        if let Some(c) = x[0].1 {
            let (rest, zero, inf) = (self.or_zero(e, y), self.constant(y, 0.0), self.constant(y, f64::INFINITY));
            let certain = self.b().prim(PrimOp::Eq, &[c, zero], vec![]);
            e = Some(self.b().select(certain, rest, inf));
        }
        if self.graph.dtype(y).size() == 2 { self.rounded(e, y, 0.0) } else { e }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;

    fn bounds(text: &str, inputs: &[Tensor]) -> Vec<Bounded> {
        let graph = Graph::parse(text).unwrap();
        let inputs: Vec<InputValue> = inputs.iter().cloned().map(InputValue::Tensor).collect();
        run_bounded(&graph, &inputs).unwrap().outputs
    }

    #[test]
    fn exact_values_have_no_bound_and_rounded_ones_a_small_one() {
        let text = "graph \"g\" inference {
  input %x: f32[3]
  %r: f32[3] = prim.flip(%x, dims=[0])
  %y: f32[3] = prim.exp(%r)
  %s: f32[] = prim.sum(%y, dims=[0])
  output %r
  output %s
}";
        let out = bounds(text, &[Tensor::floats(DType::F32, &[3], vec![0.0, 1.0, 2.0])]);
        assert_eq!(out[0].error, None);
        let sum = 1.0 + 1f64.exp() + 2f64.exp();
        let error = out[1].error.as_ref().unwrap()[0];
        assert!(error > 1e-7 * sum && error < 1e-6 * sum, "{error}");
    }

    #[test]
    fn a_comparison_of_what_rounding_cannot_tell_apart_is_uncertain() {
        let text = "graph \"g\" inference {
  input %x: f32[3]
  input %y: f32[3]
  %a: f32[3] = prim.exp(%x)
  %c: bool[3] = prim.lt(%a, %y)
  output %c
}";
        let x = Tensor::floats(DType::F32, &[3], vec![0.0, 0.0, 0.0]);
        let y = Tensor::floats(DType::F32, &[3], vec![1.0, 1.0 + 1e-6, 2.0]);
        assert_eq!(bounds(text, &[x, y])[0].error, Some(vec![f64::INFINITY, 0.0, 0.0]));
    }
}
