//! Writing the body of a kernel: nested scopes of lines, a name for every value, parameters as they are needed.
//!
//! A value is written where it is first asked for, in the outermost scope that has everything it depends on: what does
//! not vary inside of a loop is written before it.

use crate::device::{Device, Family};
use crate::error::{Missing, Part, construct};
use crate::launch::{Arg, ArgKind, Memory};
use crate::schedule::{Schedule, Walk};
use crate::{address, expression};
use permalloy_ir::{DType, Dim, PrimOp};
use permalloy_loops::kernel::{Buffer, BufferId, BufferKind, Kernel, OpId, OpKind};
use std::collections::{BTreeMap, BTreeSet};

/// A value, or an index, as text.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub text: String,
    /// Dims of the schedule it varies over, as bits.
    pub dims: u32,
    /// The scope in which it exists.
    pub depth: usize,
    /// A Python number.
    pub literal: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    Op(u32),
    /// Index of a run of axes of a dim: first and last axis.
    Index(usize, usize),
    /// A mask of an access: axis and its bounds.
    Mask(usize, Dim, Dim),
}

#[derive(Default, Debug)]
struct Scope {
    header: String,
    lines: Vec<String>,
    values: BTreeMap<Key, Value>,
}

/// Where memory of the launch's own begins among the buffers.
#[derive(Debug)]
pub(crate) struct Memories<'a> {
    pub buffers: &'a [Buffer],
    /// Buffers from here on are scratch.
    pub own: usize,
}

#[derive(Debug)]
pub(crate) struct Emitter<'a> {
    pub k: &'a Kernel,
    pub memories: &'a Memories<'a>,
    pub device: &'static Device,
    pub s: Schedule,
    pub wide: bool,
    pub args: Vec<Arg>,
    pub faults: Vec<String>,
    scopes: Vec<Scope>,
    names: BTreeSet<String>,
    arg_names: BTreeMap<String, String>,
    /// Depth of the scope that has the index of each dim.
    pub open: Vec<Option<usize>>,
    /// Text of the tile index of each dim that the grid walks.
    pub tiles: Vec<Option<String>>,
    pub masked: Vec<bool>,
}

/// What no value of ours may be called.
const RESERVED: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield", "tl", "triton", "range", "float", "min",
    "max", "tile",
];

impl<'a> Emitter<'a> {
    pub(crate) fn new(
        k: &'a Kernel,
        memories: &'a Memories<'a>,
        device: &'static Device,
        s: Schedule,
        wide: bool,
    ) -> Emitter<'a> {
        let mut names: BTreeSet<String> = RESERVED.iter().map(|s| s.to_string()).collect();
        names.extend(crate::helpers::names().map(str::to_string));
        names.insert(k.name.clone());
        let mut dims = Vec::new();
        for d in &s.dims {
            names.insert(index_name(d.name));
            names.insert(bound_name(d.name));
            names.insert(start_name(d.name));
            names.insert(block_name(d.name));
            let exact = d.size.as_const().is_some_and(|n| n % i64::from(d.block) == 0);
            dims.push(d.position.is_some() && !exact);
        }
        let count = s.dims.len();
        Emitter {
            k,
            memories,
            device,
            s,
            wide,
            args: Vec::new(),
            faults: Vec::new(),
            scopes: vec![Scope::default()],
            names,
            arg_names: BTreeMap::new(),
            open: vec![None; count],
            tiles: vec![None; count],
            masked: dims,
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.scopes.len() - 1
    }

    pub(crate) fn line(&mut self, depth: usize, text: String) {
        self.scopes[depth].lines.push(text);
    }

    /// Opens a scope under a `for` or `if` line.
    pub(crate) fn open_scope(&mut self, header: String) {
        self.scopes.push(Scope { header, ..Scope::default() });
    }

    pub(crate) fn close_scope(&mut self) {
        let Some(scope) = self.scopes.pop() else { return };
        for open in self.open.iter_mut() {
            if *open == Some(self.scopes.len()) {
                *open = None;
            }
        }
        let Some(parent) = self.scopes.last_mut() else { return };
        if scope.lines.is_empty() {
            return;
        }
        parent.lines.push(scope.header);
        parent.lines.extend(scope.lines.into_iter().map(|l| format!("    {l}")));
    }

    /// All lines; scopes are closed.
    pub(crate) fn finish(mut self) -> (Vec<String>, Vec<Arg>, Vec<String>) {
        while self.scopes.len() > 1 {
            self.close_scope();
        }
        (self.scopes.swap_remove(0).lines, self.args, self.faults)
    }

    /// A name that nothing else has.
    pub(crate) fn name(&mut self, wish: &str) -> String {
        let mut base: String = wish.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if base.starts_with(|c: char| c.is_ascii_digit() || c == '_') || base.is_empty() {
            base.insert(0, 'v');
        }
        let mut name = base.clone();
        let mut n = 1;
        while !self.names.insert(name.clone()) {
            n += 1;
            name = format!("{base}_{n}");
        }
        name
    }

    pub(crate) fn known(&self, key: &Key) -> Option<&Value> {
        self.scopes.iter().rev().find_map(|s| s.values.get(key))
    }

    pub(crate) fn keep(&mut self, key: Key, value: Value) {
        let depth = value.depth;
        self.scopes[depth].values.insert(key, value);
    }

    /// Writes `name = text` in the scope of `depth` and remembers it.
    pub(crate) fn define(&mut self, key: Key, wish: &str, text: String, dims: u32, depth: usize) -> Value {
        let name = self.name(wish);
        self.line(depth, format!("{name} = {text}"));
        let value = Value { text: name, dims, depth, literal: false };
        self.keep(key, value.clone());
        value
    }

    /// The scope that has the indices of all these dims.
    pub(crate) fn depth_of(&self, dims: u32) -> Part<usize> {
        let mut depth = 0;
        for d in bits(dims) {
            match self.open[d] {
                Some(at) => depth = depth.max(at),
                None => {
                    return construct(format!("a value is needed outside of its loop over {}", self.s.dims[d].name));
                }
            }
        }
        Ok(depth)
    }

    // --- parameters ---

    pub(crate) fn buffer(&self, b: BufferId) -> &'a Buffer {
        &self.memories.buffers[b.0 as usize]
    }

    /// The pointer parameter of a buffer.
    pub(crate) fn pointer(&mut self, b: BufferId) -> String {
        let buffer = self.buffer(b);
        let at = b.0 as usize;
        let memory = if at >= self.memories.own { Memory::Scratch(at - self.memories.own) } else { Memory::Buffer(b) };
        let aligned = !matches!(buffer.kind, BufferKind::Input(_) | BufferKind::Native);
        let kind = ArgKind::Pointer { memory, dtype: buffer.dtype, aligned };
        self.parameter(&format!("{}_ptr", buffer.name), &format!("pointer {b}"), kind)
    }

    fn fault_pointer(&mut self) -> String {
        let kind = ArgKind::Pointer { memory: Memory::Fault, dtype: DType::I32, aligned: true };
        self.parameter("fault_ptr", "fault", kind)
    }

    fn parameter(&mut self, wish: &str, key: &str, kind: ArgKind) -> String {
        if let Some(name) = self.arg_names.get(key) {
            return name.clone();
        }
        let name = self.name(wish);
        self.arg_names.insert(key.to_string(), name.clone());
        self.args.push(Arg { name: name.clone(), kind });
        name
    }

    /// A size, stride or offset: a literal or a parameter.
    pub(crate) fn size(&mut self, d: &Dim) -> String {
        if let Some(c) = d.as_const() {
            return c.to_string();
        }
        let wish = d.as_symbol().map_or_else(|| size_name(&d.to_string()), |s| s.to_string());
        let multiple_of_16 = d.div_exact(&Dim::from(16)).is_some();
        let kind = ArgKind::Size { value: d.clone(), wide: self.wide, multiple_of_16 };
        self.parameter(&wish, &format!("size {d}"), kind)
    }

    /// An offset; where a negative constant is taken for an access out of bounds, although masks keep it inside, it is a
    /// parameter.
    pub(crate) fn offset(&mut self, d: &Dim) -> String {
        let hidden = d.as_const().is_some_and(|c| c < 0) && self.device.family == Family::Ascend;
        if hidden { self.hidden(d) } else { self.size(d) }
    }

    /// A size that is a parameter even if it is constant: the compiler shall draw no conclusions from it.
    pub(crate) fn hidden(&mut self, d: &Dim) -> String {
        let Some(c) = d.as_const() else { return self.size(d) };
        let kind = ArgKind::Size { value: d.clone(), wide: self.wide, multiple_of_16: false };
        let wish = if c < 0 { format!("minus_{}", -c) } else { format!("plus_{c}") };
        self.parameter(&wish, &format!("size {d}"), kind)
    }

    // --- indices of the tile ---

    pub(crate) fn shape(&self, dims: u32) -> String {
        let mut shape = vec!["1".to_string(); self.s.rank];
        for d in bits(dims) {
            if let Some(p) = self.s.dims[d].position {
                shape[p] = block_name(self.s.dims[d].name);
            }
        }
        format!("[{}]", shape.join(", "))
    }

    fn arange(&self, d: usize) -> String {
        let dim = &self.s.dims[d];
        let mut text = format!("tl.arange(0, {})", block_name(dim.name));
        if self.s.rank == 2 {
            text.push_str(if dim.position == Some(0) { "[:, None]" } else { "[None, :]" });
        }
        if self.wide { format!("{text}.to(tl.int64)") } else { text }
    }

    /// Writes the index of a dim, from `first` on, in the current scope, and its mask.
    pub(crate) fn open_dim(&mut self, d: usize, first: Option<&str>) {
        let depth = self.depth();
        self.open[d] = Some(depth);
        let name = self.s.dims[d].name;
        let arange = self.arange(d);
        let text = match first {
            _ if self.s.dims[d].position.is_none() => first.unwrap_or("0").to_string(),
            Some(first) => format!("{first} + {arange}"),
            None => arange,
        };
        let index = index_name(name);
        self.line(depth, format!("{index} = {text}"));
        if self.masked[d] {
            let size = self.s.dims[d].size.clone();
            let size = self.size(&size);
            self.line(depth, format!("{} = {index} < {size}", bound_name(name)));
        }
    }

    /// `x_in & r_in` of these dims; None when none of them is masked.
    pub(crate) fn bounds(&self, dims: u32) -> Vec<String> {
        bits(dims).filter(|d| self.masked[*d]).map(|d| bound_name(self.s.dims[d].name)).collect()
    }

    /// Dims that an access varies over.
    pub(crate) fn dims_of(&self, access: &permalloy_loops::kernel::Access) -> u32 {
        let mut out = 0;
        for (d, dim) in self.s.dims.iter().enumerate() {
            if dim.axes.iter().any(|a| !access.ignores(*a)) {
                out |= 1 << d;
            }
        }
        out
    }

    // --- values ---

    /// The value of an operation, written if it is not there yet.
    pub(crate) fn value(&mut self, id: OpId) -> Part<Value> {
        let key = Key::Op(id.0);
        if let Some(v) = self.known(&key) {
            return Ok(v.clone());
        }
        let op = self.k.op(id).clone();
        if self.device.forbidden_dtypes.contains(&op.dtype) {
            return Err(Missing::DType(op.dtype));
        }
        let made = match &op.kind {
            OpKind::Load { buffer, access } => address::load(self, *buffer, access, op.dtype)?,
            OpKind::LoadAt { buffer, access, index, stride, size } => {
                address::load_at(self, *buffer, access, *index, stride, size, op.dtype)?
            }
            OpKind::AxisIndex { access } => address::axis_index(self, access, op.dtype)?,
            OpKind::Const(c) => {
                let text = expression::literal(*c, op.dtype)?;
                return Ok(Value { text, dims: 0, depth: 0, literal: true });
            }
            OpKind::Size(d) => {
                let text = self.size(d);
                if d.as_const().is_some() {
                    let literal = permalloy_loops::kernel::Scalar::Int(d.as_const().unwrap_or(0));
                    let text = expression::literal(literal, op.dtype)?;
                    return Ok(Value { text, dims: 0, depth: 0, literal: true });
                }
                (format!("{text}.to({})", expression::held(op.dtype)?), 0, 0)
            }
            OpKind::Unary(p, x) => {
                let from = self.k.op(*x).dtype;
                let x = self.tensor(*x)?;
                (expression::unary(self.device, *p, &x.text, from, op.dtype)?, x.dims, x.depth)
            }
            OpKind::Binary(p, a, b) => self.binary(*p, *a, *b, op.dtype)?,
            OpKind::Where(c, a, b) => {
                let (from_a, from_b) = (self.k.op(*a).dtype, self.k.op(*b).dtype);
                let c = self.tensor(*c)?;
                let (a, b) = self.two(*a, *b)?;
                let (x, y) = (
                    expression::convert(&a.text, from_a, op.dtype, false)?,
                    expression::convert(&b.text, from_b, op.dtype, false)?,
                );
                let text = format!("tl.where({}, {x}, {y})", c.text);
                (text, a.dims | b.dims | c.dims, a.depth.max(b.depth).max(c.depth))
            }
            OpKind::Cast(x) => {
                let from = self.k.op(*x).dtype;
                let x = self.tensor(*x)?;
                let text = expression::convert(&x.text, from, op.dtype, true)?;
                if text == x.text {
                    self.keep(key, x.clone());
                    return Ok(x);
                }
                (text, x.dims, x.depth)
            }
            OpKind::Reduce { op: p, over, x } => {
                let folded = self.s.folded(*over).to_vec();
                let from = self.k.op(*x).dtype;
                let v = self.tensor(*x)?;
                self.reduced(*p, &v, from, op.dtype, &folded)?
            }
            OpKind::Store { .. } => return construct("a store is no value"),
        };
        let wish = self.wish(id);
        Ok(self.define(key, &wish, made.0, made.1, made.2))
    }

    /// What a value would like to be called.
    fn wish(&self, id: OpId) -> String {
        match &self.k.op(id).kind {
            OpKind::Load { buffer, .. } => self.buffer(*buffer).name.to_string(),
            OpKind::LoadAt { buffer, .. } => format!("{}_at", self.buffer(*buffer).name),
            OpKind::AxisIndex { .. } => "index".to_string(),
            OpKind::Unary(p, _) | OpKind::Binary(p, ..) => format!("{}_{}", p.name(), id.0),
            OpKind::Reduce { op, .. } => format!("{}_{}", op.name(), id.0),
            OpKind::Where(..) => format!("where_{}", id.0),
            OpKind::Cast(_) => format!("cast_{}", id.0),
            _ => format!("value_{}", id.0),
        }
    }

    /// As `value`, never a Python number.
    pub(crate) fn tensor(&mut self, id: OpId) -> Part<Value> {
        let v = self.value(id)?;
        if !v.literal {
            return Ok(v);
        }
        let dtype = self.k.op(id).dtype;
        let text = format!("tl.full({}, {}, {})", self.shape(0), v.text, expression::held(dtype)?);
        Ok(self.define(Key::Op(id.0), "constant", text, 0, 0))
    }

    /// Two operands, at most one of them a Python number.
    fn two(&mut self, a: OpId, b: OpId) -> Part<(Value, Value)> {
        let x = self.value(a)?;
        let y = if x.literal { self.tensor(b)? } else { self.value(b)? };
        Ok((x, y))
    }

    fn binary(&mut self, p: PrimOp, a: OpId, b: OpId, dtype: DType) -> Part<(String, u32, usize)> {
        let from = self.k.op(a).dtype;
        let power = if p == PrimOp::Pow { self.constant(b) } else { None };
        if let Some(n) = power {
            let x = self.tensor(a)?;
            if let Some(text) = expression::power(self.device, &x.text, n, from)? {
                return Ok((text, x.dims, x.depth));
            }
        }
        // Functions are called with tensors.
        let (x, y) = if expression::is_infix(p, from) { self.two(a, b)? } else { (self.tensor(a)?, self.tensor(b)?) };
        let text = expression::binary(self.device, p, &x.text, &y.text, from)?;
        let made = if matches!(p.kind(), permalloy_ir::PrimKind::Compare) { DType::Bool } else { from };
        Ok((expression::convert(&text, made, dtype, false)?, x.dims | y.dims, x.depth.max(y.depth)))
    }

    fn constant(&self, id: OpId) -> Option<f64> {
        match self.k.op(id).kind {
            OpKind::Const(permalloy_loops::kernel::Scalar::Float(x)) => Some(x),
            OpKind::Const(permalloy_loops::kernel::Scalar::Int(x)) => Some(x as f64),
            _ => None,
        }
    }

    /// The value, over the whole of `dims` in shape.
    pub(crate) fn spread(&self, v: &Value, dims: u32) -> String {
        let shape = v.dims | dims;
        if shape == v.dims { v.text.clone() } else { format!("tl.broadcast_to({}, {})", v.text, self.shape(shape)) }
    }

    /// The value with the identity of the reduction where folded dims are out of bounds.
    pub(crate) fn neutral(&self, p: PrimOp, text: String, dtype: DType, folded: u32) -> Part<String> {
        let bounds = self.bounds(folded);
        if bounds.is_empty() {
            return Ok(text);
        }
        let (inside, identity) = (bounds.join(" & "), expression::identity(p, dtype)?);
        let choice = expression::apply(&text);
        // Triton 3.2 makes an integer of a choice between a bool and a number, and a loop's total must keep its type.
        Ok(match (dtype, &*identity) {
            (DType::Bool, "0") => format!("{choice} & {inside}"),
            (DType::Bool, _) => format!("{choice} | (({inside}) == 0)"),
            _ => format!("tl.where({inside}, {text}, {identity})"),
        })
    }

    /// A value folded over dims of the tile, which stay with one element.
    pub(crate) fn reduced(
        &mut self,
        p: PrimOp,
        v: &Value,
        from: DType,
        dtype: DType,
        folded: &[usize],
    ) -> Part<(String, u32, usize)> {
        let mask = folded.iter().fold(0, |m, d| m | 1 << d);
        let text = expression::convert(&self.spread(v, mask), from, dtype, false)?;
        let text = self.neutral(p, text, dtype, mask)?;
        let depth = v.depth.max(self.depth_of(v.dims | mask)?);
        Ok((self.fold(p, text, dtype, v.dims | mask, folded)?, v.dims & !mask, depth))
    }

    /// The calls that fold a tile over `dims`, whose elements out of bounds are neutral.
    pub(crate) fn fold(&self, p: PrimOp, mut text: String, dtype: DType, dims: u32, folded: &[usize]) -> Part<String> {
        let of_tile = |d: &usize| self.s.dims[*d].position.is_some();
        let one = bits(dims).filter(of_tile).all(|d| folded.contains(&d) || self.s.dims[d].block == 1);
        let flat = self.s.rank == 2 && one && !self.device.folds_to_one;
        // Outer axis first: A5's compiler fails on the other order in some kernels.
        let folded: Vec<usize> = folded.iter().copied().filter(of_tile).collect();
        for (i, d) in folded.iter().enumerate() {
            let Some(axis) = self.s.dims[*d].position else { continue };
            text = if flat && i + 1 == folded.len() {
                let row = format!("tl.reshape({text}, [{}])", block_name(self.s.dims[*d].name));
                format!("tl.reshape({}, [1, 1])", expression::reduction(p, &row, dtype, 0)?)
            } else {
                expression::reduction(p, &text, dtype, axis)?
            };
        }
        Ok(text)
    }

    /// Writes a fault code where `bad` holds.
    pub(crate) fn fault(&mut self, bad: &str, dims: u32, depth: usize, message: String) {
        let pointer = self.fault_pointer();
        self.faults.push(message);
        let code = self.faults.len();
        let shape = self.shape(dims);
        self.line(depth, format!("tl.store({pointer} + tl.zeros({shape}, tl.int32), {code}, mask={bad})"));
    }

    /// The grid's dims, outermost first.
    pub(crate) fn grid_dims(&self) -> Vec<usize> {
        let walked = |w: &Walk| matches!(w, Walk::Grid | Walk::Divided { .. });
        (0..self.s.dims.len()).filter(|d| walked(&self.s.dims[*d].walk)).collect()
    }

    /// Number of blocks, or of parts, of a dim.
    pub(crate) fn tile_count(&self, d: usize) -> Dim {
        let dim = &self.s.dims[d];
        let block = Dim::from(i64::from(dim.block));
        match &dim.walk {
            Walk::Divided { parts, .. } => parts.clone(),
            Walk::Grid => match dim.size.as_const() {
                Some(n) => Dim::from((n + i64::from(dim.block) - 1) / i64::from(dim.block)),
                None => (&dim.size + &Dim::from(i64::from(dim.block) - 1)).floor_div(&block),
            },
            Walk::Whole | Walk::Loop => Dim::ONE,
        }
    }
}

pub(crate) fn bits(dims: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |d| dims >> d & 1 == 1)
}

/// The variable that holds the indices of a dim.
pub(crate) fn index_name(dim: &str) -> String {
    format!("i{dim}")
}

/// Where they are in bounds.
pub(crate) fn bound_name(dim: &str) -> String {
    format!("i{dim}_in")
}

/// The first of a block.
pub(crate) fn start_name(dim: &str) -> String {
    format!("{dim}_start")
}

pub(crate) fn block_name(dim: &str) -> String {
    format!("{}_BLOCK", dim.to_uppercase())
}

/// `2*s0 + 1` as a name.
fn size_name(text: &str) -> String {
    let mut out = String::from("size_");
    for c in text.chars().filter(|c| *c != ' ') {
        match c {
            '*' => out.push_str("_x_"),
            '+' => out.push_str("_plus_"),
            '-' => out.push_str("_minus_"),
            ',' => out.push('_'),
            '(' | ')' => out.push('_'),
            c => out.push(c),
        }
    }
    out.trim_end_matches('_').to_string()
}
