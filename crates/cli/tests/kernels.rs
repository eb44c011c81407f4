//! Kernels beside their unfused graphs.

use permalloy_cli::execute::{Machine, arguments, load};
use permalloy_cli::kernels::{Found, KernelCheck};
use permalloy_driver::{Options, compile_graph};
use permalloy_interp::{InputValue, Tensor};
use permalloy_ir::{DType, Graph, PrimOp, SymbolValues};
use permalloy_loops::kernel::{OpKind, Program, Step};
use std::sync::Arc;

const GRAPH: &str = "graph \"g\" inference {
  symbol s0 hint=3
  input %x: f32[s0, 4]
  input %m: f32[s0]
  %e: f32[s0, 4] = prim.exp(%x)
  %s: f32[s0] = prim.sum(%e, dims=[1])
  %n: f32[s0] = aten.copy_.default(%m, %s)
  output %e
}
";

/// Runs the graph with a program that was tampered with; gives what the check found.
fn found(tamper: impl Fn(&mut Program)) -> Vec<Found> {
    let mut compiled = compile_graph(GRAPH, &Options::default()).unwrap();
    tamper(&mut compiled.program);
    let check = Arc::new(KernelCheck::new(&compiled.graph, &compiled.program));
    let exe = load(compiled.program, Machine::default()).unwrap().watched(check.clone());
    let x = Tensor::floats(DType::F32, &[2, 4], (0..8).map(|i| f64::from(i) / 8.0).collect());
    let m = Tensor::floats(DType::F32, &[2], vec![0.0; 2]);
    let values = [InputValue::Tensor(x), InputValue::Tensor(m)];
    let graph = Graph::parse(GRAPH).unwrap();
    let inputs = arguments(&graph, &values, &SymbolValues::from([("s0".into(), 2)])).unwrap();
    exe.run(inputs).unwrap();
    check.take()
}

#[test]
fn a_sound_kernel_has_the_errors_of_rounding() {
    let found = found(|_| {});
    let f = &found[0];
    assert!(found.iter().all(|f| f.wrong.is_none() && f.unchecked.is_none()), "{found:?}");
    assert_eq!((f.elements, &f.wrong, &f.unchecked), (10, &None, &None), "{f:?}");
    assert!(f.worst_absolute > 0.0 && f.worst_absolute < 1e-5 && f.worst_relative < 1e-6, "{f:?}");
    assert!(f.reproducer.contains("// symbol s0 = 2") && f.reproducer.contains("// input %x = [[0.0, 0.125"), "{f:?}");
    assert!(f.reproducer.contains("prim.sum") && Graph::parse(&f.reproducer).is_ok(), "{f:?}");
}

#[test]
fn a_planted_fault_is_found_in_the_kernel_that_has_it() {
    let found = found(|program| {
        let Step::Kernel(k) = &mut program.steps[0] else { panic!() };
        for op in &mut k.ops {
            if let OpKind::Unary(p @ PrimOp::Exp, _) = &mut op.kind {
                *p = PrimOp::Expm1;
            }
        }
    });
    let f = &found[0];
    assert!(found[1..].iter().all(|f| f.wrong.is_none()), "the fault is in the first kernel: {found:?}");
    // exp(0) = 1 comes out as 0.
    assert!(f.wrong.as_ref().is_some_and(|w| w.contains("element 0 is 0.0, not 1.0")), "{f:?}");
    assert!((f.worst_absolute - 4.0).abs() < 1e-5, "four elements a row, each 1 too small: {f:?}");
}
