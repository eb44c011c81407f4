//! Runs fused micro-ops on one tile.

use super::{Argument, Fused};
use crate::access::Span;
use crate::class::Class;
use crate::exec::Worker;
use crate::fold::{self, Join};

/// Bytes of sixteen lanes.
pub(super) const LANES: usize = 64;

impl Worker<'_> {
    /// Runs a fused micro-op.
    ///
    /// # Safety
    /// As [`Worker::exec`].
    pub(crate) unsafe fn fused(&mut self, f: &Fused, span: Span, chunk: usize) {
        let Some(code) = &self.program.code else { return };
        let (no, ni) = (span.outer.1, span.inner.1);
        let (mut pointers, mut steps) = (std::mem::take(&mut self.pointers), std::mem::take(&mut self.steps));
        pointers.clear();
        steps.clear();
        // SAFETY: places lie in the registers, sums of rows are as long as a range; operands are as long as their shapes say.
        unsafe {
            for m in &f.outs {
                self.values[m.dst] = self.target(m, span, chunk);
            }
            for argument in &f.arguments {
                let (at, step) = match argument {
                    Argument::Slot(s) => {
                        let x = self.operand(*s, span);
                        (x.at.cast_mut(), (x.o * x.size) as isize)
                    }
                    Argument::Position(access) => {
                        let at = access.offset + access.outer.address(span.outer.0) + access.inner.address(span.inner.0);
                        (std::ptr::without_provenance_mut(at as usize), access.outer.flat.unwrap_or(0) as isize)
                    }
                    Argument::Out(k) => {
                        let x = self.operand(f.outs[*k].dst, span);
                        (x.at.cast_mut(), (x.o * x.size) as isize)
                    }
                    Argument::Lanes(k) => (self.register(f.lanes + k * LANES), 0),
                    Argument::Rows(acc) => (self.states[*acc].part.add((span.inner.0 - self.first_col) * 4), 0),
                };
                pointers.push(at);
                steps.push(step);
            }
            let (rows, n) = if f.flat { (1, no * ni) } else { (no, ni) };
            for row in 0..rows {
                code.call(f.entry, pointers.as_ptr(), n);
                for (k, (acc, join)) in f.sums.iter().enumerate() {
                    let lanes = self.register(f.lanes + k * LANES);
                    let total = self.register(self.program.col_accs[*acc].value_at);
                    if *join == Join::Sum {
                        let lanes = lanes.cast::<[f32; 16]>().read();
                        let halves: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
                        let quarters: [f32; 4] = std::array::from_fn(|i| halves[i] + halves[i + 4]);
                        let sum = (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]);
                        let total = total.cast::<f64>().add(row);
                        total.write(total.read() + f64::from(sum));
                    } else {
                        let (top, tmp) = (self.register(self.program.spare_row), std::ptr::null_mut());
                        fold::inner(self.level, Class::F32, *join, lanes, (1, 16), top, tmp);
                        fold::merge(self.level, Class::F32, *join, total.add(row * 4), top, 1);
                    }
                }
                for (p, step) in pointers.iter_mut().zip(&steps) {
                    *p = p.wrapping_offset(*step);
                }
            }
        }
        (self.pointers, self.steps) = (pointers, steps);
    }
}
