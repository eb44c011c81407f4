//! Runs fused micro-ops on one tile.

use super::{Fused, Instr, LANES, Source, run, sum};
use crate::access::Span;
use crate::class::Class;
use crate::exec::Worker;
use crate::fold::{self, Join};
use permalloy_ir::PrimOp;

impl Worker<'_> {
    /// Runs a fused micro-op.
    ///
    /// # Safety
    /// As [`Worker::exec`].
    pub(crate) unsafe fn fused(&mut self, f: &Fused, span: Span, chunk: usize) {
        let (no, ni) = (span.outer.1, span.inner.1);
        let mut code = std::mem::take(&mut self.code);
        code.clear();
        // SAFETY: places lie in the registers, sums of rows are as long as a range; operands are as long as their shapes say.
        unsafe {
            for m in &f.outs {
                self.values[m.dst] = self.target(m, span, chunk);
            }
            for step in &f.steps {
                let mut prim = PrimOp::Neg;
                let (at, row, col) = match step.source {
                    Source::None => (self.register(f.scratch), 0, 0),
                    Source::Prim(p) => {
                        prim = p;
                        (self.register(f.scratch), 0, 0)
                    }
                    Source::Slot(s) => {
                        let x = self.operand(s, span);
                        (x.at.cast_mut(), x.o, x.i)
                    }
                    Source::Scratch(b) => (self.register(f.scratch + b * LANES * 4), 0, 0),
                    Source::Out(k) => (self.values[f.outs[k].dst].cast_mut(), ni, 1),
                    Source::Lanes(k) => (self.register(f.lanes + k * 256), 0, 0),
                    Source::Rows(acc) => (self.states[acc].part.add((span.inner.0 - self.first_col) * 4), 0, 1),
                };
                code.push(Instr { op: step.op, prim, at: at.cast(), row, col });
            }
            let (rows, n) = if f.flat { (1, no * ni) } else { (no, ni) };
            let call = self.register(f.call).cast();
            for row in 0..rows {
                for (k, (_, join)) in f.sums.iter().enumerate() {
                    let start = if *join == Join::Max { f32::NEG_INFINITY } else { 0.0 };
                    let lanes = self.register(f.lanes + k * 256).cast::<[f32; 64]>();
                    lanes.write([start; 64]);
                }
                run(&code, row, n, call);
                for (k, (acc, join)) in f.sums.iter().enumerate() {
                    let lanes = self.register(f.lanes + k * 256).cast::<f32>();
                    let total = self.register(self.program.col_accs[*acc].value_at);
                    if *join == Join::Max {
                        let (top, tmp) = (self.register(self.program.spare_row), std::ptr::null_mut());
                        fold::inner(self.level, Class::F32, *join, lanes.cast(), (1, 64), top, tmp);
                        fold::merge(self.level, Class::F32, *join, total.add(row * 4), top, 1);
                    } else {
                        let total = total.cast::<f64>().add(row);
                        total.write(total.read() + f64::from(sum(lanes)));
                    }
                }
            }
        }
        self.code = code;
    }
}
