//! The type rule of each prim.

use crate::dim::Dim;
use crate::dtype::{DType, Device};
use crate::graph::{Arg, TensorType};
use crate::prim::{PrimKind, PrimOp};

/// Result type of `op` on operands of the given types; the message says what is wrong otherwise. A result without
/// operands is given on the CPU: where it is made is the graph's choice.
pub fn infer(op: PrimOp, operands: &[&TensorType], attr: &dyn Fn(&str) -> Option<Arg>) -> Result<TensorType, String> {
    let rule = Rule { op, operands, attr };
    let arity_ok = match op.kind() {
        PrimKind::Unary | PrimKind::Reduce | PrimKind::Scan => operands.len() == 1,
        PrimKind::Binary => operands.len() == 2,
        PrimKind::Compare => operands.len() == if matches!(op, PrimOp::IsNan | PrimOp::IsInf) { 1 } else { 2 },
        PrimKind::Select => operands.len() == if op == PrimOp::Where { 3 } else { 1 },
        PrimKind::Source => operands.is_empty(),
        PrimKind::View => match op {
            PrimOp::Concat => !operands.is_empty(),
            PrimOp::After => operands.len() > 1,
            _ => operands.len() == 1,
        },
        PrimKind::Index => operands.len() == 2,
    };
    if !arity_ok {
        return Err(format!("{op} takes {}, got {} operands", op.signature(), operands.len()));
    }
    let mut ty = match op.kind() {
        PrimKind::Unary | PrimKind::Binary | PrimKind::Compare | PrimKind::Select => rule.elementwise()?,
        PrimKind::Source => rule.source()?,
        PrimKind::Reduce => rule.reduce()?,
        PrimKind::View => rule.view()?,
        PrimKind::Index => rule.index()?,
        PrimKind::Scan => {
            rule.dim_of(operands[0])?;
            operands[0].clone()
        }
    };
    ty.strides = None;
    // A number on the CPU may stand beside tensors elsewhere.
    ty.device = operands.iter().map(|t| t.device).find(|d| *d != Device::Cpu).unwrap_or_default();
    Ok(ty)
}

struct Rule<'a> {
    op: PrimOp,
    operands: &'a [&'a TensorType],
    attr: &'a dyn Fn(&str) -> Option<Arg>,
}

impl Rule<'_> {
    fn missing(&self, name: &str) -> String {
        format!("{} needs attribute {name}: {}", self.op, self.op.signature())
    }

    fn dims(&self, name: &str) -> Result<Vec<Dim>, String> {
        (self.attr)(name).and_then(|a| a.as_dims()).ok_or_else(|| self.missing(name))
    }

    fn ints(&self, name: &str) -> Result<Vec<i64>, String> {
        (self.attr)(name).and_then(|a| a.as_i64s()).ok_or_else(|| self.missing(name))
    }

    fn one(&self, name: &str) -> Result<Dim, String> {
        (self.attr)(name).and_then(|a| a.as_dim()).ok_or_else(|| self.missing(name))
    }

    fn dtype(&self) -> Result<DType, String> {
        match (self.attr)("dtype") {
            Some(Arg::DType(d)) => Ok(d),
            _ => Err(self.missing("dtype")),
        }
    }

    /// Attribute `dim`, checked against the rank of `ty`.
    fn dim_of(&self, ty: &TensorType) -> Result<usize, String> {
        let d = self.one("dim")?.as_const().ok_or_else(|| self.missing("dim"))?;
        if d < 0 || d as usize >= ty.rank() {
            return Err(format!("{}: dim={d} is outside of rank {}", self.op, ty.rank()));
        }
        Ok(d as usize)
    }

    fn elementwise(&self) -> Result<TensorType, String> {
        let (op, t) = (self.op, self.operands);
        for other in &t[1..] {
            if other.shape != t[0].shape {
                return Err(format!("{op}: operand shapes differ: {} and {}", shape(&t[0].shape), shape(&other.shape)));
            }
        }
        if let Some(bad) = t.iter().find(|t| !t.dtype.is_computed()) {
            return Err(format!("{op}: dtype {} has no arithmetic", bad.dtype));
        }
        let same = |a: &TensorType, b: &TensorType| {
            if a.dtype == b.dtype {
                Ok(())
            } else {
                Err(format!("{op}: operand dtypes differ: {} and {}", a.dtype, b.dtype))
            }
        };
        let mut ty = t[0].clone();
        match op {
            PrimOp::Where => {
                if t[0].dtype != DType::Bool {
                    return Err(format!("{op}: the condition is {}, not bool", t[0].dtype));
                }
                same(t[1], t[2])?;
                ty.dtype = t[1].dtype;
            }
            PrimOp::Cast => {
                ty.dtype = self.dtype()?;
                if !ty.dtype.is_computed() {
                    return Err(format!("{op}: no cast to {}", ty.dtype));
                }
            }
            _ => {
                if t.len() == 2 {
                    same(t[0], t[1])?;
                }
                if op.kind() == PrimKind::Compare {
                    ty.dtype = DType::Bool;
                }
            }
        }
        let float_only = match op.kind() {
            PrimKind::Unary => !matches!(
                op,
                PrimOp::Neg
                    | PrimOp::Abs
                    | PrimOp::Sign
                    | PrimOp::Not
                    | PrimOp::Floor
                    | PrimOp::Ceil
                    | PrimOp::Round
                    | PrimOp::Trunc
            ),
            _ => matches!(op, PrimOp::Div | PrimOp::Atan2 | PrimOp::CopySign | PrimOp::Hypot),
        };
        if float_only && !t[0].dtype.is_float() {
            return Err(format!("{op}: operand is {}, not floating point", t[0].dtype));
        }
        let not_float = matches!(op, PrimOp::Not | PrimOp::And | PrimOp::Or | PrimOp::Xor | PrimOp::Shl | PrimOp::Shr);
        if not_float && t[0].dtype.is_float() {
            return Err(format!("{op}: operand is {}, not bool or integer", t[0].dtype));
        }
        let not_bool = matches!(
            op,
            PrimOp::Neg
                | PrimOp::Abs
                | PrimOp::Sub
                | PrimOp::Shl
                | PrimOp::Shr
                | PrimOp::FloorDiv
                | PrimOp::TruncDiv
                | PrimOp::Mod
                | PrimOp::Fmod
                | PrimOp::Pow
        );
        if not_bool && t[0].dtype == DType::Bool {
            return Err(format!("{op}: operand is bool; cast it first"));
        }
        Ok(ty)
    }

    fn source(&self) -> Result<TensorType, String> {
        match self.op {
            PrimOp::Full => {
                (self.attr)("value").ok_or_else(|| self.missing("value"))?;
                Ok(TensorType::new(self.dtype()?, self.dims("shape")?))
            }
            _ => Ok(TensorType::new(DType::I64, vec![self.one("size")?])),
        }
    }

    fn reduce(&self) -> Result<TensorType, String> {
        let (op, x) = (self.op, self.operands[0]);
        let dims = self.ints("dims")?;
        let sorted = dims.windows(2).all(|w| w[0] < w[1]);
        if !sorted || dims.iter().any(|d| *d < 0 || *d as usize >= x.rank()) {
            return Err(format!("{op}: dims={dims:?} are not sorted distinct dims of rank {}", x.rank()));
        }
        let mut ty = x.clone();
        ty.shape = (0..x.rank()).filter(|i| !dims.contains(&(*i as i64))).map(|i| x.shape[i].clone()).collect();
        match op {
            PrimOp::Argmax | PrimOp::Argmin => {
                if dims.len() != 1 {
                    return Err(format!("{op}: one dim, not {dims:?}"));
                }
                ty.dtype = DType::I64;
            }
            PrimOp::Any | PrimOp::All if x.dtype != DType::Bool => {
                return Err(format!("{op}: operand is {}, not bool", x.dtype));
            }
            PrimOp::Sum | PrimOp::Prod if x.dtype == DType::Bool => {
                return Err(format!("{op}: operand is bool; cast it first"));
            }
            _ => {}
        }
        Ok(ty)
    }

    fn view(&self) -> Result<TensorType, String> {
        let (op, x) = (self.op, self.operands[0]);
        let mut ty = x.clone();
        match op {
            PrimOp::Reshape => {
                ty.shape = self.dims("shape")?;
                let (from, to) = (x.numel(), ty.numel());
                if let (Some(a), Some(b)) = (from.as_const(), to.as_const())
                    && a != b
                {
                    return Err(format!("{op}: {} has {a} elements, {} has {b}", shape(&x.shape), shape(&ty.shape)));
                }
            }
            PrimOp::Permute => {
                let perm = self.ints("perm")?;
                let mut seen = perm.clone();
                seen.sort_unstable();
                if seen.iter().copied().ne(0..x.rank() as i64) {
                    return Err(format!("{op}: perm={perm:?} is no permutation of rank {}", x.rank()));
                }
                ty.shape = perm.iter().map(|p| x.shape[*p as usize].clone()).collect();
            }
            PrimOp::Expand => {
                let to = self.dims("shape")?;
                if to.len() != x.rank() {
                    return Err(format!("{op}: rank {} to rank {}", x.rank(), to.len()));
                }
                for (a, b) in x.shape.iter().zip(&to) {
                    if a != b && !a.is_const(1) {
                        return Err(format!("{op}: {} does not expand to {}", shape(&x.shape), shape(&to)));
                    }
                }
                ty.shape = to;
            }
            PrimOp::Slice => {
                let d = self.dim_of(x)?;
                let (start, end, step) = (self.one("start")?, self.one("end")?, self.one("step")?);
                let Some(step) = step.as_const().filter(|s| *s >= 1) else {
                    return Err(format!("{op}: step must be a positive constant"));
                };
                if let (Some(s), Some(e)) = (start.as_const(), end.as_const())
                    && (s < 0 || s > e || x.shape[d].as_const().is_some_and(|n| e > n))
                {
                    return Err(format!("{op}: {s}..{e} does not lie in 0..{}", x.shape[d]));
                }
                ty.shape[d] = (&(&end - &start) + &Dim::from(step - 1)).floor_div(&Dim::from(step));
            }
            PrimOp::Window => {
                let d = self.dim_of(x)?;
                let (count, size, step) = (self.one("count")?, self.one("size")?, self.one("step")?);
                let Some(step) = step.as_const().filter(|s| *s >= 1) else {
                    return Err(format!("{op}: step must be a positive constant"));
                };
                if let (Some(c), Some(s)) = (count.as_const(), size.as_const()) {
                    let end = if c == 0 { Some(s) } else { (c - 1).checked_mul(step).and_then(|at| at.checked_add(s)) };
                    let fits = |n: i64| end.is_some_and(|e| e <= n);
                    if c < 0 || s < 0 || x.shape[d].as_const().is_some_and(|n| !fits(n)) {
                        return Err(format!("{op}: {c} windows of {s} every {step} do not fit into {}", x.shape[d]));
                    }
                }
                ty.shape[d] = count;
                ty.shape.push(size);
            }
            PrimOp::After => {}
            PrimOp::Flip => {
                if self.ints("dims")?.iter().any(|d| *d < 0 || *d as usize >= x.rank()) {
                    return Err(format!("{op}: a dim is outside of rank {}", x.rank()));
                }
            }
            PrimOp::Pad => {
                let (low, high) = (self.dims("low")?, self.dims("high")?);
                if low.len() != x.rank() || high.len() != x.rank() {
                    return Err(format!("{op}: one low and one high a dim, rank is {}", x.rank()));
                }
                if low.iter().chain(&high).any(|p| p.as_const().is_some_and(|c| c < 0)) {
                    return Err(format!("{op}: negative padding"));
                }
                ty.shape = (0..x.rank()).map(|i| &(&x.shape[i] + &low[i]) + &high[i]).collect();
            }
            _ => {
                let d = self.dim_of(x)?;
                for other in &self.operands[1..] {
                    let same = other.rank() == x.rank()
                        && other.dtype == x.dtype
                        && (0..x.rank()).all(|i| i == d || other.shape[i] == x.shape[i]);
                    if !same {
                        return Err(format!(
                            "{op}: {}{} does not join {}{} along dim {d}",
                            other.dtype,
                            shape(&other.shape),
                            x.dtype,
                            shape(&x.shape)
                        ));
                    }
                    ty.shape[d] = &ty.shape[d] + &other.shape[d];
                }
            }
        }
        Ok(ty)
    }

    fn index(&self) -> Result<TensorType, String> {
        let (op, x, index) = (self.op, self.operands[0], self.operands[1]);
        if !matches!(index.dtype, DType::I64 | DType::I32) {
            return Err(format!("{op}: index is {}, not i64 or i32", index.dtype));
        }
        let mut ty = x.clone();
        match op {
            PrimOp::Gather => {
                let d = self.dim_of(x)?;
                if index.rank() != x.rank() || (0..x.rank()).any(|i| i != d && index.shape[i] != x.shape[i]) {
                    return Err(format!(
                        "{op}: index {} does not fit {} along dim {d}",
                        shape(&index.shape),
                        shape(&x.shape)
                    ));
                }
                ty.shape = index.shape.clone();
            }
            PrimOp::Take => {
                let d = self.dim_of(x)?;
                ty.shape.splice(d..=d, index.shape.iter().cloned());
            }
            PrimOp::IndexSum => {
                let d = self.one("dim")?.as_const().ok_or_else(|| self.missing("dim"))?;
                let d = usize::try_from(d).map_err(|_| format!("{op}: dim={d} is negative"))?;
                if d.saturating_add(index.rank()) > x.rank() || x.shape[d..d + index.rank()] != index.shape[..] {
                    return Err(format!(
                        "{op}: index {} does not lie in {} at dim {d}",
                        shape(&index.shape),
                        shape(&x.shape)
                    ));
                }
                ty.shape.splice(d..d + index.rank(), [self.one("size")?]);
            }
            _ => {
                let d = self.dim_of(x)?;
                if index.shape != x.shape {
                    return Err(format!("{op}: index {} differs from source {}", shape(&index.shape), shape(&x.shape)));
                }
                ty.shape[d] = self.one("size")?;
            }
        }
        Ok(ty)
    }
}

/// A shape as the text form writes it.
pub fn shape(dims: &[Dim]) -> String {
    let inner: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", inner.join(", "))
}
