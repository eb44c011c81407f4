//! Elementwise prims.

use crate::round::{int_range, wrap};
use crate::special::{digamma, erfinv};
use crate::tensor::{Data, Tensor};
use permalloy_ir::{DType, PrimOp};

type Result<T = Tensor> = std::result::Result<T, String>;

pub(crate) fn unary(op: PrimOp, x: &Tensor) -> Result {
    let data = match &x.data {
        Data::F(v) => {
            let f = float_unary(op).ok_or_else(|| undefined(x.dtype))?;
            Data::F(v.iter().map(|x| f(*x)).collect())
        }
        Data::I(v) => Data::I(v.iter().map(|a| int_unary(op, x.dtype, *a)).collect::<Result<_>>()?),
    };
    Ok(Tensor { dtype: x.dtype, shape: x.shape.clone(), data })
}

pub(crate) fn binary(op: PrimOp, a: &Tensor, b: &Tensor) -> Result {
    same_shape(a, b)?;
    let data = match (&a.data, &b.data) {
        (Data::F(x), Data::F(y)) => {
            let f = float_binary(op).ok_or_else(|| undefined(a.dtype))?;
            Data::F(x.iter().zip(y).map(|(x, y)| f(*x, *y)).collect())
        }
        (Data::I(x), Data::I(y)) => {
            Data::I(x.iter().zip(y).map(|(x, y)| int_binary(op, a.dtype, *x, *y)).collect::<Result<_>>()?)
        }
        _ => return Err(format!("operands are {} and {}", a.dtype, b.dtype)),
    };
    Ok(Tensor { dtype: a.dtype, shape: a.shape.clone(), data })
}

pub(crate) fn compare(op: PrimOp, operands: &[&Tensor]) -> Result {
    let a = operands[0];
    let test = |bits: Vec<bool>| Ok(Tensor::ints(DType::Bool, &a.shape, bits.into_iter().map(i64::from).collect()));
    let Some(b) = operands.get(1) else {
        let test_one = |x: f64| if op == PrimOp::IsNan { x.is_nan() } else { x.is_infinite() };
        return test(match &a.data {
            Data::F(v) => v.iter().map(|x| test_one(*x)).collect(),
            Data::I(v) => vec![false; v.len()],
        });
    };
    same_shape(a, b)?;
    match (&a.data, &b.data) {
        (Data::F(x), Data::F(y)) => test(x.iter().zip(y).map(|(x, y)| holds(op, x, y)).collect()),
        (Data::I(x), Data::I(y)) => test(x.iter().zip(y).map(|(x, y)| holds(op, x, y)).collect()),
        _ => Err(format!("operands are {} and {}", a.dtype, b.dtype)),
    }
}

pub(crate) fn select(cond: &Tensor, a: &Tensor, b: &Tensor) -> Result {
    same_shape(cond, a)?;
    same_shape(a, b)?;
    let Data::I(bits) = &cond.data else { return Err("the condition is not bool".to_string()) };
    let data = match (&a.data, &b.data) {
        (Data::F(x), Data::F(y)) => Data::F((0..x.len()).map(|i| if bits[i] != 0 { x[i] } else { y[i] }).collect()),
        (Data::I(x), Data::I(y)) => Data::I((0..x.len()).map(|i| if bits[i] != 0 { x[i] } else { y[i] }).collect()),
        _ => return Err(format!("branches are {} and {}", a.dtype, b.dtype)),
    };
    Ok(Tensor { dtype: a.dtype, shape: a.shape.clone(), data })
}

/// Float to integer truncates (saturates at 64 bits, NaN gives 0) and then wraps to the width; anything to bool is `!= 0`.
/// Float to float is left to the rounding of results.
pub(crate) fn cast(x: &Tensor, dtype: DType, round: bool) -> Result {
    if !dtype.is_computed() {
        return Err(undefined(dtype));
    }
    let data = match (&x.data, dtype.is_float()) {
        (Data::F(v), true) => Data::F(v.clone()),
        (Data::F(v), false) if dtype == DType::Bool => Data::I(v.iter().map(|x| i64::from(*x != 0.0)).collect()),
        (Data::F(v), false) => Data::I(v.iter().map(|x| wrap(dtype, *x as i64)).collect()),
        // Straight to f32 where that is asked for: large integers would round twice.
        (Data::I(v), true) if round && dtype == DType::F32 => Data::F(v.iter().map(|x| f64::from(*x as f32)).collect()),
        (Data::I(v), true) => Data::F(v.iter().map(|x| *x as f64).collect()),
        (Data::I(v), false) => Data::I(v.iter().map(|x| wrap(dtype, *x)).collect()),
    };
    Ok(Tensor { dtype, shape: x.shape.clone(), data })
}

/// `a ○ b` of two numbers, as the binary prims define it; what reductions and scans fold with.
pub(crate) fn int_binary(op: PrimOp, dtype: DType, a: i64, b: i64) -> Result<i64> {
    let (low, high) = int_range(dtype);
    // Bits a shift may move: PyTorch's rule for counts beyond them.
    let bits = if dtype == DType::I64 { 64 } else { 64 - (high.abs_diff(low)).leading_zeros() } as i64;
    let value = match op {
        PrimOp::Add => a.wrapping_add(b),
        PrimOp::Sub => a.wrapping_sub(b),
        PrimOp::Mul => a.wrapping_mul(b),
        PrimOp::FloorDiv | PrimOp::TruncDiv | PrimOp::Mod | PrimOp::Fmod if b == 0 => 0,
        PrimOp::FloorDiv => a.wrapping_div(b) - i64::from(a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)),
        PrimOp::TruncDiv => a.wrapping_div(b),
        PrimOp::Mod => {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        }
        PrimOp::Fmod => a.wrapping_rem(b),
        PrimOp::Pow => int_pow(a, b),
        PrimOp::Min => a.min(b),
        PrimOp::Max => a.max(b),
        PrimOp::And => a & b,
        PrimOp::Or => a | b,
        PrimOp::Xor => a ^ b,
        PrimOp::Shl if !(0..bits).contains(&b) => 0,
        PrimOp::Shl => a.wrapping_shl(b as u32),
        PrimOp::Shr if !(0..bits).contains(&b) => i64::from(a < 0).wrapping_neg(),
        PrimOp::Shr => a >> b,
        _ => return Err(undefined(dtype)),
    };
    Ok(wrap(dtype, value))
}

pub(crate) fn float_binary(op: PrimOp) -> Option<fn(f64, f64) -> f64> {
    Some(match op {
        PrimOp::Add => |a, b| a + b,
        PrimOp::Sub => |a, b| a - b,
        PrimOp::Mul => |a, b| a * b,
        PrimOp::Div => |a, b| a / b,
        PrimOp::FloorDiv => |a, b| (a / b).floor(),
        PrimOp::TruncDiv => |a, b| (a / b).trunc(),
        PrimOp::Mod => |a, b| {
            let r = a % b;
            if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
        },
        PrimOp::Fmod => |a, b| a % b,
        PrimOp::Pow => libm::pow,
        PrimOp::Min => |a, b| if a.is_nan() || a < b { a } else { b },
        PrimOp::Max => |a, b| if a.is_nan() || a > b { a } else { b },
        PrimOp::Atan2 => libm::atan2,
        PrimOp::CopySign => f64::copysign,
        PrimOp::Hypot => libm::hypot,
        _ => return None,
    })
}

fn float_unary(op: PrimOp) -> Option<fn(f64) -> f64> {
    Some(match op {
        PrimOp::Neg => |x| -x,
        PrimOp::Abs => f64::abs,
        PrimOp::Sign => |x| if x == 0.0 || x.is_nan() { x } else { x.signum() },
        PrimOp::Exp => libm::exp,
        PrimOp::Exp2 => libm::exp2,
        PrimOp::Expm1 => libm::expm1,
        PrimOp::Log => libm::log,
        PrimOp::Log2 => libm::log2,
        PrimOp::Log10 => libm::log10,
        PrimOp::Log1p => libm::log1p,
        PrimOp::Sqrt => f64::sqrt,
        PrimOp::Rsqrt => |x| 1.0 / x.sqrt(),
        PrimOp::Reciprocal => |x| 1.0 / x,
        PrimOp::Sin => libm::sin,
        PrimOp::Cos => libm::cos,
        PrimOp::Tan => libm::tan,
        PrimOp::Asin => libm::asin,
        PrimOp::Acos => libm::acos,
        PrimOp::Atan => libm::atan,
        PrimOp::Sinh => libm::sinh,
        PrimOp::Cosh => libm::cosh,
        PrimOp::Tanh => libm::tanh,
        PrimOp::Asinh => libm::asinh,
        PrimOp::Acosh => libm::acosh,
        PrimOp::Atanh => libm::atanh,
        PrimOp::Erf => libm::erf,
        PrimOp::Erfc => libm::erfc,
        PrimOp::Erfinv => erfinv,
        PrimOp::Lgamma => libm::lgamma,
        PrimOp::Digamma => digamma,
        PrimOp::Sigmoid => |x| 1.0 / (1.0 + libm::exp(-x)),
        PrimOp::Floor => f64::floor,
        PrimOp::Ceil => f64::ceil,
        PrimOp::Round => f64::round_ties_even,
        PrimOp::Trunc => f64::trunc,
        _ => return None,
    })
}

fn int_unary(op: PrimOp, dtype: DType, x: i64) -> Result<i64> {
    let value = match op {
        PrimOp::Neg => x.wrapping_neg(),
        PrimOp::Abs => x.wrapping_abs(),
        PrimOp::Sign => x.signum(),
        PrimOp::Not if dtype == DType::Bool => 1 - x,
        PrimOp::Not => !x,
        PrimOp::Floor | PrimOp::Ceil | PrimOp::Round | PrimOp::Trunc => x,
        _ => return Err(undefined(dtype)),
    };
    Ok(wrap(dtype, value))
}

/// By squaring, wrapping; a negative power is 0 but for bases 1 and -1.
fn int_pow(base: i64, power: i64) -> i64 {
    if power < 0 {
        return match base {
            1 => 1,
            -1 if power % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i64, base, power);
    while rest > 0 {
        if rest % 2 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest /= 2;
    }
    result
}

fn holds<T: PartialOrd>(op: PrimOp, a: &T, b: &T) -> bool {
    match op {
        PrimOp::Eq => a == b,
        PrimOp::Lt => a < b,
        PrimOp::Le => a <= b,
        PrimOp::Gt => a > b,
        PrimOp::Ge => a >= b,
        _ => a != b,
    }
}

/// Sizes that differ as expressions only show here.
fn same_shape(a: &Tensor, b: &Tensor) -> Result<()> {
    if a.shape == b.shape { Ok(()) } else { Err(format!("operand shapes are {:?} and {:?}", a.shape, b.shape)) }
}

fn undefined(dtype: DType) -> String {
    format!("has no meaning for {dtype}")
}
