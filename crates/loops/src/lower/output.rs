//! What the program returns, and in which memory.

use super::empty::is_empty;
use super::*;

impl<'g> Lowering<'g> {
    pub(super) fn outputs(&mut self) -> Result<Vec<ProgramOutput>, String> {
        self.position = u32::MAX;
        let mut done: BTreeMap<ValueId, ProgramOutput> = BTreeMap::new();
        let mut taken: BTreeSet<BufferId> = BTreeSet::new();
        let mut out = Vec::new();
        for o in &self.graph.outputs {
            out.push(match o {
                Output::None => ProgramOutput::None,
                Output::Int(d) => ProgramOutput::Int(d.clone()),
                Output::Value(v) => match done.get(v) {
                    Some(r) => r.clone(),
                    None => {
                        let r = ProgramOutput::Tensor(self.output(*v, &mut taken)?);
                        done.insert(*v, r.clone());
                        r
                    }
                },
            });
        }
        Ok(out)
    }

    /// Gives an output its own memory in the promised layout; aliases of inputs stay aliases outside of backward graphs.
    pub(super) fn output(&mut self, v: ValueId, taken: &mut BTreeSet<BufferId>) -> Result<TensorRef, String> {
        let x = v.0 as usize;
        let info = self.infos[x].clone();
        let ty = self.graph.ty(v).clone();
        let promised = self.promised(&ty, |d| self.repeats(x, d));
        match self.home(info.base)?.clone() {
            Home::Memory { buffer, .. } => {
                let kind = self.buffers[buffer.0 as usize].kind;
                let identity = info.base == x
                    || info.view.is_contiguous(&self.infos[info.base].shape)
                        && info.shape == self.infos[info.base].shape;
                let backward = self.graph.kind == GraphKind::Backward;
                let as_is =
                    self.memory_view(x, &info.view).and_then(|m| self.strides(&m).map(|s| (m.offset.clone(), s)));
                if let (BufferKind::Input(_), Some((offset, strides))) = (kind, as_is.clone())
                    && (identity || !backward)
                {
                    // Strides of size-1 dims say nothing, but code after the call may read them: give back what was promised.
                    let raw = ty.strides.unwrap_or_else(|| contiguous_strides(&ty.shape));
                    let strides =
                        if same_strides(&ty.shape, &raw, &strides) { raw } else { natural_strides(&ty.shape, strides) };
                    return Ok(TensorRef { buffer, shape: ty.shape, strides, offset });
                }
                // A view of all that a step makes is returned as one, when no other output shares the memory.
                if let (BufferKind::Native | BufferKind::Intermediate, Some((offset, strides))) = (kind, as_is)
                    && self.shows_all(x)
                    && offset.is_const(0)
                    && same_strides(&ty.shape, &promised, &strides)
                    && !taken.contains(&buffer)
                {
                    taken.insert(buffer);
                    if kind == BufferKind::Intermediate {
                        self.buffers[buffer.0 as usize].kind = BufferKind::Output;
                    }
                    return Ok(TensorRef { buffer, shape: ty.shape, strides: promised, offset });
                }
                let strides = self.buffers[buffer.0 as usize].strides.clone();
                if kind == BufferKind::Native
                    && identity
                    && same_strides(&ty.shape, &promised, &strides)
                    && !taken.contains(&buffer)
                {
                    taken.insert(buffer);
                    return Ok(TensorRef { buffer, shape: ty.shape, strides, offset: Dim::ZERO });
                }
                if kind == BufferKind::Intermediate
                    && identity
                    && same_strides(&ty.shape, &promised, &contiguous_strides(&ty.shape))
                    && !taken.contains(&buffer)
                {
                    taken.insert(buffer);
                    self.buffers[buffer.0 as usize].kind = BufferKind::Output;
                    return Ok(TensorRef { buffer, shape: ty.shape, strides: promised, offset: Dim::ZERO });
                }
            }
            Home::Group { .. }
                if self.shows_all(x)
                    && info.view.offset.is_const(0)
                    && info.view.as_strided().is_some_and(|(_, s)| same_strides(&ty.shape, &promised, &s)) =>
            {
                let buffer = self.buffer_of(info.base).ok_or("an output has no buffer")?;
                if !taken.contains(&buffer) {
                    taken.insert(buffer);
                    self.buffers[buffer.0 as usize].kind = BufferKind::Output;
                    return Ok(TensorRef { buffer, shape: ty.shape, strides: promised, offset: Dim::ZERO });
                }
            }
            _ => {}
        }
        self.output_copy(x, &ty, promised)
    }

    /// Whether a value is the same for each index of a dim, as its view tells.
    fn repeats(&self, x: Val, d: usize) -> bool {
        let info = &self.infos[x];
        info.base != x && info.view.dims[d].iter().all(|p| p.stride.is_const(0) && p.mask.is_none())
    }

    /// Strides for a fresh tensor of that type: those promised, if each element has an address of its own. Dims that
    /// repeat may have stride 0. PyTorch promises more than that (and than eager keeps) where it writes into a copy of
    /// an expanded tensor.
    pub(super) fn promised(&self, ty: &TensorType, repeats: impl Fn(usize) -> bool) -> Vec<Dim> {
        let dense = || contiguous_strides(&ty.shape);
        let Some(strides) = &ty.strides else { return dense() };
        let eval = |d: &Dim| d.eval(&self.hints).unwrap_or(0);
        // Of no elements by hint, nothing can be told.
        if ty.shape.iter().any(|n| eval(n) == 0) {
            return strides.clone();
        }
        let mut dims: Vec<(i64, i64)> = (0..ty.rank())
            .filter(|d| !(strides[*d].is_const(0) && repeats(*d)))
            .map(|d| (eval(&strides[d]), eval(&ty.shape[d])))
            .filter(|(_, n)| *n != 1)
            .collect();
        dims.sort_unstable();
        let mut reach = 0;
        for (stride, n) in dims {
            if stride <= reach && n != 0 {
                return dense();
            }
            reach += stride * (n - 1);
        }
        strides.clone()
    }

    /// `x` is its base, or a view that holds each of the base's elements once.
    fn shows_all(&self, x: Val) -> bool {
        let info = &self.infos[x];
        let parts = || info.view.dims.iter().flatten();
        let base: Dim = Dim::product(&*self.infos[info.base].shape);
        parts().all(|p| p.mask.is_none() && !p.stride.is_const(0)) && Dim::product(parts().map(|p| &p.size)) == base
    }

    /// A fresh output holding a copy of `x`; dims that eager returns with stride 0 are stored once.
    pub(super) fn output_copy(&mut self, x: Val, ty: &TensorType, promised: Vec<Dim>) -> Result<TensorRef, String> {
        if is_empty(&ty.shape) {
            let name = self.infos[x].name.clone();
            let buffer = self.add_buffer(&name, ty, promised.clone(), BufferKind::Output);
            return Ok(TensorRef { buffer, shape: ty.shape.clone(), strides: promised, offset: Dim::ZERO });
        }
        let stored = |d: usize| !promised[d].is_const(0) || ty.shape[d].is_const(1);
        let shape: Shape = (0..ty.rank()).map(|d| if stored(d) { ty.shape[d].clone() } else { Dim::ONE }).collect();
        let mut source = x;
        if *shape != *ty.shape {
            let info = self.infos[x].clone();
            source = self.add_val(x, &shape);
            let dims = (0..ty.rank()).map(|d| if stored(d) { info.view.dims[d].clone() } else { vec![] }).collect();
            self.infos[source].base = info.base;
            self.infos[source].view = View { offset: info.view.offset.clone(), dims }.into();
        }
        let sub = TensorType { dtype: ty.dtype, shape: shape.to_vec(), strides: None, device: ty.device };
        let name = self.infos[x].name.clone();
        let buffer = self.add_buffer(&name, &sub, promised.clone(), BufferKind::Output);
        let target = View::strided(&shape, &promised);
        let val = if self.infos[source].base == source && matches!(self.infos[source].home, Some(Home::Group { .. })) {
            source
        } else {
            let copy = self.add_val(source, &shape);
            self.place_copy(source, copy, shape, super::nodes::copy_of_ours())?;
            copy
        };
        self.add_store(ExtraStore { val, buffer, target })?;
        Ok(TensorRef { buffer, shape: ty.shape.clone(), strides: promised, offset: Dim::ZERO })
    }
}

/// Strides of size-1 dims say nothing; give them what a dense tensor would have.
pub(super) fn natural_strides(shape: &[Dim], mut strides: Vec<Dim>) -> Vec<Dim> {
    for d in (0..shape.len()).rev() {
        if shape[d].is_const(1) {
            strides[d] = if d + 1 < shape.len() { &strides[d + 1] * &shape[d + 1] } else { Dim::ONE };
        }
    }
    strides
}

pub(super) fn same_strides(shape: &[Dim], a: &[Dim], b: &[Dim]) -> bool {
    shape.iter().any(|n| n.is_const(0)) || (0..shape.len()).all(|d| shape[d].is_const(1) || a[d] == b[d])
}
