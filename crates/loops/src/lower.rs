//! From prims to units: every node either joins a fused group, becomes a unit of its own, or is only a view.
//!
//! Nodes are visited once, in order. A view is a [`View`] over its base and makes nothing. A computing node asks the groups
//! of its operands, latest first, whether it fits their iteration space without making a cycle; then groups that already
//! read one of its operands; else it opens a group. What a group makes and others read is stored once, row-major.

use crate::domain::{Address, AxisId, DimAxes, Domain};
use crate::kernel::*;
use crate::units::{UnitId, Units};
use crate::view::{Part, View};
use permalloy_ir::{
    Arg, DType, Device, Dim, Graph, GraphKind, Input, Node, Output, PrimKind, PrimOp, SymbolValues, TensorType,
    ValueId, contiguous_strides,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Limits of what one kernel may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Operations of a body.
    pub ops: usize,
    /// Distinct memory operands.
    pub operands: usize,
    /// Largest full reduction (in elements, by hint) that is done by one task so that its result can be used in the kernel.
    pub single_task_reduction: i64,
}

impl Limits {
    pub const CPU: Limits = Limits { ops: 160, operands: 48, single_task_reduction: 16 * 1024 };
}

/// Why a graph has no loop form. A verified, routed graph has one: this is a bug or an unrouted operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LowerError {
    pub message: String,
    pub loc: Option<Arc<str>>,
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(l) = &self.loc { write!(f, " (at {l})") } else { Ok(()) }
    }
}

impl std::error::Error for LowerError {}

/// Lowers a graph of prims and native operators.
pub fn lower(graph: &Graph, limits: Limits) -> Result<Program, LowerError> {
    let mut l = Lowering::new(graph, limits);
    for (i, (_, node)) in graph.nodes().enumerate() {
        l.position = i as u32;
        l.node(node).map_err(|message| LowerError { message, loc: node.loc.clone() })?;
    }
    let outputs = l.outputs().map_err(|message| LowerError { message, loc: None })?;
    Ok(l.finish(outputs))
}

/// A value of the graph, or a materialised copy of one.
type Val = usize;

/// Where the elements of a value are.
#[derive(Clone, Debug)]
enum Home {
    /// In memory, laid out as `layout` says, complete once `writers` have run.
    Memory {
        buffer: BufferId,
        layout: View,
        writers: Vec<UnitId>,
    },
    /// Made by a group; in memory too once `buffer` is set, row-major.
    Group {
        unit: UnitId,
        slot: usize,
        buffer: Option<BufferId>,
    },
    Const(Scalar),
    Size(Dim),
    Iota,
}

/// What is known of a value. Views have a base other than themselves and no home.
#[derive(Clone, Debug)]
struct Info {
    name: Arc<str>,
    dtype: DType,
    device: Device,
    shape: Vec<Dim>,
    base: Val,
    /// Over the base's row-major order.
    view: View,
    home: Option<Home>,
}

/// An operand of an operation in a group.
#[derive(Clone, Debug)]
enum Source {
    Slot(usize),
    Memory { val: Val, at: Address },
    Const(Scalar),
    Size(Dim),
    Index(Address),
}

#[derive(Clone, Debug)]
enum SlotKind {
    Pointwise(PrimOp),
    /// The operand itself.
    Copy,
    Reduce(PrimOp, Over),
    /// Memory operand 0 at an index given by operand 1.
    LoadAt {
        stride: Dim,
        size: Dim,
    },
}

#[derive(Clone, Debug)]
struct Slot {
    kind: SlotKind,
    dtype: DType,
    /// Axes of the logical dims, concatenated.
    axes: Vec<AxisId>,
    sources: Vec<(Source, DType)>,
    /// Result of an `Over::Rows` or `Over::All` reduction: only stores may read it.
    after_nest: bool,
    val: Option<Val>,
}

#[derive(Clone, Debug)]
struct SlotStore {
    slot: usize,
    buffer: BufferId,
    at: Address,
}

#[derive(Clone, Debug, Default)]
struct Group {
    domain: Domain,
    slots: Vec<Slot>,
    stores: Vec<SlotStore>,
    /// Folded by `Over::Cols`, once there is such a reduction or a division of axes implies it.
    cols: Option<Vec<AxisId>>,
    /// Folded by `Over::Rows`.
    rows: Option<Vec<AxisId>>,
    reads: Vec<Val>,
    fused: Vec<Fused>,
}

#[derive(Clone, Debug)]
enum Unit {
    Group(Box<Group>),
    Scatter(Box<Scatter>),
    Native(Box<NativeCall>),
}

/// A computing node on its way into a group.
struct Work<'a> {
    kind: WorkKind,
    /// Index space of the operands: the result's shape, or the operand's for a reduction.
    space: Vec<Dim>,
    operands: Vec<Val>,
    dtype: DType,
    result: Val,
    node: Option<&'a Node>,
    op_name: Arc<str>,
}

#[derive(Clone, Debug)]
enum WorkKind {
    Pointwise(PrimOp),
    Copy,
    /// Sorted dims of the space.
    Reduce(PrimOp, Vec<usize>),
    /// Operand 0 is read at operand 1 times `stride`; its own view over the space is given.
    LoadAt {
        view: View,
        stride: Dim,
        size: Dim,
    },
}

struct Lowering<'g> {
    graph: &'g Graph,
    limits: Limits,
    hints: SymbolValues,
    infos: Vec<Info>,
    buffers: Vec<Buffer>,
    inputs: Vec<ProgramInput>,
    units: Units,
    bodies: Vec<Unit>,
    /// Units that read a memory value, by base.
    readers: BTreeMap<Val, Vec<UnitId>>,
    position: u32,
}

impl<'g> Lowering<'g> {
    fn new(graph: &'g Graph, limits: Limits) -> Lowering<'g> {
        let hints = graph.symbols.iter().map(|s| (s.name.clone(), s.hint)).collect();
        let mut l = Lowering {
            graph,
            limits,
            hints,
            infos: Vec::with_capacity(graph.value_count()),
            buffers: Vec::new(),
            inputs: Vec::new(),
            units: Units::default(),
            bodies: Vec::new(),
            readers: BTreeMap::new(),
            position: 0,
        };
        for (i, v) in graph.values() {
            let (ty, base) = (&v.ty, i.0 as usize);
            let view = View::contiguous(&ty.shape);
            let info = Info {
                name: v.name.clone(),
                dtype: ty.dtype,
                device: ty.device,
                shape: ty.shape.clone(),
                base,
                view,
                home: None,
            };
            l.infos.push(info);
        }
        for (i, input) in graph.inputs.iter().enumerate() {
            match input {
                Input::Int(d) => l.inputs.push(ProgramInput::Int(d.clone())),
                Input::Tensor { value, role } => {
                    let ty = graph.ty(*value);
                    let strides = ty.strides.clone().unwrap_or_else(|| contiguous_strides(&ty.shape));
                    let buffer =
                        l.add_buffer(&graph.value(*value).name, ty, strides.clone(), BufferKind::Input(i as u32));
                    let layout = View::strided(&ty.shape, &strides);
                    l.infos[value.0 as usize].home = Some(Home::Memory { buffer, layout, writers: vec![] });
                    l.inputs.push(ProgramInput::Tensor { buffer, role: *role });
                }
            }
        }
        l
    }

    fn add_buffer(&mut self, name: &str, ty: &TensorType, strides: Vec<Dim>, kind: BufferKind) -> BufferId {
        let id = BufferId(self.buffers.len() as u32);
        self.buffers.push(Buffer {
            name: name.into(),
            dtype: ty.dtype,
            device: ty.device,
            shape: ty.shape.clone(),
            strides,
            kind,
        });
        id
    }

    fn dense_buffer(&mut self, val: Val, kind: BufferKind) -> BufferId {
        let info = &self.infos[val];
        let ty = TensorType { dtype: info.dtype, shape: info.shape.clone(), strides: None, device: info.device };
        let name = info.name.clone();
        self.add_buffer(&name, &ty, contiguous_strides(&ty.shape), kind)
    }

    /// A value that the graph does not have: a copy of `of`, or a part of one.
    fn add_val(&mut self, of: Val, shape: Vec<Dim>) -> Val {
        let id = self.infos.len();
        let info = &self.infos[of];
        let name = format!("{}.copy", info.name).into();
        let view = View::contiguous(&shape);
        self.infos.push(Info { name, dtype: info.dtype, device: info.device, shape, base: id, view, home: None });
        id
    }

    fn home(&self, base: Val) -> Result<&Home, String> {
        let info = &self.infos[base];
        info.home.as_ref().ok_or_else(|| format!("%{} is read before it is made", info.name))
    }

    fn elements(&self, shape: &[Dim]) -> i64 {
        shape.iter().map(|d| d.eval(&self.hints).unwrap_or(1)).product()
    }

    // --- nodes ---

    fn node(&mut self, node: &'g Node) -> Result<(), String> {
        let Some(prim) = node.prim() else {
            return if node.op.external() == Some("aten.copy_.default") {
                self.copy_back(node)
            } else {
                self.native(node)
            };
        };
        let result = node.result().ok_or("a prim has no result")?.0 as usize;
        let operands: Vec<Val> = node.operands().iter().map(|v| v.0 as usize).collect();
        match prim.kind() {
            PrimKind::Source => {
                self.infos[result].home = Some(self.source(prim, node, result)?);
                Ok(())
            }
            PrimKind::View if prim == PrimOp::Concat => self.concat(node, &operands, result),
            PrimKind::View => self.view(prim, node, operands[0], result),
            PrimKind::Scan => Err(format!("{prim} has no loop form; it must be routed to a native operator")),
            PrimKind::Index => self.indexed(prim, node, &operands, result),
            PrimKind::Reduce => {
                let dims = node.ints_attr("dims").iter().map(|d| *d as usize).collect();
                let space = self.infos[operands[0]].shape.clone();
                self.compute(WorkKind::Reduce(prim, dims), space, operands, result, node)
            }
            _ => {
                let space = self.infos[result].shape.clone();
                self.compute(WorkKind::Pointwise(prim), space, operands, result, node)
            }
        }
    }

    fn source(&self, prim: PrimOp, node: &Node, result: Val) -> Result<Home, String> {
        if prim == PrimOp::Iota {
            return Ok(Home::Iota);
        }
        let dtype = self.infos[result].dtype;
        match node.kwarg("value") {
            Some(Arg::Float(x)) if dtype.is_float() => Ok(Home::Const(Scalar::Float(*x))),
            Some(Arg::Float(x)) if dtype == DType::Bool => Ok(Home::Const(Scalar::Bool(*x != 0.0))),
            Some(Arg::Float(x)) => Ok(Home::Const(Scalar::Int(*x as i64))),
            Some(Arg::Bool(b)) if dtype.is_float() => Ok(Home::Const(Scalar::Float(f64::from(u8::from(*b))))),
            Some(Arg::Bool(b)) if dtype == DType::Bool => Ok(Home::Const(Scalar::Bool(*b))),
            Some(Arg::Bool(b)) => Ok(Home::Const(Scalar::Int(i64::from(*b)))),
            Some(Arg::Int(Dim::Const(c))) if dtype.is_float() => Ok(Home::Const(Scalar::Float(*c as f64))),
            Some(Arg::Int(Dim::Const(c))) if dtype == DType::Bool => Ok(Home::Const(Scalar::Bool(*c != 0))),
            Some(Arg::Int(Dim::Const(c))) => Ok(Home::Const(Scalar::Int(*c))),
            Some(Arg::Int(d)) => Ok(Home::Size(d.clone())),
            other => Err(format!("prim.full with value {other:?}")),
        }
    }

    fn view(&mut self, prim: PrimOp, node: &Node, x: Val, result: Val) -> Result<(), String> {
        let shape = self.infos[result].shape.clone();
        let apply = |v: &View| -> Option<View> {
            let ints = |name| node.ints_attr(name).iter().map(|d| *d as usize).collect::<Vec<_>>();
            match prim {
                PrimOp::Reshape => v.reshape(&shape),
                PrimOp::Permute => Some(v.permute(&ints("perm"))),
                PrimOp::Expand => Some(v.expand(&shape)),
                PrimOp::Flip => v.flip(&ints("dims")),
                PrimOp::Pad => v.pad(&node.dims_attr("low"), &node.dims_attr("high")),
                _ => {
                    let d = node.dim_attr("dim");
                    let one = |name: &str| node.kwarg(name).and_then(Arg::as_dim);
                    v.slice(d, &one("start")?, &one("end")?, one("step")?.as_const()?, &shape[d])
                }
            }
        };
        let (mut base, mut view) = (self.infos[x].base, apply(&self.infos[x].view));
        if view.is_none() {
            base = self.materialize_view(x)?;
            view = apply(&self.infos[base].view);
        }
        let view = view.ok_or_else(|| format!("{prim} of a dense value has no strided form"))?;
        self.infos[result].base = base;
        self.infos[result].view = view;
        Ok(())
    }

    /// A dense copy of a (viewed) value, as a value of its own.
    fn materialize_view(&mut self, x: Val) -> Result<Val, String> {
        let shape = self.infos[x].shape.clone();
        let copy = self.add_val(x, shape.clone());
        let work = Work {
            kind: WorkKind::Copy,
            space: shape,
            operands: vec![x],
            dtype: self.infos[x].dtype,
            result: copy,
            node: None,
            op_name: "copy".into(),
        };
        self.place(work)?;
        Ok(copy)
    }

    fn compute(
        &mut self,
        kind: WorkKind,
        space: Vec<Dim>,
        operands: Vec<Val>,
        result: Val,
        node: &'g Node,
    ) -> Result<(), String> {
        let dtype = self.infos[result].dtype;
        self.place(Work { kind, space, operands, dtype, result, node: Some(node), op_name: node.op.to_string().into() })
    }

    fn indexed(&mut self, prim: PrimOp, node: &'g Node, operands: &[Val], result: Val) -> Result<(), String> {
        let (x, index) = (operands[0], operands[1]);
        let d = node.dim_attr("dim");
        let space = self.infos[result].shape.clone();
        match prim {
            PrimOp::Gather | PrimOp::Take => {
                let base = self.in_memory_one_part(x, d)?;
                let info = &self.infos[base];
                let size = info.shape[d].clone();
                let mut view = info.view.clone();
                let stride = view.dims[d].first().map_or(Dim::ZERO, |p| p.stride.clone());
                view.dims[d].clear();
                let index_rank = self.infos[index].shape.len();
                let index = if prim == PrimOp::Gather {
                    view.dims[d] = repeated(&space[d]);
                    index
                } else {
                    let dims: Vec<Vec<Part>> = space[d..d + index_rank].iter().map(repeated).collect();
                    view.dims.splice(d..=d, dims);
                    self.broadcast(index, d, &space)
                };
                self.compute(WorkKind::LoadAt { view, stride, size }, space, vec![base, index], result, node)
            }
            _ => {
                let size = node.kwarg("size").and_then(Arg::as_dim).ok_or("index_sum without a size")?;
                let src = self.infos[x].shape.clone();
                let index = if prim == PrimOp::IndexSum { self.broadcast(index, d, &src) } else { index };
                let index_rank = if prim == PrimOp::IndexSum { self.infos[operands[1]].shape.len() } else { 1 };
                self.scatter(x, index, d, index_rank, size, result, node)
            }
        }
    }

    /// The dims of `index` stand at `d` of a wider space; it repeats along the others.
    fn broadcast(&mut self, index: Val, d: usize, space: &[Dim]) -> Val {
        let info = &self.infos[index];
        let rank = info.shape.len();
        let mut dims: Vec<Vec<Part>> = space[..d].iter().map(repeated).collect();
        dims.extend(info.view.dims.iter().cloned());
        dims.extend(space[d + rank..].iter().map(repeated));
        let (base, view) = (info.base, View { offset: info.view.offset.clone(), dims });
        let id = self.add_val(index, space.to_vec());
        self.infos[id].base = base;
        self.infos[id].view = view;
        id
    }

    /// A value in memory, the same as `x`, of which dim `d` is one strided run.
    fn in_memory_one_part(&mut self, x: Val, d: usize) -> Result<Val, String> {
        let info = &self.infos[x];
        let fits = |v: &View| v.dims[d].len() <= 1 && !v.dims[d].iter().any(|p| p.mask.is_some());
        let inline = matches!(self.home(info.base)?, Home::Const(_) | Home::Size(_) | Home::Iota);
        if inline || !fits(&info.view) { self.materialize_view(x) } else { Ok(x) }
    }

    fn scatter(
        &mut self,
        src: Val,
        index: Val,
        d: usize,
        index_rank: usize,
        size: Dim,
        result: Val,
        node: &'g Node,
    ) -> Result<(), String> {
        let space = self.infos[src].shape.clone();
        // Copies are units of their own: make them before the scatter's.
        let src = if self.is_inline(src)? { self.materialize_view(src)? } else { src };
        let index = if self.is_inline(index)? { self.materialize_view(index)? } else { index };
        let unit = self.units.add(self.position);
        let (mut domain, dims) = Domain::of_shape(&space);
        let no_form = || "operand of a scatter has no strided form".to_string();
        let src_at = self.memory_operand(unit, src, &dims, &mut domain).ok_or_else(no_form)?;
        let index_at = self.memory_operand(unit, index, &dims, &mut domain).ok_or_else(no_form)?;
        let out = self.dense_buffer(result, BufferKind::Intermediate);
        let out_view = View::contiguous(&self.infos[result].shape);
        let stride = out_view.dims[d].first().map_or(Dim::ZERO, |p| p.stride.clone());
        let mut over = out_view.clone();
        let repeats: Vec<Vec<Part>> = space[d..d + index_rank].iter().map(repeated).collect();
        over.dims.splice(d..=d, repeats);
        let out_at = domain.address(&dims, &over).ok_or("result of a scatter has no strided form")?;
        let leaves = domain.leaves();
        let access = |at: &Address| flatten(&domain, at, &leaves);
        let body = Scatter {
            name: String::new(),
            axes: leaves.iter().map(|a| domain.size(*a).clone()).collect(),
            src: (src_at.0, access(&src_at.1)),
            index: (index_at.0, access(&index_at.1)),
            out: (out, access(&out_at)),
            stride,
            size,
            fused: vec![Fused { op: node.op.to_string().into(), loc: node.loc.clone() }],
        };
        self.bodies.push(Unit::Scatter(Box::new(body)));
        self.infos[result].home = Some(Home::Memory { buffer: out, layout: out_view, writers: vec![unit] });
        self.settle(unit)
    }

    fn concat(&mut self, node: &'g Node, operands: &[Val], result: Val) -> Result<(), String> {
        let d = node.dim_attr("dim");
        let buffer = self.dense_buffer(result, BufferKind::Intermediate);
        let whole = View::contiguous(&self.infos[result].shape);
        let mut start = Dim::ZERO;
        let mut writers = Vec::new();
        for x in operands {
            let shape = self.infos[*x].shape.clone();
            let end = &start + &shape[d];
            let target =
                whole.slice(d, &start, &end, 1, &shape[d]).ok_or("a piece of a concatenation has no strided form")?;
            // A piece of size 1 drops out of the loops; its place is in the offset.
            let unit = self.store_into(*x, shape, buffer, target, node)?;
            writers.push(unit);
            start = end;
        }
        writers.sort_unstable();
        writers.dedup();
        self.infos[result].home = Some(Home::Memory { buffer, layout: whole, writers });
        Ok(())
    }

    /// Stores `x` at `target` in a buffer; returns the unit that does it.
    fn store_into(
        &mut self,
        x: Val,
        shape: Vec<Dim>,
        buffer: BufferId,
        target: View,
        node: &'g Node,
    ) -> Result<UnitId, String> {
        let slot_val = self.group_value(x, shape, node)?;
        let Some(Home::Group { unit, slot, .. }) = self.infos[slot_val].home.clone() else {
            return Err("a stored value has no group".into());
        };
        let Unit::Group(g) = &mut self.bodies[unit] else { return Err("a stored value has no group".into()) };
        let shape = &self.infos[slot_val].shape;
        let axes = g.slots[slot].axes.clone();
        let dims = g.domain.cut(&axes, shape).ok_or("a stored value does not fit its own shape")?;
        let at = g.domain.address(&dims, &target).ok_or("a store has no strided form")?;
        g.stores.push(SlotStore { slot, buffer, at });
        Ok(unit)
    }

    /// `x` itself when a group makes it in just this shape and order, else a copy of it placed in a group.
    fn group_value(&mut self, x: Val, shape: Vec<Dim>, node: &'g Node) -> Result<Val, String> {
        let info = &self.infos[x];
        if info.base == x && matches!(info.home, Some(Home::Group { .. })) {
            return Ok(x);
        }
        let copy = self.add_val(x, shape.clone());
        let dtype = self.infos[x].dtype;
        let op_name = node.op.to_string().into();
        self.place(Work {
            kind: WorkKind::Copy,
            space: shape,
            operands: vec![x],
            dtype,
            result: copy,
            node: Some(node),
            op_name,
        })?;
        Ok(copy)
    }

    /// `aten.copy_(target, source)`: a store into an input, after everything that still reads the old contents.
    fn copy_back(&mut self, node: &'g Node) -> Result<(), String> {
        let (target, source) = (
            node.operand(0).ok_or("copy_ without target")?.0 as usize,
            node.operand(1).ok_or("copy_ without source")?.0 as usize,
        );
        let base = self.infos[target].base;
        let Home::Memory { buffer, layout, writers } = self.home(base)?.clone() else {
            return Err("copy_ writes to a value that is not a graph input".into());
        };
        if !matches!(self.buffers[buffer.0 as usize].kind, BufferKind::Input(_)) {
            return Err("copy_ writes to a value that is not a graph input".into());
        }
        let at = if base == target { layout } else { self.infos[target].view.clone() };
        let (shape, dtype) = (self.infos[target].shape.clone(), self.infos[target].dtype);
        let mut value = source;
        if self.infos[source].shape != shape {
            value = self.add_val(source, shape.clone());
            let info = self.infos[source].clone();
            let mut dims = info.view.dims.clone();
            dims.splice(0..0, std::iter::repeat_n(vec![], shape.len() - info.shape.len()));
            self.infos[value].base = info.base;
            self.infos[value].view = View { offset: info.view.offset, dims }.expand(&shape);
        }
        // Always a group of its own: nothing that reads the old contents may come to depend on it.
        let copy = self.add_val(target, shape.clone());
        self.infos[copy].dtype = dtype;
        let from = self.infos[value].dtype;
        let kind = if from == dtype { WorkKind::Copy } else { WorkKind::Pointwise(PrimOp::Cast) };
        let work = Work {
            kind,
            space: shape.clone(),
            operands: vec![value],
            dtype,
            result: copy,
            node: Some(node),
            op_name: node.op.to_string().into(),
        };
        let readers = self.readers.get(&base).cloned().unwrap_or_default();
        let unit = self.place_writer(&work, base, &readers, &at)?;
        let Unit::Group(g) = &mut self.bodies[unit] else { return Err("copy_ has no group".into()) };
        let slot = g.slots.len() - 1;
        let axes = g.slots[slot].axes.clone();
        let dims = g.domain.cut(&axes, &shape).ok_or("copy_ does not fit its own shape")?;
        let address = g.domain.address(&dims, &at).ok_or("copy_ has no strided form")?;
        g.stores.push(SlotStore { slot, buffer, at: address });
        for r in readers.into_iter().chain(writers) {
            self.units.add_dep(unit, r);
        }
        if let Some(Home::Memory { writers, .. }) = &mut self.infos[base].home {
            *writers = vec![unit];
        }
        if let Some(r) = node.result() {
            let info = self.infos[target].clone();
            let r = r.0 as usize;
            self.infos[r].base = info.base;
            self.infos[r].view = if info.base == target { View::contiguous(&info.shape) } else { info.view };
        }
        Ok(())
    }

    /// A group for a node that overwrites an input: the operand's own group if it reads that input just where it is
    /// written, or not at all; else a new one.
    fn place_writer(&mut self, work: &Work<'_>, target: Val, readers: &[UnitId], at: &View) -> Result<UnitId, String> {
        if let Some(Home::Group { unit, .. }) = self.infos[self.infos[work.operands[0]].base].home.clone() {
            let others_free = readers.iter().all(|r| *r == unit || !self.units.depends(*r, unit));
            if others_free && self.reads_only_at(unit, target, at, &work.space) && self.try_join(unit, work) {
                return Ok(unit);
            }
        }
        let unit = self.open_group(&work.space);
        if self.try_join(unit, work) { Ok(unit) } else { Err("a copy does not fit a space of its own shape".into()) }
    }

    /// Every read of `target` in the group is at the address that a store through `at` over `space` would have.
    fn reads_only_at(&self, unit: UnitId, target: Val, at: &View, space: &[Dim]) -> bool {
        let Unit::Group(g) = &self.bodies[unit] else { return false };
        let mut domain = g.domain.clone();
        let leaves = domain.leaves();
        let Some(dims) = domain.cut(&leaves, space) else { return false };
        let Some(want) = domain.address(&dims, at) else { return false };
        let leaves = domain.leaves();
        let want = flatten(&domain, &want, &leaves);
        g.slots.iter().flat_map(|s| &s.sources).all(|(s, _)| match s {
            Source::Memory { val, at } if self.infos[*val].base == target => flatten(&domain, at, &leaves) == want,
            _ => true,
        })
    }

    // --- placing ---

    fn is_inline(&self, x: Val) -> Result<bool, String> {
        Ok(matches!(self.home(self.infos[x].base)?, Home::Const(_) | Home::Size(_) | Home::Iota))
    }

    /// Puts a node into the best group that takes it.
    fn place(&mut self, mut work: Work<'_>) -> Result<(), String> {
        // A masked constant has no address to mask: give it memory.
        for x in &mut work.operands {
            if self.infos[*x].view.has_masks() && self.is_inline(*x)? {
                let base = self.infos[*x].base;
                let dense = self.materialize_view(base)?;
                let mut info = self.infos[*x].clone();
                info.base = dense;
                self.infos.push(info);
                *x = self.infos.len() - 1;
            }
        }
        let mut candidates: Vec<UnitId> = Vec::new();
        for x in &work.operands {
            if let Some(Home::Group { unit, .. }) = &self.infos[self.infos[*x].base].home {
                candidates.push(*unit);
            }
        }
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        let mut siblings: Vec<UnitId> = Vec::new();
        for x in &work.operands {
            if let Some(readers) = self.readers.get(&self.infos[*x].base) {
                siblings.extend(readers.iter().rev().take(4).filter(|u| matches!(self.bodies[**u], Unit::Group(_))));
            }
        }
        siblings.sort_unstable_by(|a, b| b.cmp(a));
        candidates.extend(siblings);
        let mut tried: Vec<UnitId> = Vec::new();
        for unit in candidates {
            if !tried.contains(&unit) {
                tried.push(unit);
                if self.try_join(unit, &work) {
                    return Ok(());
                }
            }
        }
        let unit = self.open_group(&work.space);
        if self.try_join(unit, &work) {
            Ok(())
        } else {
            Err(format!("{} does not fit a space of its own shape", work.op_name))
        }
    }

    fn open_group(&mut self, space: &[Dim]) -> UnitId {
        let unit = self.units.add(self.position);
        let (domain, _) = Domain::of_shape(space);
        self.bodies.push(Unit::Group(Box::new(Group { domain, ..Group::default() })));
        unit
    }

    /// Adds the node to the group if it fits; changes nothing else when it does not (axes may come out finer).
    fn try_join(&mut self, unit: UnitId, work: &Work<'_>) -> bool {
        let Unit::Group(g) = &self.bodies[unit] else { return false };
        let fresh = g.slots.is_empty();
        if g.slots.len() >= self.limits.ops || g.reads.len() + work.operands.len() > self.limits.operands {
            return false;
        }
        // What lies outside must not wait for this group.
        for x in &work.operands {
            let base = self.infos[*x].base;
            let waits = match &self.infos[base].home {
                Some(Home::Group { unit: other, .. }) => *other != unit && self.units.depends(*other, unit),
                Some(Home::Memory { writers, .. }) => {
                    writers.iter().any(|w| *w == unit || self.units.depends(*w, unit))
                }
                Some(_) => false,
                None => return false,
            };
            if waits {
                return false;
            }
        }
        let mut domain = g.domain.clone();
        let Some(fit) = self.fit(unit, &mut domain, work, fresh) else { return false };
        self.commit(unit, domain, fit, work);
        true
    }

    /// Finds axes for the node's dims and addresses for its operands.
    fn fit(&self, unit: UnitId, domain: &mut Domain, work: &Work<'_>, fresh: bool) -> Option<Fit> {
        let Unit::Group(g) = &self.bodies[unit] else { return None };
        let mut dims: Vec<Option<Vec<AxisId>>> =
            work.space.iter().map(|n| if n.is_const(1) { Some(vec![]) } else { None }).collect();
        let load_at = matches!(work.kind, WorkKind::LoadAt { .. });
        for (k, x) in work.operands.iter().enumerate() {
            let info = &self.infos[*x];
            let Some(Home::Group { unit: home, slot, .. }) = &self.infos[info.base].home else { continue };
            if *home != unit {
                continue;
            }
            if g.slots[*slot].after_nest || (load_at && k == 0) {
                return None;
            }
            for (d, got) in domain.match_view(&g.slots[*slot].axes, &info.view)?.into_iter().enumerate() {
                let DimAxes::Axes(got) = got else { continue };
                match &dims[d] {
                    None => dims[d] = Some(got),
                    Some(have) if domain.resolve(have) == domain.resolve(&got) => {}
                    Some(_) => return None,
                }
            }
        }
        // Dims that no operand inside pins down take the axes that are left, in order.
        let used: Vec<AxisId> = dims.iter().flatten().flat_map(|a| domain.resolve(a)).collect();
        let rest: Vec<AxisId> = domain.leaves().into_iter().filter(|a| !used.contains(a)).collect();
        let open: Vec<usize> = (0..dims.len()).filter(|d| dims[*d].is_none()).collect();
        let unused = if open.is_empty() {
            rest
        } else {
            let sizes: Vec<Dim> = open.iter().map(|d| work.space[*d].clone()).collect();
            for (d, axes) in open.iter().zip(domain.cut(&rest, &sizes)?) {
                dims[*d] = Some(axes);
            }
            vec![]
        };
        if !unused.is_empty() {
            let cols: Vec<AxisId> = g.cols.as_ref().map(|c| domain.resolve(c)).unwrap_or_default();
            let mut unused = domain.resolve(&unused);
            let mut want = cols;
            unused.sort_unstable();
            want.sort_unstable();
            if unused != want || matches!(work.kind, WorkKind::Reduce(..)) {
                return None;
            }
        }
        let dims: Vec<Vec<AxisId>> = dims.into_iter().collect::<Option<_>>()?;
        if fresh {
            debug_assert!(unused.is_empty());
        }
        let mut sources = Vec::with_capacity(work.operands.len());
        for (k, x) in work.operands.iter().enumerate() {
            let info = &self.infos[*x];
            let source = match self.infos[info.base].home.as_ref()? {
                Home::Const(c) => Source::Const(*c),
                Home::Size(d) => Source::Size(d.clone()),
                Home::Iota => Source::Index(domain.address(&dims, &info.view)?),
                Home::Group { unit: home, slot, .. } if *home == unit => Source::Slot(*slot),
                _ => {
                    let view = match &work.kind {
                        WorkKind::LoadAt { view, .. } if k == 0 => self.memory_view(*x, view)?,
                        _ => self.memory_view(*x, &info.view)?,
                    };
                    Source::Memory { val: *x, at: domain.address(&dims, &view)? }
                }
            };
            sources.push((source, info.dtype));
        }
        let reduce = match &work.kind {
            WorkKind::Reduce(op, folded) => Some(self.reduction(g, domain, *op, folded, &dims, &work.space)?),
            _ => None,
        };
        Some(Fit { dims, sources, reduce })
    }

    /// `view` over the row-major order of `x`'s base, as a view over its memory.
    fn memory_view(&self, x: Val, view: &View) -> Option<View> {
        let base = self.infos[x].base;
        match self.infos[base].home.as_ref()? {
            Home::Group { .. } => Some(view.clone()),
            Home::Memory { layout, .. } => {
                if *layout == View::contiguous(&self.infos[base].shape) {
                    return Some(view.clone());
                }
                relayout(view, &self.infos[base].shape, layout)
            }
            _ => None,
        }
    }

    /// Which kind of reduction folds these dims in this group, and the roles it gives to axes.
    fn reduction(
        &self,
        g: &Group,
        domain: &Domain,
        op: PrimOp,
        folded: &[usize],
        dims: &[Vec<AxisId>],
        space: &[Dim],
    ) -> Option<Reduction> {
        let all = domain.leaves();
        let sorted = |mut v: Vec<AxisId>| {
            v.sort_unstable();
            v
        };
        let set: Vec<AxisId> = sorted(folded.iter().flat_map(|d| domain.resolve(&dims[*d])).collect());
        let cols = g.cols.as_ref().map(|c| sorted(domain.resolve(c)));
        let rows = g.rows.as_ref().map(|r| sorted(domain.resolve(r)));
        let in_order = |s: &[AxisId]| all.iter().copied().filter(|a| s.contains(a)).collect::<Vec<_>>();
        let made = |over, cols: &[AxisId], rows: Option<&[AxisId]>| {
            Some(Reduction { over, cols: in_order(cols), rows: rows.map(in_order) })
        };
        let single_dim_arg = matches!(op, PrimOp::Argmax | PrimOp::Argmin);
        match (&cols, &rows) {
            (Some(c), r) if *c == set => made(Over::Cols, c, r.as_deref()),
            (Some(c), _) if single_dim_arg => {
                let _ = c;
                None
            }
            (Some(c), Some(r)) if *r == set => made(Over::Rows, c, Some(r)),
            (Some(c), Some(r)) if sorted([c.clone(), r.clone()].concat()) == set => made(Over::All, c, Some(r)),
            (Some(_), Some(_)) => None,
            (Some(c), None) if set.iter().all(|a| !c.contains(a)) && !set.is_empty() => made(Over::Rows, c, Some(&set)),
            (Some(c), None) if c.iter().all(|a| set.contains(a)) => {
                let r: Vec<AxisId> = set.iter().copied().filter(|a| !c.contains(a)).collect();
                made(Over::All, c, Some(&r))
            }
            (Some(_), None) => None,
            (None, _) => {
                let last = *all.last()?;
                let kept: Vec<AxisId> = all.iter().copied().filter(|a| !set.contains(a)).collect();
                if set.is_empty() || single_dim_arg {
                    return made(Over::Cols, &set, None);
                }
                if kept.is_empty() && all.len() > 1 && self.elements(space) > self.limits.single_task_reduction {
                    let (c, r) = all.split_at(all.len() - 1);
                    return made(Over::All, r, Some(c));
                }
                if set.contains(&last) {
                    return made(Over::Cols, &set, None);
                }
                // Columns: what is kept inside of the outermost folded axis.
                let first = all.iter().position(|a| set.contains(a))?;
                let inner: Vec<AxisId> = all[first..].iter().copied().filter(|a| !set.contains(a)).collect();
                made(Over::Rows, &inner, Some(&set))
            }
        }
    }

    fn commit(&mut self, unit: UnitId, domain: Domain, fit: Fit, work: &Work<'_>) {
        let mut after_nest = false;
        let (kind, axes) = match (&work.kind, fit.reduce) {
            (WorkKind::Reduce(op, folded), Some(r)) => {
                after_nest = r.over != Over::Cols;
                let Unit::Group(g) = &mut self.bodies[unit] else { return };
                g.cols = Some(r.cols);
                g.rows = r.rows.or(g.rows.take());
                let kept =
                    (0..fit.dims.len()).filter(|d| !folded.contains(d)).flat_map(|d| fit.dims[d].clone()).collect();
                (SlotKind::Reduce(*op, r.over), kept)
            }
            (WorkKind::Pointwise(p), _) => (SlotKind::Pointwise(*p), fit.dims.concat()),
            (WorkKind::LoadAt { stride, size, .. }, _) => {
                (SlotKind::LoadAt { stride: stride.clone(), size: size.clone() }, fit.dims.concat())
            }
            _ => (SlotKind::Copy, fit.dims.concat()),
        };
        for (source, _) in &fit.sources {
            if let Source::Memory { val, .. } = source {
                self.read(unit, *val);
            }
        }
        let Unit::Group(g) = &mut self.bodies[unit] else { return };
        g.domain = domain;
        let slot = g.slots.len();
        g.slots.push(Slot { kind, dtype: work.dtype, axes, sources: fit.sources, after_nest, val: Some(work.result) });
        g.fused.push(Fused { op: work.op_name.clone(), loc: work.node.and_then(|n| n.loc.clone()) });
        self.infos[work.result].home = Some(Home::Group { unit, slot, buffer: None });
    }

    /// Records that a unit reads a value from memory; a group's value gets its buffer now.
    fn read(&mut self, unit: UnitId, x: Val) -> Option<BufferId> {
        let base = self.infos[x].base;
        let (buffer, writers) = match self.infos[base].home.clone()? {
            Home::Memory { buffer, writers, .. } => (buffer, writers),
            Home::Group { unit: home, .. } => (self.buffer_of(base)?, vec![home]),
            _ => return None,
        };
        for w in writers {
            self.units.add_dep(unit, w);
        }
        let readers = self.readers.entry(base).or_default();
        if readers.last() != Some(&unit) {
            readers.push(unit);
        }
        if let Some(Unit::Group(g)) = self.bodies.get_mut(unit)
            && !g.reads.contains(&base)
        {
            g.reads.push(base);
        }
        Some(buffer)
    }

    /// The dense buffer of a value that a group makes, made on first request.
    fn buffer_of(&mut self, base: Val) -> Option<BufferId> {
        match self.infos[base].home.clone()? {
            Home::Memory { buffer, .. } => Some(buffer),
            Home::Group { buffer: Some(b), .. } => Some(b),
            Home::Group { unit, slot, buffer: None } => {
                let b = self.dense_buffer(base, BufferKind::Intermediate);
                self.infos[base].home = Some(Home::Group { unit, slot, buffer: Some(b) });
                Some(b)
            }
            _ => None,
        }
    }

    /// A memory operand of a unit that is no group.
    fn memory_operand(
        &mut self,
        unit: UnitId,
        x: Val,
        dims: &[Vec<AxisId>],
        domain: &mut Domain,
    ) -> Option<(BufferId, Address)> {
        let view = self.memory_view(x, &self.infos[x].view.clone())?;
        let at = domain.address(dims, &view)?;
        let buffer = self.read(unit, x)?;
        Some((buffer, at))
    }

    fn settle(&mut self, unit: UnitId) -> Result<(), String> {
        if self.units.len() == self.bodies.len() { Ok(()) } else { Err(format!("unit {unit} has no body")) }
    }

    // --- native calls ---

    fn native(&mut self, node: &'g Node) -> Result<(), String> {
        // Operands first: some need a copy, which is a unit of its own.
        for v in node.operands() {
            self.strided_operand(v)?;
        }
        let unit = self.units.add(self.position);
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
                let strides = ty.strides.clone().unwrap_or_else(|| contiguous_strides(&ty.shape));
                let buffer = self.add_buffer(&self.graph.value(v).name, ty, strides.clone(), BufferKind::Native);
                let layout = View::strided(&ty.shape, &strides);
                self.infos[v.0 as usize].home = Some(Home::Memory { buffer, layout, writers: vec![unit] });
                buffer
            }));
        }
        let op = node.op.to_string().into();
        self.bodies.push(Unit::Native(Box::new(NativeCall { op, args, kwargs, results, loc: node.loc.clone() })));
        self.settle(unit)
    }

    /// Makes sure a value can be handed to PyTorch as a strided tensor, copying it when it cannot.
    fn strided_operand(&mut self, v: ValueId) -> Result<(), String> {
        let x = v.0 as usize;
        let strided =
            !self.is_inline(x)? && self.memory_view(x, &self.infos[x].view).is_some_and(|v| v.as_strided().is_some());
        if strided {
            return Ok(());
        }
        let copy = self.materialize_view(x)?;
        self.infos[x].base = copy;
        self.infos[x].view = View::contiguous(&self.infos[x].shape);
        Ok(())
    }

    fn tensor_ref(&mut self, unit: UnitId, x: Val) -> Result<TensorRef, String> {
        let view = self.memory_view(x, &self.infos[x].view.clone());
        let view = view.ok_or_else(|| format!("%{} has no strided form", self.infos[x].name))?;
        let (_, strides) = view.as_strided().ok_or_else(|| format!("%{} has no strided form", self.infos[x].name))?;
        let shape = self.infos[x].shape.clone();
        let strides = natural_strides(&shape, strides);
        let buffer = self.read(unit, x).ok_or_else(|| format!("%{} is not in memory", self.infos[x].name))?;
        Ok(TensorRef { buffer, shape, strides, offset: view.offset })
    }

    fn native_arg(&mut self, unit: UnitId, a: &Arg) -> Result<NativeArg, String> {
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
                for i in items {
                    list.push(self.native_arg(unit, i)?);
                }
                NativeArg::List(list)
            }
            Arg::None => NativeArg::None,
        })
    }

    // --- outputs ---

    fn outputs(&mut self) -> Result<Vec<ProgramOutput>, String> {
        self.position = u32::MAX;
        let mut done: Vec<(ValueId, ProgramOutput)> = Vec::new();
        let mut taken: Vec<BufferId> = Vec::new();
        let mut out = Vec::new();
        for o in &self.graph.outputs {
            out.push(match o {
                Output::None => ProgramOutput::None,
                Output::Int(d) => ProgramOutput::Int(d.clone()),
                Output::Value(v) => match done.iter().find(|(x, _)| x == v) {
                    Some((_, r)) => r.clone(),
                    None => {
                        let r = ProgramOutput::Tensor(self.output(*v, &mut taken)?);
                        done.push((*v, r.clone()));
                        r
                    }
                },
            });
        }
        Ok(out)
    }

    /// Gives an output its own memory in the promised layout; aliases of inputs stay aliases outside of backward graphs.
    fn output(&mut self, v: ValueId, taken: &mut Vec<BufferId>) -> Result<TensorRef, String> {
        let x = v.0 as usize;
        let info = self.infos[x].clone();
        let ty = self.graph.ty(v).clone();
        let promised = ty.strides.clone().unwrap_or_else(|| contiguous_strides(&ty.shape));
        match self.home(info.base)?.clone() {
            Home::Memory { buffer, .. } => {
                let kind = self.buffers[buffer.0 as usize].kind;
                let identity = info.base == x
                    || info.view == View::contiguous(&self.infos[info.base].shape)
                        && info.shape == self.infos[info.base].shape;
                let backward = self.graph.kind == GraphKind::Backward;
                let as_is = self.memory_view(x, &info.view).and_then(|m| m.as_strided().map(|(_, s)| (m.offset, s)));
                if let (BufferKind::Input(_), Some((offset, strides))) = (kind, as_is.clone())
                    && (identity || !backward)
                {
                    let strides = natural_strides(&ty.shape, strides);
                    return Ok(TensorRef { buffer, shape: ty.shape, strides, offset });
                }
                if kind == BufferKind::Native && identity && !taken.contains(&buffer) {
                    taken.push(buffer);
                    let strides = self.buffers[buffer.0 as usize].strides.clone();
                    return Ok(TensorRef { buffer, shape: ty.shape, strides, offset: Dim::ZERO });
                }
                if kind == BufferKind::Intermediate
                    && identity
                    && same_strides(&ty.shape, &promised, &contiguous_strides(&ty.shape))
                    && !taken.contains(&buffer)
                {
                    taken.push(buffer);
                    self.buffers[buffer.0 as usize].kind = BufferKind::Output;
                    return Ok(TensorRef { buffer, shape: ty.shape, strides: promised, offset: Dim::ZERO });
                }
            }
            Home::Group { .. }
                if info.base == x && same_strides(&ty.shape, &promised, &contiguous_strides(&ty.shape)) =>
            {
                let buffer = self.buffer_of(x).ok_or("an output has no buffer")?;
                if !taken.contains(&buffer) {
                    taken.push(buffer);
                    self.buffers[buffer.0 as usize].kind = BufferKind::Output;
                    return Ok(TensorRef { buffer, shape: ty.shape, strides: promised, offset: Dim::ZERO });
                }
            }
            _ => {}
        }
        self.output_copy(x, &ty, promised)
    }

    /// A fresh output holding a copy of `x`; dims that eager returns with stride 0 are stored once.
    fn output_copy(&mut self, x: Val, ty: &TensorType, promised: Vec<Dim>) -> Result<TensorRef, String> {
        let stored = |d: usize| !promised[d].is_const(0) || ty.shape[d].is_const(1);
        let shape: Vec<Dim> = (0..ty.rank()).map(|d| if stored(d) { ty.shape[d].clone() } else { Dim::ONE }).collect();
        let mut source = x;
        if shape != ty.shape {
            let info = self.infos[x].clone();
            source = self.add_val(x, shape.clone());
            let dims = (0..ty.rank()).map(|d| if stored(d) { info.view.dims[d].clone() } else { vec![] }).collect();
            if info.base == x {
                return Err(format!("output %{} is promised with stride 0 but is no view", info.name));
            }
            self.infos[source].base = info.base;
            self.infos[source].view = View { offset: info.view.offset, dims };
        }
        let sub = TensorType { dtype: ty.dtype, shape: shape.clone(), strides: None, device: ty.device };
        let name = self.infos[x].name.clone();
        let buffer = self.add_buffer(&name, &sub, promised.clone(), BufferKind::Output);
        let target = View::strided(&shape, &promised);
        let copy = if self.infos[source].base == source && matches!(self.infos[source].home, Some(Home::Group { .. })) {
            source
        } else {
            let copy = self.add_val(source, shape.clone());
            let dtype = self.infos[source].dtype;
            self.place(Work {
                kind: WorkKind::Copy,
                space: shape.clone(),
                operands: vec![source],
                dtype,
                result: copy,
                node: None,
                op_name: "copy".into(),
            })?;
            copy
        };
        let Some(Home::Group { unit, slot, .. }) = self.infos[copy].home.clone() else {
            return Err("an output has no group".into());
        };
        let Unit::Group(g) = &mut self.bodies[unit] else { return Err("an output has no group".into()) };
        let axes = g.slots[slot].axes.clone();
        let dims = g.domain.cut(&axes, &shape).ok_or("an output does not fit its own shape")?;
        let at = g.domain.address(&dims, &target).ok_or("an output has no strided form")?;
        g.stores.push(SlotStore { slot, buffer, at });
        Ok(TensorRef { buffer, shape: ty.shape.clone(), strides: promised, offset: Dim::ZERO })
    }

    // --- emission ---

    fn finish(self, outputs: Vec<ProgramOutput>) -> Program {
        let order = self.units.order();
        let mut steps = Vec::with_capacity(order.len());
        let mut number = 0;
        for u in order {
            match &self.bodies[u] {
                Unit::Group(g) => {
                    let kernel = self.kernel(g, number);
                    if kernel.ops.iter().any(|o| matches!(o.kind, OpKind::Store { .. })) {
                        steps.push(Step::Kernel(kernel));
                        number += 1;
                    }
                }
                Unit::Scatter(s) => {
                    let mut s = (**s).clone();
                    s.name = format!("scatter{number}");
                    steps.push(Step::Scatter(s));
                    number += 1;
                }
                Unit::Native(n) => steps.push(Step::Native((**n).clone())),
            }
        }
        Program {
            name: self.graph.name.clone(),
            kind: self.graph.kind,
            symbols: self.graph.symbols.clone(),
            buffers: self.buffers,
            inputs: self.inputs,
            outputs,
            steps,
        }
    }

    fn kernel(&self, g: &Group, number: usize) -> Kernel {
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
        let mut k = Kernel { name: String::new(), axes, ops: Vec::new(), fused: g.fused.clone() };
        let mut ids = Vec::with_capacity(g.slots.len());
        for s in &g.slots {
            let id = self.emit(&mut k, g, s, &ids, &order);
            ids.push(id);
            let Some(val) = s.val else { continue };
            if let Some(Home::Group { buffer: Some(b), .. }) = &self.infos[val].home {
                let at = Address { offset: Dim::ZERO, terms: g.domain.row_major(&s.axes) };
                let access = flatten(&g.domain, &at, &order);
                push(&mut k, OpKind::Store { buffer: *b, access, value: id }, self.infos[val].dtype);
            }
        }
        for s in &g.stores {
            let access = flatten(&g.domain, &s.at, &order);
            let dtype = self.buffers[s.buffer.0 as usize].dtype;
            push(&mut k, OpKind::Store { buffer: s.buffer, access, value: ids[s.slot] }, dtype);
        }
        k.name = kernel_name(&k, number);
        k
    }

    fn emit(&self, k: &mut Kernel, g: &Group, s: &Slot, ids: &[OpId], leaves: &[AxisId]) -> OpId {
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
        push(k, kind, s.dtype)
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

/// What [`Lowering::fit`] found.
struct Fit {
    dims: Vec<Vec<AxisId>>,
    sources: Vec<(Source, DType)>,
    reduce: Option<Reduction>,
}

struct Reduction {
    over: Over,
    cols: Vec<AxisId>,
    rows: Option<Vec<AxisId>>,
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

fn repeated(n: &Dim) -> Vec<Part> {
    if n.is_const(1) { vec![] } else { vec![Part { size: n.clone(), stride: Dim::ZERO, mask: None }] }
}

fn flatten(domain: &Domain, at: &Address, leaves: &[AxisId]) -> Access {
    let (strides, masks) = domain.flatten(&at.terms, leaves);
    let masks = masks.into_iter().map(|(axis, low, high)| Mask { axis, low, high }).collect();
    Access { offset: at.offset.clone(), strides, masks }
}

/// Strides of size-1 dims say nothing; give them what a dense tensor would have.
fn natural_strides(shape: &[Dim], mut strides: Vec<Dim>) -> Vec<Dim> {
    for d in (0..shape.len()).rev() {
        if shape[d].is_const(1) {
            strides[d] = if d + 1 < shape.len() { &strides[d + 1] * &shape[d + 1] } else { Dim::ONE };
        }
    }
    strides
}

fn same_strides(shape: &[Dim], a: &[Dim], b: &[Dim]) -> bool {
    shape.iter().any(|n| n.is_const(0)) || (0..shape.len()).all(|d| shape[d].is_const(1) || a[d] == b[d])
}

/// Rewrites a view over the row-major order of `shape` as one over a memory layout of it.
fn relayout(view: &View, shape: &[Dim], layout: &View) -> Option<View> {
    let dense = contiguous_strides(shape);
    // Address of each dense stride in the layout, for dims that matter.
    let mut pairs: Vec<(&Dim, &Dim, &Dim)> = Vec::new();
    for (d, n) in shape.iter().enumerate().filter(|(_, n)| !n.is_const(1)) {
        let part = layout.dims[d].first()?;
        pairs.push((n, &dense[d], &part.stride));
    }
    if view.dims.iter().flatten().any(|p| p.size.is_const(0)) {
        return Some(view.clone());
    }
    let mut out = View { offset: layout.offset.clone(), dims: Vec::with_capacity(view.dims.len()) };
    // The constant offset is a mixed-radix number over the dense strides: take it apart, outermost first.
    let mut rest = view.offset.clone();
    for (_, dense, real) in &pairs {
        if rest.is_const(0) {
            break;
        }
        let digit = match (rest.as_const(), dense.as_const()) {
            (Some(r), Some(s)) if r >= 0 => Dim::Const(r / s),
            _ => match rest.div_exact(dense) {
                Some(q) => q,
                None => continue,
            },
        };
        out.offset = &out.offset + &(&digit * *real);
        rest = &rest - &(&digit * *dense);
    }
    if !rest.is_const(0) {
        return None;
    }
    for parts in &view.dims {
        let mut dim = Vec::new();
        for p in parts {
            if p.stride.is_const(0) {
                dim.push(p.clone());
                continue;
            }
            let found = pairs.iter().rev().find_map(|(n, dense, real)| {
                let times = p.stride.div_exact(dense)?;
                let stays = match (times.as_const(), n.as_const(), p.size.as_const()) {
                    (Some(t), Some(n), Some(size)) => t.abs() * (size - 1) < n,
                    _ => times.is_const(1) && p.size == **n,
                };
                stays.then(|| &times * *real)
            });
            match found {
                Some(stride) => dim.push(Part { size: p.size.clone(), stride, mask: p.mask.clone() }),
                None => dim.extend(split_over(p, &pairs)?),
            }
        }
        out.dims.push(dim);
    }
    Some(out)
}

/// A part that runs over several dims of the layout, as one part for each.
fn split_over(part: &Part, pairs: &[(&Dim, &Dim, &Dim)]) -> Option<Vec<Part>> {
    if part.mask.is_some() {
        return None;
    }
    let mut out = Vec::new();
    let (mut size, mut stride) = (part.size.clone(), part.stride.clone());
    while !size.is_const(1) {
        let (n, dense, real) = pairs.iter().find(|(_, dense, _)| **dense == stride)?;
        let inner = if let Some(q) = size.div_exact(n) {
            size = q;
            (*n).clone()
        } else {
            n.div_exact(&size)?;
            std::mem::replace(&mut size, Dim::ONE)
        };
        stride = *dense * &inner;
        out.push(Part { size: inner, stride: (*real).clone(), mask: None });
    }
    out.reverse();
    Some(out)
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
