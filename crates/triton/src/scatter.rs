//! Scatter with summation, by atomic additions (`sorted.rs` has the other form).
//!
//! The order of additions is the device's: results may differ in the last digit from run to run. 16-bit floats are summed in
//! f32 scratch memory and rounded once.

use crate::Options;
use crate::address::{self, checked_index};
use crate::body;
use crate::device::Device;
use crate::emit::{Emitter, Memories};
use crate::error::{Missing, Part, Unsupported};
use crate::kernel::{Generator, zero};
use crate::launch::{Generated, Launch};
use crate::normalise::normalise;
use crate::schedule::Scheduler;
use crate::sorted::sorted;
use permalloy_ir::{DType, Dim, PrimOp, SymbolInfo};
use permalloy_loops::kernel::{
    Access, Axis, AxisRole, Buffer, BufferId, Fused, Kernel, KernelOp, OpId, OpKind, Scatter,
};

/// The launches of a scatter: zeroes, additions, and for 16-bit floats the rounding.
pub fn generate_scatter(
    scatter: &Scatter,
    buffers: &[Buffer],
    symbols: &[SymbolInfo],
    device: &'static Device,
    options: &Options,
) -> Result<Generated, Unsupported> {
    let mut g = Generator::new(buffers, symbols, device, options);
    let made = if options.deterministic { sorted(&mut g, scatter) } else { atomic(&mut g, scatter) };
    g.finish(&scatter.name, made)
}

fn atomic(g: &mut Generator<'_>, s: &Scatter) -> Part<()> {
    let (out, out_access) = &s.out;
    let dtype = g.buffers[out.0 as usize].dtype;
    let sums = dtype.compute();
    if !matches!(sums, DType::F32 | DType::F64 | DType::I32 | DType::I64) || g.device.forbidden_dtypes.contains(&dtype)
    {
        return Err(Missing::Operation { op: PrimOp::IndexSum, dtype });
    }
    let elements = g.buffers[out.0 as usize].extent();
    let target = if sums == dtype {
        *out
    } else {
        g.scratch(&format!("{}_f32", g.buffers[out.0 as usize].name), sums, elements.clone())
    };
    g.launches.push(zero(g, target));
    // The additions, as a kernel whose store is then written as an addition.
    let axes = s.axes.iter().map(|n| Axis { size: n.clone(), role: AxisRole::Batch }).collect();
    let load = |(b, access): &(BufferId, Access), g: &Generator<'_>| KernelOp {
        kind: OpKind::Load { buffer: *b, access: access.clone() },
        dtype: g.buffers[b.0 as usize].dtype,
    };
    let store = OpKind::Store { buffer: target, access: out_access.clone(), value: OpId(0) };
    let index_store = OpKind::Store { buffer: target, access: out_access.clone(), value: OpId(1) };
    let ops = vec![
        load(&s.src, g),
        load(&s.index, g),
        KernelOp { kind: store, dtype: sums },
        KernelOp { kind: index_store, dtype: sums },
    ];
    let k = normalise(&Kernel { name: s.name.clone(), axes, ops, fused: s.fused.clone() })?;
    let scheduler = Scheduler { kernel: &k, device: g.device, hints: &g.hints, options: g.options, undivided: true };
    let schedule = scheduler.schedule()?;
    let wide = g.is_wide(&k);
    let launch = {
        let memories = Memories { buffers: &g.buffers, own: g.own };
        let mut e = Emitter::new(&k, &memories, g.device, schedule.clone(), wide);
        let programs = body::grid(&mut e);
        additions(&mut e, &k, target, &s.stride, &s.size, sums)?;
        g.launch(&k, &schedule, e, programs, wide)
    };
    g.launches.push(Launch::Kernel(Box::new(launch)));
    if target != *out {
        g.kernel(&rounding(&s.name, target, *out, elements), true)?;
    }
    Ok(())
}

fn additions(e: &mut Emitter<'_>, k: &Kernel, target: BufferId, stride: &Dim, size: &Dim, sums: DType) -> Part<()> {
    let Some(access) = k.ops.iter().find_map(|o| match &o.kind {
        OpKind::Store { access, .. } => Some(access.clone()),
        _ => None,
    }) else {
        return crate::error::construct("a scatter without a target");
    };
    let index = e.tensor(OpId(1))?;
    let (inside, step) = checked_index(e, &index, stride, size)?;
    let value = e.tensor(OpId(0))?;
    let mut bad = e.bounds(index.dims);
    bad.push(format!("({} == 0)", inside.text));
    let message = format!("index out of range of {}", e.buffer(target).name);
    e.fault(&address::joined(&bad), index.dims, inside.depth, message);
    address::add(e, target, &access, &step, &inside, &value, (k.op(OpId(0)).dtype, sums))
}

/// Sums in the wider dtype, rounded to the output's.
fn rounding(name: &str, from: BufferId, to: BufferId, elements: Dim) -> Kernel {
    let access = Access { offset: Dim::ZERO, strides: vec![Dim::ONE], masks: vec![] };
    let ops = vec![
        KernelOp { kind: OpKind::Load { buffer: from, access: access.clone() }, dtype: DType::F32 },
        KernelOp { kind: OpKind::Store { buffer: to, access, value: OpId(0) }, dtype: DType::F32 },
    ];
    let what = Fused { op: "rounding of the sums".into(), loc: None };
    let axes = vec![Axis { size: elements, role: AxisRole::Batch }];
    Kernel { name: format!("{name}_round"), axes, ops, fused: vec![what] }
}
