//! Whole graphs: symbols, built-in operators, rules, bad arguments.

#![allow(
    clippy::cloned_ref_to_slice_refs,
    reason = "operand lists read the same whether an operand is used again or not"
)]

mod common;

use common::{EXACT, assert_floats, f32s, ints, run_call};
use permalloy_interp::{InputValue, OutputValue, Tensor, run};
use permalloy_ir::{DType, Graph};

fn error(text: &str, inputs: &[InputValue]) -> String {
    run(&Graph::parse(text).unwrap(), inputs, EXACT).expect_err(text).to_string()
}

fn tensor(t: Tensor) -> InputValue {
    InputValue::Tensor(t)
}

#[test]
fn symbols_bind_from_sizes_and_integers_and_are_checked() {
    let text = "graph \"t\" inference {
  symbol s0 hint=4 range=[2, 9]
  symbol n hint=1 range=[0, 9]
  input %x: f32[s0, 2*s0]
  input n
  %y: f32[s0*n] = prim.full(value=s0 + n, shape=[s0*n], dtype=f32)
  output %y
  output floordiv(s0, 2)
  output none
}";
    let g = Graph::parse(text).unwrap();
    let x = |a: usize, b: usize| tensor(f32s(&[a, b], &vec![0.0; a * b]));
    let out = run(&g, &[x(3, 6), InputValue::Int(2)], EXACT).unwrap();
    assert_eq!(out, [OutputValue::Tensor(f32s(&[6], &[5.0; 6])), OutputValue::Int(1), OutputValue::None]);
    assert!(error(text, &[x(3, 5), InputValue::Int(2)]).contains("input %x, dim 1: got 5, expected 2*s0 = 6"));
    assert!(error(text, &[x(1, 2), InputValue::Int(2)]).contains("s0 = 1 lies outside of its range [2, 9]"));
    assert!(error(text, &[x(3, 6)]).contains("takes 2 inputs, got 1"));
    assert!(error(text, &[InputValue::Int(1), InputValue::Int(2)]).contains("input 0 is the tensor %x"));
    assert!(error(text, &[x(3, 6), x(3, 6)]).contains("input 1 is the integer n"));
    let wrong = tensor(ints(DType::I64, &[3, 6], &[0; 18]));
    assert!(error(text, &[wrong, InputValue::Int(2)]).contains("input %x: got i64[3, 6] for f32[s0, 2*s0]"));
    let short = tensor(Tensor { dtype: DType::F32, shape: vec![3, 6], data: permalloy_interp::Data::F(vec![0.0]) });
    assert!(error(text, &[short, InputValue::Int(2)]).contains("1 elements do not fill shape [3, 6]"));
    assert!(error(text, &[x(3, 6), InputValue::Int(-1)]).contains("n = -1 lies outside"));
}

#[test]
fn an_unbound_symbol_is_an_error() {
    let text = "graph \"t\" inference {\n  symbol s0 hint=4\n  input %x: f32[2*s0]\n  output %x\n}";
    assert!(error(text, &[tensor(f32s(&[2], &[0.0; 2]))]).contains("size symbol s0 has no value"));
}

#[test]
fn an_unverified_graph_is_refused() {
    let text = "graph \"t\" inference {\n  input %x: f32[2]\n  %y: f32[3] = prim.exp(%x)\n  output %y\n}";
    assert!(error(text, &[tensor(f32s(&[2], &[0.0; 2]))]).contains("the result is f32[2], not f32[3]"));
}

#[test]
fn sizes_that_only_differ_at_run_time_are_errors() {
    let text = "graph \"t\" inference {
  symbol s0 hint=4
  symbol s1 hint=4
  input %x: f32[s0]
  input s1
  %y: f32[s1] = prim.reshape(%x, shape=[s1]) loc=\"model.py:7 forward\"
  output %y
}";
    let e = error(text, &[tensor(f32s(&[4], &[0.0; 4])), InputValue::Int(5)]);
    assert_eq!(
        e,
        "prim.reshape at model.py:7 forward: [4] does not reshape to [5]\n  %y: f32[s1] = prim.reshape(%x, shape=[s1]) loc=\"model.py:7 forward\""
    );
    let huge = error(text, &[tensor(f32s(&[4], &[0.0; 4])), InputValue::Int(i64::MAX)]);
    assert!(huge.contains("too many for the interpreter"), "{huge}");
}

#[test]
fn matrix_products() {
    let a = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let b = f32s(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let ab = [4.0, 5.0, 10.0, 11.0];
    let call =
        |call: &str, ty: &str, inputs: &[Tensor]| run_call(call, ty, inputs, EXACT).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(call("aten.mm.default(%a, %b)", "f32[2, 2]", &[a.clone(), b.clone()]), f32s(&[2, 2], &ab));
    let bias = f32s(&[2], &[1.0, f64::NAN]);
    let with_bias = call("aten.addmm.default(%a, %b, %c, alpha=2)", "f32[2, 2]", &[bias.clone(), a.clone(), b.clone()]);
    assert_floats(&with_bias, &[9.0, f64::NAN, 21.0, f64::NAN], 0.0);
    let without = call("aten.addmm.default(%a, %b, %c, beta=0)", "f32[2, 2]", &[bias, a.clone(), b.clone()]);
    assert_floats(&without, &ab, 0.0);
    let (mut a3, mut b3) = (a.clone(), b.clone());
    a3.shape.insert(0, 1);
    b3.shape.insert(0, 1);
    assert_eq!(call("aten.bmm.default(%a, %b)", "f32[1, 2, 2]", &[a3.clone(), b3.clone()]), f32s(&[1, 2, 2], &ab));
    let ones = f32s(&[1, 1, 1], &[1.0]);
    assert_eq!(
        call("aten.baddbmm.default(%a, %b, %c)", "f32[1, 2, 2]", &[ones, a3, b3.clone()]),
        f32s(&[1, 2, 2], &[5.0, 6.0, 11.0, 12.0])
    );
    let v = f32s(&[3], &[1.0, 1.0, 2.0]);
    assert_eq!(call("aten.mv.default(%a, %b)", "f32[2]", &[a.clone(), v.clone()]), f32s(&[2], &[9.0, 21.0]));
    assert_eq!(call("aten.dot.default(%a, %b)", "f32[]", &[v.clone(), v.clone()]), f32s(&[], &[6.0]));
    assert_eq!(call("aten.matmul.default(%a, %b)", "f32[1, 2]", &[v, b3.clone()]), f32s(&[1, 2], &[3.0, 3.0]));
    // Batches broadcast: [2, 3] with [1, 3, 2].
    assert_eq!(call("aten.matmul.default(%a, %b)", "f32[1, 2, 2]", &[a.clone(), b3]), f32s(&[1, 2, 2], &ab));
    let e = run_call("aten.mm.default(%a, %b)", "f32[2, 2]", &[a.clone(), a.clone()], EXACT).unwrap_err();
    assert!(e.message.starts_with("aten.mm.default: f32[2, 3] does not multiply f32[2, 3]"), "{e}");
    let e = run_call("aten.mm.default(%a, %b)", "f32[2, 3]", &[a, b], EXACT).unwrap_err();
    assert!(e.message.contains("%y is f32[2, 2], but the graph declares f32[2, 3]"), "{e}");
}

#[test]
fn convolutions() {
    let x = f32s(&[1, 1, 3, 3], &(1..10).map(f64::from).collect::<Vec<_>>());
    let w = f32s(&[1, 1, 2, 2], &[1.0, 0.0, 0.0, -1.0]);
    let bias = f32s(&[1], &[100.0]);
    let conv = |rest: &str, ty: &str, inputs: &[Tensor]| {
        run_call(&format!("aten.convolution.default(%a, %b, {rest})"), ty, inputs, EXACT)
            .unwrap_or_else(|e| panic!("{e}"))
    };
    let plain = conv("%c, [1, 1], [0, 0], [1, 1], false, [0, 0], 1", "f32[1, 1, 2, 2]", &[x.clone(), w.clone(), bias]);
    assert_eq!(plain, f32s(&[1, 1, 2, 2], &[96.0; 4]));
    let padded = conv("none, [2, 2], [1, 1], [1, 1], false, [0, 0], 1", "f32[1, 1, 2, 2]", &[x.clone(), w.clone()]);
    assert_eq!(padded, f32s(&[1, 1, 2, 2], &[-1.0, -3.0, -7.0, -4.0]));
    let dilated = conv("none, [1], [0], [2], false, [0], 1", "f32[1, 1, 1, 1]", &[x, w]);
    assert_eq!(dilated, f32s(&[1, 1, 1, 1], &[-8.0]));
    // Two groups of one channel each, in one spatial dim.
    let x = f32s(&[1, 2, 3], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    let w = f32s(&[2, 1, 2], &[1.0, 1.0, 1.0, -1.0]);
    let grouped = conv("none, [1], [0], [1], false, [0], 2", "f32[1, 2, 2]", &[x.clone(), w.clone()]);
    assert_eq!(grouped, f32s(&[1, 2, 2], &[3.0, 5.0, -10.0, -10.0]));
    // Its transpose spreads each element over the kernel: [1, 2, 3] with [1, 1], stride 2.
    let spread = conv("none, [2], [0], [1], true, [1], 2", "f32[1, 2, 7]", &[x, w]);
    assert_eq!(
        spread,
        f32s(&[1, 2, 7], &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 0.0, 10.0, -10.0, 20.0, -20.0, 30.0, -30.0, 0.0])
    );
}

#[test]
fn copy_broadcasts_and_casts() {
    let target = ints(DType::I64, &[2, 2], &[0; 4]);
    let out = run_call("aten.copy_.default(%a, %b)", "i64[2, 2]", &[target, f32s(&[2], &[1.9, -1.9])], EXACT).unwrap();
    assert_eq!(out, ints(DType::I64, &[2, 2], &[1, -1, 1, -1]));
}

#[test]
fn operators_with_a_rule_run_by_it() {
    let x = f32s(&[2], &[0.0, 1.0]);
    let y = run_call("aten.gelu.default(%a)", "f32[2]", &[x.clone()], EXACT).unwrap();
    assert_floats(&y, &[0.0, 0.841_344_746_068_542_9], 2e-16);
    let y = run_call("aten.gelu.default(%a, approximate=\"tanh\")", "f32[2]", &[x.clone()], EXACT).unwrap();
    assert_floats(&y, &[0.0, 0.841_191_990_607_477_3], 1e-9);
    // What the graph declares must be what the rule can make.
    let e = run_call("aten.gelu.default(%a)", "f32[3]", &[x.clone()], EXACT).unwrap_err();
    assert!(e.message.contains("rule gelu declines: [2] is not known to broadcast to [3]"), "{e}");
    let e = run_call("aten.flip.default(1, [0])", "f32[2]", &[], EXACT).unwrap_err();
    assert!(e.message.contains("rule flip declines: argument self is not a tensor"), "{e}");
    let e = run_call("aten.no_such_op.default(%a)", "f32[2]", &[x], EXACT).unwrap_err();
    assert!(e.message.starts_with("aten.no_such_op.default: the interpreter has no meaning"), "{e}");
}

/// A rule fails on operands of a kind no prim takes; the user sees an error.
#[test]
fn a_rule_that_fails_is_an_error() {
    let e = run_call("aten.gelu.default(%a)", "i64[1]", &[ints(DType::I64, &[1], &[1])], EXACT).unwrap_err();
    assert!(e.message.contains("rule gelu fails: ill-typed prim"), "{e}");
}
