//! Runs fused micro-ops on one tile.

use super::{Argument, Fused};
use crate::access::Span;
use crate::exec::Worker;
use crate::fold::Join;

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
                        let at =
                            access.offset + access.outer.address(span.outer.0) + access.inner.address(span.inner.0);
                        (std::ptr::without_provenance_mut(at as usize), access.outer.flat.unwrap_or(0) as isize)
                    }
                    Argument::Ahead(memory, rows) => {
                        let m = &self.program.memories[*memory];
                        let (outer, inner) = (&m.access.outer, &m.access.inner);
                        let at = m.access.offset + outer.address(span.outer.0 + rows) + inner.address(span.inner.0);
                        let size = m.dtype.size() as isize;
                        // Nothing is read there, so it may lie behind the end.
                        let first = self.buffers[m.buffer].wrapping_offset(at as isize * size);
                        (first, outer.flat.unwrap_or(0) as isize * size)
                    }
                    Argument::Out(k) => {
                        let x = self.operand(f.outs[*k].dst, span);
                        (x.at.cast_mut(), (x.o * x.size) as isize)
                    }
                    Argument::Kept(k) => (self.operand(f.outs[*k].dst, span).at.cast_mut(), 0),
                    Argument::Lanes(k) => (self.register(f.lanes + k * no * LANES), LANES as isize),
                    Argument::Rows(acc) => (self.states[*acc].part.add((span.inner.0 - self.first_col) * 4), 0),
                };
                pointers.push(at);
                steps.push(step);
            }
            let is_result = |a: &Argument| matches!(a, Argument::Out(k) if f.outs[*k].direct.is_some());
            let results = f.arguments.iter().zip(pointers.iter().zip(&steps)).filter(|(a, _)| is_result(a));
            let aligned = |(_, (p, step)): (_, (&*mut u8, &isize))| p.addr() % 64 == 0 && *step % 64 == 0;
            let entry = match f.streaming {
                Some(streaming) if results.into_iter().all(aligned) => streaming,
                _ => f.entry,
            };
            let (rows, n) = if f.flat { (1, no * ni) } else { (no, ni) };
            if rows * n > 0 {
                pointers.extend(steps.iter().map(|s| std::ptr::without_provenance_mut(*s as usize)));
                pointers.push(std::ptr::without_provenance_mut(rows));
                code.call(entry, pointers.as_mut_ptr(), n);
                for (k, (acc, join)) in f.sums.iter().enumerate() {
                    let lanes = self.register(f.lanes + k * no * LANES);
                    let total = self.register(self.program.col_accs[*acc].value_at);
                    self.join_rows(*join, (lanes, rows), total);
                }
            }
        }
        (self.pointers, self.steps) = (pointers, steps);
    }

    /// Joins what the fused code found for each row, the same in all lanes, into the row's accumulator.
    ///
    /// # Safety
    /// `found` has the lanes of so many rows, and `total` an accumulator for each: f64 for sums, otherwise f32.
    unsafe fn join_rows(&self, join: Join, (found, rows): (*const u8, usize), total: *mut u8) {
        for row in 0..rows {
            // SAFETY: by the contract.
            unsafe {
                let found = found.add(row * LANES);
                if join == Join::Sum {
                    let total = total.cast::<f64>().add(row);
                    total.write(total.read() + found.cast::<f64>().read());
                } else {
                    let (found, total) = (found.cast::<f32>().read(), total.cast::<f32>().add(row));
                    let so_far = total.read();
                    let better = if join == Join::Max { found > so_far } else { found < so_far };
                    // NaN wins.
                    total.write(if better || found.is_nan() { found } else { so_far });
                }
            }
        }
    }
}
