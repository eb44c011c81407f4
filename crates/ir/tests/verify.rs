//! The verifier: each rule, with a graph that breaks it and the error's place.

use permalloy_ir::{Arg, Def, Dim, Graph, GraphKind, NodeId, Op, Output, PrimOp, Role, TensorType, ValueId, verify};
use permalloy_ir::{DType, VerifyError};

/// The error of a graph with these statements (`kind` ones in a joint graph).
fn error(statements: &str) -> VerifyError {
    let text = format!("graph \"t\" joint(forward_outputs=1) {{\n{statements}\n}}\n");
    let g = Graph::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify(&g).expect_err(statements)
}

#[test]
fn a_sound_graph_passes() {
    let g = Graph::parse(
        "graph \"t\" joint(forward_outputs=1) {
  symbol s0 hint=8 range=[2, 1000]
  input %x: f32[s0, 4] strides=[4, 1] @cuda:0
  input s0
  %y: f32[s0, 4] @cuda:0, _ = aten.foo.default(%x, [%x, none], s0)
  %c: f32[s0, 4] = prim.full(value=2.0, shape=[s0, 4], dtype=f32)
  %z: f32[s0, 4] @cuda:0 = prim.add(%y, %c)
  %t: f32[s0] @cuda:0 = prim.sum(%z, dims=[1])
  %p: f32[2 + s0, 4] @cuda:0 = prim.pad(%y, low=[1, 0], high=[1, 0])
  output %t
  output %p
  output none
  output 4*s0
}",
    )
    .unwrap();
    assert_eq!(verify(&g), Ok(()));
}

#[test]
fn errors_name_line_operator_and_location() {
    let e = error(
        "  input %x: f32[4]\n  // a comment does not count\n  %y: f32[5] = prim.exp(%x) loc=\"model.py:3 forward\"\n  output %y",
    );
    assert_eq!((e.line, e.op.as_deref(), e.loc.as_deref()), (3, Some("prim.exp"), Some("model.py:3 forward")));
    assert_eq!(
        e.to_string(),
        "graph line 3, prim.exp at model.py:3 forward: the result is f32[4], not f32[5]\n  %y: f32[5] = prim.exp(%x) loc=\"model.py:3 forward\""
    );
}

#[test]
fn every_rule_has_its_error() {
    let cases = [
        // Prims.
        ("input %x: i64[4]\n %y: i64[4] = prim.exp(%x)", 3, "operand is i64, not floating point"),
        ("input %x: f32[4]\n %y: f32[4] = prim.add(%x)", 3, "got 1 operands"),
        ("input %x: f32[4]\n %y: f32[4] = prim.add(%x, 2.0)", 3, "a positional argument is not a tensor"),
        ("input %x: f32[4]\n %y: f32[] = prim.sum(%x)", 3, "needs attribute dims"),
        ("input %x: f32[4]\n %y: f32[] = prim.sum(%x, dims=[0], keepdim=true)", 3, "unknown attribute keepdim"),
        ("input %x: f32[4]\n %y: f32[4], %z: f32[4] = prim.exp(%x)", 3, "a prim has one result, this has 2"),
        ("input %x: f32[4]\n _ = prim.exp(%x)", 3, "a prim has one result, this has 1"),
        ("input %x: f32[4]\n %y: f64[4] = prim.exp(%x)", 3, "the result is f32[4], not f64[4]"),
        ("input %x: f32[4] @cuda:0\n %y: f32[4] = prim.exp(%x)", 3, "the result is on cuda:0, not on cpu"),
        ("%y: f32[4] = prim.full(value=\"a\", shape=[4], dtype=f32)", 2, "attribute value is not an int"),
        ("input %x: bool[4]\n %y: bool[4] = prim.neg(%x)", 3, "operand is bool"),
        ("input %x: f32[4]\n input %i: i64[]\n %y: f32[4] = prim.index_sum(%x, %i, dim=-1, size=4)", 4, "dim=-1"),
        // Symbols.
        ("symbol s0 hint=8 range=[9, 7]", 2, "the range of s0 is empty"),
        ("symbol s0 hint=8 range=[0, 7]", 2, "the hint of s0 lies outside"),
        ("symbol s0 hint=8\n symbol s0 hint=8", 3, "s0 is declared twice"),
        ("input %x: f32[s0]", 2, "size symbol s0 is not declared"),
        ("input s0 + s1", 2, "size symbol s0 is not declared"),
        ("symbol s0 hint=8\n %x: f32[] = aten.f.default([mod(s0, s1)])", 3, "size symbol s1 is not declared"),
        ("output s0", 2, "size symbol s0 is not declared"),
        // Types.
        ("input %x: f32[-1]", 2, "%x has a negative size or stride: f32[-1]"),
        ("input %x: f32[2, 3] strides=[1]", 2, "%x has 2 dims and 1 strides"),
        // Outputs.
        ("input %x: f32[2]", 1, "1 forward outputs are announced, the graph has 0 outputs"),
    ];
    for (text, line, message) in cases {
        let e = error(text);
        assert!(e.message.contains(message), "{text}: {e}");
        assert_eq!(e.line, line, "{text}: {e}");
        assert!(!e.statement.is_empty());
    }
}

/// Damage that no text can express.
#[test]
fn damaged_structures_are_found_and_printed() {
    let f32x4 = || TensorType::new(DType::F32, vec![Dim::from(4)]);
    let sound = || {
        let mut g = Graph::new("t", GraphKind::Inference);
        let x = g.add_input("x", f32x4(), Role::Primal);
        let exp = |g: &mut Graph, v| {
            let n =
                g.add_node(Op::Prim(PrimOp::Exp), vec![Arg::Value(v)], vec![], vec![Some(("".into(), f32x4()))], None);
            g.node(n).result().unwrap()
        };
        let y = exp(&mut g, x);
        let z = exp(&mut g, y);
        g.outputs.push(Output::Value(z));
        (g, x, y, z)
    };
    assert_eq!(verify(&sound().0), Ok(()));

    type Damage = fn(&mut Graph, ValueId, ValueId, ValueId);
    let cases: [(Damage, usize, &str); 8] = [
        (|g, _, _, z| g.node_mut(NodeId(0)).args[0] = Arg::Value(z), 3, "%v2 is used before its definition"),
        (|g, _, _, _| g.node_mut(NodeId(0)).args[0] = Arg::Value(ValueId(99)), 3, "value number 99 does not exist"),
        (|g, _, _, _| g.outputs.push(Output::Value(ValueId(99))), 6, "value number 99 does not exist"),
        (|g, _, y, _| g.node_mut(NodeId(1)).results[0] = Some(y), 4, "%v1 is defined elsewhere"),
        (|g, x, _, _| g.node_mut(NodeId(1)).results[0] = Some(x), 4, "%x is defined elsewhere"),
        (|g, x, y, _| g.value_mut(y).name = g.value(x).name.clone(), 3, "%x is the name of another value too"),
        (|g, _, y, _| g.value_mut(y).name = "a b".into(), 3, "`a b` cannot name a value"),
        (|g, _, y, _| g.value_mut(y).def = Def::Input(0), 3, "%v1 is defined elsewhere"),
    ];
    for (damage, line, message) in cases {
        let (mut g, x, y, z) = sound();
        damage(&mut g, x, y, z);
        let e = verify(&g).expect_err(message);
        assert!(e.message.contains(message), "{e}");
        assert_eq!(e.line, line, "{e}");
        assert!(!g.to_string().is_empty());
    }
}
