//! The statements of a random graph.

use crate::generate::{FLOATS, Gen, INTS};
use permalloy_ir::{Arg, Builder, DType, Dim, PrimKind, PrimOp, TensorType, ValueId, contiguous_strides};

impl Gen {
    pub fn statement(&mut self) {
        match self.rng.below(40) {
            0..7 => self.unary(),
            7..13 => self.binary(),
            13..15 => self.compare(),
            15..17 => self.select(),
            17..18 => self.cast(),
            18..29 => {
                let x = self.any();
                let y = self.view(x);
                // Chains of views are where the index arithmetic is.
                if self.rng.once_in(2) {
                    let y = self.view(y);
                    self.view(y);
                }
            }
            29..33 => self.reduce(),
            33..36 => self.indexed(),
            36 => self.normalise(),
            37..39 => self.product(),
            _ => {
                let n = self.size();
                if n.as_const() != Some(0) || self.rng.once_in(2) {
                    self.b().iota(n);
                }
            }
        }
    }

    fn unary(&mut self) {
        let x = self.any();
        let dtype = self.graph.dtype(x);
        if dtype == DType::Bool {
            self.b().unary(PrimOp::Not, x);
        } else if dtype.is_int() {
            let p = *self.rng.pick(&[PrimOp::Neg, PrimOp::Abs, PrimOp::Sign, PrimOp::Not, PrimOp::Floor]);
            self.b().unary(p, x);
        } else {
            let all: Vec<PrimOp> =
                PrimOp::ALL.iter().copied().filter(|p| p.kind() == PrimKind::Unary && *p != PrimOp::Not).collect();
            let usual =
                [PrimOp::Neg, PrimOp::Exp, PrimOp::Tanh, PrimOp::Sigmoid, PrimOp::Abs, PrimOp::Erf, PrimOp::Sin];
            let p = if self.rng.once_in(2) { *self.rng.pick(&usual) } else { *self.rng.pick(&all) };
            let x = match p {
                // Growth without end overflows and leaves nothing to compare.
                PrimOp::Exp | PrimOp::Exp2 | PrimOp::Expm1 | PrimOp::Sinh | PrimOp::Cosh | PrimOp::Tan => {
                    self.b().unary(PrimOp::Tanh, x)
                }
                PrimOp::Log
                | PrimOp::Log2
                | PrimOp::Log10
                | PrimOp::Sqrt
                | PrimOp::Rsqrt
                | PrimOp::Lgamma
                | PrimOp::Digamma
                    if !self.rng.once_in(4) =>
                {
                    let x = self.b().unary(PrimOp::Abs, x);
                    self.b().add_scalar(x, 0.5)
                }
                _ => x,
            };
            self.b().unary(p, x);
        }
    }

    fn binary(&mut self) {
        let x = self.any();
        let dtype = self.graph.dtype(x);
        let y = self.partner(x, dtype);
        let all: Vec<PrimOp> = PrimOp::ALL.iter().copied().filter(|p| p.kind() == PrimKind::Binary).collect();
        let usual = [PrimOp::Add, PrimOp::Mul, PrimOp::Add, PrimOp::Mul, PrimOp::Max, PrimOp::Min];
        for _ in 0..20 {
            let p = if self.rng.once_in(2) { *self.rng.pick(&usual) } else { *self.rng.pick(&all) };
            let (a, b) = if self.rng.once_in(2) { (x, y) } else { (y, x) };
            if self.b().try_prim(p, &[a, b], vec![]).is_ok() {
                return;
            }
        }
    }

    fn compare(&mut self) {
        let x = self.any();
        let dtype = self.graph.dtype(x);
        if self.rng.once_in(10) {
            let p = *self.rng.pick(&[PrimOp::IsNan, PrimOp::IsInf]);
            self.b().unary(p, x);
            return;
        }
        let y = self.partner(x, dtype);
        let p = *self.rng.pick(&[PrimOp::Eq, PrimOp::Ne, PrimOp::Lt, PrimOp::Le, PrimOp::Gt, PrimOp::Ge]);
        self.b().prim(p, &[x, y], vec![]);
    }

    fn select(&mut self) {
        let x = self.any();
        let dtype = self.graph.dtype(x);
        let (c, y) = (self.partner(x, DType::Bool), self.partner(x, dtype));
        let c = if self.graph.dtype(c) == DType::Bool { c } else { self.b().cast(c, DType::Bool) };
        self.b().prim(PrimOp::Where, &[c, x, y], vec![]);
    }

    fn cast(&mut self) {
        let x = self.any();
        let to = if self.rng.once_in(3) { *self.rng.pick(&INTS) } else { *self.rng.pick(&FLOATS) };
        self.b().cast(x, to);
    }

    fn view(&mut self, x: ValueId) -> ValueId {
        let shape = self.graph.shape(x).to_vec();
        let rank = shape.len();
        let made = match self.rng.below(10) {
            0 | 1 => {
                let to = self.regrouped(&shape);
                self.b().reshape(x, &to)
            }
            2 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                self.rng.shuffle(&mut perm);
                self.b().permute(x, &perm)
            }
            3 | 4 => {
                // A new dim, or one of size 1, repeats.
                let mut from = shape.clone();
                if !from.iter().any(|n| n.is_const(1)) || self.rng.once_in(2) {
                    from.insert(self.rng.below(rank + 1), Dim::ONE);
                }
                let to: Vec<Dim> = from
                    .iter()
                    .map(|n| if n.is_const(1) && !self.rng.once_in(3) { self.size() } else { n.clone() })
                    .collect();
                if !self.fits(&to) {
                    return x;
                }
                let x = self.b().reshape(x, &from);
                self.b().expand(x, &to)
            }
            5 if rank > 0 => self.slice(x),
            6 if rank > 0 => {
                let dims: Vec<i64> = (0..rank as i64).filter(|_| self.rng.once_in(2)).collect();
                self.b().prim(PrimOp::Flip, &[x], vec![("dims", Arg::ints(dims))])
            }
            7 if rank > 0 => {
                let mut amounts = || -> Vec<Dim> {
                    (0..rank)
                        .map(|_| if self.rng.once_in(3) { Dim::from(1 + self.rng.below(2) as i64) } else { Dim::ZERO })
                        .collect()
                };
                let (low, high) = (amounts(), amounts());
                let to: Vec<Dim> = (0..rank).map(|d| &(&shape[d] + &low[d]) + &high[d]).collect();
                if !self.fits(&to) {
                    return x;
                }
                self.b().pad(x, &low, &high)
            }
            8 if rank > 0 => self.concat(x),
            9 => {
                let before = self.any();
                self.b().prim(PrimOp::After, &[x, before], vec![])
            }
            _ => x,
        };
        debug_assert_eq!(self.graph.dtype(made), self.graph.dtype(x));
        made
    }

    /// The same elements in other dims: neighbours merge, constants split, ones come and go.
    fn regrouped(&mut self, shape: &[Dim]) -> Vec<Dim> {
        let mut to: Vec<Dim> = shape.to_vec();
        for _ in 0..1 + self.rng.below(3) {
            match self.rng.below(3) {
                0 if to.len() > 1 => {
                    let d = self.rng.below(to.len() - 1);
                    let merged = &to[d] * &to[d + 1];
                    to.splice(d..d + 2, [merged]);
                }
                1 if !to.is_empty() => {
                    let d = self.rng.below(to.len());
                    let factors: Vec<i64> = [2, 3, 4, 5].into_iter().filter(|f| divides(&to[d], *f)).collect();
                    let sizes: Vec<Dim> = self.sizes.iter().filter(|s| splits(&to[d], s)).cloned().collect();
                    if !sizes.is_empty() && self.rng.once_in(2) {
                        let f = self.rng.pick(&sizes).clone();
                        let rest = to[d].div_exact(&f).expect("a size that splits divides");
                        to.splice(d..=d, if self.rng.once_in(2) { [f, rest] } else { [rest, f] });
                    } else if !factors.is_empty() {
                        let f = Dim::from(*self.rng.pick(&factors));
                        let rest = to[d].div_exact(&f).expect("a factor divides");
                        to.splice(d..=d, if self.rng.once_in(2) { [f, rest] } else { [rest, f] });
                    }
                }
                _ => match to.iter().position(|n| n.is_const(1)) {
                    Some(d) if self.rng.once_in(2) => {
                        to.remove(d);
                    }
                    _ if to.len() < 6 => to.insert(self.rng.below(to.len() + 1), Dim::ONE),
                    _ => {}
                },
            }
        }
        if to.len() <= 6 { to } else { shape.to_vec() }
    }

    fn slice(&mut self, x: ValueId) -> ValueId {
        let d = self.rng.below(self.graph.shape(x).len());
        let size = self.graph.shape(x)[d].clone();
        let least = self.least(&size);
        let start = self.rng.below(least as usize + 1) as i64;
        let back = self.rng.below((least - start) as usize + 1) as i64;
        let step = 1 + self.rng.below(3) as i64;
        let (start, end) = match size.as_const() {
            Some(n) => (Dim::from(start), Dim::from(n - back)),
            None => (Dim::from(start), &size - &Dim::from(back)),
        };
        self.b().slice(x, d, &start, &end, step)
    }

    fn concat(&mut self, x: ValueId) -> ValueId {
        let shape = self.graph.shape(x).to_vec();
        let d = self.rng.below(shape.len());
        let mut parts = vec![x];
        let dtype = self.graph.dtype(x);
        let fitting = self.all(|t| {
            t.dtype == dtype && t.rank() == shape.len() && (0..shape.len()).all(|i| i == d || t.shape[i] == shape[i])
        });
        for _ in 0..1 + self.rng.below(2) {
            let y = self.choose(&fitting).unwrap_or(x);
            let place = self.rng.below(parts.len() + 1);
            parts.insert(place, y);
        }
        let total = parts.iter().fold(Dim::ZERO, |sum, p| &sum + &self.graph.shape(*p)[d]);
        let mut to = shape;
        to[d] = total;
        if self.fits(&to) { self.b().concat(&parts, d) } else { x }
    }

    fn reduce(&mut self) {
        let x = self.any();
        let rank = self.graph.shape(x).len();
        let dtype = self.graph.dtype(x);
        let dims: Vec<i64> = match self.rng.below(4) {
            0 => (0..rank as i64).collect(),
            1 if rank > 0 => vec![self.rng.below(rank) as i64],
            _ => (0..rank as i64).filter(|_| self.rng.once_in(2)).collect(),
        };
        let keep = self.rng.once_in(3);
        let p = if dtype == DType::Bool {
            *self.rng.pick(&[PrimOp::Any, PrimOp::All, PrimOp::Amax, PrimOp::Amin])
        } else {
            *self.rng.pick(&[PrimOp::Sum, PrimOp::Sum, PrimOp::Sum, PrimOp::Amax, PrimOp::Amin, PrimOp::Prod])
        };
        if rank > 0 && self.rng.once_in(6) {
            let d = self.rng.below(rank);
            if self.least(&self.graph.shape(x)[d]) == 0 {
                return;
            }
            let p = *self.rng.pick(&[PrimOp::Argmax, PrimOp::Argmin]);
            self.b().reduce(p, x, &[d as i64], keep);
            return;
        }
        self.b().reduce(p, x, &dims, keep);
    }

    /// Softmax or layer norm over trailing dims.
    fn normalise(&mut self) {
        let x = self.float();
        let shape = self.graph.shape(x).to_vec();
        let rank = shape.len() as i64;
        if rank == 0 {
            return;
        }
        let dims: Vec<i64> =
            if self.rng.once_in(3) { vec![self.rng.below(rank as usize) as i64] } else { vec![rank - 1] };
        let softmax = self.rng.once_in(2);
        let count = dims.iter().fold(Dim::ONE, |n, d| &n * &shape[*d as usize]);
        let mut b = self.b();
        if softmax {
            let top = b.reduce(PrimOp::Amax, x, &dims, true);
            let x = b.sub(x, top);
            let e = b.unary(PrimOp::Exp, x);
            let total = b.sum(e, &dims, true);
            b.div(e, total);
        } else {
            let dtype = b.dtype(x);
            let n = b.full(Arg::Int(count), &[], dtype);
            let total = b.sum(x, &dims, true);
            let mean = b.div(total, n);
            let centred = b.sub(x, mean);
            let square = b.mul(centred, centred);
            let total = b.sum(square, &dims, true);
            let var = b.div(total, n);
            let var = b.add_scalar(var, 0.01);
            let rstd = b.unary(PrimOp::Rsqrt, var);
            b.mul(centred, rstd);
        }
    }

    /// An index below `size`, from whatever integers there are.
    fn index(&mut self, size: &Dim) -> Option<ValueId> {
        if self.least(size) == 0 {
            return None;
        }
        let ints = self.all(|t| matches!(t.dtype, DType::I64 | DType::I32));
        let v = match self.choose(&ints) {
            Some(v) => v,
            None => {
                let n = self.size();
                self.b().iota(n)
            }
        };
        let (shape, dtype) = (self.graph.shape(v).to_vec(), self.graph.dtype(v));
        let mut b = self.b();
        let limit = b.full(Arg::Int(size.clone()), &shape, dtype);
        Some(b.prim(PrimOp::Mod, &[v, limit], vec![]))
    }

    fn indexed(&mut self) {
        let x = self.any();
        let shape = self.graph.shape(x).to_vec();
        if shape.is_empty() {
            return;
        }
        let d = self.rng.below(shape.len());
        match self.rng.below(4) {
            0 => {
                let Some(i) = self.index(&shape[d]) else { return };
                let mut to = shape.clone();
                to.splice(d..=d, self.graph.shape(i).to_vec());
                if self.fits(&to) {
                    self.b().take(x, i, d);
                }
            }
            1 => {
                let Some(i) = self.index(&shape[d]) else { return };
                let i = self.stretched(i, &shape, d);
                self.b().gather(x, i, d);
            }
            2 if self.graph.dtype(x) != DType::Bool => {
                let size = self.size();
                let Some(i) = self.index(&size) else { return };
                let i = self.stretched(i, &shape, d);
                let mut to = shape.clone();
                to[d] = size.clone();
                if self.fits(&to) {
                    self.b().scatter_sum(x, i, d, size);
                }
            }
            3 if self.graph.dtype(x) != DType::Bool => {
                let size = self.size();
                let Some(i) = self.index(&size) else { return };
                let part = self.graph.shape(i).to_vec();
                let at: Vec<usize> = (0..=shape.len().saturating_sub(part.len()))
                    .filter(|d| d + part.len() <= shape.len() && shape[*d..d + part.len()] == part)
                    .collect();
                let (i, d, rank) = match at.as_slice() {
                    [] => (self.stretched(i, &shape[d..=d], 0), d, 1),
                    at => (i, *self.rng.pick(at), part.len()),
                };
                let mut to = shape.clone();
                to.splice(d..d + rank, [size.clone()]);
                if self.fits(&to) {
                    self.b().index_sum(x, i, d, size);
                }
            }
            _ => {}
        }
    }

    /// The index repeated or cut to `shape`, free along `d`.
    fn stretched(&mut self, i: ValueId, shape: &[Dim], d: usize) -> ValueId {
        if self.graph.shape(i) == shape {
            return i;
        }
        // One element of it everywhere, plus the position along `d`, kept in range by a second remainder.
        let rank = self.graph.shape(i).len() as i64;
        let (dtype, limit) = (self.graph.dtype(i), self.limit_of(i));
        let mut b = Builder::new(&mut self.graph);
        let all: Vec<i64> = (0..rank).collect();
        let one = b.reduce(PrimOp::Sum, i, &all, false);
        let one = b.expand(one, shape);
        let along = b.iota(shape[d].clone());
        let along = b.cast(along, dtype);
        let mut to = vec![Dim::ONE; shape.len()];
        to[d] = shape[d].clone();
        let along = b.reshape(along, &to);
        let along = b.expand(along, shape);
        let sum = b.add(one, along);
        let limit = b.full(limit, shape, dtype);
        b.prim(PrimOp::Mod, &[sum, limit], vec![])
    }

    /// The divisor of the remainder that made an index.
    fn limit_of(&self, i: ValueId) -> Arg {
        let divisor = self.graph.producer(i).and_then(|n| n.operand(1)).and_then(|v| self.graph.producer(v));
        divisor.and_then(|n| n.kwarg("value").cloned()).unwrap_or(Arg::Int(Dim::ONE))
    }

    fn product(&mut self) {
        let wide = self.all(|t| matches!(t.dtype, DType::F32 | DType::F64) && (t.rank() == 2 || t.rank() == 3));
        let Some(a) = self.choose(&wide) else { return };
        let ty = self.graph.ty(a).clone();
        let rank = ty.rank();
        let fitting = self.all(|t| {
            t.dtype == ty.dtype
                && t.rank() == rank
                && t.shape[rank - 2] == ty.shape[rank - 1]
                && t.shape[0..rank - 2] == ty.shape[0..rank - 2]
        });
        let b = match self.choose(&fitting) {
            Some(b) => b,
            None => self.b().transpose(a, -1, -2),
        };
        let mut shape = ty.shape.clone();
        shape[rank - 1] = self.graph.shape(b)[rank - 1].clone();
        if !self.fits(&shape) {
            return;
        }
        let strides = Some(contiguous_strides(&shape));
        let result = TensorType { strides, ..TensorType::new(ty.dtype, shape) };
        let name = if rank == 2 { "aten.mm.default" } else { "aten.bmm.default" };
        self.b().external(name, vec![Arg::Value(a), Arg::Value(b)], vec![Some(result)]);
    }
}

fn divides(n: &Dim, f: i64) -> bool {
    n.as_const().is_some_and(|n| n > 0) && n.div_exact(&Dim::from(f)).is_some()
}

fn splits(n: &Dim, s: &Dim) -> bool {
    !s.is_const(0) && !n.is_const(0) && !s.is_const(1) && n != s && n.div_exact(s).is_some()
}
