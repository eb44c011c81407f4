//! An optimizer's step over many parameters, as PyTorch traces `torch.optim.AdamW`.

use std::fmt::Write;

const SHAPES: [&[i64]; 7] = [&[64], &[64, 64], &[128, 64], &[7, 5], &[33], &[1], &[16, 3, 3, 3]];

/// Text of the graph for this many parameters, of seven shapes in turn.
pub fn adamw(parameters: usize) -> String {
    let mut text = String::from("graph \"adamw\" inference {\n");
    let shape = |i: usize| {
        let dims: Vec<String> = SHAPES[i % SHAPES.len()].iter().map(i64::to_string).collect();
        format!("f32[{}]", dims.join(", "))
    };
    for i in 0..parameters {
        writeln!(text, "  input %step{i}: f32[]").unwrap();
        for name in ["p", "g", "m", "v"] {
            writeln!(text, "  input %{name}{i}: {}", shape(i)).unwrap();
        }
    }
    let list = |name: &str| (0..parameters).map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(", ");
    let mut call = |made: &str, op: &str, args: &str| {
        let scalar = ["t", "b1", "b2", "c1", "c2", "n", "a", "r", "s"].contains(&made);
        let ty = |i: usize| if scalar { "f32[]".to_string() } else { shape(i) };
        let results: Vec<String> = (0..parameters).map(|i| format!("%{made}{i}: {}", ty(i))).collect();
        writeln!(text, "  {} = aten._foreach_{op}({args})", results.join(", ")).unwrap();
    };
    let l = |name: &str| format!("[{}]", list(name));
    call("t", "add.Scalar", &format!("{}, 1", l("step")));
    call("decayed", "mul.Scalar", &format!("{}, 0.99999", l("p")));
    call("d", "sub.List", &format!("{}, {}", l("g"), l("m")));
    call("dd", "mul.Scalar", &format!("{}, 0.1", l("d")));
    call("mm", "add.List", &format!("{}, {}", l("m"), l("dd")));
    call("w", "mul.Scalar", &format!("{}, 0.999", l("v")));
    call("vv", "addcmul.Scalar", &format!("{}, {}, {}, 0.001", l("w"), l("g"), l("g")));
    call("b1", "pow.ScalarAndTensor", &format!("0.9, {}", l("t")));
    call("b2", "pow.ScalarAndTensor", &format!("0.999, {}", l("t")));
    call("c1", "sub.Scalar", &format!("{}, 1", l("b1")));
    call("c2", "sub.Scalar", &format!("{}, 1", l("b2")));
    call("n", "neg.default", &l("c2"));
    call("a", "div.Scalar", &format!("{}, 0.001", l("c1")));
    call("r", "reciprocal.default", &l("a"));
    call("s", "sqrt.default", &l("n"));
    call("root", "sqrt.default", &l("vv"));
    call("over", "div.List", &format!("{}, {}", l("root"), l("s")));
    call("eps", "add.Scalar", &format!("{}, 1e-08", l("over")));
    call("scaled", "div.List", &format!("{}, {}", l("eps"), l("r")));
    call("new", "addcdiv.Scalar", &format!("{}, {}, {}", l("decayed"), l("mm"), l("scaled")));
    for i in 0..parameters {
        writeln!(text, "  %step_{i}: f32[] = aten.copy_.default(%step{i}, %t{i})").unwrap();
        for (to, from) in [("p", "new"), ("m", "mm"), ("v", "vv")] {
            writeln!(text, "  %{to}_{i}: {} = aten.copy_.default(%{to}{i}, %{from}{i})", shape(i)).unwrap();
        }
    }
    text + "}\n"
}
