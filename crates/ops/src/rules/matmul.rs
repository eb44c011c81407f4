//! Matrix products. GEMMs run natively everywhere; what is decomposed here is the broadcasting around them.
//!
//! `matmul` and both of its gradients are one contraction. Every dim gets a label; an operand that broadcasts over a batch
//! dim (missing, size 1, or the result of an `expand`) does not carry that dim's label. What both factors and the result
//! carry is a batch of the GEMM, what only the factors carry is contracted, the rest makes rows and columns:
//!
//! - `self = [B.., M, K]`, `other = [B.., K, N]`, `grad = [B.., M, N]` after vectors got their second dim;
//! - `grad_self[B.. of self, M, K] = Σ over N and the batch dims self broadcasts over: grad · other`;
//! - `grad_other[B.. of other, K, N] = Σ over M and the batch dims other broadcasts over: self · grad`.

use super::emit::{as_result, binary, expand, one, op, operand, reshape, result_dtype, zeros};
use crate::decl::{Call, Cost, Decline, OpDecl, Rule, RuleResult};
use permalloy_ir::{Arg, DType, Dim, Op, PrimOp, TensorType, ValueId, contiguous_strides};

pub const DECLS: &[OpDecl] = &[
    OpDecl::new(
        "aten.matmul_backward.default",
        Cost::Compute,
        &[
            Rule { name: "matmul_backward::fold", apply: |c| matmul_backward(c, Form::Fold) },
            Rule { name: "matmul_backward::batched", apply: |c| matmul_backward(c, Form::Batched) },
        ],
        "gradients of self·other; fold: one GEMM, batch dims in rows or in the contraction; batched: bmm, then a sum",
    )
    .without_native(),
    OpDecl::new(
        "aten.matmul.default",
        Cost::Compute,
        &[
            Rule { name: "matmul::fold", apply: |c| matmul(c, Form::Fold) },
            Rule { name: "matmul::batched", apply: |c| matmul(c, Form::Batched) },
        ],
        "self·other over broadcast batch dims",
    ),
    op!(Compute "aten.mm.default", "[M, K]·[K, N]"),
    op!(Compute "aten.mm.dtype", "[M, K]·[K, N] in another result dtype"),
    op!(Compute "aten.bmm.default", "[B, M, K]·[B, K, N]"),
    op!(Compute "aten.bmm.dtype", "[B, M, K]·[B, K, N] in another result dtype"),
    OpDecl::new(
        "aten.addmm.default",
        Cost::Compute,
        &[Rule { name: "addmm::mm_add", apply: addmm }],
        "beta·self + alpha·mat1·mat2",
    ),
    op!(Compute "aten.addmm.dtype", "beta·self + alpha·mat1·mat2 in another result dtype"),
    op!(Compute "aten._addmm_activation.default", "relu or gelu of addmm"),
    op!(Compute "aten.baddbmm.default", "beta·self + alpha·batch1·batch2"),
    op!(Compute "aten.baddbmm.dtype", "beta·self + alpha·batch1·batch2 in another result dtype"),
    op!(Compute "aten.addbmm.default", "beta·self + alpha·Σ batch1·batch2"),
    op!(Compute "aten.mv.default", "matrix times vector"),
    op!(Compute "aten.addmv.default", "beta·self + alpha·mat·vec"),
    op!(Compute "aten.dot.default", "Σ a·b"),
    op!(Compute "aten.vdot.default", "Σ conj(a)·b"),
    op!(Compute "aten.addr.default", "beta·self + alpha·outer(vec1, vec2)"),
    op!(Pointwise "aten.outer.default", "outer" => outer, "a[i]·b[j]"),
    op!(Pointwise "aten.ger.default", "ger" => outer, "a[i]·b[j]"),
    op!(Compute "aten.linear.default", "x·weightᵀ + bias"),
    op!(Compute "aten.linear_backward.default", "gradients of linear"),
    op!(Compute "aten.einsum.default", "sum of products by subscripts"),
    op!(Compute "aten._trilinear.default", "sum of products of three tensors"),
    op!(Compute "aten._scaled_mm.default", "scaled 8-bit product"),
    op!(Compute "aten._grouped_mm.default", "products of row groups"),
    op!(Compute "aten._int_mm.default", "8-bit product into i32"),
    op!(Compute "aten._sparse_mm.default", "sparse times dense"),
];

/// `self + mat1·mat2` as a product and a sum that fuses with what follows. Only where the product is not rounded to 16 bits
/// before the sum.
fn addmm(c: &mut Call<'_, '_>) -> RuleResult {
    let (bias, a, b) = (c.tensor(0, "self")?, c.tensor(1, "mat1")?, c.tensor(2, "mat2")?);
    let ty = c.result(0)?.clone();
    if c.f64(3, "beta", 1.0)? != 1.0 || c.f64(4, "alpha", 1.0)? != 1.0 {
        return Err("beta or alpha is not 1".into());
    }
    if !matches!(ty.dtype, DType::F32 | DType::F64) || [bias, a, b].iter().any(|v| c.b.dtype(*v) != ty.dtype) {
        return Err("the product would be rounded before the sum".into());
    }
    let product = TensorType { strides: None, ..ty.clone() };
    let made = c.b.external("aten.mm.default", vec![Arg::Value(a), Arg::Value(b)], vec![Some(product)]);
    let product = made.first().copied().flatten().ok_or("a product has a result")?;
    let bias = expand(c, bias, &ty.shape)?;
    Ok(vec![Some(c.b.add(product, bias))])
}

/// How batch dims that only one factor carries are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// They join rows, columns or the contraction of one GEMM.
    Fold,
    /// Every batch dim stays one of `bmm`, the other factor at stride 0; what must vanish is summed afterwards.
    Batched,
}

/// Label of a dim: batch dims count from 0.
type Label = usize;
const M: Label = usize::MAX - 2;
const K: Label = usize::MAX - 1;
const N: Label = usize::MAX;

/// A value with one label a dim; dims of size 1 that broadcast are gone.
#[derive(Clone)]
struct Factor {
    value: ValueId,
    labels: Vec<Label>,
}

impl Factor {
    fn has(&self, label: Label) -> bool {
        self.labels.contains(&label)
    }
}

/// Batch shape of `left·right`: the broadcast of both batch shapes.
fn batch_of(c: &Call<'_, '_>, left: ValueId, right: ValueId) -> Result<Vec<Dim>, Decline> {
    let (ls, rs) = (c.b.shape(left), c.b.shape(right));
    if ls.is_empty() || rs.is_empty() {
        return Err("a 0-d operand".into());
    }
    super::emit::broadcast(&[ls[..ls.len().saturating_sub(2)].to_vec(), rs[..rs.len().saturating_sub(2)].to_vec()])
}

const LEFT: [Label; 2] = [M, K];
const RIGHT: [Label; 2] = [K, N];

/// Labels of a left or right operand of this shape, without the batch dims that it broadcasts over. A vector has `K` alone.
fn labels_of(shape: &[Dim], batch: &[Dim], matrix: [Label; 2]) -> Vec<Label> {
    if shape.len() == 1 {
        return vec![K];
    }
    let own = shape.len() - 2;
    let first = batch.len() - own;
    (0..own).filter(|i| !shape[*i].is_const(1)).map(|i| first + i).chain(matrix).collect()
}

/// The operand without the batch dims that it broadcasts over.
fn factor(c: &mut Call<'_, '_>, x: ValueId, batch: &[Dim], matrix: [Label; 2]) -> Result<Factor, Decline> {
    let shape = c.b.shape(x);
    let labels = labels_of(&shape, batch, matrix);
    let own = shape.len().saturating_sub(2);
    let kept: Vec<Dim> = shape[..own].iter().filter(|d| !d.is_const(1)).chain(&shape[own..]).cloned().collect();
    let value = reshape(c, x, &kept)?;
    Ok(Factor { value, labels })
}

/// Sees through an `expand` of batch dims: the factor without the dims that repeat.
fn without_expanded(c: &mut Call<'_, '_>, x: Factor) -> Result<Factor, Decline> {
    let Some(node) = c.b.graph.producer(x.value) else { return Ok(x) };
    if node.op != Op::Prim(PrimOp::Expand) {
        return Ok(x);
    }
    let Some(from) = node.operand(0) else { return Ok(x) };
    let (small, big) = (c.b.shape(from), c.b.shape(x.value));
    let repeats = |i: usize| x.labels[i] < M && small[i] != big[i];
    if !(0..x.labels.len()).any(repeats) || (0..x.labels.len()).any(|i| x.labels[i] >= M && small[i] != big[i]) {
        return Ok(x);
    }
    let keep: Vec<usize> = (0..x.labels.len()).filter(|i| !repeats(*i)).collect();
    let shape: Vec<Dim> = keep.iter().map(|i| small[*i].clone()).collect();
    let value = reshape(c, from, &shape)?;
    Ok(Factor { value, labels: keep.iter().map(|i| x.labels[*i]).collect() })
}

fn outer(c: &mut Call<'_, '_>) -> RuleResult {
    let (a, b) = (operand(c, 0, "self")?, operand(c, 1, "vec2")?);
    let dtype = result_dtype(c, 0)?;
    let (a, b) = (c.b.cast(a, dtype), c.b.cast(b, dtype));
    let column = c.b.unsqueeze(a, 1);
    let y = binary(c, PrimOp::Mul, column, b)?;
    one(c, y)
}

/// `out[B.., M, N] = Σ_K left · right`.
fn matmul(c: &mut Call<'_, '_>, form: Form) -> RuleResult {
    let (left, right) = (operand(c, 0, "self")?, operand(c, 1, "other")?);
    let to = result_dtype(c, 0)?;
    let batch = batch_of(c, left, right)?;
    let (left, right) = (factor(c, left, &batch, LEFT)?, factor(c, right, &batch, RIGHT)?);
    let labels: Vec<Label> = (0..batch.len()).chain([M, N]).filter(|l| left.has(*l) || right.has(*l)).collect();
    let y = contract(c, left, right, &labels, to, form)?;
    one(c, y)
}

/// `grad_self = Σ grad · other`, `grad_other = Σ self · grad`; a false mask bit emits nothing.
fn matmul_backward(c: &mut Call<'_, '_>, form: Form) -> RuleResult {
    let mask = c.arg(3, "mask").and_then(Arg::as_list).ok_or("mask is not a list")?;
    let wanted: Vec<bool> = mask.iter().map(|a| a.as_bool().unwrap_or(false)).collect();
    let (grad, left, right) = (operand(c, 0, "grad")?, operand(c, 1, "self")?, operand(c, 2, "other")?);
    let mut out = Vec::new();
    for (i, of) in [left, right].into_iter().enumerate() {
        if !wanted.get(i).copied().unwrap_or(false) || c.results.get(i).is_none_or(Option::is_none) {
            out.push(None);
            continue;
        }
        let to = c.b.dtype(of);
        let y = if [grad, left, right].iter().any(|v| c.b.ty(*v).numel().is_const(0)) {
            let shape = c.b.shape(of);
            zeros(c, &shape, to)?
        } else {
            gradient(c, grad, left, right, i, form)?
        };
        out.push(as_result(c, y, i)?);
    }
    Ok(out)
}

fn gradient(
    c: &mut Call<'_, '_>,
    grad: ValueId,
    left: ValueId,
    right: ValueId,
    of: usize,
    form: Form,
) -> Result<ValueId, Decline> {
    let batch = batch_of(c, left, right)?;
    let (target, other) = if of == 0 {
        (labels_of(&c.b.shape(left), &batch, LEFT), factor(c, right, &batch, RIGHT)?)
    } else {
        (labels_of(&c.b.shape(right), &batch, RIGHT), factor(c, left, &batch, LEFT)?)
    };
    let other = without_expanded(c, other)?;
    // grad carries every batch dim of the result, and M and N unless a vector took its place.
    let shape = c.b.shape(grad);
    let mut labels: Vec<Label> = (0..batch.len()).collect();
    labels.extend([M, N].into_iter().filter(|l| target.contains(l) || other.has(*l)));
    if labels.len() != shape.len() {
        return Err("the gradient's rank is not that of the product".into());
    }
    let keep: Vec<usize> = (0..labels.len()).filter(|i| labels[*i] >= M || !shape[*i].is_const(1)).collect();
    let kept: Vec<Dim> = keep.iter().map(|i| shape[*i].clone()).collect();
    let value = reshape(c, grad, &kept)?;
    let grad = Factor { value, labels: keep.iter().map(|i| labels[*i]).collect() };
    let to = c.b.dtype(value).promote(c.b.dtype(other.value));
    // The order of the factors is that of the textbook: grad·otherᵀ and selfᵀ·grad.
    let (a, b) = if of == 0 { (grad, other) } else { (other, grad) };
    contract(c, a, b, &target, to, form)
}

/// `out[labels] = Σ over labels that only the factors carry: a · b`, both cast to `dtype`.
fn contract(
    c: &mut Call<'_, '_>,
    a: Factor,
    b: Factor,
    out: &[Label],
    dtype: DType,
    form: Form,
) -> Result<ValueId, Decline> {
    if !dtype.is_float() {
        return Err(format!("a product of dtype {dtype}").into());
    }
    let (a, b) = (cast(c, a, dtype), cast(c, b, dtype));
    // A label that one factor alone carries and the result does not is summed before the product.
    let (mut a, mut b) = (sum_lone(c, &a, &b, out), sum_lone(c, &b, &a, out));
    let mut summed_after = Vec::new();
    if form == Form::Batched {
        let batch: Vec<Label> = a.labels.iter().chain(&b.labels).copied().filter(|l| *l < M).collect();
        summed_after = batch.iter().copied().filter(|l| !out.contains(l)).collect();
        summed_after.sort_unstable();
        summed_after.dedup();
        let sizes = |c: &Call<'_, '_>, l: Label| size_of(c, &a, l).or_else(|| size_of(c, &b, l));
        let want: Vec<(Label, Dim)> = batch.iter().filter_map(|l| Some((*l, sizes(c, *l)?))).collect();
        for (l, size) in want {
            a = carrying(c, a, l, &size)?;
            b = carrying(c, b, l, &size)?;
        }
    }
    let kept: Vec<Label> = summed_after.iter().chain(out).copied().collect();
    let y = gemm(c, &a, &b, &kept, dtype)?;
    let dims: Vec<i64> = (0..summed_after.len() as i64).collect();
    Ok(if dims.is_empty() { y } else { c.b.sum(y, &dims, false) })
}

fn cast(c: &mut Call<'_, '_>, x: Factor, dtype: DType) -> Factor {
    Factor { value: c.b.cast(x.value, dtype), labels: x.labels }
}

fn size_of(c: &Call<'_, '_>, x: &Factor, label: Label) -> Option<Dim> {
    let i = x.labels.iter().position(|l| *l == label)?;
    Some(c.b.graph.shape(x.value)[i].clone())
}

fn sum_lone(c: &mut Call<'_, '_>, x: &Factor, other: &Factor, out: &[Label]) -> Factor {
    let lone = |l: &Label| !other.has(*l) && !out.contains(l);
    let dims: Vec<i64> = (0..x.labels.len()).filter(|i| lone(&x.labels[*i])).map(|i| i as i64).collect();
    if dims.is_empty() {
        return x.clone();
    }
    let value = c.b.sum(x.value, &dims, false);
    Factor { value, labels: x.labels.iter().copied().filter(|l| !lone(l)).collect() }
}

/// The factor with batch label `l`, repeated over it where it lacks it.
fn carrying(c: &mut Call<'_, '_>, x: Factor, l: Label, size: &Dim) -> Result<Factor, Decline> {
    if x.has(l) {
        return Ok(x);
    }
    let at = x.labels.iter().position(|k| *k > l).unwrap_or(x.labels.len());
    let value = c.b.unsqueeze(x.value, at);
    let mut shape = c.b.shape(value);
    shape[at] = size.clone();
    let value = expand(c, value, &shape)?;
    let mut labels = x.labels;
    labels.insert(at, l);
    Ok(Factor { value, labels })
}

/// One `mm` or `bmm`; the factor whose own labels come first in the result goes left, so that the result is at worst a
/// transpose away. A contraction of size 1 is a pointwise product.
fn gemm(c: &mut Call<'_, '_>, a: &Factor, b: &Factor, out: &[Label], dtype: DType) -> Result<ValueId, Decline> {
    let place = |l: Label| out.iter().position(|o| *o == l);
    let batch: Vec<Label> = out.iter().copied().filter(|l| a.has(*l) && b.has(*l)).collect();
    let own =
        |x: &Factor, y: &Factor| -> Vec<Label> { out.iter().copied().filter(|l| x.has(*l) && !y.has(*l)).collect() };
    let (of_a, of_b) = (own(a, b), own(b, a));
    let swap = of_a.first().is_some_and(|l| of_b.first().is_some_and(|k| place(*k) < place(*l)));
    let (a, b, rows, columns) = if swap { (b, a, of_b, of_a) } else { (a, b, of_a, of_b) };
    let summed: Vec<Label> = a.labels.iter().copied().filter(|l| b.has(*l) && !out.contains(l)).collect();
    let dims = |c: &Call<'_, '_>, labels: &[Label]| -> Result<Vec<Dim>, Decline> {
        labels
            .iter()
            .map(|l| size_of(c, a, *l).or_else(|| size_of(c, b, *l)).ok_or(Decline("no size".into())))
            .collect()
    };
    let (ps, rs, cs, ks) = (dims(c, &batch)?, dims(c, &rows)?, dims(c, &columns)?, dims(c, &summed)?);
    let (p, r, n, k) = (Dim::product(&ps), Dim::product(&rs), Dim::product(&cs), Dim::product(&ks));
    let order: Vec<Label> = batch.iter().chain(&rows).chain(&columns).copied().collect();
    let shape: Vec<Dim> = ps.iter().chain(&rs).chain(&cs).cloned().collect();
    let y = if [&p, &r, &n, &k].iter().any(|d| d.is_const(0)) {
        zeros(c, &shape, dtype)?
    } else {
        let left = arranged(c, a, &[(&batch, &p), (&rows, &r), (&summed, &k)])?;
        let right = arranged(c, b, &[(&batch, &p), (&summed, &k), (&columns, &n)])?;
        let y = if k.is_const(1) {
            outer_product(c, left, right)?
        } else {
            let to: Vec<Dim> = if batch.is_empty() { vec![r, n] } else { vec![p, r, n] };
            native(c, left, right, to, dtype)?
        };
        reshape(c, y, &shape)?
    };
    let perm: Vec<usize> = out.iter().filter_map(|l| order.iter().position(|o| o == l)).collect();
    if perm.len() != order.len() {
        return Err("a dim of the result comes from no factor".into());
    }
    Ok(c.b.permute(y, &perm))
}

/// A group of labels that become one dim, and its size.
type Group<'a> = (&'a [Label], &'a Dim);

/// The factor as `[P, first, second]` (no P without batch labels), each dim a group of labels. Groups whose dims already
/// stand together are merged before they are moved, so that the factor stays a view.
fn arranged(c: &mut Call<'_, '_>, x: &Factor, groups: &[Group<'_>; 3]) -> Result<ValueId, Decline> {
    let groups = if groups[0].0.is_empty() { &groups[1..] } else { &groups[..] };
    let to: Vec<Dim> = groups.iter().map(|(_, size)| (*size).clone()).collect();
    let at = |l: &Label| x.labels.iter().position(|k| k == l);
    let perm: Vec<usize> = groups.iter().flat_map(|(labels, _)| labels.iter().filter_map(at)).collect();
    if perm.len() != x.labels.len() {
        return Err("a dim of a factor has no place in the product".into());
    }
    let starts: Vec<Option<usize>> = groups.iter().map(|(labels, _)| labels.first().and_then(at)).collect();
    let together = groups.iter().zip(&starts).all(|((labels, _), start)| match start {
        Some(start) => labels.iter().enumerate().all(|(i, l)| at(l) == Some(start + i)),
        None => true,
    });
    if !together {
        let y = c.b.permute(x.value, &perm);
        return reshape(c, y, &to);
    }
    // Groups in the order in which the factor holds them; an empty one is a dim of size 1 that stands where it has to.
    let mut order: Vec<usize> = (0..groups.len()).filter(|g| starts[*g].is_some()).collect();
    order.sort_by_key(|g| starts[*g]);
    for g in (0..groups.len()).filter(|g| starts[*g].is_none()) {
        order.insert(g.min(order.len()), g);
    }
    let merged: Vec<Dim> = order.iter().map(|g| to[*g].clone()).collect();
    let y = reshape(c, x.value, &merged)?;
    let perm: Vec<usize> = (0..groups.len()).filter_map(|g| order.iter().position(|o| *o == g)).collect();
    Ok(c.b.permute(y, &perm))
}

/// `[.., R, 1]·[.., 1, N]`; 16-bit floats in f32, rounded once.
fn outer_product(c: &mut Call<'_, '_>, left: ValueId, right: ValueId) -> Result<ValueId, Decline> {
    let dtype = c.b.dtype(left);
    let (l, r) = (c.b.cast(left, dtype.compute()), c.b.cast(right, dtype.compute()));
    let y = binary(c, PrimOp::Mul, l, r)?;
    Ok(c.b.cast(y, dtype))
}

/// The GEMM itself, an operator that stays native.
fn native(
    c: &mut Call<'_, '_>,
    left: ValueId,
    right: ValueId,
    shape: Vec<Dim>,
    dtype: DType,
) -> Result<ValueId, Decline> {
    let name = if shape.len() == 3 { "aten.bmm.default" } else { "aten.mm.default" };
    let mut ty = TensorType::new(dtype, shape);
    ty.strides = Some(contiguous_strides(&ty.shape));
    ty.device = c.b.ty(left).device;
    let results = c.b.external(name, vec![Arg::Value(left), Arg::Value(right)], vec![Some(ty)]);
    results.into_iter().flatten().next().ok_or_else(|| Decline("the product has no result".into()))
}
