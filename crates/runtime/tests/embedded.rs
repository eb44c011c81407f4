//! Whole programs without PyTorch.

mod common;

use common::{P, Points, c, dense};
use permalloy_ir::{DType, Dim, PrimOp};
use permalloy_loops::kernel::*;
use permalloy_runtime::embedded::{EmbeddedProvider, PlainTensor};
use permalloy_runtime::{Executable, RunError, RunInput, RunOutput, TensorHandle};
use std::sync::Arc;

fn exe(p: P) -> Result<Executable, RunError> {
    Executable::new(Arc::new(p.0), Arc::new(EmbeddedProvider::new(1)), Arc::new(Points))
}

fn input(shape: &[i64], values: &[f32]) -> RunInput {
    RunInput::Tensor(TensorHandle::Plain(PlainTensor::from_values(DType::F32, shape, values)))
}

fn plain(o: &RunOutput) -> &PlainTensor {
    match o {
        RunOutput::Tensor(TensorHandle::Plain(t)) => t,
        other => panic!("{other:?}"),
    }
}

fn values(o: &RunOutput) -> Vec<f32> {
    plain(o).values()
}

/// `((x + x) * 3 + x) @ w`, rows of x symbolic.
fn chain() -> P {
    let mut p = P::new("chain");
    let n = p.symbol("n", 2);
    let x = p.input("x", &[n.clone(), c(3)]);
    let w = p.input("w", &[c(3), c(2)]);
    let shape = [n.clone(), c(3)];
    let a = p.f32("a", &shape, BufferKind::Intermediate);
    let b = p.f32("b", &shape, BufferKind::Intermediate);
    let d = p.f32("d", &shape, BufferKind::Intermediate);
    let y = p.f32("y", &[n, c(2)], BufferKind::Output);
    p.pointwise(PrimOp::Add, a, x, Ok(x));
    p.pointwise(PrimOp::Mul, b, a, Err(3.0));
    p.pointwise(PrimOp::Add, d, b, Ok(x));
    let args = vec![p.t(d), p.t(w)];
    p.native("aten.mm.default", args, &[Some(y)]);
    p.returns(y);
    p
}

#[test]
fn a_chain_runs_in_one_place_for_any_size() {
    let e = exe(chain()).unwrap();
    assert_eq!((e.arena_bytes(), e.in_place()), (64, 2));
    for n in [1i64, 2, 5, 2, 0, 100] {
        let x: Vec<f32> = (0..n * 3).map(|i| i as f32).collect();
        let out = e.run(vec![input(&[n, 3], &x), input(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 0.0, 1.0])]).unwrap();
        let expected: Vec<f32> = x.chunks(3).flat_map(|r| [7.0 * r[0], 7.0 * (r[1] + r[2])]).collect();
        assert_eq!(values(&out[0]), expected);
    }
}

#[test]
fn wrong_arguments_are_named() {
    let e = exe(chain()).unwrap();
    let w = || input(&[3, 2], &[0.0; 6]);
    let text = |inputs| e.run(inputs).unwrap_err().to_string();
    assert_eq!(text(vec![w()]), "expected 2 arguments, got 1");
    assert_eq!(
        text(vec![input(&[2, 4], &[0.0; 8]), w()]),
        "argument 0 (x): size 4 at dim 1, expected 3 (shape [2, 4], expected [2, 3])"
    );
    assert!(text(vec![input(&[2, 3, 1], &[0.0; 6]), w()]).starts_with("argument 0 (x): has 3 dims, expected 2"));
    assert_eq!(
        text(vec![RunInput::Int(3), w()]),
        "no value for size symbol n: its argument is not what the graph says"
    );
    assert_eq!(text(vec![input(&[2, 3], &[0.0; 6]), RunInput::Int(3)]), "argument 1 (w): must be a tensor");
    let doubles = PlainTensor::from_values(DType::F64, &[2, 3], &[0.0f64; 6]);
    let doubles = RunInput::Tensor(TensorHandle::Plain(doubles));
    assert_eq!(text(vec![doubles, w()]), "argument 0 (x): must be f32, got f64");
}

#[test]
fn integer_arguments_bind_symbols_and_are_checked() {
    let mut p = P::new("ints");
    let n = p.symbol("n", 2);
    p.int(n.clone());
    p.int(&n * &c(2));
    let x = p.input("x", std::slice::from_ref(&n));
    let y = p.f32("y", std::slice::from_ref(&n), BufferKind::Output);
    p.pointwise(PrimOp::Add, y, x, Err(1.0));
    p.returns(y);
    p.0.outputs.push(ProgramOutput::Int(&n + &c(1)));
    p.0.outputs.push(ProgramOutput::None);
    let e = exe(p).unwrap();
    let run = |n: i64, m: i64, x: &[f32]| e.run(vec![RunInput::Int(n), RunInput::Int(m), input(&[x.len() as i64], x)]);
    let out = run(3, 6, &[1.0, 2.0, 3.0]).unwrap();
    assert_eq!(values(&out[0]), [2.0, 3.0, 4.0]);
    assert!(matches!(out[1], RunOutput::Int(4)) && matches!(out[2], RunOutput::None));
    assert!(run(3, 7, &[0.0; 3]).unwrap_err().to_string().contains("is 7, but the other arguments imply 6"));
    assert!(run(3, 6, &[0.0; 2]).unwrap_err().to_string().contains("argument 2 (x): size 2 at dim 0, expected 3"));
    assert!(run(-1, -2, &[]).unwrap_err().to_string().contains("compiled for 0 to"));
}

#[test]
fn an_argument_with_other_strides_is_copied() {
    let e = exe(chain()).unwrap();
    let stored = PlainTensor::from_values(DType::F32, &[3, 2], &[0.0f32, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let turned = stored.view(&[2, 3], &[1, 2], 0);
    let w = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0];
    let out = e.run(vec![RunInput::Tensor(TensorHandle::Plain(turned)), input(&[3, 2], &w)]).unwrap();
    assert_eq!(values(&out[0]), [0.0, 21.0, 21.0, 63.0]);
}

#[test]
fn views_and_aliases_come_back_as_the_program_says() {
    let mut p = P::new("views");
    let x = p.input("x", &[c(2), c(3)]);
    let y = p.f32("y", &[c(2), c(3)], BufferKind::Output);
    p.pointwise(PrimOp::Mul, y, x, Err(10.0));
    let view = |b, shape: &[i64], strides: &[i64], offset: i64| {
        let dims = |v: &[i64]| v.iter().map(|i| c(*i)).collect();
        ProgramOutput::Tensor(TensorRef { buffer: b, shape: dims(shape), strides: dims(strides), offset: c(offset) })
    };
    p.returns(y);
    p.0.outputs.push(view(y, &[3, 2], &[1, 3], 0));
    p.returns(y);
    p.0.outputs.push(view(x, &[2], &[3], 1));
    p.returns(x);
    let e = exe(p).unwrap();
    let base = PlainTensor::from_values(DType::F32, &[7], &[9.0f32, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let x = base.view(&[2, 3], &[3, 1], 1);
    let out = e.run(vec![RunInput::Tensor(TensorHandle::Plain(x.clone()))]).unwrap();
    assert_eq!(values(&out[1]), [0.0, 30.0, 10.0, 40.0, 20.0, 50.0]);
    assert_eq!(plain(&out[1]).data_ptr(), plain(&out[0]).data_ptr());
    assert_eq!(plain(&out[2]).data_ptr(), plain(&out[0]).data_ptr());
    assert_eq!(values(&out[3]), [1.0, 4.0]);
    assert_eq!(plain(&out[4]).data_ptr(), x.data_ptr());
}

#[test]
fn a_written_argument_is_written_whatever_its_layout() {
    let mut p = P::new("mutation");
    let x = p.input("x", &[c(2), c(2)]);
    p.pointwise(PrimOp::Add, x, x, Err(1.0));
    let e = exe(p).unwrap();
    let stored = PlainTensor::from_values(DType::F32, &[2, 2], &[1.0f32, 2.0, 3.0, 4.0]);
    e.run(vec![RunInput::Tensor(TensorHandle::Plain(stored.clone()))]).unwrap();
    assert_eq!(stored.values::<f32>(), [2.0, 3.0, 4.0, 5.0]);
    let turned = stored.view(&[2, 2], &[1, 2], 0);
    e.run(vec![RunInput::Tensor(TensorHandle::Plain(turned))]).unwrap();
    assert_eq!(stored.values::<f32>(), [3.0, 4.0, 5.0, 6.0]);
}

#[test]
fn an_input_is_never_overwritten_in_place_and_outputs_have_memory_of_their_own() {
    let mut p = P::new("outputs");
    let x = p.input("x", &[c(4)]);
    let a = p.f32("a", &[c(4)], BufferKind::Output);
    let b = p.f32("b", &[c(4)], BufferKind::Intermediate);
    p.pointwise(PrimOp::Add, a, x, Err(1.0));
    p.pointwise(PrimOp::Add, b, a, Err(1.0));
    p.returns(a);
    p.returns(b);
    let e = exe(p).unwrap();
    let x = PlainTensor::from_values(DType::F32, &[4], &[0.0f32; 4]);
    let once = e.run(vec![RunInput::Tensor(TensorHandle::Plain(x.clone()))]).unwrap();
    let twice = e.run(vec![RunInput::Tensor(TensorHandle::Plain(x.clone()))]).unwrap();
    for out in [&once, &twice] {
        assert_eq!((values(&out[0]), values(&out[1])), (vec![1.0; 4], vec![2.0; 4]));
    }
    assert_eq!(x.values::<f32>(), [0.0; 4]);
    assert_ne!(plain(&once[1]).data_ptr(), plain(&twice[1]).data_ptr());
}

#[test]
fn shared_inputs_are_not_reused_while_alive_and_other_accesses_not_at_all() {
    let mut p = P::new("transposed");
    let x = p.input("x", &[c(3), c(3)]);
    let shape = [c(3), c(3)];
    let a = p.f32("a", &shape, BufferKind::Intermediate);
    let t = p.buffer("t", DType::F32, &shape, &[c(1), c(3)], BufferKind::Intermediate);
    let y = p.f32("y", &shape, BufferKind::Output);
    p.pointwise(PrimOp::Add, a, x, Err(1.0));
    p.pointwise(PrimOp::Add, t, a, Err(1.0));
    p.pointwise(PrimOp::Add, y, t, Ok(t));
    p.returns(y);
    let e = exe(p).unwrap();
    assert_eq!(e.in_place(), 0);
    let x: Vec<f32> = (0..9).map(|i| i as f32).collect();
    let out = e.run(vec![input(&[3, 3], &x)]).unwrap();
    assert_eq!(values(&out[0]), x.iter().map(|v| 2.0 * v + 4.0).collect::<Vec<_>>());
}

#[test]
fn added_products_take_their_factors() {
    let mut p = P::new("addmm");
    let (x, w, bias) = (p.input("x", &[c(2), c(2)]), p.input("w", &[c(2), c(2)]), p.input("b", &[c(2)]));
    let y = p.f32("y", &[c(2), c(2)], BufferKind::Output);
    let args = vec![p.t(bias), p.t(x), p.t(w)];
    p.native("aten.addmm.default", args, &[Some(y)]);
    if let Some(Step::Native(n)) = p.0.steps.last_mut() {
        n.kwargs = vec![("beta".into(), NativeArg::Float(2.0)), ("alpha".into(), NativeArg::Int(c(3)))];
    }
    p.returns(y);
    let e = exe(p).unwrap();
    let eye = [1.0, 0.0, 0.0, 1.0];
    let out = e.run(vec![input(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), input(&[2, 2], &eye), input(&[2], &[10.0, 20.0])]);
    assert_eq!(values(&out.unwrap()[0]), [23.0, 46.0, 29.0, 52.0]);
}

#[test]
fn damaged_programs_are_errors() {
    let mut p = chain();
    p.0.steps.truncate(1);
    if let Some(Step::Kernel(k)) = p.0.steps.first_mut()
        && let OpKind::Store { buffer, .. } = &mut k.ops[3].kind
    {
        *buffer = BufferId(99);
    }
    assert!(matches!(exe(p), Err(RunError::Program(_))));
    let mut p = chain();
    if let Some(ProgramOutput::Tensor(t)) = p.0.outputs.first_mut() {
        t.offset = c(1);
    }
    assert!(exe(p).err().unwrap().to_string().contains("leaves buffer"));
    let mut p = chain();
    p.0.buffers[3].shape[0] = Dim::sym("unknown");
    assert!(exe(p).err().unwrap().to_string().contains("unknown has no value"));
    let mut p = chain();
    if let Some(Step::Native(n)) = p.0.steps.last_mut() {
        n.op = "aten.fft.default".into();
    }
    let e = exe(p).err().unwrap().to_string();
    assert_eq!(
        e,
        "aten.fft.default at model.py:7: aten.fft.default needs PyTorch: the embedded provider does not have it"
    );
    assert_eq!(dense(&[c(2), c(3)]), vec![c(3), c(1)]);
}

#[test]
fn a_reduction_may_overwrite_its_input_on_the_tile_engine() {
    let mut p = P::new("row sums");
    let n = p.symbol("n", 3);
    let shape = [n, c(1000)];
    let x = p.input("x", &shape);
    let a = p.f32("a", &shape, BufferKind::Intermediate);
    let b = p.f32("b", &shape, BufferKind::Intermediate);
    let y = p.f32("y", &shape, BufferKind::Output);
    p.pointwise(PrimOp::Add, a, x, Err(1.0));
    let access = Access { offset: Dim::ZERO, strides: dense(&shape), masks: vec![] };
    let kinds = [
        OpKind::Load { buffer: a, access: access.clone() },
        OpKind::Reduce { op: PrimOp::Sum, over: Over::Cols, x: OpId(0) },
        OpKind::Binary(PrimOp::Mul, OpId(0), OpId(1)),
        OpKind::Store { buffer: b, access, value: OpId(2) },
    ];
    let axis = |size: &Dim, role| Axis { size: size.clone(), role };
    p.0.steps.push(Step::Kernel(Kernel {
        name: "times_row_sum".into(),
        axes: vec![axis(&shape[0], AxisRole::Row), axis(&shape[1], AxisRole::Col)],
        ops: kinds.into_iter().map(|kind| KernelOp { kind, dtype: DType::F32 }).collect(),
        fused: vec![],
    }));
    p.pointwise(PrimOp::Add, y, b, Err(0.0));
    p.returns(y);
    let engine = Arc::new(permalloy_runtime::engine::TileEngine::new());
    let e = Executable::new(Arc::new(p.0), Arc::new(EmbeddedProvider::new(2)), engine).unwrap();
    assert_eq!((e.in_place(), e.arena_bytes()), (1, 12032));
    for n in [1i64, 3, 200] {
        let x: Vec<f32> = (0..n * 1000).map(|i| (i % 7) as f32).collect();
        let out = e.run(vec![input(&[n, 1000], &x)]).unwrap();
        let expected = x.chunks(1000).flat_map(|row| {
            let sum: f32 = row.iter().map(|v| v + 1.0).sum();
            row.iter().map(move |v| (v + 1.0) * sum)
        });
        assert_eq!(values(&out[0]), expected.collect::<Vec<_>>());
    }
}

#[test]
fn threads_may_run_the_same_executable() {
    let e = exe(chain()).unwrap();
    std::thread::scope(|s| {
        for t in 0..4 {
            let e = &e;
            s.spawn(move || {
                for i in 0..50i64 {
                    let n = 1 + (i + t) % 7;
                    let x = vec![t as f32; n as usize * 3];
                    let w = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0];
                    let out = e.run(vec![input(&[n, 3], &x), input(&[3, 2], &w)]).unwrap();
                    let expected: Vec<f32> = (0..n).flat_map(|_| [7.0 * t as f32, 14.0 * t as f32]).collect();
                    assert_eq!(values(&out[0]), expected);
                }
            });
        }
    });
}

#[test]
fn a_panic_in_a_kernel_is_an_error() {
    let mut p = chain();
    if let Some(Step::Kernel(k)) = p.0.steps.first_mut() {
        k.ops[2].kind = OpKind::Binary(PrimOp::Sub, OpId(0), OpId(1));
    }
    let e = exe(p).unwrap();
    let out = e.run(vec![input(&[1, 3], &[0.0; 3]), input(&[3, 2], &[0.0; 6])]);
    assert!(matches!(out, Err(RunError::Internal(m)) if m.contains("the test engine has no")));
}
