//! Casts, copies and tensors like another.

use super::expr::{ArgName, op, operand};
use crate::decl::{Call, Decline, OpDecl, RuleResult};
use permalloy_ir::{Arg, Dim};

pub const DECLS: &[OpDecl] = &[
    op!("_to_copy" "default", convert, "x in another dtype"),
    op!("to" "dtype", convert, "x in another dtype"),
    op!("to" "device", convert, "x in another dtype"),
    op!("to" "dtype_layout", convert, "x in another dtype"),
    op!("to" "other", convert, "x in the dtype of another tensor"),
    OpDecl::new(
        "prims.convert_element_type.default",
        crate::decl::Cost::Pointwise,
        &[crate::decl::Rule { name: "convert_element_type", apply: convert }],
        "x in another dtype",
    ),
    op!("clone" "default", identity, "x"),
    op!("detach" "default", View, identity, "x"),
    op!("alias" "default", View, identity, "x"),
    op!("lift" "default", View, identity, "x"),
    op!("lift_fresh" "default", View, identity, "x"),
    op!("lift_fresh_copy" "default", identity, "x"),
    op!("contiguous" "default", identity, "x"),
    op!("conj" "default", View, identity, "x, for real numbers"),
    op!("resolve_conj" "default", View, identity, "x, for real numbers"),
    op!("real" "default", View, identity, "x, for real numbers"),
    op!("copy" "default", copy, "src in the shape and dtype of self"),
    op!("fill" "Scalar", |c| fill(c, VALUE), "value everywhere"),
    op!("fill" "Tensor", |c| fill(c, VALUE), "value everywhere"),
    op!("zero" "default", zeros, "0 everywhere"),
    op!("zeros_like" "default", zeros, "0 everywhere"),
    op!("ones_like" "default", ones, "1 everywhere"),
    op!("full_like" "default", |c| fill(c, VALUE), "value everywhere"),
    op!("empty_like" "default", |_| Err(Decline("uninitialised memory".into())), "memory with any contents"),
];

const VALUE: ArgName = (1, "fill_value");

/// The result lives where the operand does and is dense.
fn same_place(c: &Call<'_, '_>) -> Result<(), Decline> {
    let (x, out) = (c.tensor(0, "self")?, c.result(0)?);
    let from = c.b.ty(x).device;
    if from != out.device {
        return Err(format!("copy from {from} to {}", out.device).into());
    }
    match c.arg(usize::MAX, "layout") {
        Some(Arg::Layout(l)) if !l.ends_with("strided") => Err(format!("layout {l}").into()),
        _ => Ok(()),
    }
}

fn convert(c: &mut Call<'_, '_>) -> RuleResult {
    same_place(c)?;
    let out = c.result(0)?.clone();
    operand(c, (0, "self"), out.dtype, &out.shape).map(|v| vec![Some(v)])
}

fn identity(c: &mut Call<'_, '_>) -> RuleResult {
    let x = c.tensor(0, "self")?;
    if c.b.dtype(x) != c.result(0)?.dtype || !c.b.dtype(x).is_computed() {
        return Err(format!("{} of {}", c.node.op, c.b.dtype(x)).into());
    }
    Ok(vec![Some(x)])
}

fn copy(c: &mut Call<'_, '_>) -> RuleResult {
    let (x, src) = (c.tensor(0, "self")?, c.tensor(1, "src")?);
    if c.b.ty(x).device != c.b.ty(src).device {
        return Err("copy between devices".into());
    }
    let out = c.result(0)?.clone();
    operand(c, (1, "src"), out.dtype, &out.shape).map(|v| vec![Some(v)])
}

fn fill(c: &mut Call<'_, '_>, value: ArgName) -> RuleResult {
    same_place(c)?;
    let out = c.result(0)?.clone();
    if !out.dtype.is_computed() {
        return Err(format!("{} has no arithmetic here", out.dtype).into());
    }
    operand(c, value, out.dtype, &out.shape).map(|v| vec![Some(v)])
}

fn zeros(c: &mut Call<'_, '_>) -> RuleResult {
    constant(c, 0)
}

fn ones(c: &mut Call<'_, '_>) -> RuleResult {
    constant(c, 1)
}

fn constant(c: &mut Call<'_, '_>, value: i64) -> RuleResult {
    same_place(c)?;
    let out = c.result(0)?.clone();
    if !out.dtype.is_computed() {
        return Err(format!("{} has no arithmetic here", out.dtype).into());
    }
    let value = super::expr::constant(&Arg::Int(Dim::from(value)), out.dtype);
    Ok(vec![Some(c.b.full(value, &out.shape, out.dtype))])
}
