//! All phases of a kernel as one function that finishes a row before it begins the next.
//!
//! Phase by phase, a tile of many rows leaves the first-level cache between phases, and a tile of few costs more to set up
//! than to compute. In one function the phases of a row follow each other with what the row needs in that cache, and what a
//! reduction finds goes to the next phase without leaving the loop. What only later kernels read, such as the mean that a
//! layer norm stores, is done for the tile afterwards.

use super::emit::{Section, emit};
use super::exec::LANES;
use super::fuse::{fresh, operands, take};
use super::lanes::{Lane, Op, Type, Value, has_binary, has_unary};
use super::{Argument, Fused, Width};
use crate::class::Class;
use crate::fold::Join;
use crate::layout::Layout;
use crate::program::{Kind, Micro, Phase, Place, Program, Shape, Slot};

/// Rows by which what is read is asked for in advance, and what is written.
const AHEAD: usize = 2;
const AHEAD_WRITTEN: usize = 1;

/// The programs of the fused micro-ops, by their entry.
pub(super) type Made = Vec<(usize, Vec<Lane>)>;

/// A section being collected.
#[derive(Default)]
struct Part {
    lanes: Vec<Lane>,
    once: bool,
}

impl Part {
    fn push(&mut self, op: Op) -> Value {
        self.lanes.push(Lane { op, ty: Type::F32 });
        self.lanes.len() - 1
    }
}

struct Chain<'a> {
    /// As it was before anything was fused, and as it is.
    before: &'a Program,
    program: &'a mut Program,
    layout: &'a Layout,
    made: &'a Made,
    parts: Vec<Part>,
    arguments: Vec<Argument>,
    outs: Vec<Micro>,
    /// Column accumulators in order of their lanes.
    sums: Vec<(usize, Join)>,
    /// What comes before the function: row-level ops and loads; and after it.
    first: Vec<Micro>,
    loads: Vec<Micro>,
    after: Vec<Micro>,
}

/// Makes one phase of all, whose function takes the place of theirs in `bytes`. `before` is the program before anything was fused. None,
/// and nothing is changed, where the phases do not fit.
pub(super) fn chain(
    program: &mut Program,
    before: &Program,
    layout: &Layout,
    width: Width,
    made: &Made,
    bytes: &mut Vec<u8>,
) -> Option<()> {
    let bodies = program.phases.iter().filter(|p| !p.body.is_empty()).count();
    if bodies < 2 || layout.rows_inner || layout.cols.total > layout.col_block {
        return None;
    }
    let phases = program.phases.clone();
    let mut chained = program.clone();
    let mut c = Chain {
        before,
        program: &mut chained,
        layout,
        made,
        parts: Vec::new(),
        arguments: Vec::new(),
        outs: Vec::new(),
        sums: Vec::new(),
        first: Vec::new(),
        loads: Vec::new(),
        after: Vec::new(),
    };
    let needed = needed(&phases, before);
    for (p, phase) in phases.iter().enumerate() {
        if p == 0 {
            c.first.extend(phase.rows.iter().cloned());
        } else {
            c.rows(p, &needed)?;
        }
        for m in &phase.body {
            c.body(m)?;
        }
    }
    let lanes = take(c.program, c.sums.len() * layout.row_block * LANES);
    let sections: Vec<Section<'_>> = c.parts.iter().map(|p| Section { lanes: &p.lanes, once: p.once }).collect();
    let (code, streaming) = emit(&sections, c.arguments.len(), width)?;
    // The functions of the phases themselves have no callers any more; those of the first row-level ops come before them.
    let entry = phases.iter().flat_map(|p| &p.body).filter_map(|m| m.fused()).map(|f| f.entry).min()?;
    let streaming = streaming.map(|s| entry + s);
    // What its reductions find stays in the function.
    let sums = Vec::new();
    let fused = Fused { entry, streaming, arguments: c.arguments, outs: c.outs, sums, flat: false, lanes };
    let kind = Kind::Fused(Box::new(fused));
    let fused = Micro { kind, dst: usize::MAX, at: Place::default(), direct: None };
    let body = [c.loads, vec![fused], c.after].concat();
    chained.phases = vec![Phase { rows: c.first, accs: Vec::new(), body }];
    *program = chained;
    bytes.truncate(entry);
    bytes.extend(code);
    Some(())
}

/// Slots that the bodies read, and the row-level values these are made of.
fn needed(phases: &[Phase], before: &Program) -> Vec<Slot> {
    let mut needed: Vec<Slot> = Vec::new();
    for f in phases.iter().flat_map(|p| &p.body).filter_map(|m| m.fused()) {
        needed.extend(f.arguments.iter().filter_map(|a| if let Argument::Slot(s) = a { Some(*s) } else { None }));
    }
    for m in before.phases.iter().rev().flat_map(|p| p.rows.iter().rev()) {
        if needed.contains(&m.dst) {
            needed.extend(operands(m).into_iter().flatten());
        }
    }
    needed
}

impl Chain<'_> {
    fn argument(&mut self, a: Argument) -> usize {
        match self.arguments.iter().position(|x| *x == a) {
            Some(at) => at,
            None => {
                self.arguments.push(a);
                self.arguments.len() - 1
            }
        }
    }

    /// A load at a place that nothing else uses, so that it can come before all.
    fn load(&mut self, m: &Micro, row: bool) {
        let list = if row { &self.first } else { &self.loads };
        if list.iter().any(|x| x.dst == m.dst) {
            return;
        }
        let m = Micro { at: fresh(self.program, self.layout, m), ..m.clone() };
        if row { self.first.push(m) } else { self.loads.push(m) }
    }

    fn is_f32(&self, s: Slot) -> bool {
        self.program.slots[s].class == Class::F32
    }

    /// The row-level ops of a phase other than the first: those that a body needs become a section.
    fn rows(&mut self, phase: usize, needed: &[Slot]) -> Option<()> {
        let list = &self.before.phases[phase].rows;
        let mut part = Part { once: true, ..Part::default() };
        let mut values: Vec<(usize, Value)> = Vec::new();
        for (at, m) in list.iter().enumerate() {
            let v = match m.kind {
                Kind::Load { .. } => {
                    self.load(m, true);
                    continue;
                }
                Kind::FinishCols(acc) if self.is_f32(m.dst) => {
                    let at = self.sums.iter().position(|s| s.0 == acc)?;
                    let p = self.argument(Argument::Lanes(at));
                    part.push(Op::Total(self.sums[at].1, p))
                }
                Kind::FinishCols(_) => return None,
                _ if needed.contains(&m.dst) => self.operation(m, &values, list, &mut part)?,
                _ => {
                    self.after.push(m.clone());
                    continue;
                }
            };
            values.push((at, v));
        }
        for (at, v) in &values {
            let m = &list[*at];
            let inside = |p: usize, i: usize| p == phase && values.iter().any(|v| v.0 == i);
            let wanted = self.before.phases.iter().enumerate().any(|(p, x)| {
                let rows = x.rows.iter().enumerate().any(|(i, r)| !inside(p, i) && operands(r).contains(&Some(m.dst)));
                rows || x.body.iter().any(|r| operands(r).contains(&Some(m.dst)))
            });
            if wanted {
                let p = self.out(m.clone(), false);
                part.push(Op::Save(p, *v));
            }
        }
        if !values.is_empty() {
            self.parts.push(part);
        }
        Some(())
    }

    /// A row-level op on f32, of which there are instructions.
    fn operation(&mut self, m: &Micro, values: &[(usize, Value)], list: &[Micro], part: &mut Part) -> Option<Value> {
        if !self.is_f32(m.dst) || !operands(m).into_iter().flatten().all(|s| self.is_f32(s)) {
            return None;
        }
        let mut of = |c: &mut Self, s: Slot| match values.iter().find(|(at, _)| list[*at].dst == s) {
            Some((_, v)) => *v,
            None => {
                let op = c.outside(s);
                part.push(op)
            }
        };
        let op = match m.kind {
            Kind::Unary(op, x) if has_unary(op, Type::F32) => Op::Unary(op, of(self, x)),
            Kind::Binary(op, a, b) if has_binary(op, Type::F32) => Op::Binary(op, of(self, a), of(self, b)),
            Kind::Cast(x) if self.program.slots[m.dst].dtype == Class::F32.dtype() => return Some(of(self, x)),
            _ => return None,
        };
        Some(part.push(op))
    }

    /// Reads a row-level value that another section or something before the function makes.
    fn outside(&mut self, s: Slot) -> Op {
        if let Some(bits) = self.program.constant(s) {
            return Op::Constant(bits);
        }
        let p = self.slot(s);
        if self.program.slots[s].shape == Shape::default() { Op::Scalar(p) } else { Op::Vector(p) }
    }

    fn slot(&mut self, s: Slot) -> usize {
        let made = self.arguments.iter().position(|a| match a {
            Argument::Out(k) | Argument::Kept(k) => self.outs[*k].dst == s,
            _ => false,
        });
        made.unwrap_or_else(|| self.argument(Argument::Slot(s)))
    }

    /// A result of the function at a place of its own: one row of it if it is only `kept` for the next sections.
    fn out(&mut self, m: Micro, kept: bool) -> usize {
        let at = if kept {
            let bytes = self.layout.col_block * self.program.slots[m.dst].class.size();
            Place { offset: take(self.program, bytes), step: 0 }
        } else {
            fresh(self.program, self.layout, &m)
        };
        self.outs.push(Micro { at, ..m });
        let k = self.outs.len() - 1;
        self.argument(if kept { Argument::Kept(k) } else { Argument::Out(k) })
    }

    fn body(&mut self, m: &Micro) -> Option<()> {
        match &m.kind {
            Kind::Load { .. } => self.load(m, false),
            Kind::Recall => {}
            Kind::Store { .. } => self.after.push(m.clone()),
            Kind::Fused(f) => self.fused(f)?,
            _ => return None,
        }
        Some(())
    }

    /// A fused micro-op as a section.
    fn fused(&mut self, f: &Fused) -> Option<()> {
        let lanes = &self.made.iter().find(|(entry, _)| *entry == f.entry)?.1;
        let written = |p: usize| {
            let ahead = |l: &Lane| matches!(l.op, Op::Prefetch { argument, write: true, .. } if argument == p);
            lanes.iter().any(ahead)
        };
        let mut numbers = Vec::new();
        for (p, argument) in f.arguments.iter().enumerate() {
            numbers.push(match argument {
                Argument::Slot(s) => self.slot(*s),
                Argument::Out(k) => {
                    let m = f.outs[*k].clone();
                    let stored = |x: &Micro| matches!(x.kind, Kind::Store { value, .. } if value == m.dst);
                    let kept = !self.before.phases.iter().flat_map(|p| &p.body).any(stored);
                    self.out(m, kept)
                }
                Argument::Lanes(k) => {
                    self.sums.push(f.sums[*k]);
                    self.argument(Argument::Lanes(self.sums.len() - 1))
                }
                Argument::Ahead(memory, _) if written(p) => self.argument(Argument::Ahead(*memory, AHEAD_WRITTEN)),
                Argument::Ahead(memory, _) => self.argument(Argument::Ahead(*memory, AHEAD)),
                other => self.argument(other.clone()),
            });
        }
        let renumbered = lanes.iter().map(|l| Lane { op: l.op.with_arguments(|p| numbers[p]), ..*l });
        self.parts.push(Part { lanes: renumbered.collect(), once: false });
        Some(())
    }
}
