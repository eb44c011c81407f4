//! Prints a whole program, for people and for tests; a kernel's own text is in `kernel.rs`.

use crate::kernel::{
    Buffer, BufferKind, Group, Kernel, NativeArg, NativeCall, Program, ProgramInput, ProgramOutput, Scatter, Step,
    TensorRef,
};
use permalloy_ir::{Dim, GraphKind, Role, contiguous_strides, float_text, quote, shape_text};
use std::fmt::{self, Display, Formatter};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            GraphKind::Joint { .. } => "joint",
            GraphKind::Forward => "forward",
            GraphKind::Backward => "backward",
            GraphKind::Inference => "inference",
        };
        writeln!(f, "program {} {kind} {{", quote(&self.name))?;
        for s in &self.symbols {
            writeln!(f, "  {s}")?;
        }
        for (i, b) in self.buffers.iter().enumerate() {
            writeln!(f, "  b{i}: {b}")?;
        }
        for input in &self.inputs {
            match input {
                ProgramInput::Tensor { buffer, role: Role::Tangent } => writeln!(f, "  input {buffer} role=tangent"),
                ProgramInput::Tensor { buffer, .. } => writeln!(f, "  input {buffer}"),
                ProgramInput::Int(d) => writeln!(f, "  input {d}"),
            }?;
        }
        for s in &self.steps {
            let text = match s {
                Step::Kernel(k) => k.to_string(),
                Step::Group(g) => g.to_string(),
                Step::Scatter(s) => s.to_string(),
                Step::Native(n) => n.to_string(),
            };
            for line in text.lines() {
                writeln!(f, "  {line}")?;
            }
        }
        for o in &self.outputs {
            match o {
                ProgramOutput::Tensor(t) => writeln!(f, "  output {t}"),
                ProgramOutput::Int(d) => writeln!(f, "  output {d}"),
                ProgramOutput::None => writeln!(f, "  output none"),
            }?;
        }
        f.write_str("}\n")
    }
}

/// `f32[2, 3] intermediate %name`, with strides where they are not row-major.
impl Display for Buffer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, shape_text(&self.shape))?;
        write_strides(f, &self.shape, &self.strides)?;
        if self.device != Default::default() {
            write!(f, " @{}", self.device)?;
        }
        let kind = match self.kind {
            BufferKind::Input(_) => "input",
            BufferKind::Output => "output",
            BufferKind::Intermediate => "intermediate",
            BufferKind::Native => "native",
        };
        write!(f, " {kind} %{}", self.name)
    }
}

impl Display for Group {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "group {} {{", self.name)?;
        for line in self.kernels.iter().map(Kernel::to_string).collect::<Vec<_>>().join("\n").lines() {
            writeln!(f, "  {line}")?;
        }
        f.write_str("}")
    }
}

impl Display for Scatter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "scatter {}(", self.name)?;
        for (i, n) in self.axes.iter().enumerate() {
            write!(f, "{}i{i}: {n}", if i == 0 { "" } else { ", " })?;
        }
        writeln!(f, ") {{")?;
        let ((out, to), (src, from), (index, at)) = (&self.out, &self.src, &self.index);
        writeln!(f, "  {out}{to} at {index}{at}*({}) below {} += {src}{from}", self.stride, self.size)?;
        f.write_str("}")
    }
}

impl Display for NativeCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, r) in self.results.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match r {
                Some(b) => write!(f, "{b}")?,
                None => f.write_str("_")?,
            }
        }
        write!(f, "{}native {}(", if self.results.is_empty() { "" } else { " = " }, self.op)?;
        let named = self.args.iter().map(|a| (None, a)).chain(self.kwargs.iter().map(|(n, a)| (Some(n), a)));
        for (i, (name, a)) in named.enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            if let Some(name) = name {
                write!(f, "{name}=")?;
            }
            a.fmt(f)?;
        }
        f.write_str(")")
    }
}

impl Display for NativeArg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            NativeArg::Tensor(t) => t.fmt(f),
            NativeArg::Int(d) => d.fmt(f),
            NativeArg::Float(x) => f.write_str(&float_text(*x)),
            NativeArg::Bool(b) => b.fmt(f),
            NativeArg::Str(s) => f.write_str(&quote(s)),
            NativeArg::DType(d) => d.fmt(f),
            NativeArg::Device(d) => write!(f, "@{d}"),
            NativeArg::Layout(s) => write!(f, "layout:{s}"),
            NativeArg::MemoryFormat(s) => write!(f, "memory_format:{s}"),
            NativeArg::List(items) => {
                f.write_str("[")?;
                for (i, a) in items.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { ", " })?;
                    a.fmt(f)?;
                }
                f.write_str("]")
            }
            NativeArg::None => f.write_str("none"),
        }
    }
}

/// `b3[2, 3]`, with strides and offset where they are not those of a row-major tensor at the buffer's start.
impl Display for TensorRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.buffer, shape_text(&self.shape))?;
        write_strides(f, &self.shape, &self.strides)?;
        if self.offset.is_const(0) { Ok(()) } else { write!(f, " offset={}", self.offset) }
    }
}

fn write_strides(f: &mut Formatter<'_>, shape: &[Dim], strides: &[Dim]) -> fmt::Result {
    if *strides == *contiguous_strides(shape) { Ok(()) } else { write!(f, " strides={}", shape_text(strides)) }
}
