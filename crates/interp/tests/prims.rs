//! Prims against hand-computed values, the corners first.

#![allow(
    clippy::cloned_ref_to_slice_refs,
    reason = "operand lists read the same whether an operand is used again or not"
)]

mod common;

use common::{EXACT, assert_floats, f32s, ints, run_call};
use permalloy_interp::{Options, Tensor};
use permalloy_ir::{DType, PrimKind, PrimOp};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// A prim that must succeed.
fn prim(call: &str, inputs: &[Tensor]) -> Tensor {
    run_call(call, "f32[]", inputs, EXACT).unwrap_or_else(|e| panic!("{call}: {e}"))
}

/// The error of a prim.
fn prim_error(call: &str, inputs: &[Tensor]) -> String {
    run_call(call, "f32[]", inputs, EXACT).expect_err(call).to_string()
}

fn i64s(data: &[i64]) -> Tensor {
    ints(DType::I64, &[data.len()], data)
}

fn vector(data: &[f64]) -> Tensor {
    f32s(&[data.len()], data)
}

fn pair(op: &str, a: &[f64], b: &[f64]) -> Tensor {
    prim(&format!("prim.{op}(%a, %b)"), &[vector(a), vector(b)])
}

fn int_pair(op: &str, dtype: DType, a: &[i64], b: &[i64]) -> Vec<i64> {
    let t = prim(&format!("prim.{op}(%a, %b)"), &[ints(dtype, &[a.len()], a), ints(dtype, &[b.len()], b)]);
    assert_eq!(t.dtype, dtype);
    t.as_ints().unwrap().to_vec()
}

#[test]
fn float_unary_at_known_points() {
    let one = |op: &str, x: &[f64], y: &[f64]| assert_floats(&prim(&format!("prim.{op}(%a)"), &[vector(x)]), y, 1e-15);
    one("sign", &[-3.0, -0.0, 0.0, 2.0, NAN, -INF], &[-1.0, -0.0, 0.0, 1.0, NAN, -1.0]);
    one("round", &[0.5, 1.5, 2.5, -0.5, -2.5], &[0.0, 2.0, 2.0, -0.0, -2.0]);
    one("trunc", &[1.7, -1.7], &[1.0, -1.0]);
    one("floor", &[1.7, -1.2], &[1.0, -2.0]);
    one("ceil", &[1.2, -1.7], &[2.0, -1.0]);
    one("rsqrt", &[4.0, 0.0, -1.0], &[0.5, INF, NAN]);
    one("reciprocal", &[4.0, -0.0], &[0.25, -INF]);
    one("exp", &[0.0, 1.0, -INF], &[1.0, std::f64::consts::E, 0.0]);
    one("exp2", &[3.0, -1.0], &[8.0, 0.5]);
    one("expm1", &[1e-20], &[1e-20]);
    one("log1p", &[1e-20, -1.0], &[1e-20, -INF]);
    one("log", &[0.0, -1.0], &[-INF, NAN]);
    one("log2", &[8.0], &[3.0]);
    one("log10", &[1000.0], &[3.0]);
    one("sqrt", &[9.0, -1.0], &[3.0, NAN]);
    one("sigmoid", &[0.0, 1000.0, -1000.0], &[0.5, 1.0, 0.0]);
    one("erf", &[0.5, -INF], &[0.520_499_877_813_046_5, -1.0]);
    one("erfc", &[0.5, 10.0], &[0.479_500_122_186_953_5, 2.088_487_583_762_545e-45]);
    one("erfinv", &[0.0, 1.0, 2.0], &[0.0, INF, NAN]);
    one("lgamma", &[1.0, 5.0, 0.0], &[0.0, 24f64.ln(), INF]);
    one("digamma", &[1.0], &[-0.577_215_664_901_532_9]);
    one("tanh", &[INF, 0.0], &[1.0, 0.0]);
    one("asinh", &[1e-10, -1e10], &[1e-10, -23.718_998_110_500_4]);
    one("acosh", &[1.0, 0.0], &[0.0, NAN]);
    one("atanh", &[1.0, 0.0], &[INF, 0.0]);
    one("abs", &[-0.0, -2.0], &[0.0, 2.0]);
    one("neg", &[0.0, -2.0], &[-0.0, 2.0]);
}

#[test]
fn integer_unary_wraps_and_keeps_whole_numbers() {
    let one = |op: &str, dtype, x: &[i64]| {
        prim(&format!("prim.{op}(%a)"), &[ints(dtype, &[x.len()], x)]).as_ints().unwrap().to_vec()
    };
    assert_eq!(one("neg", DType::I8, &[-128, 5]), [-128, -5]);
    assert_eq!(one("neg", DType::U8, &[1]), [255]);
    assert_eq!(one("abs", DType::I32, &[-7, i64::from(i32::MIN)]), [7, i64::from(i32::MIN)]);
    assert_eq!(one("sign", DType::I64, &[-7, 0, 9]), [-1, 0, 1]);
    assert_eq!(one("not", DType::I64, &[0, 5]), [-1, -6]);
    assert_eq!(one("not", DType::U8, &[0, 5]), [255, 250]);
    assert_eq!(one("not", DType::Bool, &[0, 1]), [1, 0]);
    assert_eq!(one("floor", DType::I64, &[-7]), [-7]);
}

#[test]
fn division_and_remainder_follow_their_languages() {
    assert_floats(
        &pair("mod", &[7.0, -7.0, 7.0, -7.0, 1.0, -1.0], &[3.0, 3.0, -3.0, -3.0, 0.0, INF]),
        &[1.0, 2.0, -2.0, -1.0, NAN, INF],
        0.0,
    );
    assert_floats(&pair("fmod", &[7.0, -7.0, 7.0], &[3.0, 3.0, -3.0]), &[1.0, -1.0, 1.0], 0.0);
    assert_floats(&pair("floor_div", &[7.0, -7.0, 1.0], &[2.0, 2.0, 0.0]), &[3.0, -4.0, INF], 0.0);
    assert_floats(&pair("trunc_div", &[7.0, -7.0], &[2.0, 2.0]), &[3.0, -3.0], 0.0);
    let (a, b) = ([7, -7, 7, -7, 5], [3, 3, -3, -3, 0]);
    assert_eq!(int_pair("mod", DType::I64, &a, &b), [1, 2, -2, -1, 0]);
    assert_eq!(int_pair("fmod", DType::I64, &a, &b), [1, -1, 1, -1, 0]);
    assert_eq!(int_pair("floor_div", DType::I64, &a, &b), [2, -3, -3, 2, 0]);
    assert_eq!(int_pair("trunc_div", DType::I64, &a, &b), [2, -2, -2, 2, 0]);
    assert_eq!(int_pair("floor_div", DType::I64, &[i64::MIN], &[-1]), [i64::MIN]);
    assert_eq!(int_pair("floor_div", DType::I8, &[-128], &[-1]), [-128]);
}

#[test]
fn integers_wrap_to_their_width() {
    assert_eq!(int_pair("add", DType::I32, &[i64::from(i32::MAX)], &[1]), [i64::from(i32::MIN)]);
    assert_eq!(int_pair("mul", DType::U8, &[200], &[2]), [144]);
    assert_eq!(int_pair("sub", DType::U8, &[1], &[2]), [255]);
    assert_eq!(int_pair("add", DType::I64, &[i64::MAX], &[1]), [i64::MIN]);
    assert_eq!(
        int_pair("pow", DType::I64, &[2, -2, 3, -1, -1, 1, 2, 0], &[10, 3, 0, -3, -4, -9, -1, -1]),
        [1024, -8, 1, -1, 1, 1, 0, 0]
    );
    assert_eq!(int_pair("pow", DType::I8, &[3], &[5]), [-13]);
    // 3^(2^63) is 1 modulo 2^64, so one factor less is the inverse of 3.
    let inverse = 0xaaaa_aaaa_aaaa_aaab_u64 as i64;
    assert_eq!(inverse.wrapping_mul(3), 1);
    assert_eq!(int_pair("pow", DType::I64, &[3], &[i64::MAX]), [inverse]);
}

#[test]
fn bool_and_bits() {
    let (t, f) = (1, 0);
    assert_eq!(int_pair("add", DType::Bool, &[t, t, f], &[t, f, f]), [t, t, f]);
    assert_eq!(int_pair("mul", DType::Bool, &[t, t, f], &[t, f, f]), [t, f, f]);
    assert_eq!(int_pair("xor", DType::Bool, &[t, t], &[t, f]), [f, t]);
    assert_eq!(int_pair("and", DType::I64, &[12], &[10]), [8]);
    assert_eq!(int_pair("or", DType::I64, &[12], &[10]), [14]);
    assert_eq!(int_pair("shl", DType::I8, &[1, 1, 1, 3], &[6, 7, 8, -1]), [64, -128, 0, 0]);
    assert_eq!(int_pair("shr", DType::I64, &[-8, 8, -8, 8], &[1, 1, 64, 64]), [-4, 4, -1, 0]);
    assert_eq!(int_pair("shr", DType::U8, &[200], &[3]), [25]);
}

#[test]
fn nan_wins_extremes_and_loses_comparisons() {
    assert_floats(&pair("max", &[NAN, 1.0, 2.0, -INF], &[1.0, NAN, 3.0, 5.0]), &[NAN, NAN, 3.0, 5.0], 0.0);
    assert_floats(&pair("min", &[NAN, 1.0, 2.0, INF], &[1.0, NAN, 3.0, 5.0]), &[NAN, NAN, 2.0, 5.0], 0.0);
    let compare = |op: &str| pair(op, &[NAN, 1.0, 2.0, 1.0], &[NAN, 1.0, 1.0, NAN]);
    for (op, bits) in [
        ("eq", [0, 1, 0, 0]),
        ("ne", [1, 0, 1, 1]),
        ("lt", [0, 0, 0, 0]),
        ("le", [0, 1, 0, 0]),
        ("gt", [0, 0, 1, 0]),
        ("ge", [0, 1, 1, 0]),
    ] {
        assert_eq!(compare(op), ints(DType::Bool, &[4], &bits), "{op}");
    }
    let x = vector(&[NAN, INF, -INF, 1.0]);
    assert_eq!(prim("prim.is_nan(%a)", &[x.clone()]), ints(DType::Bool, &[4], &[1, 0, 0, 0]));
    assert_eq!(prim("prim.is_inf(%a)", &[x]), ints(DType::Bool, &[4], &[0, 1, 1, 0]));
}

#[test]
fn float_pairs() {
    assert_floats(&pair("pow", &[2.0, -8.0, 0.0, NAN], &[-1.0, 1.0 / 3.0, 0.0, 0.0]), &[0.5, NAN, 1.0, 1.0], 0.0);
    assert_floats(&pair("div", &[1.0, 0.0], &[-0.0, 0.0]), &[-INF, NAN], 0.0);
    assert_floats(&pair("copysign", &[3.0, NAN], &[-0.0, 1.0]), &[-3.0, NAN], 0.0);
    assert_floats(&pair("hypot", &[3.0, 1e200], &[4.0, 1e200]), &[5.0, 2f64.sqrt() * 1e200], 4e-16);
    assert_floats(
        &pair("atan2", &[1.0, 0.0], &[-1.0, -0.0]),
        &[0.75 * std::f64::consts::PI, std::f64::consts::PI],
        4e-16,
    );
}

#[test]
fn casts() {
    let cast = |x: Tensor, to: &str| prim(&format!("prim.cast(%a, dtype={to})"), &[x]);
    assert_eq!(cast(vector(&[2.9, -2.9, 300.0, NAN]), "i8"), ints(DType::I8, &[4], &[2, -2, 44, 0]));
    assert_eq!(cast(vector(&[0.0, -0.0, 0.1, NAN]), "bool"), ints(DType::Bool, &[4], &[0, 0, 1, 1]));
    assert_eq!(cast(i64s(&[256, -1]), "u8"), ints(DType::U8, &[2], &[0, 255]));
    assert_eq!(cast(i64s(&[256, 0]), "bool"), ints(DType::Bool, &[2], &[1, 0]));
    let exact = run_call("prim.cast(%a, dtype=bf16)", "f32[]", &[vector(&[0.1])], EXACT).unwrap();
    assert_eq!(exact, Tensor::floats(DType::BF16, &[1], vec![0.1]));
    let rounded = run_call("prim.cast(%a, dtype=bf16)", "f32[]", &[vector(&[0.1])], Options { round: true }).unwrap();
    assert_eq!(rounded, Tensor::floats(DType::BF16, &[1], vec![0.10009765625]));
    // Just above a tie of f32, by less than f64 can see: f64 first and f32 next would round twice, to the even side.
    let big = (1i64 << 53) + (1 << 29) + 1;
    let once = run_call("prim.cast(%a, dtype=f32)", "f32[]", &[i64s(&[big])], Options { round: true }).unwrap();
    assert_eq!(once.as_floats().unwrap(), [((1i64 << 53) + (1 << 30)) as f64]);
}

#[test]
fn rounding_applies_after_each_operator() {
    let x = vector(&[1.0, 2f64.powi(-30)]);
    let sum = |round| run_call("prim.sum(%a, dims=[0])", "f32[]", &[x.clone()], Options { round }).unwrap();
    assert_eq!(sum(true).as_floats().unwrap(), [1.0]);
    assert_eq!(sum(false).as_floats().unwrap(), [1.0 + 2f64.powi(-30)]);
}

#[test]
fn where_and_sources() {
    let cond = ints(DType::Bool, &[2], &[1, 0]);
    assert_eq!(prim("prim.where(%a, %b, %c)", &[cond, vector(&[1.0, NAN]), vector(&[NAN, 4.0])]), vector(&[1.0, 4.0]));
    assert_eq!(prim("prim.iota(size=4)", &[]), i64s(&[0, 1, 2, 3]));
    assert_eq!(prim("prim.iota(size=0)", &[]), i64s(&[]));
    assert_eq!(prim("prim.full(value=3, shape=[2], dtype=f32)", &[]), vector(&[3.0, 3.0]));
    assert_eq!(prim("prim.full(value=-1.5, shape=[], dtype=i64)", &[]), ints(DType::I64, &[], &[-1]));
    assert_eq!(prim("prim.full(value=true, shape=[1], dtype=bool)", &[]), ints(DType::Bool, &[1], &[1]));
}

#[test]
fn reductions_fold_the_given_dims_only() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let r = |call: &str| prim(call, &[x.clone()]);
    assert_eq!(r("prim.sum(%a, dims=[1])"), vector(&[6.0, 15.0]));
    assert_eq!(r("prim.sum(%a, dims=[0])"), vector(&[5.0, 7.0, 9.0]));
    assert_eq!(r("prim.sum(%a, dims=[0, 1])"), f32s(&[], &[21.0]));
    assert_eq!(r("prim.sum(%a, dims=[])"), x);
    assert_eq!(r("prim.prod(%a, dims=[1])"), vector(&[6.0, 120.0]));
    let bits = ints(DType::Bool, &[2, 2], &[1, 0, 1, 1]);
    assert_eq!(prim("prim.any(%a, dims=[1])", &[bits.clone()]), ints(DType::Bool, &[2], &[1, 1]));
    assert_eq!(prim("prim.all(%a, dims=[1])", &[bits]), ints(DType::Bool, &[2], &[0, 1]));
    assert_eq!(prim("prim.sum(%a, dims=[0])", &[ints(DType::U8, &[2], &[200, 100])]), ints(DType::U8, &[], &[44]));
}

#[test]
fn extremes_of_nan_and_of_nothing() {
    let x = vector(&[1.0, NAN, 3.0, NAN]);
    assert_floats(&prim("prim.amax(%a, dims=[0])", &[x.clone()]), &[NAN], 0.0);
    assert_floats(&prim("prim.amin(%a, dims=[0])", &[x.clone()]), &[NAN], 0.0);
    assert_eq!(prim("prim.argmax(%a, dims=[0])", &[x.clone()]), ints(DType::I64, &[], &[1]));
    assert_eq!(prim("prim.argmin(%a, dims=[0])", &[x]), ints(DType::I64, &[], &[1]));
    let ties = f32s(&[2, 3], &[2.0, 5.0, 5.0, 0.0, 0.0, 1.0]);
    assert_eq!(prim("prim.argmax(%a, dims=[1])", &[ties.clone()]), i64s(&[1, 2]));
    assert_eq!(prim("prim.argmin(%a, dims=[1])", &[ties.clone()]), i64s(&[0, 0]));
    assert_eq!(prim("prim.argmax(%a, dims=[0])", &[ties]), i64s(&[0, 0, 0]));

    let empty = f32s(&[2, 0], &[]);
    for (op, identity) in [("sum", 0.0), ("prod", 1.0), ("amax", -INF), ("amin", INF)] {
        assert_eq!(prim(&format!("prim.{op}(%a, dims=[1])"), &[empty.clone()]), vector(&[identity, identity]), "{op}");
    }
    assert_eq!(prim("prim.amax(%a, dims=[0])", &[ints(DType::I8, &[0], &[])]), ints(DType::I8, &[], &[-128]));
    assert_eq!(prim("prim.amin(%a, dims=[0])", &[ints(DType::U8, &[0], &[])]), ints(DType::U8, &[], &[255]));
    assert_eq!(prim("prim.all(%a, dims=[0])", &[ints(DType::Bool, &[0], &[])]), ints(DType::Bool, &[], &[1]));
    assert_eq!(prim("prim.any(%a, dims=[0])", &[ints(DType::Bool, &[0], &[])]), ints(DType::Bool, &[], &[0]));
    assert!(prim_error("prim.argmax(%a, dims=[1])", &[empty.clone()]).contains("dim 1 is empty"));
    assert_eq!(prim("prim.argmax(%a, dims=[0])", &[empty]), i64s(&[]));
}

#[test]
fn views_move_elements() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let v = |call: &str| prim(call, &[x.clone()]);
    assert_eq!(v("prim.reshape(%a, shape=[3, 2])"), f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    assert_eq!(v("prim.permute(%a, perm=[1, 0])"), f32s(&[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    assert_eq!(v("prim.slice(%a, dim=1, start=0, end=3, step=2)"), f32s(&[2, 2], &[1.0, 3.0, 4.0, 6.0]));
    assert_eq!(v("prim.slice(%a, dim=0, start=1, end=1, step=1)"), f32s(&[0, 3], &[]));
    assert_eq!(v("prim.flip(%a, dims=[0, 1])"), f32s(&[2, 3], &[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]));
    assert_eq!(
        v("prim.pad(%a, low=[0, 1], high=[1, 0])"),
        f32s(&[3, 4], &[0.0, 1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 0.0, 0.0, 0.0, 0.0])
    );
    let column = f32s(&[2, 1], &[1.0, 2.0]);
    assert_eq!(prim("prim.expand(%a, shape=[2, 2])", &[column.clone()]), f32s(&[2, 2], &[1.0, 1.0, 2.0, 2.0]));
    assert_eq!(
        prim("prim.concat(%a, %b, %a, dim=1)", &[column, x]),
        f32s(&[2, 5], &[1.0, 1.0, 2.0, 3.0, 1.0, 2.0, 4.0, 5.0, 6.0, 2.0])
    );
    // Three dims, so that a permutation differs from its inverse: y[i, j, k] = x[j, k, i].
    let cube = f32s(&[2, 3, 2], &(0..12).map(f64::from).collect::<Vec<_>>());
    let turned = prim("prim.permute(%a, perm=[2, 0, 1])", &[cube]);
    assert_eq!(turned, f32s(&[2, 2, 3], &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 1.0, 3.0, 5.0, 7.0, 9.0, 11.0]));
}

#[test]
fn indexing_and_its_transposes() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let index = ints(DType::I64, &[2, 2], &[2, 0, 1, 1]);
    assert_eq!(prim("prim.gather(%a, %b, dim=1)", &[x.clone(), index.clone()]), f32s(&[2, 2], &[3.0, 1.0, 5.0, 5.0]));
    assert_eq!(
        prim("prim.take(%a, %b, dim=1)", &[x.clone(), index.clone()]),
        f32s(&[2, 2, 2], &[3.0, 1.0, 2.0, 2.0, 6.0, 4.0, 5.0, 5.0])
    );
    let rows = ints(DType::I32, &[3], &[1, 1, 0]);
    assert_eq!(
        prim("prim.take(%a, %b, dim=0)", &[x.clone(), rows]),
        f32s(&[3, 3], &[4.0, 5.0, 6.0, 4.0, 5.0, 6.0, 1.0, 2.0, 3.0])
    );
    // A scalar index takes the dim away.
    assert_eq!(prim("prim.take(%a, %b, dim=1)", &[x.clone(), ints(DType::I64, &[], &[2])]), vector(&[3.0, 6.0]));
    let src = f32s(&[2, 2], &[1.0, 10.0, 100.0, 1000.0]);
    assert_eq!(
        prim("prim.scatter_sum(%a, %b, dim=1, size=3)", &[src, index.clone()]),
        f32s(&[2, 3], &[10.0, 0.0, 1.0, 0.0, 1100.0, 0.0])
    );
    let src = f32s(&[1, 2, 2], &[1.0, 10.0, 100.0, 1000.0]);
    assert_eq!(prim("prim.index_sum(%a, %b, dim=1, size=3)", &[src, index]), f32s(&[1, 3], &[10.0, 1100.0, 1.0]));
    let into_new = prim("prim.index_sum(%a, %b, dim=0, size=2)", &[vector(&[7.0, 8.0]), ints(DType::I64, &[], &[1])]);
    assert_eq!(into_new, f32s(&[2, 2], &[0.0, 0.0, 7.0, 8.0]));
}

#[test]
fn an_index_out_of_range_is_a_named_error() {
    let x = vector(&[1.0, 2.0]);
    for (bad, call) in [
        (2, "prim.gather(%a, %b, dim=0)"),
        (-1, "prim.gather(%a, %b, dim=0)"),
        (2, "prim.take(%a, %b, dim=0)"),
        (5, "prim.index_sum(%a, %b, dim=0, size=5)"),
        (-1, "prim.scatter_sum(%a, %b, dim=0, size=5)"),
    ] {
        let e = prim_error(call, &[x.clone(), i64s(&[0, bad])]);
        assert!(e.contains(&format!("index {bad} at [1] is outside of 0..")), "{e}");
        assert!(e.starts_with(&call[..call.find('(').unwrap()]), "{e}");
    }
}

#[test]
fn scans() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(prim("prim.cumsum(%a, dim=1)", &[x.clone()]), f32s(&[2, 3], &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0]));
    assert_eq!(prim("prim.cumprod(%a, dim=0)", &[x]), f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 10.0, 18.0]));
    assert_eq!(
        prim("prim.cumsum(%a, dim=0)", &[ints(DType::U8, &[3], &[200, 100, 1])]),
        ints(DType::U8, &[3], &[200, 44, 45])
    );
}

/// No prim is forgotten: each elementwise one has a value on every kind of operand its type rule lets in.
#[test]
fn every_elementwise_prim_has_a_meaning_on_every_operand_kind() {
    for op in PrimOp::ALL.iter().filter(|p| matches!(p.kind(), PrimKind::Unary | PrimKind::Binary | PrimKind::Compare))
    {
        let two = !(op.kind() == PrimKind::Unary || matches!(op, PrimOp::IsNan | PrimOp::IsInf));
        let mut kinds = 0;
        for dtype in [DType::F32, DType::I32, DType::Bool] {
            let t = if dtype == DType::F32 { vector(&[1.0]) } else { ints(dtype, &[1], &[1]) };
            let inputs = if two { vec![t.clone(), t] } else { vec![t] };
            let types: Vec<_> = inputs.iter().map(|t| permalloy_ir::TensorType::new(t.dtype, vec![1.into()])).collect();
            if permalloy_ir::infer(*op, &types.iter().collect::<Vec<_>>(), &|_| None).is_ok() {
                prim(&format!("{op}(%a{})", if two { ", %b" } else { "" }), &inputs);
                kinds += 1;
            }
        }
        assert!(kinds > 0, "{op}");
    }
}
