//! How fast fused kernels stream: GB/s beside a plain copy of as many bytes on the same thread.
//!
//! `cargo run --release -p permalloy-cpu --example bandwidth [MB …]`

#[path = "../tests/support/mod.rs"]
mod support;

use permalloy_cpu::isa::IsaLevel;
use permalloy_cpu::{Serial, compile_kernel};
use permalloy_ir::DType;
use std::time::Instant;
use support::build::Case;
use support::models::*;
use support::{memory, pointers};

fn best_of(mut f: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    for round in 0..2000 {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64());
        if begin.elapsed().as_secs_f64() > 0.6 && round >= 3 {
            break;
        }
    }
    best
}

fn time(name: &str, size: &str, case: &Case) {
    let level = IsaLevel::detect();
    let start = Instant::now();
    let k = compile_kernel(&case.kernel, &case.buffers, &case.symbols, level).expect("compiles");
    let compile = start.elapsed().as_secs_f64();
    let mut buffers = memory(&case.buffers, &case.symbols);
    for (words, b) in buffers.iter_mut().zip(&case.buffers) {
        let x = match b.dtype {
            DType::BF16 => 0x3f00_3e80_3f10_be00,
            DType::I64 => 3,
            _ => u64::from(0.3f32.to_bits()) << 32 | u64::from((-0.7f32).to_bits()),
        };
        words.fill(x);
    }
    let p = pointers(&mut buffers);
    let mut scratch = vec![0u64; k.scratch_bytes() / 8 + 16];
    let scratch = scratch.as_mut_ptr().cast::<u8>();
    // SAFETY: each buffer has the memory its shape spans.
    let best = best_of(|| unsafe { k.run(&p, scratch.add(scratch.align_offset(64)), &Serial) }.expect("runs"));
    let bytes = k.bytes_read() + k.bytes_written();
    let (from, mut to) = (vec![1u64; bytes / 16], vec![2u64; bytes / 16]);
    let copy = best_of(|| to.copy_from_slice(std::hint::black_box(&from)));
    println!(
        "{:28} {:7.1} MB {:9.1} us {:6.1} GB/s, copy {:6.1} GB/s, time/copy {:5.2}, compile {:5.1} us",
        format!("{name} {size}"),
        bytes as f64 / 1e6,
        best * 1e6,
        bytes as f64 / best / 1e9,
        (bytes / 16 * 16) as f64 / copy / 1e9,
        best / copy,
        compile * 1e6
    );
}

fn main() {
    let mut sizes: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![1, 16, 256];
    }
    time("bias+gelu f32", "512x1024", &gelu(512, 1024, DType::F32));
    for (tokens, table, width) in [(16384, 50257, 64), (16384, 10, 64), (16384, 50257, 1), (200_000, 100, 1)] {
        time_scatter(tokens, table, width, DType::F32);
        time_scatter(tokens, table, width, DType::BF16);
    }
    for mb in sizes {
        println!("--- inputs of about {mb} MB");
        for d in [DType::F32, DType::BF16] {
            let n = mb * 1024 * 1024 / d.size();
            time(&format!("add {d}"), "Nx1024", &add(n / 1024, 1024, d));
            time(&format!("bias+gelu {d}"), "Nx1024", &gelu(n / 1024, 1024, d));
            for cols in [128, 1024, 32768] {
                time(&format!("softmax {d}"), &format!("Nx{cols}"), &softmax(n / cols, cols, d));
            }
            time(&format!("layer norm {d}"), "Nx1024", &layer_norm(n / 1024, 1024, d));
            time(&format!("layer norm bwd {d}"), "Nx1024", &layer_norm_backward(n / 1024, 1024, d));
            time(&format!("column sum {d}"), "Nx1024", &column_sum(n / 1024, 1024, d));
            for cols in [16, 1024] {
                time(&format!("row sum {d}"), &format!("Nx{cols}"), &row_sum(n / cols, cols, d));
            }
            time(&format!("add transposed {d}"), "Nx1024", &add_transposed(n / 1024, 1024, d));
            time(&format!("embedding {d}"), "Nx768", &embedding(n / 768, 1000, 768, d));
        }
        let n = mb * 1024 * 1024 / 4 / 64;
        time("batch norm NCHW", "8x64xN", &batch_norm(8, 64, n / 8, false));
        time("batch norm NHWC", "8xNx64", &batch_norm(8, 64, n / 8, true));
    }
}

/// The gradient of an embedding: GB/s of what is read, and of the table written.
fn time_scatter(tokens: usize, table: usize, width: usize, dtype: DType) {
    use permalloy_ir::Dim;
    use permalloy_loops::kernel::{AxisRole, Scatter};
    let mut case = Case::new(&[(tokens as i64, AxisRole::Batch), (width as i64, AxisRole::Batch)]);
    let (src, index) = (case.dense(dtype, &[0, 1]), case.dense(DType::I64, &[0]));
    let out = case.buffer(dtype, &[table as i64, width as i64], None);
    let mut access = case.access(out, &[0, 1]);
    access.strides[0] = Dim::ZERO;
    let scatter = Scatter {
        name: "embedding gradient".into(),
        axes: case.kernel.axes.iter().map(|a| a.size.clone()).collect(),
        src,
        index,
        out: (out, access),
        stride: Dim::from(width as i64),
        size: Dim::from(table as i64),
        fused: vec![],
    };
    let s =
        permalloy_cpu::compile_scatter(&scatter, &case.buffers, &case.symbols, IsaLevel::detect()).expect("compiles");
    let mut buffers = memory(&case.buffers, &case.symbols);
    buffers[1]
        .iter_mut()
        .enumerate()
        .for_each(|(i, x)| *x = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % table as u64);
    let p = pointers(&mut buffers);
    let mut scratch = vec![0u64; s.scratch_bytes() / 8 + 16];
    let scratch = scratch.as_mut_ptr().cast::<u8>();
    // SAFETY: each buffer has the memory its shape spans.
    let best = best_of(|| unsafe { s.run(&p, scratch.add(scratch.align_offset(64)), &Serial) }.expect("runs"));
    let bytes = s.bytes_read() + s.bytes_written();
    println!(
        "embedding gradient {dtype}, {tokens} tokens into {table}x{width}: {:9.1} us {:6.1} GB/s",
        best * 1e6,
        bytes as f64 / best / 1e9
    );
}
