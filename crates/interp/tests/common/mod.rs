//! One-node graphs from text.

use permalloy_interp::{InputValue, InterpError, Options, OutputValue, Tensor, run};
use permalloy_ir::{DType, Graph, infer};

pub const EXACT: Options = Options { round: false };

pub fn f32s(shape: &[usize], data: &[f64]) -> Tensor {
    Tensor::floats(DType::F32, shape, data.to_vec())
}

pub fn ints(dtype: DType, shape: &[usize], data: &[i64]) -> Tensor {
    Tensor::ints(dtype, shape, data.to_vec())
}

/// Runs `call` on inputs %a, %b, …; a prim's result type is the inferred one, an external operator's is `ty`.
pub fn run_call(call: &str, ty: &str, inputs: &[Tensor], options: Options) -> Result<Tensor, InterpError> {
    let mut text = String::from("graph \"t\" inference {\n");
    for (name, t) in ["a", "b", "c"].iter().zip(inputs) {
        text += &format!("  input %{name}: {}{:?}\n", t.dtype, t.shape);
    }
    text += &format!("  %y: {ty} = {call}\n  output %y\n}}");
    let mut g = Graph::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let node = g.nodes().next().unwrap().1.clone();
    if let Some(p) = node.prim() {
        let types: Vec<_> = node.operands().into_iter().map(|v| g.ty(v).clone()).collect();
        let inferred = infer(p, &types.iter().collect::<Vec<_>>(), &|name| node.kwarg(name).cloned()).expect(call);
        g.value_mut(node.result().unwrap()).ty = inferred.into();
    }
    let inputs: Vec<InputValue> = inputs.iter().cloned().map(InputValue::Tensor).collect();
    match run(&g, &inputs, options)?.remove(0) {
        OutputValue::Tensor(t) => Ok(t),
        other => panic!("{call}: {other:?}"),
    }
}

/// Elements equal, NaN to NaN and signs of zero told apart, up to a relative tolerance.
pub fn assert_floats(t: &Tensor, expected: &[f64], tolerance: f64) {
    let got = t.as_floats().unwrap();
    assert_eq!(got.len(), expected.len());
    for (g, e) in got.iter().zip(expected) {
        let same = (g.is_nan() && e.is_nan())
            || (g == e && g.is_sign_negative() == e.is_sign_negative())
            || (g - e).abs() <= tolerance * e.abs();
        assert!(same, "got {got:?}, expected {expected:?}");
    }
}
