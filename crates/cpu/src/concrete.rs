//! A kernel with its sizes known: integers instead of expressions, axes of size one gone, dead code gone,
//! every access proved to lie inside of its buffer, every dtype conversion explicit.

use crate::class::Class;
use crate::error::CompileError;
use permalloy_ir::{DType, Dim, PrimKind, PrimOp, SymbolValues};
use permalloy_loops::kernel as ir;
use permalloy_loops::kernel::{AxisRole, Buffer, BufferId, Kernel, OpKind, Over, Scalar};

/// `low <= i < high` on an axis.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Mask {
    pub axis: usize,
    pub low: i64,
    pub high: i64,
}

/// Address in elements: `offset + Σ strides[a] · i_a`, where the masks hold.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Access {
    pub offset: i64,
    pub strides: Vec<i64>,
    pub masks: Vec<Mask>,
}

impl Access {
    pub(crate) fn ignores(&self, axis: usize) -> bool {
        self.strides[axis] == 0 && self.masks.iter().all(|m| m.axis != axis)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Node {
    Load {
        buffer: usize,
        access: Access,
    },
    LoadAt {
        buffer: usize,
        access: Access,
        index: usize,
        stride: i64,
        size: i64,
    },
    Index(Access),
    /// Bits of the value in its class.
    Const(u64),
    Unary(PrimOp, usize),
    Binary(PrimOp, usize, usize),
    Where(usize, usize, usize),
    /// From the operand's class to this one's, rounded to the dtype.
    Cast(usize),
    Reduce {
        op: PrimOp,
        over: Over,
        x: usize,
    },
    Store {
        buffer: usize,
        access: Access,
        value: usize,
    },
}

impl Node {
    pub(crate) fn operands(&self) -> Vec<usize> {
        match self {
            Node::Load { .. } | Node::Index(_) | Node::Const(_) => vec![],
            Node::LoadAt { index, .. } => vec![*index],
            Node::Unary(_, x) | Node::Cast(x) | Node::Reduce { x, .. } | Node::Store { value: x, .. } => vec![*x],
            Node::Binary(_, a, b) => vec![*a, *b],
            Node::Where(c, a, b) => vec![*c, *a, *b],
        }
    }

    pub(crate) fn access(&self) -> Option<&Access> {
        match self {
            Node::Load { access, .. }
            | Node::LoadAt { access, .. }
            | Node::Index(access)
            | Node::Store { access, .. } => Some(access),
            _ => None,
        }
    }

    pub(crate) fn access_mut(&mut self) -> Option<&mut Access> {
        match self {
            Node::Load { access, .. }
            | Node::LoadAt { access, .. }
            | Node::Index(access)
            | Node::Store { access, .. } => Some(access),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Value {
    pub node: Node,
    /// The memory's for loads and stores.
    pub dtype: DType,
    pub class: Class,
}

/// An axis longer than one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Axis {
    pub size: usize,
    pub role: AxisRole,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Concrete {
    pub axes: Vec<Axis>,
    pub values: Vec<Value>,
}

/// Elements a buffer spans, for the given sizes.
pub(crate) fn extent(b: &Buffer, symbols: &SymbolValues) -> Result<i64, CompileError> {
    let mut last = 0i64;
    for (n, s) in b.shape.iter().zip(&b.strides) {
        let (n, s) = (n.eval(symbols)?, s.eval(symbols)?);
        if n == 0 {
            return Ok(0);
        }
        last += (n - 1) * s;
    }
    Ok(last + 1)
}

fn malformed<T>(kernel: &str, what: impl std::fmt::Display) -> Result<T, CompileError> {
    Err(CompileError::Malformed(format!("kernel {kernel}: {what}")))
}

/// Checks that every address the access can form lies in `0..extent`; `span` is the largest index times its stride for a gather.
pub(crate) fn check_bounds(
    buffer: &Buffer,
    extent: i64,
    access: &Access,
    sizes: &[i64],
    span: (i64, i64),
) -> Result<(), CompileError> {
    let (mut low, mut high) = (i128::from(access.offset), i128::from(access.offset));
    for (a, (&stride, &size)) in access.strides.iter().zip(sizes).enumerate() {
        let (mut first, mut last) = (0, size - 1);
        for m in access.masks.iter().filter(|m| m.axis == a) {
            first = first.max(m.low);
            last = last.min(m.high - 1);
        }
        if first > last {
            return Ok(());
        }
        let (x, y) = (i128::from(first) * i128::from(stride), i128::from(last) * i128::from(stride));
        low += x.min(y);
        high += x.max(y);
    }
    low += i128::from(span.0);
    high += i128::from(span.1);
    if low < 0 || high >= i128::from(extent) {
        let clamp = |x: i128| x.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        return Err(CompileError::OutOfBounds {
            buffer: buffer.name.clone(),
            low: clamp(low),
            high: clamp(high),
            extent,
        });
    }
    Ok(())
}

pub(crate) fn eval_access(
    access: &ir::Access,
    axes: usize,
    name: &str,
    symbols: &SymbolValues,
) -> Result<Access, CompileError> {
    if access.strides.len() != axes || access.masks.iter().any(|m| m.axis >= axes) {
        return malformed(name, format_args!("access {access} does not fit {axes} axes"));
    }
    let eval = |d: &Dim| d.eval(symbols);
    let masks = access
        .masks
        .iter()
        .map(|m| Ok(Mask { axis: m.axis, low: eval(&m.low)?, high: eval(&m.high)? }))
        .collect::<Result<_, CompileError>>()?;
    let strides = access.strides.iter().map(eval).collect::<Result<_, _>>()?;
    Ok(Access { offset: eval(&access.offset)?, strides, masks })
}

pub(crate) fn buffer_of(buffers: &[Buffer], id: BufferId, kernel: &str) -> Result<usize, CompileError> {
    match buffers.get(id.0 as usize) {
        Some(_) => Ok(id.0 as usize),
        None => malformed(kernel, format_args!("there is no buffer {id}")),
    }
}

fn class_of(dtype: DType) -> Result<Class, CompileError> {
    Class::of(dtype).ok_or(CompileError::DType(dtype))
}

/// Bits of a constant in the class of `dtype`, integers wrapped to its width.
fn constant(c: Scalar, dtype: DType, class: Class) -> u64 {
    match (class, c) {
        (Class::F32, Scalar::Float(x)) => u64::from((x as f32).to_bits()),
        (Class::F32, Scalar::Int(x)) => u64::from((x as f32).to_bits()),
        (Class::F32, Scalar::Bool(x)) => u64::from(f32::from(u8::from(x)).to_bits()),
        (Class::F64, Scalar::Float(x)) => x.to_bits(),
        (Class::F64, Scalar::Int(x)) => (x as f64).to_bits(),
        (Class::F64, Scalar::Bool(x)) => f64::from(u8::from(x)).to_bits(),
        (Class::I64, Scalar::Float(x)) => wrap(x as i64, dtype) as u64,
        (Class::I64, Scalar::Int(x)) => wrap(x, dtype) as u64,
        (Class::I64, Scalar::Bool(x)) => u64::from(x),
        (Class::U8, Scalar::Float(x)) => u64::from(x != 0.0),
        (Class::U8, Scalar::Int(x)) => u64::from(x != 0),
        (Class::U8, Scalar::Bool(x)) => u64::from(x),
    }
}

/// An integer wrapped to the width of `dtype`.
pub(crate) fn wrap(x: i64, dtype: DType) -> i64 {
    match dtype {
        DType::I32 => i64::from(x as i32),
        DType::I16 => i64::from(x as i16),
        DType::I8 => i64::from(x as i8),
        DType::U8 => i64::from(x as u8),
        _ => x,
    }
}

/// What a reduction of nothing gives, as bits of its class.
pub(crate) fn identity(op: PrimOp, dtype: DType, class: Class) -> u64 {
    let (lowest, highest) = match dtype {
        DType::I64 => (i64::MIN, i64::MAX),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        _ => (0, 255),
    };
    let (float, int, bool) = match op {
        PrimOp::Prod => (1.0, 1, true),
        PrimOp::Amax | PrimOp::Argmax => (f64::NEG_INFINITY, lowest, false),
        PrimOp::Amin | PrimOp::Argmin => (f64::INFINITY, highest, true),
        PrimOp::All => (1.0, 1, true),
        _ => (0.0, 0, false),
    };
    match class {
        Class::F32 => u64::from((float as f32).to_bits()),
        Class::F64 => float.to_bits(),
        Class::I64 => int as u64,
        Class::U8 => u64::from(bool),
    }
}

pub(crate) fn is_arg(op: PrimOp) -> bool {
    matches!(op, PrimOp::Argmax | PrimOp::Argmin)
}

struct Builder<'a> {
    name: &'a str,
    buffers: &'a [Buffer],
    symbols: &'a SymbolValues,
    sizes: Vec<i64>,
    roles: Vec<AxisRole>,
    values: Vec<Value>,
    /// Value of each operation of the kernel; stores have none.
    map: Vec<Option<usize>>,
    /// Some axis has no points.
    empty: bool,
    /// By value: it varies over an axis without points, so that it has none.
    nowhere: Vec<bool>,
}

/// Instantiates a kernel for concrete sizes.
pub(crate) fn concrete(kernel: &Kernel, buffers: &[Buffer], symbols: &SymbolValues) -> Result<Concrete, CompileError> {
    let sizes = kernel.axes.iter().map(|a| a.size.eval(symbols)).collect::<Result<Vec<_>, _>>()?;
    if let Some(n) = sizes.iter().find(|n| **n < 0) {
        return malformed(&kernel.name, format_args!("an axis has size {n}"));
    }
    if sizes.iter().try_fold(1i64, |p, n| p.checked_mul((*n).max(1))).is_none_or(|p| p > i64::MAX >> 8) {
        return malformed(&kernel.name, "more points than can be counted");
    }
    let roles: Vec<AxisRole> = kernel.axes.iter().map(|a| a.role).collect();
    let empty = sizes.contains(&0);
    let mut b = Builder {
        name: &kernel.name,
        buffers,
        symbols,
        sizes,
        roles,
        values: Vec::new(),
        nowhere: Vec::new(),
        map: Vec::with_capacity(kernel.ops.len()),
        empty,
    };
    for op in &kernel.ops {
        let v = b.op(op)?;
        b.map.push(v);
    }
    Ok(b.finish())
}

impl Builder<'_> {
    fn push(&mut self, node: Node, dtype: DType) -> Result<usize, CompileError> {
        self.nowhere.push(node.operands().iter().any(|o| self.nowhere[*o]));
        self.values.push(Value { node, dtype, class: class_of(dtype)? });
        Ok(self.values.len() - 1)
    }

    fn operand(&self, id: ir::OpId) -> Result<usize, CompileError> {
        match self.map.get(id.0 as usize) {
            Some(Some(v)) => Ok(*v),
            _ => malformed(self.name, format_args!("operand {id} is not a value made before")),
        }
    }

    /// `x` in the class of `dtype`.
    fn in_class(&mut self, x: usize, dtype: DType) -> Result<usize, CompileError> {
        if self.values[x].class == class_of(dtype)? { Ok(x) } else { self.push(Node::Cast(x), dtype) }
    }

    /// Narrow integers wrap after each operation.
    fn wrapped(&mut self, v: usize) -> Result<usize, CompileError> {
        let dtype = self.values[v].dtype;
        if dtype.is_int() && dtype != DType::I64 { self.push(Node::Cast(v), dtype) } else { Ok(v) }
    }

    fn access(&self, a: &ir::Access) -> Result<Access, CompileError> {
        let mut access = eval_access(a, self.sizes.len(), self.name, self.symbols)?;
        access.masks.retain(|m| m.low > 0 || m.high < self.sizes[m.axis]);
        Ok(access)
    }

    /// Varies over an axis without points.
    fn has_no_points(&self, access: &Access) -> bool {
        self.empty && self.sizes.iter().enumerate().any(|(a, n)| *n == 0 && !access.ignores(a))
    }

    /// What stands for a value that has no points.
    fn nothing(&mut self, dtype: DType) -> Result<usize, CompileError> {
        let v = self.push(Node::Const(0), dtype)?;
        self.nowhere[v] = true;
        Ok(v)
    }

    fn bounds(&self, buffer: usize, access: &Access, span: (i64, i64)) -> Result<(), CompileError> {
        if self.has_no_points(access) {
            return Ok(());
        }
        let sizes: Vec<i64> = self.sizes.iter().map(|n| (*n).max(1)).collect();
        let b = &self.buffers[buffer];
        check_bounds(b, extent(b, self.symbols)?, access, &sizes, span)
    }

    /// Nowhere inside of its masks.
    fn never(&self, access: &Access) -> bool {
        access.masks.iter().any(|m| m.low >= m.high || m.high <= 0 || m.low >= self.sizes[m.axis])
    }

    fn op(&mut self, op: &ir::KernelOp) -> Result<Option<usize>, CompileError> {
        let dtype = op.dtype;
        let class = class_of(dtype)?;
        let v = match &op.kind {
            OpKind::Load { buffer, access } => {
                let buffer = buffer_of(self.buffers, *buffer, self.name)?;
                let access = self.access(access)?;
                if self.has_no_points(&access) {
                    self.nothing(dtype)?
                } else if self.never(&access) {
                    self.push(Node::Const(0), dtype)?
                } else {
                    self.bounds(buffer, &access, (0, 0))?;
                    let memory = self.buffers[buffer].dtype;
                    let v = self.push(Node::Load { buffer, access }, memory)?;
                    self.in_class(v, dtype)?
                }
            }
            OpKind::LoadAt { buffer, access, index, stride, size } => {
                let buffer = buffer_of(self.buffers, *buffer, self.name)?;
                let access = self.access(access)?;
                let index = self.operand(*index)?;
                if self.values[index].class != Class::I64 {
                    return malformed(self.name, format_args!("index of {} is no integer", self.buffers[buffer].name));
                }
                let (stride, size) = (stride.eval(self.symbols)?, size.eval(self.symbols)?);
                if self.has_no_points(&access) || self.nowhere[index] {
                    self.nothing(dtype)?
                } else if self.never(&access) {
                    self.push(Node::Const(0), dtype)?
                } else {
                    if size > 0 {
                        let reach = (size - 1).checked_mul(stride).ok_or(permalloy_ir::EvalError::Overflow)?;
                        self.bounds(buffer, &access, (reach.min(0), reach.max(0)))?;
                    }
                    let memory = self.buffers[buffer].dtype;
                    let v = self.push(Node::LoadAt { buffer, access, index, stride, size }, memory)?;
                    self.in_class(v, dtype)?
                }
            }
            OpKind::AxisIndex { access } => {
                let access = self.access(access)?;
                let v = if self.has_no_points(&access) {
                    self.nothing(DType::I64)?
                } else if self.never(&access) {
                    self.push(Node::Const(0), DType::I64)?
                } else {
                    self.push(Node::Index(access), DType::I64)?
                };
                if dtype == DType::I64 { v } else { self.push(Node::Cast(v), dtype)? }
            }
            OpKind::Const(c) => self.push(Node::Const(constant(*c, dtype, class)), dtype)?,
            OpKind::Size(d) => {
                let n = d.eval(self.symbols)?;
                self.push(Node::Const(constant(Scalar::Int(n), dtype, class)), dtype)?
            }
            OpKind::Unary(p, x) => {
                let x = self.operand(*x)?;
                self.unary(*p, x, dtype)?
            }
            OpKind::Binary(p, x, y) => {
                let (x, y) = (self.operand(*x)?, self.operand(*y)?);
                if self.values[x].class != self.values[y].class {
                    return malformed(self.name, format_args!("operands of {p} have different dtypes"));
                }
                let operand = self.values[x].class;
                if !crate::pointwise::has_binary(*p, operand) {
                    return Err(CompileError::Unsupported { op: *p, dtype: self.values[x].dtype });
                }
                let made = if p.kind() == PrimKind::Compare { DType::Bool } else { self.values[x].dtype };
                let made = if class_of(made)? == class { dtype } else { made };
                let v = self.push(Node::Binary(*p, x, y), made)?;
                let v = self.wrapped(v)?;
                self.in_class(v, dtype)?
            }
            OpKind::Where(c, x, y) => {
                let (c, x, y) = (self.operand(*c)?, self.operand(*x)?, self.operand(*y)?);
                let c = self.in_class(c, DType::Bool)?;
                let (x, y) = (self.in_class(x, dtype)?, self.in_class(y, dtype)?);
                self.push(Node::Where(c, x, y), dtype)?
            }
            OpKind::Cast(x) => {
                let x = self.operand(*x)?;
                let from = self.values[x].dtype;
                let free = from == dtype && !matches!(dtype, DType::BF16 | DType::F16)
                    || self.values[x].class == class && matches!(dtype, DType::F32 | DType::I64);
                if free { x } else { self.push(Node::Cast(x), dtype)? }
            }
            OpKind::Reduce { op, over, x } => {
                let x = self.operand(*x)?;
                self.reduce(*op, *over, x, dtype)?
            }
            OpKind::Store { buffer, access, value } => {
                let value = self.operand(*value)?;
                self.store(*buffer, access, value)?;
                return Ok(None);
            }
        };
        Ok(Some(v))
    }

    fn unary(&mut self, p: PrimOp, x: usize, dtype: DType) -> Result<usize, CompileError> {
        let (from, class) = (self.values[x].dtype, self.values[x].class);
        let test = matches!(p, PrimOp::IsNan | PrimOp::IsInf);
        if test && matches!(class, Class::I64 | Class::U8) {
            return self.push(Node::Const(0), DType::Bool);
        }
        let unchanged = matches!(p, PrimOp::Floor | PrimOp::Ceil | PrimOp::Round | PrimOp::Trunc)
            && matches!(class, Class::I64 | Class::U8)
            || p == PrimOp::Sign && class == Class::U8;
        if unchanged {
            return Ok(x);
        }
        if !crate::pointwise::has_unary(p, class) {
            return Err(CompileError::Unsupported { op: p, dtype: from });
        }
        let made = match test {
            true => DType::Bool,
            false if class_of(dtype)? == class => dtype,
            false => from,
        };
        let v = self.push(Node::Unary(p, x), made)?;
        let v = self.wrapped(v)?;
        self.in_class(v, dtype)
    }

    fn reduce(&mut self, op: PrimOp, over: Over, x: usize, dtype: DType) -> Result<usize, CompileError> {
        if op.kind() != PrimKind::Reduce {
            return malformed(self.name, format_args!("{op} is no reduction"));
        }
        let folds = |r: AxisRole| match over {
            Over::Cols => r == AxisRole::Col,
            Over::Rows => r == AxisRole::Row,
            Over::All => r != AxisRole::Batch,
        };
        let folds_nothing = self.sizes.iter().zip(&self.roles).any(|(n, r)| *n == 0 && folds(*r));
        if is_arg(op) {
            let v = if folds_nothing {
                self.push(Node::Const(0), DType::I64)?
            } else {
                self.push(Node::Reduce { op, over, x }, DType::I64)?
            };
            return self.in_class(v, dtype);
        }
        // A bool is summed as the integer it is asked for.
        let x = self.in_class(x, dtype)?;
        let class = self.values[x].class;
        let sums = matches!(op, PrimOp::Sum | PrimOp::Prod);
        let logical = matches!(op, PrimOp::Any | PrimOp::All);
        if sums && class == Class::U8 || logical && class != Class::U8 {
            return Err(CompileError::Unsupported { op, dtype: self.values[x].dtype });
        }
        if folds_nothing {
            return self.push(Node::Const(identity(op, dtype, class)), dtype);
        }
        let v = self.push(Node::Reduce { op, over, x }, dtype)?;
        // The result of Over::Cols may be computed with; that of the others is wrapped by its store.
        if over == Over::Cols { self.wrapped(v) } else { Ok(v) }
    }

    fn store(&mut self, buffer: BufferId, access: &ir::Access, value: usize) -> Result<(), CompileError> {
        let buffer = buffer_of(self.buffers, buffer, self.name)?;
        let access = self.access(access)?;
        if !access.masks.is_empty() {
            return malformed(self.name, "a store has masks");
        }
        if self.empty {
            let varies = self.sizes.iter().enumerate().any(|(a, n)| *n == 0 && access.strides[a] != 0);
            let batch = self.sizes.iter().zip(&self.roles).any(|(n, r)| *n == 0 && *r == AxisRole::Batch);
            if varies || batch {
                return Ok(());
            }
        }
        self.bounds(buffer, &access, (0, 0))?;
        let memory = self.buffers[buffer].dtype;
        let after_nest = matches!(self.values[value].node, Node::Reduce { over: Over::Rows | Over::All, .. });
        // What exists only after the nest is converted when it is finished.
        let value = if after_nest { value } else { self.in_class(value, memory)? };
        self.push(Node::Store { buffer, access, value }, memory)?;
        Ok(())
    }

    /// Drops what no store needs, and the axes of fewer than two points.
    fn finish(mut self) -> Concrete {
        let n = self.values.len();
        let mut live = vec![false; n];
        for i in (0..n).rev() {
            live[i] |= matches!(self.values[i].node, Node::Store { .. });
            if live[i] {
                for o in self.values[i].node.operands() {
                    live[o] = true;
                }
            }
        }
        let kept: Vec<usize> = (0..self.sizes.len()).filter(|a| self.sizes[*a] > 1).collect();
        let new_axis = |a: usize| kept.iter().position(|k| *k == a);
        let mut renamed = vec![usize::MAX; n];
        let mut values = Vec::with_capacity(n);
        for (i, mut v) in std::mem::take(&mut self.values).into_iter().enumerate() {
            if !live[i] {
                continue;
            }
            if let Some(access) = v.node.access_mut() {
                // Masks on dropped axes hold: those that never do were dealt with, and index 0 is all there is.
                access.masks.retain_mut(|m| new_axis(m.axis).map(|a| m.axis = a).is_some());
                access.strides = kept.iter().map(|k| access.strides[*k]).collect();
            }
            rename(&mut v.node, &renamed);
            renamed[i] = values.len();
            values.push(v);
        }
        let axes = kept.iter().map(|a| Axis { size: self.sizes[*a] as usize, role: self.roles[*a] }).collect();
        Concrete { axes, values }
    }
}

pub(crate) fn rename(node: &mut Node, to: &[usize]) {
    match node {
        Node::Load { .. } | Node::Index(_) | Node::Const(_) => {}
        Node::LoadAt { index, .. } => *index = to[*index],
        Node::Unary(_, x) | Node::Cast(x) | Node::Reduce { x, .. } | Node::Store { value: x, .. } => *x = to[*x],
        Node::Binary(_, a, b) => (*a, *b) = (to[*a], to[*b]),
        Node::Where(c, a, b) => (*c, *a, *b) = (to[*c], to[*a], to[*b]),
    }
}
