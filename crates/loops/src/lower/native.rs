//! Native calls and their operands.

use super::output::natural_strides;
use super::*;
use permalloy_ops::Effect;

impl<'g> Lowering<'g> {
    pub(super) fn native(&mut self, node: &'g Node) -> Result<(), String> {
        let decl = node.op.external().and_then(permalloy_ops::lookup);
        let rows = decl.is_some_and(|d| d.reads_rows);
        // Operands first: some need a copy, which is a unit of its own.
        for v in node.operands() {
            if self.as_it_was(v.0 as usize) != v.0 as usize {
                return Err(format!("{} reads %{}, which is overwritten before", node.op, self.graph.value(v).name));
            }
            self.strided_operand(v, rows)?;
        }
        let unit = self.units.add(self.position);
        if decl.is_some_and(|d| d.effect != Effect::Pure)
            && let Some(before) = self.last_effect.replace(unit)
        {
            self.units.add_dep(unit, before);
        }
        let mut args = Vec::with_capacity(node.args.len());
        for a in &node.args {
            args.push(self.native_arg(unit, a)?);
        }
        let mut kwargs = Vec::with_capacity(node.kwargs.len());
        for (n, a) in &node.kwargs {
            kwargs.push((n.clone(), self.native_arg(unit, a)?));
        }
        let mut results = Vec::with_capacity(node.results.len());
        for r in &node.results {
            results.push(r.map(|v| {
                let ty = self.graph.ty(v);
                let strides = self.promised(ty, |_| false);
                let buffer = self.add_buffer(&self.graph.value(v).name, ty, strides.clone(), BufferKind::Native);
                let layout = Rc::new(View::strided(&ty.shape, &strides));
                self.infos[v.0 as usize].home = Some(Home::Memory { buffer, layout, writers: vec![unit] });
                buffer
            }));
        }
        let op = node.op.shared_name();
        self.bodies.push(Unit::Native(Box::new(NativeCall { op, args, kwargs, results, loc: node.loc.clone() })));
        self.settle(unit)?;
        node.results.iter().flatten().try_for_each(|v| self.store_early(*v))
    }

    /// Makes sure a value can be handed to PyTorch as a strided tensor, copying it when it cannot; with `rows` one whose
    /// last dim has stride 1.
    fn strided_operand(&mut self, v: ValueId, rows: bool) -> Result<(), String> {
        let x = v.0 as usize;
        if self.strided.contains_key(&x) {
            return Ok(());
        }
        let view = if self.is_inline(x)? { None } else { self.memory_view(x, &self.infos[x].view) };
        let fits = |strides: Vec<Dim>| {
            let last = strides.last().zip(self.infos[x].shape.last());
            // Statistics of rows (three dims) are read one by one.
            !rows || strides.len() == 3 || last.is_none_or(|(stride, size)| stride.is_const(1) || size.is_const(1))
        };
        let strided = view.and_then(|v| self.strides(&v)).is_some_and(fits);
        if !strided {
            // Not in place of `x`: groups that read `x` may be fitted anew later, and the copy comes after them.
            let copy = self.materialize_view(x)?;
            self.strided.insert(x, copy);
        }
        Ok(())
    }

    /// The strides of a view as PyTorch can have them: one a dim, none negative (by hint, for symbolic sizes).
    pub(super) fn strides(&self, view: &View) -> Option<Vec<Dim>> {
        let (_, strides) = view.as_strided()?;
        strides.iter().all(|s| s.eval(&self.hints).is_ok_and(|s| s >= 0)).then_some(strides)
    }

    pub(super) fn tensor_ref(&mut self, unit: UnitId, x: Val) -> Result<TensorRef, String> {
        let x = self.strided.get(&x).copied().unwrap_or(x);
        let view = self.memory_view(x, &self.infos[x].view.clone());
        let view = view.ok_or_else(|| format!("%{} has no strided form", self.infos[x].name))?;
        let strides = self.strides(&view).ok_or_else(|| format!("%{} has no strided form", self.infos[x].name))?;
        let shape = self.infos[x].shape.clone();
        let strides = natural_strides(&shape, strides);
        let buffer = self.read(unit, x).ok_or_else(|| format!("%{} is not in memory", self.infos[x].name))?;
        Ok(TensorRef { buffer, shape: shape.to_vec(), strides, offset: view.offset.clone() })
    }

    pub(super) fn native_arg(&mut self, unit: UnitId, a: &Arg) -> Result<NativeArg, String> {
        Ok(match a {
            Arg::Value(v) => NativeArg::Tensor(self.tensor_ref(unit, v.0 as usize)?),
            Arg::Int(d) => NativeArg::Int(d.clone()),
            Arg::Float(x) => NativeArg::Float(*x),
            Arg::Bool(b) => NativeArg::Bool(*b),
            Arg::Str(s) => NativeArg::Str(s.clone()),
            Arg::DType(d) => NativeArg::DType(*d),
            Arg::Device(d) => NativeArg::Device(*d),
            Arg::Layout(s) => NativeArg::Layout(s.clone()),
            Arg::MemoryFormat(s) => NativeArg::MemoryFormat(s.clone()),
            Arg::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for i in items.iter() {
                    list.push(self.native_arg(unit, i)?);
                }
                NativeArg::List(list)
            }
            Arg::None => NativeArg::None,
        })
    }
}
