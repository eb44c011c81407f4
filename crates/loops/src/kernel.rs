//! Loop IR: what is left of a graph once views have become strides and neighbours have been fused.
//!
//! A [`Program`] is a list of [`Step`]s over [`Buffer`]s. A [`Kernel`] is one loop nest with a straight-line body;
//! everything stays symbolic in the size symbols until an engine instantiates it for concrete sizes.
//!
//! **Axes and roles.** The nest iterates over `axes`. A role says how reductions see an axis:
//!
//! | reduction | folds | keeps |
//! |---|---|---|
//! | [`Over::Cols`] | `Col` axes | `Batch`, `Row` |
//! | [`Over::Rows`] | `Row` axes | `Batch`, `Col` |
//! | [`Over::All`]  | `Row` and `Col` axes | `Batch` |
//!
//! The result of an `Over::Cols` reduction is a value like any other (it does not vary over `Col` axes), so that
//! normalisations and softmax are one kernel. The result of `Over::Rows` and `Over::All` exists only after the nest:
//! nothing but a `Store` may read it. A kernel without reductions has `Batch` axes only.
//! Axes are listed outermost first; engines may reorder and collapse them as strides allow.

use permalloy_ir::{DType, Device, Dim, GraphKind, PrimOp, Role, SymbolInfo};
use std::fmt;
use std::sync::Arc;

/// Handle of a buffer in its program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BufferId(pub u32);

/// Handle of an operation in its kernel; also of the value it makes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OpId(pub u32);

/// Who provides the memory of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferKind {
    /// The caller: index into [`Program::inputs`].
    Input(u32),
    /// A fresh tensor that becomes an output.
    Output,
    /// The arena, from first write to last read.
    Intermediate,
    /// The native operator that makes it; real strides are checked against the promised ones when it returns.
    Native,
}

/// A piece of memory with a dense or promised layout.
#[derive(Clone, PartialEq, Debug)]
pub struct Buffer {
    pub name: Arc<str>,
    pub dtype: DType,
    pub device: Device,
    pub shape: Vec<Dim>,
    /// In elements.
    pub strides: Vec<Dim>,
    pub kind: BufferKind,
}

/// How an axis is seen by reductions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AxisRole {
    Batch,
    Row,
    Col,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    pub size: Dim,
    pub role: AxisRole,
}

/// Which axes a reduction folds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    Cols,
    Rows,
    All,
}

/// Address of an element, in elements: `offset + Σ strides[a] · i_a`, valid where every mask holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Access {
    pub offset: Dim,
    /// One per kernel axis; 0 where the access does not vary.
    pub strides: Vec<Dim>,
    pub masks: Vec<Mask>,
}

/// `low <= i_axis < high`. A masked load gives zero outside and reads nothing there; a store has no masks.
#[derive(Clone, PartialEq, Debug)]
pub struct Mask {
    pub axis: usize,
    pub low: Dim,
    pub high: Dim,
}

/// A constant operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    Float(f64),
    Int(i64),
    Bool(bool),
}

/// What an operation of a kernel body does.
#[derive(Clone, PartialEq, Debug)]
pub enum OpKind {
    Load {
        buffer: BufferId,
        access: Access,
    },
    /// `access` plus `index · stride`; an index outside of `0..size` makes the run an error (where the access is masked out it is not looked at).
    LoadAt {
        buffer: BufferId,
        access: Access,
        index: OpId,
        stride: Dim,
        size: Dim,
    },
    /// i64: `offset + Σ strides[a] · i_a`.
    AxisIndex {
        access: Access,
    },
    Const(Scalar),
    /// A constant known when sizes are: the value of the expression, as an integer.
    Size(Dim),
    Unary(PrimOp, OpId),
    /// Binary prims and two-operand comparisons.
    Binary(PrimOp, OpId, OpId),
    Where(OpId, OpId, OpId),
    /// To the operation's dtype, rounding to it even when it is held in a wider one.
    Cast(OpId),
    /// Sum, Prod, Amax, Amin, Any, All, Argmax, Argmin (the last two give the position among the folded axes, row-major).
    Reduce {
        op: PrimOp,
        over: Over,
        x: OpId,
    },
    /// Rounds to the buffer's dtype.
    Store {
        buffer: BufferId,
        access: Access,
        value: OpId,
    },
}

/// One operation; operands precede it.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelOp {
    pub kind: OpKind,
    /// Dtype of the result as the graph has it. bf16 and f16 are held in f32 and need not be rounded before a store or
    /// a cast (lowering puts one before comparisons); integers narrower than the engine's wrap to their width after each
    /// operation. For a `Store`, the stored dtype.
    pub dtype: DType,
}

/// An operator that went into a kernel, for reports.
#[derive(Clone, PartialEq, Debug)]
pub struct Fused {
    pub op: Arc<str>,
    pub loc: Option<Arc<str>>,
}

/// One fused loop nest.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    pub name: String,
    pub axes: Vec<Axis>,
    pub ops: Vec<KernelOp>,
    pub fused: Vec<Fused>,
}

/// Pointwise kernels, none of which touches what another one writes: one launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    pub name: String,
    pub kernels: Vec<Kernel>,
}

/// Scatter with summation: `out` is zeroed, then for every point of `axes`
/// `out[out_access + index · stride] += src[src_access]`, in an order that does not depend on the thread count.
/// An index outside of `0..size` makes the run an error.
#[derive(Clone, PartialEq, Debug)]
pub struct Scatter {
    pub name: String,
    pub axes: Vec<Dim>,
    pub src: (BufferId, Access),
    pub index: (BufferId, Access),
    pub out: (BufferId, Access),
    pub stride: Dim,
    pub size: Dim,
    pub fused: Vec<Fused>,
}

/// A tensor operand of a native call: a strided view of a buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorRef {
    pub buffer: BufferId,
    pub shape: Vec<Dim>,
    pub strides: Vec<Dim>,
    pub offset: Dim,
}

/// Argument of a native call.
#[derive(Clone, PartialEq, Debug)]
pub enum NativeArg {
    Tensor(TensorRef),
    Int(Dim),
    Float(f64),
    Bool(bool),
    Str(Arc<str>),
    DType(DType),
    Device(Device),
    Layout(Arc<str>),
    MemoryFormat(Arc<str>),
    List(Vec<NativeArg>),
    None,
}

/// An operator run by PyTorch (or the embedded set) as an opaque step.
#[derive(Clone, PartialEq, Debug)]
pub struct NativeCall {
    /// `aten.mm.default`
    pub op: Arc<str>,
    pub args: Vec<NativeArg>,
    pub kwargs: Vec<(Arc<str>, NativeArg)>,
    /// None where the operator returns nothing or nobody reads the result.
    pub results: Vec<Option<BufferId>>,
    pub loc: Option<Arc<str>>,
}

#[derive(Clone, PartialEq, Debug)]
#[allow(clippy::large_enum_variant, reason = "a program holds few steps, each once")]
pub enum Step {
    Kernel(Kernel),
    Group(Group),
    Scatter(Scatter),
    Native(NativeCall),
}

/// An argument of the program, in calling order.
#[derive(Clone, PartialEq, Debug)]
pub enum ProgramInput {
    Tensor { buffer: BufferId, role: Role },
    Int(Dim),
}

/// A result of the program, in returning order.
#[derive(Clone, PartialEq, Debug)]
pub enum ProgramOutput {
    /// A view of a buffer: of a fresh output, or of an input (an alias, as eager would return it).
    Tensor(TensorRef),
    Int(Dim),
    None,
}

/// A whole compiled graph.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    pub name: Arc<str>,
    pub kind: GraphKind,
    pub symbols: Vec<SymbolInfo>,
    pub buffers: Vec<Buffer>,
    pub inputs: Vec<ProgramInput>,
    pub outputs: Vec<ProgramOutput>,
    /// In execution order.
    pub steps: Vec<Step>,
}

impl Program {
    pub fn buffer(&self, b: BufferId) -> &Buffer {
        &self.buffers[b.0 as usize]
    }
}

impl Buffer {
    /// Elements from the first to the last one, both counted; 0 for an empty buffer.
    pub fn extent(&self) -> Dim {
        if self.shape.iter().any(|d| d.is_const(0)) {
            return Dim::ZERO;
        }
        self.shape.iter().zip(&self.strides).fold(Dim::ONE, |acc, (n, s)| &acc + &(&(n - &Dim::ONE) * s))
    }
}

impl Access {
    /// Does not vary over the axis.
    pub fn ignores(&self, axis: usize) -> bool {
        self.strides[axis].is_const(0) && !self.masks.iter().any(|m| m.axis == axis)
    }
}

impl KernelOp {
    /// Operations whose values this one reads.
    pub fn operands(&self) -> Vec<OpId> {
        match &self.kind {
            OpKind::Load { .. } | OpKind::AxisIndex { .. } | OpKind::Const(_) | OpKind::Size(_) => vec![],
            OpKind::LoadAt { index, .. } => vec![*index],
            OpKind::Unary(_, x) | OpKind::Cast(x) | OpKind::Reduce { x, .. } | OpKind::Store { value: x, .. } => {
                vec![*x]
            }
            OpKind::Binary(_, a, b) => vec![*a, *b],
            OpKind::Where(c, a, b) => vec![*c, *a, *b],
        }
    }
}

impl Kernel {
    pub fn op(&self, o: OpId) -> &KernelOp {
        &self.ops[o.0 as usize]
    }

    /// Buffers read, each once, in order of first use.
    pub fn reads(&self) -> Vec<BufferId> {
        self.touched(|k| match k {
            OpKind::Load { buffer, .. } | OpKind::LoadAt { buffer, .. } => Some(*buffer),
            _ => None,
        })
    }

    /// Buffers written, each once.
    pub fn writes(&self) -> Vec<BufferId> {
        self.touched(|k| match k {
            OpKind::Store { buffer, .. } => Some(*buffer),
            _ => None,
        })
    }

    fn touched(&self, pick: impl Fn(&OpKind) -> Option<BufferId>) -> Vec<BufferId> {
        let mut out = Vec::new();
        for b in self.ops.iter().filter_map(|o| pick(&o.kind)) {
            if !out.contains(&b) {
                out.push(b);
            }
        }
        out
    }
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}", self.offset)?;
        for (a, s) in self.strides.iter().enumerate().filter(|(_, s)| !s.is_const(0)) {
            if s.is_const(1) { write!(f, " + i{a}")? } else { write!(f, " + i{a}*({s})")? }
        }
        for m in &self.masks {
            write!(f, " if {} <= i{} < {}", m.low, m.axis, m.high)?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}(", self.name)?;
        for (i, a) in self.axes.iter().enumerate() {
            let role = format!("{:?}", a.role).to_lowercase();
            write!(f, "{}i{i}: {role} {}", if i == 0 { "" } else { ", " }, a.size)?;
        }
        writeln!(f, ") {{")?;
        for (i, op) in self.ops.iter().enumerate() {
            let ty = op.dtype;
            match &op.kind {
                OpKind::Load { buffer, access } => writeln!(f, "  %{i}: {ty} = load {buffer}{access}"),
                OpKind::LoadAt { buffer, access, index, stride, size } => {
                    writeln!(f, "  %{i}: {ty} = load {buffer}{access} at {index}*({stride}) below {size}")
                }
                OpKind::AxisIndex { access } => writeln!(f, "  %{i}: {ty} = index {access}"),
                OpKind::Const(c) => writeln!(f, "  %{i}: {ty} = const {c:?}"),
                OpKind::Size(d) => writeln!(f, "  %{i}: {ty} = size {d}"),
                OpKind::Unary(p, x) => writeln!(f, "  %{i}: {ty} = {} {x}", p.name()),
                OpKind::Binary(p, a, b) => writeln!(f, "  %{i}: {ty} = {} {a}, {b}", p.name()),
                OpKind::Where(c, a, b) => writeln!(f, "  %{i}: {ty} = where {c}, {a}, {b}"),
                OpKind::Cast(x) => writeln!(f, "  %{i}: {ty} = cast {x}"),
                OpKind::Reduce { op, over, x } => {
                    writeln!(f, "  %{i}: {ty} = {} over {} {x}", op.name(), format!("{over:?}").to_lowercase())
                }
                OpKind::Store { buffer, access, value } => writeln!(f, "  store {buffer}{access}, {value}: {ty}"),
            }?;
        }
        f.write_str("}")
    }
}
