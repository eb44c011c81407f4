//! A kernel of the loop IR as launches.

use crate::Options;
use crate::body::{self, Tail};
use crate::device::Device;
use crate::emit::{Emitter, Memories, bits, block_name};
use crate::error::{Missing, Part, Unsupported, construct};
use crate::helpers;
use crate::launch::{Generated, KernelLaunch, Launch, Memory, Scratch};
use crate::normalise::normalise;
use crate::schedule::{Schedule, Scheduler, Walk};
use permalloy_ir::{DType, Device as Place, Dim, SymbolInfo, SymbolValues, contiguous_strides};
use permalloy_loops::kernel::{
    Access, Axis, AxisRole, Buffer, BufferId, BufferKind, Fused, Kernel, KernelOp, OpId, OpKind, Over,
};
use std::fmt::Write;

/// The launches of a kernel for a device.
///
/// `buffers` and `symbols` are those of the kernel's program. Errors say what the kernel needs and the device, or this
/// generator, does not have.
pub fn generate(
    kernel: &Kernel,
    buffers: &[Buffer],
    symbols: &[SymbolInfo],
    device: &'static Device,
    options: &Options,
) -> Result<Generated, Unsupported> {
    let mut g = Generator::new(buffers, symbols, device, options);
    let made = g.kernel(kernel, false);
    g.finish(&kernel.name, made)
}

/// What the launches of one step share.
pub(crate) struct Generator<'a> {
    pub buffers: Vec<Buffer>,
    /// Buffers of the program; what follows them is scratch.
    pub own: usize,
    pub hints: SymbolValues,
    pub device: &'static Device,
    pub options: &'a Options,
    pub launches: Vec<Launch>,
}

impl<'a> Generator<'a> {
    pub(crate) fn new(
        buffers: &[Buffer],
        symbols: &[SymbolInfo],
        device: &'static Device,
        options: &'a Options,
    ) -> Generator<'a> {
        let hints = permalloy_ir::hints(symbols);
        Generator { own: buffers.len(), buffers: buffers.to_vec(), hints, device, options, launches: Vec::new() }
    }

    pub(crate) fn finish(self, name: &str, made: Part<()>) -> Result<Generated, Unsupported> {
        made.map_err(|what| Unsupported { kernel: name.to_string(), what })?;
        let scratch = |b: &Buffer| Scratch { dtype: b.dtype, elements: b.shape.first().cloned().unwrap_or(Dim::ONE) };
        Ok(Generated { launches: self.launches, scratch: self.buffers[self.own..].iter().map(scratch).collect() })
    }

    /// A dense buffer of the launch's own.
    pub(crate) fn scratch(&mut self, name: &str, dtype: DType, elements: Dim) -> BufferId {
        self.buffers.push(Buffer {
            name: name.into(),
            dtype,
            device: Place::Cpu,
            shape: vec![elements],
            strides: vec![Dim::ONE],
            kind: BufferKind::Intermediate,
        });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Appends the launches of a kernel. `undivided`: no reduction is divided among programs.
    pub(crate) fn kernel(&mut self, kernel: &Kernel, undivided: bool) -> Part<()> {
        let k = normalise(kernel)?;
        self.check(&k)?;
        let scheduler =
            Scheduler { kernel: &k, device: self.device, hints: &self.hints, options: self.options, undivided };
        let schedule = scheduler.schedule()?;
        let mut tails = tails(&k, &schedule);
        let (probe_k, wide) = (&k, self.is_wide(&k));
        // How many parts there are is the schedule's alone; scratch is made before the body is written.
        for t in &mut tails {
            let memories = Memories { buffers: &self.buffers, own: self.own };
            let e = Emitter::new(probe_k, &memories, self.device, schedule.clone(), wide);
            let slots = body::slots(&e, t.folded);
            let dims = body::dims_of_values(&e)[t.reduce.0 as usize];
            if slots.is_const(1) {
                continue;
            }
            let kept = kept_axes(&schedule, dims);
            let sizes: Vec<Dim> = kept.iter().map(|a| k.axes[*a].size.clone()).collect();
            let mut strides = vec![Dim::ZERO; k.axes.len()];
            for (a, s) in kept.iter().zip(contiguous_strides(&sizes)) {
                strides[*a] = s;
            }
            t.length = Dim::product(&sizes);
            let elements = &slots * &t.length;
            let name = format!("{}_{}_slots", t.op.name(), t.reduce.0);
            let b = self.scratch(&name, t.dtype.compute(), elements);
            t.partial = Some((b, Access { offset: Dim::ZERO, strides, masks: vec![] }));
        }
        let launch = self.write(&k, &schedule, &tails, wide)?;
        let slots: Vec<Dim> = {
            let memories = Memories { buffers: &self.buffers, own: self.own };
            let e = Emitter::new(&k, &memories, self.device, schedule.clone(), wide);
            tails.iter().map(|t| body::slots(&e, t.folded)).collect()
        };
        self.launches.push(Launch::Kernel(Box::new(launch)));
        for second in second_launches(&k, &tails, &slots) {
            self.kernel(&second, true)?;
        }
        Ok(())
    }

    /// Limits of the device, and in-place updates that programs would race for.
    fn check(&self, k: &Kernel) -> Part<()> {
        let loads = k.ops.iter().filter(|o| matches!(o.kind, OpKind::Load { .. } | OpKind::LoadAt { .. })).count();
        if loads > self.device.max_loads {
            return Err(Missing::Loads { count: loads, limit: self.device.max_loads });
        }
        for op in &k.ops {
            let OpKind::Store { buffer, access, .. } = &op.kind else { continue };
            for other in &k.ops {
                let read = match &other.kind {
                    OpKind::Load { buffer: b, access: a } if b == buffer => Some(a == access),
                    OpKind::LoadAt { buffer: b, .. } if b == buffer => Some(false),
                    _ => None,
                };
                let repeated = (0..k.axes.len()).any(|a| access.strides[a].is_const(0));
                if read == Some(false) || read == Some(true) && repeated {
                    let name = &self.buffers[buffer.0 as usize].name;
                    return construct(format!("{name} is read at one place and overwritten at another"));
                }
            }
        }
        Ok(())
    }

    /// Whether some buffer, or the loops themselves, may be longer than 32 bits count.
    pub(crate) fn is_wide(&self, k: &Kernel) -> bool {
        self.options.wide_index || self.extents(k).iter().any(|d| d.eval(&self.hints).unwrap_or(i64::MAX) > LONGEST)
    }

    /// What 32-bit indices must count.
    fn extents(&self, k: &Kernel) -> Vec<Dim> {
        let mut out: Vec<Dim> =
            k.reads().into_iter().chain(k.writes()).map(|b| self.buffers[b.0 as usize].extent()).collect();
        out.push(Dim::product(k.axes.iter().map(|a| &a.size)));
        out.dedup();
        out
    }

    fn write(&self, k: &Kernel, schedule: &Schedule, tails: &[Tail], wide: bool) -> Part<KernelLaunch> {
        let memories = Memories { buffers: &self.buffers, own: self.own };
        let mut e = Emitter::new(k, &memories, self.device, schedule.clone(), wide);
        let programs = body::write(&mut e, tails)?;
        Ok(self.launch(k, schedule, e, programs, wide))
    }

    /// Source and launch description of a written body.
    pub(crate) fn launch(
        &self,
        k: &Kernel,
        schedule: &Schedule,
        e: Emitter<'_>,
        programs: Dim,
        wide: bool,
    ) -> KernelLaunch {
        let (lines, mut args, faults) = e.finish();
        // Pointers first, then sizes, each in the order of their first use.
        args.sort_by_key(|a| matches!(a.kind, crate::ArgKind::Size { .. }));
        let constants: Vec<(String, i64)> = schedule
            .dims
            .iter()
            .filter(|d| d.position.is_some())
            .map(|d| (block_name(d.name), i64::from(d.block)))
            .collect();
        let mut parameters: Vec<String> = args.iter().map(|a| a.name.clone()).collect();
        parameters.extend(constants.iter().map(|(n, _)| format!("{n}: tl.constexpr")));
        let mut body = String::new();
        // Writing to a string cannot fail.
        for line in &lines {
            let _ = writeln!(body, "    {line}");
        }
        let mut source = header(k, schedule);
        source.push_str("import triton\nimport triton.language as tl\n");
        for f in helpers::used_by(&body) {
            let _ = write!(source, "\n\n{f}\n");
        }
        let _ = write!(source, "\n\n@triton.jit\ndef {}({}):\n{body}", k.name, parameters.join(", "));
        let mut requires: Vec<(Dim, i64)> = Vec::new();
        if !wide {
            let symbolic = self.extents(k).into_iter().filter(|d| d.as_const().is_none());
            requires.extend(symbolic.map(|d| (d, LONGEST)));
        }
        KernelLaunch {
            name: k.name.clone(),
            source,
            args,
            constants,
            programs,
            num_warps: schedule.num_warps,
            num_stages: schedule.num_stages,
            requires,
            faults,
        }
    }
}

/// What a 32-bit index counts, less a block that overshoots.
const LONGEST: i64 = i32::MAX as i64 - (1 << 20);

/// Comments that say where the kernel comes from and how it is walked.
fn header(k: &Kernel, schedule: &Schedule) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let mut places: Vec<(&Fused, usize)> = Vec::new();
    for f in &k.fused {
        match places.iter_mut().find(|(g, _)| g.op == f.op && g.loc == f.loc) {
            Some((_, n)) => *n += 1,
            None => places.push((f, 1)),
        }
    }
    let _ = writeln!(out, "# {}", k.name);
    for (f, n) in places {
        let times = if n > 1 { format!(" ({n} times)") } else { String::new() };
        let loc = f.loc.as_ref().map(|l| format!("  # {}", l.replace(['\n', '\r'], " "))).unwrap_or_default();
        let _ = writeln!(out, "#   {}{times}{loc}", f.op);
    }
    for d in &schedule.dims {
        let walk = match &d.walk {
            Walk::Grid if d.position.is_none() => "one a program".to_string(),
            Walk::Grid => format!("blocks of {}, one a program", d.block),
            Walk::Whole => format!("whole, as a block of {}", d.block),
            Walk::Loop => format!("blocks of {}, in a loop", d.block),
            Walk::Divided { parts, chunk } => {
                format!("blocks of {}, in a loop over one of {parts} runs of {chunk}", d.block)
            }
        };
        let _ = writeln!(out, "# {} < {}: {walk}", d.name, d.size);
    }
    out
}

/// Axes of the kernel that dims of these bits cover.
fn kept_axes(schedule: &Schedule, dims: u32) -> Vec<usize> {
    let mut axes: Vec<usize> = bits(dims).flat_map(|d| schedule.dims[d].axes.clone()).collect();
    axes.sort_unstable();
    axes
}

/// Reductions whose results only stores read.
fn tails(k: &Kernel, schedule: &Schedule) -> Vec<Tail> {
    let mut out = Vec::new();
    for (i, op) in k.ops.iter().enumerate() {
        if let OpKind::Reduce { op: p, over: over @ (Over::Rows | Over::All), x } = op.kind {
            let folded = schedule.folded(over).iter().fold(0, |m, d| m | 1 << d);
            let reduce = OpId(i as u32);
            out.push(Tail { reduce, op: p, x, dtype: op.dtype, folded, partial: None, length: Dim::ONE });
        }
    }
    out
}

/// Kernels that add up the slots: one for all results that keep the same axes.
fn second_launches(k: &Kernel, tails: &[Tail], slots: &[Dim]) -> Vec<Kernel> {
    let mut out: Vec<(Vec<usize>, Dim, Kernel)> = Vec::new();
    for (t, n) in tails.iter().zip(slots) {
        let Some((b, access)) = &t.partial else { continue };
        let kept: Vec<usize> = (0..k.axes.len()).filter(|a| !access.strides[*a].is_const(0)).collect();
        let place = out.iter().position(|(axes, slots, _)| *axes == kept && slots == n);
        let at = place.unwrap_or_else(|| {
            let mut axes = vec![Axis { size: n.clone(), role: AxisRole::Row }];
            axes.extend(kept.iter().map(|a| Axis { size: k.axes[*a].size.clone(), role: AxisRole::Col }));
            let name =
                format!("{}_total{}", k.name, if out.is_empty() { String::new() } else { out.len().to_string() });
            let what = Fused { op: "sum of the parts of the programs before".into(), loc: None };
            out.push((kept.clone(), n.clone(), Kernel { name, axes, ops: vec![], fused: vec![what] }));
            out.len() - 1
        });
        let second = &mut out[at].2;
        let within = |access: &Access, slot: Dim| {
            let strides = std::iter::once(slot).chain(kept.iter().map(|a| access.strides[*a].clone())).collect();
            Access { offset: access.offset.clone(), strides, masks: vec![] }
        };
        let load = OpKind::Load { buffer: *b, access: within(access, t.length.clone()) };
        second.ops.push(KernelOp { kind: load, dtype: t.dtype });
        let x = OpId(second.ops.len() as u32 - 1);
        second.ops.push(KernelOp { kind: OpKind::Reduce { op: t.op, over: Over::Rows, x }, dtype: t.dtype });
        let value = OpId(second.ops.len() as u32 - 1);
        for op in &k.ops {
            if let OpKind::Store { buffer, access, value: v } = &op.kind
                && *v == t.reduce
            {
                let kind = OpKind::Store { buffer: *buffer, access: within(access, Dim::ZERO), value };
                second.ops.push(KernelOp { kind, dtype: op.dtype });
            }
        }
    }
    out.into_iter().map(|(_, _, k)| k).collect()
}

/// What a buffer, or scratch, is to the run time.
pub(crate) fn memory_of(g: &Generator<'_>, b: BufferId) -> Memory {
    let at = b.0 as usize;
    if at >= g.own { Memory::Scratch(at - g.own) } else { Memory::Buffer(b) }
}

/// Memory that a launch zeroes before it adds to it.
pub(crate) fn zero(g: &Generator<'_>, b: BufferId) -> Launch {
    Launch::Zero(memory_of(g, b))
}
