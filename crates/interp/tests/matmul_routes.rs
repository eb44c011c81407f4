//! Both routes of `matmul_backward` give the same gradients, and `fold` is one GEMM a gradient.

use permalloy_interp::{InputValue, Options, OutputValue, Tensor, run};
use permalloy_ir::{DType, Dim, Graph, GraphKind, Op, Output, Role, TensorType};
use permalloy_ops::apply_rules;

/// Shapes of self and other.
const CASES: &[(&[i64], &[i64])] = &[
    (&[4], &[4]),
    (&[3, 4], &[4]),
    (&[4], &[4, 5]),
    (&[3, 4], &[4, 5]),
    (&[2, 3, 4], &[4]),
    (&[2, 3, 4], &[4, 5]),
    (&[6, 2, 3, 4], &[4, 5]),
    (&[4], &[2, 4, 5]),
    (&[3, 4], &[2, 4, 5]),
    (&[2, 3, 4], &[2, 4, 5]),
    (&[2, 3, 4], &[1, 4, 5]),
    (&[1, 3, 4], &[2, 4, 5]),
    (&[6, 1, 3, 4], &[1, 2, 4, 5]),
    (&[6, 1, 3, 4], &[2, 4, 5]),
    (&[6, 2, 3, 4], &[2, 4, 5]),
    (&[7, 1, 2, 3, 4], &[6, 1, 4, 5]),
    (&[0, 3, 4], &[4, 5]),
    (&[2, 3, 4], &[2, 4, 0]),
];

fn product_shape(a: &[i64], b: &[i64]) -> Vec<i64> {
    let batch = |s: &[i64]| s[..s.len().saturating_sub(2)].to_vec();
    let (x, y) = (batch(a), batch(b));
    let rank = x.len().max(y.len());
    let at = |s: &[i64], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |k| s[k]);
    let mut shape: Vec<i64> = (0..rank).map(|i| if at(&x, i) == 1 { at(&y, i) } else { at(&x, i) }).collect();
    if a.len() > 1 {
        shape.push(a[a.len() - 2]);
    }
    if b.len() > 1 {
        shape.push(b[b.len() - 1]);
    }
    shape
}

fn ty(shape: &[i64]) -> TensorType {
    TensorType::new(DType::F32, shape.iter().map(|s| Dim::from(*s)).collect())
}

/// Distinct numbers of a few bits, so that sums are exact.
fn numbers(shape: &[i64], seed: i64) -> InputValue {
    let n: i64 = shape.iter().product();
    let data = (0..n).map(|i| ((i * 7 + seed) % 23 - 11) as f64).collect();
    InputValue::Tensor(Tensor::floats(DType::F32, &shape.iter().map(|s| *s as usize).collect::<Vec<_>>(), data))
}

/// The two gradients by rule number `rule`, and how many GEMMs it emits.
fn gradients(a: &[i64], b: &[i64], rule: usize) -> (Vec<OutputValue>, usize) {
    let grad = product_shape(a, b);
    let text = |s: &[i64]| s.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let one = Graph::parse(&format!(
        "graph \"g\" inference {{
           input %g: f32[{}]
           input %a: f32[{}]
           input %b: f32[{}]
           %da: f32[{}], %db: f32[{}] = aten.matmul_backward.default(%g, %a, %b, [true, true])
           output %da
           output %db
         }}",
        text(&grad),
        text(a),
        text(b),
        text(a),
        text(b)
    ))
    .unwrap();
    let mut out = Graph::new("g", GraphKind::Inference);
    for (name, shape) in [("g", grad.as_slice()), ("a", a), ("b", b)] {
        out.add_input(name, ty(shape), Role::Primal);
    }
    let (_, node) = one.nodes().next().unwrap();
    let decl = permalloy_ops::lookup("aten.matmul_backward.default").unwrap();
    let results = [Some(ty(a)), Some(ty(b))];
    let (_, made) = apply_rules(&mut out, node, &results, &decl.rules[rule..=rule]).unwrap();
    out.outputs = made.into_iter().map(|v| Output::Value(v.unwrap())).collect();
    let gemms = out.nodes().filter(|(_, n)| matches!(n.op, Op::External(_))).count();
    let inputs = [numbers(&grad, 1), numbers(a, 5), numbers(b, 9)];
    (run(&out, &inputs, Options::default()).unwrap(), gemms)
}

#[test]
fn fold_and_batched_give_the_same_gradients() {
    for (a, b) in CASES {
        let (folded, gemms) = gradients(a, b, 0);
        let (batched, _) = gradients(a, b, 1);
        assert_eq!(folded, batched, "{a:?} {b:?}");
        assert!(gemms <= 2, "{a:?} {b:?}: {gemms} GEMMs");
    }
}
