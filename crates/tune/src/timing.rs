//! How long executables take on arguments made up for them.

use permalloy_ir::{DType, Graph, Input, TensorType};
use permalloy_passes::IsolatedCall;
use permalloy_runtime::provider::Provider;
use permalloy_runtime::upload::{upload, wait_for};
use permalloy_runtime::{Executable, RunInput, RunOutput, TensorHandle};
use std::time::{Duration, Instant};

/// Bytes of operands and results above which a call is not timed: they would lie in memory beside the user's own.
pub const MOST_BYTES: i64 = 1 << 30;
/// How long all candidates of a call are timed together.
const BUDGET: Duration = Duration::from_millis(80);
/// How long where the machine has other things to do: until the two best samples of each are this close, and no worse than
/// the estimate by a factor that only waiting for a processor explains, or until this has passed.
const CLOSE: f64 = 1.1;
const FAR: f64 = 100.0;
const MOST: Duration = Duration::from_secs(1);
/// Samples of each candidate that are taken in any case, and that are enough.
const ROUNDS: std::ops::Range<usize> = 3..60;
/// A sample is as many runs as take this long: shorter ones are no matter for a clock.
const SAMPLE: Duration = Duration::from_micros(100);
/// Of the numbers.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes of all tensors of a call's graph; None where they have no number.
pub fn bytes(graph: &Graph) -> Option<i64> {
    graph.values().try_fold(0i64, |sum, (_, v)| sum.checked_add(v.ty.bytes()?))
}

/// Seconds of the fastest run of each, with the same arguments. `expected` are seconds by the cost model.
///
/// They run in turn, so that what disturbs the machine disturbs all, and on a thread of its own: what the compiling thread has
/// in force (PyTorch's fake tensors, say) is not in force there.
pub fn fastest(
    call: &IsolatedCall,
    candidates: &[Executable],
    expected: &[f64],
    provider: &dyn Provider,
) -> Result<Vec<f64>, String> {
    std::thread::scope(|scope| {
        let timed = scope.spawn(|| on_this_thread(call, candidates, expected, provider));
        timed.join().map_err(|_| "the run panicked".to_string())?
    })
}

fn on_this_thread(
    call: &IsolatedCall,
    candidates: &[Executable],
    expected: &[f64],
    provider: &dyn Provider,
) -> Result<Vec<f64>, String> {
    let arguments = arguments(call, provider)?;
    let run = |exe: &Executable, times: u32| -> Result<Duration, String> {
        let start = Instant::now();
        let mut last = Vec::new();
        for _ in 0..times {
            let inputs = arguments.iter().map(|t| t.share().map(RunInput::Tensor)).collect::<Result<_, _>>()?;
            last = exe.run(inputs).map_err(|e| e.to_string())?;
        }
        if let Some(RunOutput::Tensor(t)) = last.first() {
            wait_for(provider, t)?;
        }
        Ok(start.elapsed())
    };
    // The first run makes what later ones find made: threads, memory, plans of libraries.
    let mut repeats = Vec::new();
    for exe in candidates {
        let tries = [run(exe, 1)?, run(exe, 1)?, run(exe, 1)?];
        let once = tries.into_iter().min().unwrap_or(SAMPLE).max(Duration::from_nanos(1));
        repeats.push((SAMPLE.as_nanos() / once.as_nanos() + 1) as u32);
    }
    let (start, mut best) = (Instant::now(), vec![[f64::INFINITY; 2]; candidates.len()]);
    for round in 0.. {
        let settled = best.iter().zip(expected).all(|([first, second], e)| second / first < CLOSE && *first < e * FAR);
        let late = start.elapsed() > if settled { BUDGET } else { MOST };
        if (late && round >= ROUNDS.start) || (settled && round >= ROUNDS.end) {
            break;
        }
        for ((exe, times), [first, second]) in candidates.iter().zip(&repeats).zip(&mut best) {
            let sample = run(exe, *times)?.as_secs_f64() / f64::from(*times);
            (*first, *second) = (first.min(sample), second.min(first.max(sample)));
        }
    }
    Ok(best.into_iter().map(|[first, _]| first).collect())
}

fn arguments(call: &IsolatedCall, provider: &dyn Provider) -> Result<Vec<TensorHandle>, String> {
    let tensors = call.graph.inputs.iter().filter_map(|i| match i {
        Input::Tensor { value, .. } => Some(call.graph.ty(*value)),
        Input::Int(_) => None,
    });
    let mut numbers = Numbers(SEED);
    tensors.zip(&call.bounds).map(|(ty, bound)| argument(ty, *bound, provider, &mut numbers)).collect()
}

fn argument(
    ty: &TensorType,
    bound: Option<i64>,
    provider: &dyn Provider,
    numbers: &mut Numbers,
) -> Result<TensorHandle, String> {
    let sizes = |dims: &[permalloy_ir::Dim]| {
        dims.iter().map(|d| d.as_const().ok_or("a size is no number")).collect::<Result<Vec<i64>, _>>()
    };
    let shape = sizes(&ty.shape)?;
    let strides = match &ty.strides {
        Some(strides) => sizes(strides)?,
        None => sizes(&permalloy_ir::contiguous_strides(&ty.shape))?,
    };
    let reach = shape.iter().zip(&strides).map(|(n, s)| (n - 1).saturating_mul(*s)).sum::<i64>() + 1;
    let count = if shape.contains(&0) { 0 } else { usize::try_from(reach).map_err(|e| e.to_string())? };
    if count.saturating_mul(ty.dtype.size()) as i64 > MOST_BYTES {
        return Err("a view of more memory than is made up".to_string());
    }
    let mut bytes = Vec::with_capacity(count * ty.dtype.size());
    for _ in 0..count {
        let n = numbers.next();
        let below = |bound: Option<i64>| (n >> 1) % bound.unwrap_or(1).max(1) as u64;
        // Floats lie in [0.5, 1): in the domain of roots and logarithms, a probability too, never a denormal.
        match ty.dtype {
            DType::F64 => bytes.extend((0x3fe0_0000_0000_0000 | n >> 12).to_le_bytes()),
            DType::F32 => bytes.extend((0x3f00_0000 | (n >> 41) as u32).to_le_bytes()),
            DType::F16 => bytes.extend((0x3800 | (n >> 54) as u16).to_le_bytes()),
            DType::BF16 => bytes.extend((0x3f00 | (n >> 57) as u16).to_le_bytes()),
            DType::I64 => bytes.extend(below(bound).to_le_bytes()),
            DType::I32 => bytes.extend((below(bound) as u32).to_le_bytes()),
            DType::Bool => bytes.push((n >> 63) as u8),
            other => return Err(format!("no arguments of {other}")),
        }
    }
    upload(provider, ty.dtype, &shape, &strides, &bytes)
}

/// xorshift64*
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
