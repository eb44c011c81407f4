//! Formulas that read as formulas: what pointwise, activation, norm and loss rules are written with.
//!
//! [`Formula`] keeps the builder behind a cell, so that an [`Expr`] is a copyable handle with operators:
//! `g * (1.0 - y * y)` emits three prims. Operands of one formula share a dtype; a constant takes that of its neighbour.

use crate::decl::{Call, Decline, RuleResult};
use permalloy_ir::{Arg, Builder, DType, Dim, PrimOp, ValueId};
use std::cell::{RefCell, RefMut};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// Declares `aten.NAME.OVERLOAD` with one rule called NAME; the cost is pointwise unless given.
macro_rules! op {
    ($name:literal $overload:literal, $apply:expr, $doc:literal) => {
        op!($name $overload, Pointwise, $apply, $doc)
    };
    ($name:literal $overload:literal, $cost:ident, $apply:expr, $doc:literal) => {
        $crate::decl::OpDecl::new(
            concat!("aten.", $name, ".", $overload),
            $crate::decl::Cost::$cost,
            &[$crate::decl::Rule { name: $name, apply: $apply }],
            $doc,
        )
    };
}
pub(crate) use op;

/// Position and keyword name of an argument.
pub(crate) type ArgName = (usize, &'static str);

/// The builder of a call while its formula is being written.
pub(crate) struct Formula<'g>(RefCell<Builder<'g>>);

/// A value of a formula.
#[derive(Clone, Copy)]
pub(crate) struct Expr<'f, 'g> {
    formula: &'f Formula<'g>,
    id: ValueId,
}

/// The right-hand side of an operator: another value, a number, or a size.
pub(crate) trait Term<'f, 'g>: Copy {
    /// The value itself, or the constant in the shape and dtype of `x`.
    fn beside(self, x: Expr<'f, 'g>) -> Expr<'f, 'g>;
    /// Multiplying by it changes nothing.
    fn is_one(self) -> bool {
        false
    }
}

impl<'g> Formula<'g> {
    pub fn new(b: &'g mut Builder<'_>) -> Formula<'g> {
        Formula(RefCell::new(b.reborrow()))
    }

    pub fn of<'f>(&'f self, id: ValueId) -> Expr<'f, 'g> {
        Expr { formula: self, id }
    }

    pub fn full<'f>(&'f self, value: f64, shape: &[Dim], dtype: DType) -> Expr<'f, 'g> {
        let value = constant(&Arg::Float(value), dtype);
        let id = self.builder().full(value, shape, dtype);
        self.of(id)
    }

    /// `0, 1, 2, …` along `dim` of the given shape, as `dtype`.
    pub fn iota<'f>(&'f self, shape: &[Dim], dim: usize, dtype: DType) -> Expr<'f, 'g> {
        let id = self.builder().iota(shape[dim].clone());
        let line: Vec<Dim> = (0..shape.len()).map(|i| if i == dim { shape[i].clone() } else { Dim::ONE }).collect();
        self.of(id).cast(dtype).reshape(&line).expand(shape)
    }

    fn builder(&self) -> RefMut<'_, Builder<'g>> {
        self.0.borrow_mut()
    }
}

impl<'f, 'g> Expr<'f, 'g> {
    pub fn id(self) -> ValueId {
        self.id
    }

    pub fn shape(self) -> Vec<Dim> {
        self.formula.builder().shape(self.id)
    }

    pub fn dtype(self) -> DType {
        self.formula.builder().dtype(self.id)
    }

    fn emit(self, f: impl FnOnce(&mut Builder<'g>) -> ValueId) -> Expr<'f, 'g> {
        let id = f(&mut self.formula.builder());
        Expr { formula: self.formula, id }
    }

    /// Any elementwise prim of one operand.
    pub fn unary(self, op: PrimOp) -> Self {
        self.emit(|b| b.unary(op, self.id))
    }

    /// Any elementwise prim of two operands, comparisons too.
    pub fn binary(self, op: PrimOp, other: impl Term<'f, 'g>) -> Self {
        let other = other.beside(self);
        self.emit(|b| b.binary(op, self.id, other.id))
    }

    pub fn constant(self, value: f64) -> Self {
        let (shape, dtype) = (self.shape(), self.dtype());
        self.formula.full(value, &shape, dtype)
    }

    pub fn cast(self, dtype: DType) -> Self {
        self.emit(|b| b.cast(self.id, dtype))
    }

    /// `a` where this bool is true, `b` elsewhere.
    pub fn select(self, a: Expr<'f, 'g>, b: impl Term<'f, 'g>) -> Self {
        let b = b.beside(a);
        self.emit(|builder| builder.select(self.id, a.id, b.id))
    }

    pub fn reshape(self, shape: &[Dim]) -> Self {
        self.emit(|b| b.reshape(self.id, shape))
    }

    pub fn expand(self, shape: &[Dim]) -> Self {
        self.emit(|b| b.expand(self.id, shape))
    }

    pub fn slice(self, dim: usize, start: &Dim, end: &Dim) -> Self {
        self.emit(|b| b.slice(self.id, dim, start, end, 1))
    }

    pub fn concat(self, other: Expr<'f, 'g>, dim: usize) -> Self {
        self.emit(|b| b.concat(&[self.id, other.id], dim))
    }

    pub fn gather(self, index: Expr<'f, 'g>, dim: usize) -> Self {
        self.emit(|b| b.gather(self.id, index.id, dim))
    }

    pub fn take(self, index: Expr<'f, 'g>, dim: usize) -> Self {
        self.emit(|b| b.take(self.id, index.id, dim))
    }

    /// A fold over `dims`; over none it is the value itself.
    pub fn reduce(self, op: PrimOp, dims: &[usize], keepdim: bool) -> Self {
        if dims.is_empty() {
            return self;
        }
        let dims: Vec<i64> = dims.iter().map(|d| *d as i64).collect();
        self.emit(|b| b.reduce(op, self.id, &dims, keepdim))
    }

    pub fn sum(self, dims: &[usize], keepdim: bool) -> Self {
        self.reduce(PrimOp::Sum, dims, keepdim)
    }

    /// Mean over `dims`, which stay with size 1.
    pub fn mean(self, dims: &[usize]) -> Self {
        let shape = self.shape();
        let n = Dim::product(dims.iter().map(|d| &shape[*d]));
        self.sum(dims, true) / &n
    }

    pub fn min(self, other: impl Term<'f, 'g>) -> Self {
        self.binary(if self.dtype() == DType::Bool { PrimOp::And } else { PrimOp::Min }, other)
    }

    pub fn max(self, other: impl Term<'f, 'g>) -> Self {
        self.binary(if self.dtype() == DType::Bool { PrimOp::Or } else { PrimOp::Max }, other)
    }

    pub fn eq(self, other: impl Term<'f, 'g>) -> Self {
        self.binary(PrimOp::Eq, other)
    }

    pub fn ne(self, other: impl Term<'f, 'g>) -> Self {
        self.binary(PrimOp::Ne, other)
    }

    pub fn lt(self, other: impl Term<'f, 'g>) -> Self {
        self.binary(PrimOp::Lt, other)
    }

    pub fn le(self, other: impl Term<'f, 'g>) -> Self {
        self.binary(PrimOp::Le, other)
    }

    pub fn gt(self, other: impl Term<'f, 'g>) -> Self {
        self.binary(PrimOp::Gt, other)
    }

    pub fn ge(self, other: impl Term<'f, 'g>) -> Self {
        self.binary(PrimOp::Ge, other)
    }

    pub fn and(self, other: Expr<'f, 'g>) -> Self {
        self.binary(PrimOp::And, other)
    }

    pub fn or(self, other: Expr<'f, 'g>) -> Self {
        self.binary(PrimOp::Or, other)
    }

    pub fn not(self) -> Self {
        self.unary(PrimOp::Not)
    }

    pub fn is_nan(self) -> Self {
        self.unary(PrimOp::IsNan)
    }

    pub fn is_inf(self) -> Self {
        self.unary(PrimOp::IsInf)
    }

    pub fn abs(self) -> Self {
        self.unary(PrimOp::Abs)
    }

    pub fn exp(self) -> Self {
        self.unary(PrimOp::Exp)
    }

    pub fn expm1(self) -> Self {
        self.unary(PrimOp::Expm1)
    }

    pub fn log(self) -> Self {
        self.unary(PrimOp::Log)
    }

    pub fn log1p(self) -> Self {
        self.unary(PrimOp::Log1p)
    }

    pub fn sqrt(self) -> Self {
        self.unary(PrimOp::Sqrt)
    }

    pub fn rsqrt(self) -> Self {
        self.unary(PrimOp::Rsqrt)
    }

    pub fn tanh(self) -> Self {
        self.unary(PrimOp::Tanh)
    }

    pub fn sigmoid(self) -> Self {
        self.unary(PrimOp::Sigmoid)
    }

    pub fn erf(self) -> Self {
        self.unary(PrimOp::Erf)
    }
}

impl<'f, 'g> Term<'f, 'g> for Expr<'f, 'g> {
    fn beside(self, _: Expr<'f, 'g>) -> Expr<'f, 'g> {
        self
    }
}

impl<'f, 'g> Term<'f, 'g> for f64 {
    fn beside(self, x: Expr<'f, 'g>) -> Expr<'f, 'g> {
        x.constant(self)
    }

    fn is_one(self) -> bool {
        self == 1.0
    }
}

impl<'f, 'g> Term<'f, 'g> for &Dim {
    fn beside(self, x: Expr<'f, 'g>) -> Expr<'f, 'g> {
        let (shape, dtype) = (x.shape(), x.dtype());
        x.emit(|b| b.full(constant(&Arg::Int(self.clone()), dtype), &shape, dtype))
    }

    fn is_one(self) -> bool {
        self.is_const(1)
    }
}

impl<'f, 'g, T: Term<'f, 'g>> Add<T> for Expr<'f, 'g> {
    type Output = Self;
    fn add(self, other: T) -> Self {
        self.binary(PrimOp::Add, other)
    }
}

impl<'f, 'g, T: Term<'f, 'g>> Sub<T> for Expr<'f, 'g> {
    type Output = Self;
    fn sub(self, other: T) -> Self {
        self.binary(PrimOp::Sub, other)
    }
}

impl<'f, 'g, T: Term<'f, 'g>> Mul<T> for Expr<'f, 'g> {
    type Output = Self;
    fn mul(self, other: T) -> Self {
        if other.is_one() { self } else { self.binary(PrimOp::Mul, other) }
    }
}

impl<'f, 'g, T: Term<'f, 'g>> Div<T> for Expr<'f, 'g> {
    type Output = Self;
    fn div(self, other: T) -> Self {
        if other.is_one() { self } else { self.binary(PrimOp::Div, other) }
    }
}

impl Neg for Expr<'_, '_> {
    type Output = Self;
    fn neg(self) -> Self {
        self.unary(PrimOp::Neg)
    }
}

impl<'f, 'g> Add<Expr<'f, 'g>> for f64 {
    type Output = Expr<'f, 'g>;
    fn add(self, other: Expr<'f, 'g>) -> Expr<'f, 'g> {
        other.constant(self) + other
    }
}

impl<'f, 'g> Sub<Expr<'f, 'g>> for f64 {
    type Output = Expr<'f, 'g>;
    fn sub(self, other: Expr<'f, 'g>) -> Expr<'f, 'g> {
        other.constant(self) - other
    }
}

impl<'f, 'g> Mul<Expr<'f, 'g>> for f64 {
    type Output = Expr<'f, 'g>;
    fn mul(self, other: Expr<'f, 'g>) -> Expr<'f, 'g> {
        other * self
    }
}

/// A scalar argument as the value of a `full` of this dtype.
pub(crate) fn constant(value: &Arg, dtype: DType) -> Arg {
    match value {
        Arg::Bool(x) if dtype.is_float() => Arg::Float(f64::from(u8::from(*x))),
        Arg::Bool(x) if dtype != DType::Bool => Arg::Int(Dim::from(i64::from(*x))),
        Arg::Float(x) if dtype == DType::Bool => Arg::Bool(*x != 0.0),
        Arg::Float(x) if !dtype.is_float() => Arg::Int(Dim::from(*x as i64)),
        Arg::Int(Dim::Const(x)) if dtype.is_float() => Arg::Float(*x as f64),
        Arg::Int(Dim::Const(x)) if dtype == DType::Bool => Arg::Bool(*x != 0),
        other => other.clone(),
    }
}

/// A tensor or scalar argument in the given dtype and shape.
pub(crate) fn operand(
    c: &mut Call<'_, '_>,
    (position, name): ArgName,
    dtype: DType,
    shape: &[Dim],
) -> Result<ValueId, Decline> {
    let arg = c.arg(position, name).cloned().ok_or_else(|| format!("argument {name} is absent"))?;
    match arg {
        Arg::Value(x) => {
            if !c.b.dtype(x).is_computed() || !dtype.is_computed() {
                return Err(format!("argument {name} is {}, which has no arithmetic here", c.b.dtype(x)).into());
            }
            let x = c.b.cast(x, dtype);
            broadcast(c, x, shape)
        }
        Arg::Int(_) | Arg::Float(_) | Arg::Bool(_) => Ok(c.b.full(constant(&arg, dtype), shape, dtype)),
        _ => Err(format!("argument {name} is neither tensor nor number").into()),
    }
}

/// `x` expanded to `shape`; declined where the sizes are not known to fit.
pub(crate) fn broadcast(c: &mut Call<'_, '_>, x: ValueId, shape: &[Dim]) -> Result<ValueId, Decline> {
    let from = c.b.shape(x);
    let fits =
        from.len() <= shape.len() && from.iter().rev().zip(shape.iter().rev()).all(|(a, b)| a == b || a.is_const(1));
    if !fits {
        let text = permalloy_ir::shape_text;
        return Err(format!("{} is not known to broadcast to {}", text(&from), text(shape)).into());
    }
    Ok(c.b.expand(x, shape))
}

/// Promotes like `torch.result_type`: tensors with dims outrank 0-d tensors, which outrank Python numbers, within a category.
pub(crate) fn result_type(c: &Call<'_, '_>, args: &[ArgName]) -> Result<DType, Decline> {
    let (mut dims, mut zero, mut number) = (None, None, None);
    let join = |slot: &mut Option<DType>, d: DType| *slot = Some(slot.map_or(d, |s| s.promote(d)));
    for (position, name) in args {
        match c.arg(*position, name) {
            Some(Arg::Value(v)) if c.b.rank(*v) > 0 => join(&mut dims, c.b.dtype(*v)),
            Some(Arg::Value(v)) => join(&mut zero, c.b.dtype(*v)),
            Some(Arg::Int(_)) => join(&mut number, DType::I64),
            Some(Arg::Float(_)) => join(&mut number, DType::F32),
            Some(Arg::Bool(_)) => join(&mut number, DType::Bool),
            None => {}
            Some(_) => return Err(format!("argument {name} is neither tensor nor number").into()),
        }
    }
    let combine = |high: Option<DType>, low: Option<DType>| match (high, low) {
        (Some(h), Some(l)) if !h.is_float() && (h == DType::Bool || l.is_float()) => Some(h.promote(l)),
        (Some(h), _) => Some(h),
        (None, l) => l,
    };
    let dtype = combine(dims, combine(zero, number)).ok_or("no operand")?;
    if dtype.is_computed() { Ok(dtype) } else { Err(format!("{dtype} has no arithmetic here").into()) }
}

/// A pointwise formula over tensor or scalar arguments, evaluated in `dtype` and cast to the promised dtype.
pub(crate) fn pointwise_in<const N: usize>(
    c: &mut Call<'_, '_>,
    dtype: DType,
    args: [ArgName; N],
    formula: impl for<'f, 'g> FnOnce([Expr<'f, 'g>; N]) -> Expr<'f, 'g>,
) -> RuleResult {
    let out = c.result(0)?.clone();
    if !out.dtype.is_computed() {
        return Err(format!("{} has no arithmetic here", out.dtype).into());
    }
    let mut ids = [ValueId(0); N];
    for (id, arg) in ids.iter_mut().zip(args) {
        *id = operand(c, arg, dtype, &out.shape)?;
    }
    let f = Formula::new(c.b);
    let y = formula(ids.map(|id| f.of(id)));
    Ok(vec![Some(y.cast(out.dtype).id())])
}

/// A pointwise formula in the promised dtype: 16-bit floats are computed in f32 and rounded once.
pub(crate) fn pointwise<const N: usize>(
    c: &mut Call<'_, '_>,
    args: [ArgName; N],
    formula: impl for<'f, 'g> FnOnce([Expr<'f, 'g>; N]) -> Expr<'f, 'g>,
) -> RuleResult {
    let dtype = c.result(0)?.dtype.compute();
    pointwise_in(c, dtype, args, formula)
}

/// As [`pointwise`] for a formula of one prim: operands that already are of the promised dtype need no cast around it.
pub(crate) fn single<const N: usize>(
    c: &mut Call<'_, '_>,
    args: [ArgName; N],
    formula: impl for<'f, 'g> FnOnce([Expr<'f, 'g>; N]) -> Expr<'f, 'g>,
) -> RuleResult {
    let out = c.result(0)?.dtype;
    let plain = args.iter().all(|(i, name)| c.opt_tensor(*i, name).is_some_and(|v| c.b.dtype(v) == out));
    pointwise_in(c, if plain { out } else { out.compute() }, args, formula)
}

#[cfg(test)]
mod tests {
    use super::*;
    use permalloy_ir::{Graph, GraphKind, Node, Op, Role, TensorType};

    /// Applies the operator's rule to tensors and further arguments, the result promised as `out`.
    fn apply(
        name: &str,
        tensors: &[TensorType],
        more: Vec<Arg>,
        out: TensorType,
    ) -> (Graph, Result<Vec<Option<ValueId>>, Decline>) {
        let mut g = Graph::new("g", GraphKind::Inference);
        let inputs = tensors.iter().enumerate().map(|(i, t)| g.add_input(&format!("x{i}"), t.clone(), Role::Primal));
        let mut args: Vec<Arg> = inputs.collect::<Vec<_>>().into_iter().map(Arg::Value).collect();
        args.extend(more);
        let node = Node { op: Op::External(name.into()), args, kwargs: Vec::new(), results: vec![None], loc: None };
        let results = [Some(out)];
        let made = (crate::lookup(name).unwrap().rules[0].apply)(&mut Call {
            b: &mut Builder::new(&mut g),
            node: &node,
            results: &results,
        });
        (g, made)
    }

    fn prims(g: &Graph) -> Vec<&'static str> {
        g.nodes().filter_map(|(_, n)| n.prim()).map(PrimOp::name).collect()
    }

    #[test]
    fn one_prim_on_16_bit_operands_needs_no_cast() {
        let t = TensorType::new(DType::BF16, vec![Dim::sym("n")]);
        let (g, _) = apply("aten.mul.Tensor", &[t.clone(), t.clone()], vec![], t.clone());
        assert_eq!(prims(&g), ["mul"]);
        let (g, _) = apply("aten.mul.Tensor", std::slice::from_ref(&t), vec![Arg::Float(0.1)], t.clone());
        assert_eq!(prims(&g), ["cast", "full", "mul", "cast"]);
    }

    #[test]
    fn a_symbolic_size_is_a_number_like_any_other() {
        let t = TensorType::new(DType::F32, vec![Dim::sym("n")]);
        let n = Arg::Int(Dim::sym("n"));
        let (g, made) = apply("aten.div.Tensor", std::slice::from_ref(&t), vec![n.clone()], t.clone());
        assert!(made.is_ok());
        assert_eq!(g.nodes().next().and_then(|(_, full)| full.kwarg("value").cloned()), Some(n));
    }

    #[test]
    fn what_has_no_arithmetic_or_no_known_shape_is_declined() {
        let c = TensorType::new(DType::C64, vec![Dim::from(2)]);
        assert!(apply("aten.exp.default", std::slice::from_ref(&c), vec![], c.clone()).1.is_err());
        let a = TensorType::new(DType::F32, vec![Dim::sym("a")]);
        let b = TensorType::new(DType::F32, vec![Dim::sym("b")]);
        let (_, made) = apply("aten.add.Tensor", &[a.clone(), b], vec![], a.clone());
        assert_eq!(made, Err(Decline("[b] is not known to broadcast to [a]".into())));
        let mut elsewhere = a.clone();
        elsewhere.device = permalloy_ir::Device::Cuda(0);
        assert!(apply("aten._to_copy.default", &[a], vec![], elsewhere).1.is_err());
    }
}
