//! Computing a cheap value once more instead of storing it for another kernel.
//!
//! A 16-bit result is cast before a reduction, and the difference to the mean is read by the next kernel: where reading what
//! a value is made of moves no more bytes than reading the value, storing it is in vain.

use super::*;

/// Operations between a value and the memory it is made of.
const DEPTH: usize = 3;

impl Lowering<'_> {
    /// Has the node read the copy of an operand that is in a group with another operand.
    pub(super) fn beside_copies(&mut self, work: &mut Work) {
        if self.copies.is_empty() {
            return;
        }
        let unit_of = |l: &Self, base: Val| match l.infos[base].home {
            Some(Home::Group { unit, .. }) => Some(l.units.find(unit)),
            _ => None,
        };
        let bases: Vec<Val> = work.operands.iter().map(|x| self.infos[*x].base).collect();
        for (k, base) in bases.iter().enumerate() {
            let Some(copy) = self.copies.get(base).copied() else { continue };
            let unit = unit_of(self, copy);
            if unit != unit_of(self, *base) && bases.iter().any(|b| b != base && unit_of(self, *b) == unit) {
                work.operands[k] = self.over(work.operands[k], copy);
            }
        }
    }

    /// The node, reading copies of cheap operands that other groups make; None where there is none. Each copy has joined a
    /// group of its own.
    pub(super) fn with_operands_again(&mut self, work: &Work) -> Result<Option<Work>, String> {
        if !self.options.limits.recompute || !matches!(work.kind, WorkKind::Pointwise(_) | WorkKind::Reduce(..)) {
            return Ok(None);
        }
        let mut new = work.clone();
        let mut made: Vec<(Val, Val)> = Vec::new();
        for x in &mut new.operands {
            let base = self.infos[*x].base;
            let known = made.iter().find(|m| m.0 == base).map(|m| m.1);
            let again = match known {
                Some(v) => v,
                None if self.is_repeated(*x) => continue,
                None if self.is_cheap(base) => self.again(base, DEPTH)?,
                None => continue,
            };
            made.push((base, again));
            *x = self.over(*x, again);
        }
        Ok((!made.is_empty()).then_some(new))
    }

    /// Whole rows of it are read many times, so a kernel over them cannot make it beside what reads it.
    fn is_repeated(&self, x: Val) -> bool {
        let parts: Vec<&Part> = self.infos[x].view.dims.iter().flatten().filter(|p| !p.size.is_const(1)).collect();
        let first = parts.iter().position(|p| p.stride.is_const(0));
        first.is_some_and(|first| parts[first..].iter().any(|p| !p.stride.is_const(0)))
    }

    /// Made by another kernel from memory of no more bytes than itself.
    fn is_cheap(&self, base: Val) -> bool {
        let mut leaves = Vec::new();
        if !self.is_recomputable(base) || !self.leaves(base, DEPTH, &mut leaves) {
            return false;
        }
        let bytes = |v: &Val| self.elements(self.infos[*v].shape.iter()) * self.infos[*v].dtype.size() as i64;
        leaves.iter().map(bytes).sum::<i64>() <= bytes(&base) + bytes(&base) / 8
    }

    fn work_of(&self, base: Val) -> Option<&Rc<Work>> {
        let Some(Home::Group { unit, slot, .. }) = &self.infos[base].home else { return None };
        let Unit::Group(g) = &self.bodies[*unit] else { return None };
        Some(&g.slots[*slot].work)
    }

    fn is_recomputable(&self, base: Val) -> bool {
        use PrimOp::*;
        let cheap = |p: PrimOp| matches!(p, Cast | Add | Sub | Mul | Neg | Max | Min | Where | Le | Lt | Ge | Gt);
        self.work_of(base).is_some_and(|w| matches!(w.kind, WorkKind::Pointwise(p) if cheap(p)))
    }

    /// Values in memory that a value is made of; false if one may be overwritten by now.
    fn leaves(&self, base: Val, depth: usize, out: &mut Vec<Val>) -> bool {
        let leaf = match &self.infos[base].home {
            Some(Home::Const(_) | Home::Size(_) | Home::Iota) => return true,
            // Where the graph writes to inputs, old contents may be gone by now.
            Some(Home::Memory { buffer, .. }) => {
                let input = matches!(self.buffers[buffer.0 as usize].kind, BufferKind::Input(_));
                if input && !self.last_reads.is_empty() {
                    return false;
                }
                true
            }
            Some(Home::Group { .. }) => depth == 0 || !self.is_recomputable(base),
            None => return false,
        };
        if leaf {
            if !out.contains(&base) {
                out.push(base);
            }
            return true;
        }
        let Some(work) = self.work_of(base) else { return false };
        work.operands.iter().all(|x| self.leaves(self.infos[*x].base, depth - 1, out))
    }

    /// A copy of the value in a group of its own.
    fn again(&mut self, base: Val, depth: usize) -> Result<Val, String> {
        let Some(work) = self.work_of(base) else { return Ok(base) };
        let mut new = (**work).clone();
        for x in &mut new.operands {
            let below = self.infos[*x].base;
            if depth > 1 && self.is_recomputable(below) {
                let again = self.again(below, depth - 1)?;
                *x = self.over(*x, again);
            }
        }
        new.result = self.infos.len();
        self.infos.push(Info { home: None, base: new.result, ..self.infos[base].clone() });
        self.copies.insert(base, new.result);
        let (result, new) = (new.result, Rc::new(new));
        if !self.homes(&new).into_iter().rev().any(|u| self.try_join(u, &new)) {
            self.place_alone(&new)?;
        }
        Ok(result)
    }

    /// `x` as it is, over another base.
    fn over(&mut self, x: Val, base: Val) -> Val {
        if self.infos[x].base == x {
            return base;
        }
        self.infos.push(Info { base, ..self.infos[x].clone() });
        self.infos.len() - 1
    }
}
