//! Nanoseconds per element of the memory-bound kernels of training steps, beside a copy of the same bytes.
//!
//! `cargo run --release -p permalloy-cpu --example rows [name]`: kernels whose name contains it

#[path = "../tests/support/mod.rs"]
mod support;

use permalloy_cpu::isa::IsaLevel;
use permalloy_cpu::{Serial, compile_kernel};
use permalloy_ir::DType;
use std::time::Instant;
use support::build::{Case, Rng};
use support::models::*;

fn best_of(mut f: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.4 {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn time(name: &str, elements: usize, case: &Case) {
    if std::env::args().nth(1).is_some_and(|part| !name.contains(&part)) {
        return;
    }
    let k = compile_kernel(&case.kernel, &case.buffers, &case.symbols, IsaLevel::detect()).expect("compiles");
    let mut buffers = case.fill(&mut Rng(1));
    // Memory as an allocator of tensors gives it: at cache lines.
    let mut p: Vec<*mut u8> = Vec::new();
    for b in &mut buffers {
        let n = b.len();
        b.resize(n + 8, 0);
        let base = b.as_mut_ptr().cast::<u8>();
        let shift = base.align_offset(64);
        b.copy_within(..n, shift / 8);
        // SAFETY: there is room for the shift.
        p.push(unsafe { base.add(shift) });
    }
    for (b, of) in &case.alias {
        p[*b] = p[*of];
    }
    let mut scratch = vec![0u64; k.scratch_bytes() / 8 + 16];
    let scratch = scratch.as_mut_ptr().cast::<u8>();
    // SAFETY: each buffer has the memory its shape spans.
    let best = best_of(|| unsafe { k.run(&p, scratch.add(scratch.align_offset(64)), &Serial) }.expect("runs"));
    let bytes = k.bytes_read() + k.bytes_written();
    let (from, mut to) = (vec![1u64; bytes / 16], vec![2u64; bytes / 16]);
    let copy = best_of(|| to.copy_from_slice(std::hint::black_box(&from)));
    println!(
        "{name:32} {:8.1} us {:7.3} ns/element, {:4.1} GB/s, time/copy {:5.2}, {} tasks",
        best * 1e6,
        best * 1e9 / elements as f64,
        bytes as f64 / best / 1e9,
        best / copy,
        k.tasks()
    );
}

fn main() {
    let d = DType::F32;
    for (rows, cols) in [(2048, 128), (64, 1024), (256, 1024), (4096, 1024)] {
        time(&format!("softmax {rows}x{cols}"), rows * cols, &softmax(rows, cols, d));
    }
    time("cross-entropy 64x4096", 64 * 4096, &cross_entropy(64, 4096, d));
    for (rows, cols) in [(64, 1024), (256, 1024), (2048, 768), (2048, 1024), (4096, 1024)] {
        time(&format!("layer norm {rows}x{cols}"), rows * cols, &layer_norm(rows, cols, d));
        time(&format!("layer norm bwd {rows}x{cols}"), rows * cols, &layer_norm_backward(rows, cols, d));
    }
    for n in [1 << 18, 1 << 22] {
        time(&format!("adamw {n}"), n, &adamw(n, false));
        time(&format!("adamw in place {n}"), n, &adamw(n, true));
    }
    time("bias+gelu 256x1024", 256 * 1024, &gelu(256, 1024, d));
}
