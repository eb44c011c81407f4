//! Activations and their gradients.

use crate::decl::{Call, Cost, OpDecl, Rule, RuleResult};
use permalloy_ir::{DType, PrimOp, ValueId};

pub const DECLS: &[OpDecl] = &[OpDecl::new(
    "aten.gelu.default",
    Cost::Pointwise,
    &[Rule { name: "gelu", apply: gelu }],
    "x·Φ(x); approximate=\"tanh\": x/2·(1 + tanh(√(2/π)(x + 0.044715x³)))",
)];

const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;

/// `x·Φ(x)`, Φ by erf or by its tanh form.
fn gelu(c: &mut Call<'_, '_>) -> RuleResult {
    let x = c.tensor(0, "self")?;
    let tanh = c.str(1, "approximate") == Some("tanh");
    let dtype = c.b.dtype(x);
    let x = wide(c, x);
    let inner = if tanh {
        let cube = c.b.mul(x, x);
        let cube = c.b.mul(cube, x);
        let cube = c.b.mul_scalar(cube, 0.044_715);
        let sum = c.b.add(x, cube);
        let scaled = c.b.mul_scalar(sum, SQRT_2_OVER_PI);
        c.b.unary(PrimOp::Tanh, scaled)
    } else {
        let scaled = c.b.mul_scalar(x, std::f64::consts::FRAC_1_SQRT_2);
        c.b.unary(PrimOp::Erf, scaled)
    };
    let phi2 = c.b.add_scalar(inner, 1.0);
    let half = c.b.mul_scalar(x, 0.5);
    let y = c.b.mul(half, phi2);
    Ok(vec![Some(c.b.cast(y, dtype))])
}

/// A 16-bit float as f32; anything else as it is.
fn wide(c: &mut Call<'_, '_>, x: ValueId) -> ValueId {
    let to = match c.b.dtype(x) {
        DType::BF16 | DType::F16 => DType::F32,
        d => d,
    };
    c.b.cast(x, to)
}
