//! From grown groups to kernels.

use super::*;

impl<'g> Lowering<'g> {
    pub(super) fn finish(mut self, outputs: Vec<ProgramOutput>) -> Result<Program, String> {
        let order = self.units.order();
        let mut steps = Vec::with_capacity(order.len());
        let mut number = 0;
        for u in order {
            match std::mem::replace(&mut self.bodies[u], Unit::Merged) {
                Unit::Merged => {}
                Unit::Group(g) => {
                    let kernel = self.kernel(*g, u, number)?;
                    if kernel.ops.iter().any(|o| matches!(o.kind, OpKind::Store { .. })) {
                        steps.push(Step::Kernel(kernel));
                        number += 1;
                    }
                }
                Unit::Scatter(mut s) => {
                    s.name = format!("scatter{number}");
                    steps.push(Step::Scatter(*s));
                    number += 1;
                }
                Unit::Native(n) => steps.push(Step::Native(*n)),
            }
        }
        let steps = horizontal::grouped(steps, &self.buffers, &self.hints, self.options.limits.grouped);
        Ok(Program {
            name: self.graph.name.clone(),
            kind: self.graph.kind,
            symbols: self.graph.symbols.clone(),
            buffers: self.buffers,
            inputs: self.inputs,
            outputs,
            steps,
        })
    }

    fn kernel(&self, mut g: Group, unit: UnitId, number: usize) -> Result<Kernel, String> {
        // Addresses of extra stores first: they may split axes.
        let mut extra: Vec<(usize, BufferId, Address)> = Vec::new();
        for s in std::mem::take(&mut g.stores) {
            let Some(Home::Group { slot, .. }) = self.infos[s.val].home else {
                return Err("a stored value has no group".into());
            };
            let no_form = || format!("a store of %{} has no strided form", self.infos[s.val].name);
            let dims = g.domain.cut(&g.slots[slot].axes, &self.infos[s.val].shape).ok_or_else(no_form)?;
            extra.push((slot, s.buffer, g.domain.address(&dims, &s.target).ok_or_else(no_form)?));
        }
        let leaves = g.domain.leaves();
        let cols = g.cols.as_ref().map(|c| g.domain.resolve(c)).unwrap_or_default();
        let rows = g.rows.as_ref().map(|r| g.domain.resolve(r)).unwrap_or_default();
        let role = |a: &AxisId| match () {
            _ if cols.contains(a) => AxisRole::Col,
            _ if rows.contains(a) => AxisRole::Row,
            _ => AxisRole::Batch,
        };
        // Columns innermost, rows next: the order in which a reduction wants them.
        let mut order: Vec<AxisId> = leaves.clone();
        order.sort_by_key(&role);
        let axes = order.iter().map(|a| Axis { size: g.domain.size(*a).clone(), role: role(a) }).collect();
        let mut k = Kernel {
            name: String::new(),
            axes,
            ops: Vec::new(),
            fused: g.slots.iter().map(|s| s.work.fused.clone()).collect(),
        };
        let mut ids = Vec::with_capacity(g.slots.len());
        let mut rounding = Rounding::default();
        for s in &g.slots {
            let mut id = self.emit(&mut k, &g, s, &ids, &order, &mut rounding);
            // What a nest leaves behind is stored at once, which rounds it.
            if self.options.emulate_eager_casts && !s.after_nest {
                id = rounding.rounded(&mut k, id);
            }
            ids.push(id);
            let val = s.work.result;
            if let Some(Home::Group { buffer: Some(b), .. }) = self.infos[val].home {
                let read = self.readers.get(&val).into_iter().flatten().any(|r| self.units.find(*r) != unit);
                if read || self.buffers[b.0 as usize].kind == BufferKind::Output {
                    let at = Address { offset: Dim::ZERO, terms: g.domain.row_major(&s.axes) };
                    let access = flatten(&g.domain, &at, &order);
                    push(&mut k, OpKind::Store { buffer: b, access, value: id }, self.infos[val].dtype);
                }
            }
        }
        for (slot, buffer, at) in &extra {
            let access = flatten(&g.domain, at, &order);
            let dtype = self.buffers[buffer.0 as usize].dtype;
            push(&mut k, OpKind::Store { buffer: *buffer, access, value: ids[*slot] }, dtype);
        }
        k.name = kernel_name(&k, number);
        Ok(k)
    }

    fn emit(
        &self,
        k: &mut Kernel,
        g: &Group,
        s: &Slot,
        ids: &[OpId],
        leaves: &[AxisId],
        rounding: &mut Rounding,
    ) -> OpId {
        let skip = usize::from(matches!(s.kind, SlotKind::LoadAt { .. }));
        let mut operands = Vec::new();
        for (source, dtype) in s.sources.iter().skip(skip) {
            let kind = match source {
                Source::Slot(i) => {
                    operands.push(ids[*i]);
                    continue;
                }
                Source::Memory { val, at } => self.load(*val, flatten(&g.domain, at, leaves)),
                Source::Const(c) => OpKind::Const(*c),
                Source::Size(d) => OpKind::Size(d.clone()),
                Source::Index(at) => OpKind::AxisIndex { access: flatten(&g.domain, at, leaves) },
            };
            operands.push(push_once(k, kind, *dtype));
        }
        if matches!(s.kind, SlotKind::Pointwise(p) if p.kind() == PrimKind::Compare) {
            // A maximum that went through memory is equal to the element it came from, whether that did or not.
            operands.iter_mut().for_each(|o| *o = rounding.rounded(k, *o));
        }
        let kind = match &s.kind {
            SlotKind::Copy => return operands[0],
            SlotKind::Pointwise(PrimOp::Cast) => OpKind::Cast(operands[0]),
            SlotKind::Pointwise(PrimOp::Where) => OpKind::Where(operands[0], operands[1], operands[2]),
            SlotKind::Pointwise(p) if operands.len() == 1 => OpKind::Unary(*p, operands[0]),
            SlotKind::Pointwise(p) => OpKind::Binary(*p, operands[0], operands[1]),
            SlotKind::Reduce(op, over) => OpKind::Reduce { op: *op, over: *over, x: operands[0] },
            SlotKind::LoadAt { stride, size } => {
                let Source::Memory { val, at } = &s.sources[0].0 else { return operands[0] };
                let OpKind::Load { buffer, access } = self.load(*val, flatten(&g.domain, at, leaves)) else {
                    return operands[0];
                };
                OpKind::LoadAt { buffer, access, index: operands[0], stride: stride.clone(), size: size.clone() }
            }
        };
        push(k, kind, s.work.dtype)
    }

    fn load(&self, val: Val, access: Access) -> OpKind {
        let base = self.infos[val].base;
        let buffer = match &self.infos[base].home {
            Some(Home::Memory { buffer, .. } | Home::Group { buffer: Some(buffer), .. }) => *buffer,
            _ => unreachable!("a memory operand was given a buffer when it was read"),
        };
        OpKind::Load { buffer, access }
    }
}

/// Which operations of a kernel make 16-bit floats that may be held with more digits than their dtype has.
#[derive(Default)]
struct Rounding(Vec<bool>);

impl Rounding {
    /// The value with the digits of its dtype alone.
    fn rounded(&mut self, k: &mut Kernel, id: OpId) -> OpId {
        for op in &k.ops[self.0.len()..] {
            let of = |x: &OpId| self.0[x.0 as usize];
            let wide = match &op.kind {
                _ if !matches!(op.dtype, DType::BF16 | DType::F16) => false,
                OpKind::Load { .. } | OpKind::LoadAt { .. } | OpKind::Cast(_) | OpKind::Store { .. } => false,
                OpKind::Unary(PrimOp::Neg | PrimOp::Abs, x) => of(x),
                OpKind::Reduce { op: PrimOp::Amax | PrimOp::Amin, x, .. } => of(x),
                OpKind::Binary(PrimOp::Max | PrimOp::Min, x, y) | OpKind::Where(_, x, y) => of(x) || of(y),
                _ => true,
            };
            self.0.push(wide);
        }
        let dtype = k.ops[id.0 as usize].dtype;
        if self.0[id.0 as usize] { push_once(k, OpKind::Cast(id), dtype) } else { id }
    }
}

fn push(k: &mut Kernel, kind: OpKind, dtype: DType) -> OpId {
    k.ops.push(KernelOp { kind, dtype });
    OpId(k.ops.len() as u32 - 1)
}

/// Loads and constants are made once a kernel.
fn push_once(k: &mut Kernel, kind: OpKind, dtype: DType) -> OpId {
    let found = k.ops.iter().position(|o| o.dtype == dtype && o.kind == kind);
    found.map_or_else(|| push(k, kind.clone(), dtype), |i| OpId(i as u32))
}

pub(super) fn flatten(domain: &Domain, at: &Address, leaves: &[AxisId]) -> Access {
    let (strides, masks) = domain.flatten(&at.terms, leaves);
    let masks = masks.into_iter().map(|(axis, low, high)| Mask { axis, low, high }).collect();
    Access { offset: at.offset.clone(), strides, masks }
}

/// `k7_add_gelu_sum`: number and the telling operators, for reports and generated code.
fn kernel_name(k: &Kernel, number: usize) -> String {
    let mut words: Vec<&str> = Vec::new();
    for o in &k.ops {
        let word = match &o.kind {
            OpKind::Unary(p, _) | OpKind::Binary(p, ..) => p.name(),
            OpKind::Reduce { op, .. } => op.name(),
            OpKind::LoadAt { .. } => "gather",
            OpKind::Where(..) => "where",
            _ => continue,
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.truncate(5);
    if words.is_empty() {
        words.push("copy");
    }
    format!("k{number}_{}", words.join("_"))
}
