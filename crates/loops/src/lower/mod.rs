//! From prims to units: every node either joins a fused group, becomes a unit of its own, or is only a view.
//!
//! Nodes are visited once, in order. A view is a [`View`] over its base and makes nothing. A computing node asks the groups
//! of its operands, latest first, whether it fits their iteration space without making a cycle; then groups that already
//! read one of its operands; else it opens a group. What a group makes and others read is stored once, row-major.

mod again;
mod emit;
mod empty;
mod horizontal;
mod inputs;
mod layout;
mod native;
mod nodes;
mod output;
mod place;
mod shapes;

use self::shapes::{Shape, Shapes};
use crate::domain::{Address, AxisId, DimAxes, Domain};
use crate::kernel::*;
use crate::units::{UnitId, Units};
use crate::view::{Part, View};
use permalloy_ir::{
    Arg, DType, Device, Dim, Graph, GraphKind, Input, Node, Output, PrimKind, PrimOp, SymbolValues, TensorType,
    ValueId, contiguous_strides,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
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
    /// Rows enough to keep the device busy (0: any number). Longer rows than `single_task_reduction` are divided among tasks
    /// where there are fewer, so that what is reduced of them cannot be used in the same kernel.
    pub many_rows: i64,
    /// A cheap value is computed once more rather than stored for another kernel.
    pub recompute: bool,
    /// Kernels of one launch.
    pub grouped: usize,
}

impl Limits {
    pub const CPU: Limits = Limits {
        ops: 160,
        operands: 48,
        single_task_reduction: 16 * 1024,
        many_rows: 0,
        recompute: false,
        grouped: 1 << 16,
    };
}

/// How to lower.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub limits: Limits,
    /// 16-bit floats are rounded to their dtype after each operator, as eager does. Otherwise they are held in f32 until
    /// a store, a cast or a comparison.
    pub emulate_eager_casts: bool,
}

impl From<Limits> for Options {
    fn from(limits: Limits) -> Options {
        Options { limits, emulate_eager_casts: false }
    }
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
pub fn lower(graph: &Graph, options: impl Into<Options>) -> Result<Program, LowerError> {
    let mut l = Lowering::new(graph, options.into());
    for (i, (_, node)) in graph.nodes().enumerate() {
        l.position = i as u32;
        l.node(node).map_err(|message| LowerError { message, loc: node.loc.clone() })?;
    }
    let outputs = l.outputs().map_err(|message| LowerError { message, loc: None })?;
    l.finish(outputs).map_err(|message| LowerError { message, loc: None })
}

/// A value of the graph, or a materialised copy of one.
type Val = usize;

/// Where the elements of a value are.
#[derive(Clone, Debug)]
enum Home {
    /// In memory, laid out as `layout` says, complete once `writers` have run.
    Memory {
        buffer: BufferId,
        layout: Rc<View>,
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
    shape: Shape,
    base: Val,
    /// Over the base's row-major order.
    view: Rc<View>,
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

/// A node that has joined a group.
#[derive(Clone, Debug)]
struct Slot {
    /// As it asked to be placed, for when its group moves into another.
    work: Rc<Work>,
    kind: SlotKind,
    /// Axes of the logical dims, concatenated.
    axes: Vec<AxisId>,
    sources: Vec<(Source, DType)>,
    /// Result of an `Over::Rows` or `Over::All` reduction: only stores may read it.
    after_nest: bool,
}

/// A store beside the dense one: into a piece of a concatenation, an input, or an output with a layout of its own.
#[derive(Clone, Debug)]
struct ExtraStore {
    val: Val,
    buffer: BufferId,
    target: View,
}

#[derive(Clone, Debug, Default)]
struct Group {
    domain: Domain,
    slots: Vec<Slot>,
    stores: Vec<ExtraStore>,
    /// Folded by `Over::Cols`, once there is such a reduction or a division of axes implies it.
    cols: Option<Vec<AxisId>>,
    /// Folded by `Over::Rows`.
    rows: Option<Vec<AxisId>>,
    reads: Vec<Val>,
}

#[derive(Clone, Debug)]
enum Unit {
    Group(Box<Group>),
    Scatter(Box<Scatter>),
    Native(Box<NativeCall>),
    /// Its work is done by the unit it was merged into.
    Merged,
}

/// A computing node on its way into a group.
#[derive(Clone, Debug)]
struct Work {
    kind: WorkKind,
    /// Index space of the operands: the result's shape, or the operand's for a reduction.
    space: Shape,
    operands: Vec<Val>,
    dtype: DType,
    result: Val,
    fused: Fused,
}

#[derive(Clone, Debug)]
enum WorkKind {
    Pointwise(PrimOp),
    Copy,
    /// Sorted dims of the space.
    Reduce(PrimOp, Vec<usize>),
    /// Operand 0 is read at operand 1 times `stride`; its own view over its memory is given.
    LoadAt {
        view: Rc<View>,
        stride: Dim,
        size: Dim,
    },
}

/// What is stored of a concatenation before its node is reached.
#[derive(Clone, Debug)]
struct Early {
    buffer: BufferId,
    /// By piece.
    stored: Vec<bool>,
    writers: Vec<UnitId>,
}

struct Lowering<'g> {
    graph: &'g Graph,
    options: Options,
    hints: SymbolValues,
    infos: Vec<Info>,
    shapes: Shapes,
    buffers: Vec<Buffer>,
    inputs: Vec<ProgramInput>,
    units: Units,
    bodies: Vec<Unit>,
    /// The last native call that draws random numbers, talks to other processes or writes: the next one waits for it.
    last_effect: Option<UnitId>,
    /// Units that read a memory value, by base.
    readers: BTreeMap<Val, Vec<UnitId>>,
    /// Position of the last node that reads the old contents of an input that is overwritten.
    last_reads: BTreeMap<Val, u32>,
    /// Values that are the memory of another one, read later.
    same_memory: BTreeMap<Val, Val>,
    /// Copies of such inputs' old contents, where they are read after the write.
    kept: BTreeMap<Val, Val>,
    /// Dense copies of values, for native operators.
    strided: BTreeMap<Val, Val>,
    /// The latest copy of a value that is computed once more.
    copies: BTreeMap<Val, Val>,
    /// Results of native operators that are stored early into a concatenation, with their place in it.
    pieces: BTreeMap<ValueId, (ValueId, usize)>,
    early: BTreeMap<Val, Early>,
    /// Values that stand for an input's new contents.
    new_contents: BTreeSet<Val>,
    position: u32,
}

impl<'g> Lowering<'g> {
    fn new(graph: &'g Graph, options: Options) -> Lowering<'g> {
        let hints = permalloy_ir::hints(&graph.symbols);
        let pieces = nodes::early_pieces(graph, &hints);
        let mut l = Lowering {
            graph,
            options,
            hints,
            infos: Vec::with_capacity(graph.value_count()),
            shapes: Shapes::default(),
            buffers: Vec::new(),
            inputs: Vec::new(),
            units: Units::default(),
            bodies: Vec::new(),
            last_effect: None,
            readers: BTreeMap::new(),
            last_reads: inputs::last_reads(graph),
            same_memory: BTreeMap::new(),
            kept: BTreeMap::new(),
            new_contents: BTreeSet::new(),
            strided: BTreeMap::new(),
            copies: BTreeMap::new(),
            pieces,
            early: BTreeMap::new(),
            position: 0,
        };
        for (i, v) in graph.values() {
            let (ty, base) = (&v.ty, i.0 as usize);
            let (shape, view) = l.shapes.dense(&ty.shape);
            let name = v.name.clone();
            l.infos.push(Info { name, dtype: ty.dtype, device: ty.device, shape, base, view, home: None });
        }
        for (i, input) in graph.inputs.iter().enumerate() {
            match input {
                Input::Int(d) => l.inputs.push(ProgramInput::Int(d.clone())),
                Input::Tensor { value, role } => {
                    let ty = graph.ty(*value);
                    let strides = ty.strides.clone().unwrap_or_else(|| contiguous_strides(&ty.shape));
                    let buffer =
                        l.add_buffer(&graph.value(*value).name, ty, strides.clone(), BufferKind::Input(i as u32));
                    let layout = Rc::new(View::strided(&ty.shape, &strides));
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
        let ty = TensorType { dtype: info.dtype, shape: info.shape.to_vec(), strides: None, device: info.device };
        let name = info.name.clone();
        self.add_buffer(&name, &ty, contiguous_strides(&ty.shape), kind)
    }

    /// A value that the graph does not have: a copy of `of`, or a part of one.
    fn add_val(&mut self, of: Val, shape: &[Dim]) -> Val {
        let id = self.infos.len();
        let info = &self.infos[of];
        let name = format!("{}.copy", info.name).into();
        let (shape, view) = self.shapes.dense(shape);
        self.infos.push(Info { name, dtype: info.dtype, device: info.device, shape, base: id, view, home: None });
        id
    }

    fn home(&self, base: Val) -> Result<&Home, String> {
        let info = &self.infos[base];
        info.home.as_ref().ok_or_else(|| format!("%{} is read before it is made", info.name))
    }

    fn elements<'d>(&self, shape: impl Iterator<Item = &'d Dim>) -> i64 {
        shape.map(|d| d.eval(&self.hints).unwrap_or(1)).product()
    }
}
