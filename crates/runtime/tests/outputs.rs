//! Memory of outputs and intermediates from call to call, seen through executables.

mod common;

use common::P;
use permalloy_ir::{DType, PrimOp};
use permalloy_loops::kernel::BufferKind;
use permalloy_runtime::embedded::{EmbeddedProvider, PlainTensor};
use permalloy_runtime::engine::TileEngine;
use permalloy_runtime::output_memory::output_pool;
use permalloy_runtime::{Executable, RunInput, RunOutput, TensorHandle, arena};
use std::sync::{Arc, Mutex, MutexGuard};

const N: i64 = 1 << 18; // 1 MiB of f32

/// The pools are the process's: one test at a time looks at them.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|e| e.into_inner())
}

/// `y = 2x + 1` and `z = y + y`, where `y` is an intermediate unless it is returned too.
fn exe(returns_y: bool) -> Executable {
    let mut p = P::new("outputs");
    let n = p.symbol("n", N);
    let shape = [n];
    let x = p.input("x", &shape);
    let t = p.f32("t", &shape, BufferKind::Intermediate);
    let y = p.f32("y", &shape, if returns_y { BufferKind::Output } else { BufferKind::Intermediate });
    let z = p.f32("z", &shape, BufferKind::Output);
    p.pointwise(PrimOp::Mul, t, x, Err(2.0));
    p.pointwise(PrimOp::Add, y, t, Err(1.0));
    p.pointwise(PrimOp::Add, z, y, Ok(y));
    if returns_y {
        p.returns(y);
    }
    p.returns(z);
    Executable::new(Arc::new(p.0), Arc::new(EmbeddedProvider::new(1)), Arc::new(TileEngine::new())).unwrap()
}

fn run(e: &Executable, n: i64, x: f32) -> Vec<PlainTensor> {
    let x = PlainTensor::from_values(DType::F32, &[n], &vec![x; n as usize]);
    let outputs = e.run(vec![RunInput::Tensor(TensorHandle::Plain(x))]).unwrap();
    let plain = |o| match o {
        RunOutput::Tensor(TensorHandle::Plain(t)) => t,
        other => panic!("{other:?}"),
    };
    outputs.into_iter().map(plain).collect()
}

fn all(t: &PlainTensor, value: f32) -> bool {
    t.values::<f32>().iter().all(|v| *v == value)
}

#[test]
fn memory_of_dead_outputs_is_reused_and_that_of_live_ones_is_not() {
    let _alone = alone();
    let e = exe(true);
    let held = run(&e, N, 1.0);
    let dead = run(&e, N, 2.0);
    let freed: Vec<_> = dead.iter().map(PlainTensor::data_ptr).collect();
    drop(dead);
    for i in 3..6 {
        let again = run(&e, N, i as f32);
        assert!(again.iter().all(|t| freed.contains(&t.data_ptr())));
        assert!(all(&again[0], 2.0 * i as f32 + 1.0) && all(&again[1], 4.0 * i as f32 + 2.0));
    }
    assert!(all(&held[0], 3.0) && all(&held[1], 6.0));
}

#[test]
fn a_view_of_an_output_keeps_its_memory() {
    let _alone = alone();
    let e = exe(false);
    let view = run(&e, N, 1.0)[0].view(&[4], &[1], N - 4);
    for i in 2..5 {
        drop(run(&e, N, i as f32));
        assert!(all(&view, 6.0));
    }
}

#[test]
fn outputs_outlive_the_executable_and_die_on_another_thread() {
    let _alone = alone();
    let before = (output_pool().used_bytes(), output_pool().unused_bytes());
    let e = exe(true);
    let y = run(&e, N, 1.0);
    drop(run(&e, N, 2.0));
    assert!(output_pool().unused_bytes() > before.1);
    drop(e);
    assert_eq!(output_pool().unused_bytes(), before.1, "what the executable no longer needs is given back");
    assert!(all(&y[0], 3.0) && all(&y[1], 6.0));
    std::thread::spawn(move || drop(y)).join().unwrap();
    assert_eq!((output_pool().used_bytes(), output_pool().unused_bytes()), before);
}

#[test]
fn sizes_that_change_from_run_to_run_keep_what_the_largest_needs() {
    let _alone = alone();
    let e = exe(true);
    for n in [N, 3 * N, 2 * N, N / 2, 3 * N, 5, 0, N] {
        let out = run(&e, n, 1.0);
        assert!(all(&out[0], 3.0) && all(&out[1], 6.0));
    }
    let most = 2 * 3 * N as usize * 4;
    assert!(output_pool().unused_bytes() <= most, "{} > {most}", output_pool().unused_bytes());
}

#[test]
fn intermediates_are_given_back_with_the_last_executable() {
    let _alone = alone();
    let e = exe(false);
    drop(run(&e, 4 * N, 1.0));
    assert!(arena::pool().unused_bytes() >= 4 * N as usize * 4);
    drop(e);
    assert_eq!(arena::pool().unused_bytes(), 0);
}

#[test]
fn without_the_pool_outputs_have_memory_of_the_providers() {
    let _alone = alone();
    let e = exe(true).without_pooled_outputs();
    let before = output_pool().used_bytes();
    let out = run(&e, N, 1.0);
    assert_eq!(output_pool().used_bytes(), before);
    assert!(all(&out[0], 3.0) && all(&out[1], 6.0));
}
