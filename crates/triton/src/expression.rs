//! The text of one operation. Meanings are those of `permalloy_ir::PrimOp`.

use crate::device::{Device, Family};
use crate::error::{Missing, Part};
use permalloy_ir::{DType, PrimOp};
use permalloy_loops::kernel::Scalar;

/// The Triton type of a dtype.
pub(crate) fn type_name(dtype: DType) -> Part<&'static str> {
    Ok(match dtype {
        DType::F64 => "tl.float64",
        DType::F32 => "tl.float32",
        DType::BF16 => "tl.bfloat16",
        DType::F16 => "tl.float16",
        DType::I64 => "tl.int64",
        DType::I32 => "tl.int32",
        DType::I16 => "tl.int16",
        DType::I8 => "tl.int8",
        DType::U8 => "tl.uint8",
        DType::Bool => "tl.int1",
        other => return Err(Missing::DType(other)),
    })
}

/// The type in which values of a dtype are held: 16-bit floats in f32.
pub(crate) fn held(dtype: DType) -> Part<&'static str> {
    type_name(dtype.compute())
}

fn float(x: f64) -> String {
    if x.is_nan() {
        "float(\"nan\")".to_string()
    } else if x.is_infinite() {
        if x > 0.0 { "float(\"inf\")" } else { "float(\"-inf\")" }.to_string()
    } else {
        format!("{x:?}")
    }
}

/// A constant as a Python number, in brackets where a sign could be misread.
pub(crate) fn literal(c: Scalar, dtype: DType) -> Part<String> {
    type_name(dtype)?;
    let number = match c {
        Scalar::Float(x) => x,
        Scalar::Int(x) => x as f64,
        Scalar::Bool(x) => f64::from(u8::from(x)),
    };
    let text = if dtype.is_float() {
        float(number)
    } else if dtype == DType::Bool {
        u8::from(number != 0.0).to_string()
    } else {
        let n = match c {
            Scalar::Int(x) => x,
            Scalar::Float(x) => x as i64,
            Scalar::Bool(x) => i64::from(x),
        };
        match dtype {
            DType::I32 => i64::from(n as i32),
            DType::I16 => i64::from(n as i16),
            DType::I8 => i64::from(n as i8),
            DType::U8 => i64::from(n as u8),
            _ => n,
        }
        .to_string()
    };
    Ok(if text.starts_with('-') { format!("({text})") } else { text })
}

/// What a reduction starts from, as a Python number.
pub(crate) fn identity(op: PrimOp, dtype: DType) -> Part<String> {
    let (low, high) = match dtype {
        DType::I64 => ("-9223372036854775808", "9223372036854775807"),
        DType::I32 => ("-2147483648", "2147483647"),
        DType::I16 => ("-32768", "32767"),
        DType::I8 => ("-128", "127"),
        DType::U8 => ("0", "255"),
        DType::Bool => ("0", "1"),
        _ => ("float(\"-inf\")", "float(\"inf\")"),
    };
    Ok(match op {
        PrimOp::Sum if dtype.is_float() => "0.0",
        PrimOp::Sum | PrimOp::Any => "0",
        PrimOp::All => "1",
        PrimOp::Amax => low,
        PrimOp::Amin => high,
        _ => return Err(Missing::Operation { op, dtype }),
    }
    .to_string())
}

pub(crate) fn apply(text: &str) -> String {
    let simple = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    let call = text.ends_with(')') && balanced_call(text);
    if simple || call { text.to_string() } else { format!("({text})") }
}

/// `f(…)` or `(…)` as a whole, so that a method may follow.
fn balanced_call(text: &str) -> bool {
    let mut depth = 0i32;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 => return false,
            _ => {}
        }
        if depth == 0 && c == ')' && i + 1 < text.len() && !text[i + 1..].starts_with('.') {
            return false;
        }
    }
    true
}

/// A value held for `from` as one held for `to`. `round`: 16-bit floats are rounded even though they are held wider.
pub(crate) fn convert(text: &str, from: DType, to: DType, round: bool) -> Part<String> {
    let held_to = held(to)?;
    if round && matches!(to, DType::BF16 | DType::F16) && from != to {
        return Ok(format!("{}.to(tl.float32)", rounded_call(text, from, to)?));
    }
    if round && from == to && matches!(to, DType::BF16 | DType::F16) {
        return Ok(format!("{}.to({}).to(tl.float32)", apply(text), type_name(to)?));
    }
    if from.compute() == to.compute() {
        return Ok(text.to_string());
    }
    Ok(match (from, to) {
        (_, DType::Bool) => format!("{} != 0", apply(text)),
        // Through the widest integer, which then wraps.
        (f, t) if f.is_float() && t.is_int() && t.size() < 4 => format!("{}.to(tl.int32).to({held_to})", apply(text)),
        _ => format!("{}.to({held_to})", apply(text)),
    })
}

fn rounded_call(text: &str, from: DType, to: DType) -> Part<String> {
    let value = convert(text, from, to, false)?;
    Ok(format!("{}.to({})", apply(&value), type_name(to)?))
}

/// A value held for `from`, in the dtype of the memory it is stored to.
pub(crate) fn rounded(text: &str, from: DType, memory: DType) -> Part<String> {
    let value = convert(text, from, memory, false)?;
    Ok(match memory {
        DType::BF16 | DType::F16 => format!("{}.to({})", apply(&value), type_name(memory)?),
        // A bool is a byte.
        DType::Bool => format!("{}.to(tl.int8)", apply(&value)),
        _ => value,
    })
}

/// Written with an operator between its operands, one of which may be a number.
pub(crate) fn is_infix(op: PrimOp, dtype: DType) -> bool {
    use PrimOp::*;
    matches!(op, Add | Sub | Mul | Eq | Ne | Lt | Le | Gt | Ge) && dtype != DType::Bool
}

pub(crate) fn binary(device: &Device, op: PrimOp, a: &str, b: &str, dtype: DType) -> Part<String> {
    use PrimOp::*;
    let missing = || Err(Missing::Operation { op, dtype });
    let infix = |o: &str| Ok(format!("{a} {o} {b}"));
    let call = |f: &str| Ok(format!("{f}({a}, {b})"));
    let (is_float, is_int, is_bool) = (dtype.is_float(), dtype.is_int(), dtype == DType::Bool);
    match op {
        Eq => infix("=="),
        Ne => infix("!="),
        Lt => infix("<"),
        Le => infix("<="),
        Gt => infix(">"),
        Ge => infix(">="),
        Add | Max if is_bool => infix("|"),
        Mul | Min if is_bool => infix("&"),
        Add => infix("+"),
        Sub if !is_bool => infix("-"),
        Mul => infix("*"),
        Div if dtype == DType::F64 || is_float && !device.ieee_division => infix("/"),
        Div if is_float => call("tl.div_rn"),
        Max if is_float => call("greater_or_nan"),
        Min if is_float => call("less_or_nan"),
        Max => call("tl.maximum"),
        Min => call("tl.minimum"),
        FloorDiv | TruncDiv if is_float => {
            let quotient = binary(device, Div, a, b, dtype)?;
            Ok(if op == FloorDiv { format!("tl.floor({quotient})") } else { format!("truncate({quotient})") })
        }
        FloorDiv if is_int => call("floor_div"),
        TruncDiv if is_int => call("trunc_div"),
        Mod if is_single(device, dtype) => call("float_modulo"),
        Fmod if is_single(device, dtype) => call("float_remainder"),
        Mod if is_int => call("modulo"),
        Fmod if is_int => call("remainder"),
        Pow if is_single(device, dtype) => call("power"),
        Hypot if is_single(device, dtype) => call("hypot"),
        CopySign if is_float => call("copy_sign"),
        And if !is_float => infix("&"),
        Or if !is_float => infix("|"),
        Xor if !is_float => infix("^"),
        Shl if is_int => Ok(format!("shift_left({a}, {b}, {})", 8 * dtype.size())),
        Shr if is_int => Ok(format!("shift_right({a}, {b}, {})", 8 * dtype.size())),
        _ => missing(),
    }
}

/// Held in f32, on a device that can compute it in doubles.
fn is_single(device: &Device, dtype: DType) -> bool {
    dtype.compute() == DType::F32 && !device.forbidden_dtypes.contains(&DType::F64)
}

/// `x` to a constant power by multiplication, where that is as accurate.
pub(crate) fn power(device: &Device, x: &str, n: f64, dtype: DType) -> Part<Option<String>> {
    let text = match n {
        1.0 => x.to_string(),
        2.0 => format!("{x} * {x}"),
        3.0 => format!("{x} * {x} * {x}"),
        4.0 if dtype.is_int() => format!("({x} * {x}) * ({x} * {x})"),
        0.5 if dtype.is_float() => unary(device, PrimOp::Sqrt, x, dtype, dtype)?,
        -0.5 if dtype.is_float() => unary(device, PrimOp::Rsqrt, x, dtype, dtype)?,
        -1.0 if dtype.is_float() => unary(device, PrimOp::Reciprocal, x, dtype, dtype)?,
        _ => return Ok(None),
    };
    Ok(Some(text))
}

pub(crate) fn unary(device: &Device, op: PrimOp, x: &str, from: DType, to: DType) -> Part<String> {
    use PrimOp::*;
    let missing = || Err(Missing::Operation { op, dtype: from });
    let wide = from == DType::F64;
    let call = |f: &str| Ok(format!("{f}({x})"));
    let ours = |f: &str| Ok(if wide { format!("{f}_f64({x})") } else { format!("{f}({x})") });
    let made = match op {
        IsNan if from.is_float() => Ok(format!("{x} != {x}")),
        IsInf if from.is_float() => Ok(format!("tl.abs({x}) == float(\"inf\")")),
        IsNan | IsInf => Ok(format!("({x} != {x})")),
        Not if from == DType::Bool => Ok(format!("{x} == 0")),
        Not if from.is_int() => Ok(format!("~{x}")),
        Neg if from != DType::Bool => Ok(format!("-{x}")),
        Abs if from == DType::U8 => Ok(x.to_string()),
        Abs if from != DType::Bool => call("tl.abs"),
        Sign if from.is_float() => call("sign"),
        Sign if from.is_int() => call("int_sign"),
        Sign => Ok(x.to_string()),
        Floor | Ceil | Round | Trunc if !from.is_float() => Ok(x.to_string()),
        Floor => call("tl.floor"),
        Ceil => call("tl.ceil"),
        Round => call("round_half_even"),
        Trunc => call("truncate"),
        _ if !from.is_float() => missing(),
        Exp if wide || device.family == Family::Ascend => call("tl.exp"),
        Exp => call("exp"),
        Exp2 => call("tl.exp2"),
        Expm1 => ours("expm1"),
        Log => call("tl.log"),
        Log2 => call("tl.log2"),
        Log10 => Ok(format!("tl.log({x}) * 0.4342944819032518")),
        Log1p => call("log1p"),
        Sqrt if !wide && device.ieee_division => call("tl.sqrt_rn"),
        Sqrt => call("tl.sqrt"),
        Rsqrt => call("tl.rsqrt"),
        Reciprocal if !wide && device.ieee_division => {
            Ok(format!("tl.div_rn(tl.full({x}.shape, 1.0, tl.float32), {x})"))
        }
        Reciprocal => Ok(format!("1.0 / {x}")),
        Sin => call("tl.sin"),
        Cos => call("tl.cos"),
        Tan => Ok(format!("tl.sin({x}) / tl.cos({x})")),
        Erf => call("tl.erf"),
        Sigmoid => ours("sigmoid"),
        Tanh => ours("tanh"),
        Sinh | Cosh | Asinh | Acosh | Atanh if !wide => call(op.name()),
        _ => missing(),
    }?;
    let made_dtype = if matches!(op, IsNan | IsInf) { DType::Bool } else { from };
    convert(&made, made_dtype, to, false)
}

/// The call that folds an axis of a tile, which stays with one element. Bools are folded as integers.
pub(crate) fn reduction(op: PrimOp, x: &str, dtype: DType, axis: usize) -> Part<String> {
    let held = held(dtype)?;
    let narrow = dtype.is_int() && dtype.size() < 4;
    let wide = if narrow { format!("{}.to(tl.int32)", apply(x)) } else { x.to_string() };
    let back = |text: String| if narrow { format!("{text}.to({held})") } else { text };
    Ok(match op {
        PrimOp::Sum if dtype != DType::Bool => back(format!("tl.sum({wide}, {axis}, keep_dims=True)")),
        PrimOp::Amax if dtype.is_float() => format!("reduce_max_or_nan({x}, {axis})"),
        PrimOp::Amin if dtype.is_float() => format!("reduce_min_or_nan({x}, {axis})"),
        PrimOp::Amax if dtype.is_int() => back(format!("tl.max({wide}, {axis}, keep_dims=True)")),
        PrimOp::Amin if dtype.is_int() => back(format!("tl.min({wide}, {axis}, keep_dims=True)")),
        PrimOp::Any | PrimOp::Amax if dtype == DType::Bool => {
            format!("(tl.max({}.to(tl.int32), {axis}, keep_dims=True) != 0)", apply(x))
        }
        PrimOp::All | PrimOp::Amin if dtype == DType::Bool => {
            format!("(tl.min({}.to(tl.int32), {axis}, keep_dims=True) != 0)", apply(x))
        }
        _ => return Err(Missing::Operation { op, dtype }),
    })
}

/// One more element of a reduction.
pub(crate) fn combined(op: PrimOp, total: &str, x: &str, dtype: DType) -> Part<String> {
    Ok(match op {
        PrimOp::Sum => format!("{total} + {}", apply(x)),
        PrimOp::Amax if dtype.is_float() => format!("greater_or_nan({total}, {x})"),
        PrimOp::Amin if dtype.is_float() => format!("less_or_nan({total}, {x})"),
        PrimOp::Amax if dtype.is_int() => format!("tl.maximum({total}, {x})"),
        PrimOp::Amin if dtype.is_int() => format!("tl.minimum({total}, {x})"),
        PrimOp::Any | PrimOp::Amax => format!("{total} | {}", apply(x)),
        PrimOp::All | PrimOp::Amin => format!("{total} & {}", apply(x)),
        _ => return Err(Missing::Operation { op, dtype }),
    })
}
