//! Random draws. They run natively, so that the numbers are those of eager's generator, in their order and exactly once.

use super::emit::{binary, full, one, op, operand, result_dtype};
use crate::decl::{Call, Effect, OpDecl, RuleResult};
use permalloy_ir::{Arg, PrimOp};

pub const DECLS: &[OpDecl] = &[
    op!(Pointwise "aten.native_dropout_backward.default", "native_dropout_backward" => native_dropout_backward, "dy·mask·scale"),
    op!(Opaque "aten.native_dropout.default", "x·mask/(1 − p), and the mask").effect(Effect::Random),
    op!(Opaque "aten.bernoulli.default", "1 with probability x").effect(Effect::Random),
    op!(Opaque "aten.bernoulli.p", "1 with probability p").effect(Effect::Random),
    op!(Opaque "aten.bernoulli.Tensor", "1 with probability p, a tensor").effect(Effect::Random),
    op!(Opaque "aten.rand.default", "uniform in [0, 1)").effect(Effect::Random),
    op!(Opaque "aten.rand.generator", "uniform in [0, 1)").effect(Effect::Random),
    op!(Opaque "aten.randn.default", "standard normal").effect(Effect::Random),
    op!(Opaque "aten.randn.generator", "standard normal").effect(Effect::Random),
    op!(Opaque "aten.randint.default", "integers below high").effect(Effect::Random),
    op!(Opaque "aten.randint.low", "integers in low..high").effect(Effect::Random),
    op!(Opaque "aten.randint.generator", "integers below high").effect(Effect::Random),
    op!(Opaque "aten.randint.low_generator", "integers in low..high").effect(Effect::Random),
    op!(Opaque "aten.rand_like.default", "uniform in [0, 1)").effect(Effect::Random),
    op!(Opaque "aten.randn_like.default", "standard normal").effect(Effect::Random),
    op!(Opaque "aten.randint_like.default", "integers below high").effect(Effect::Random),
    op!(Opaque "aten.randint_like.low_dtype", "integers in low..high").effect(Effect::Random),
    op!(Opaque "aten.randperm.default", "a random permutation").effect(Effect::Random),
    op!(Opaque "aten.randperm.generator", "a random permutation").effect(Effect::Random),
    op!(Opaque "aten.uniform.default", "uniform in from..to").effect(Effect::Random),
    op!(Opaque "aten.normal_functional.default", "normal").effect(Effect::Random),
    op!(Opaque "aten.normal.Tensor_Tensor", "normal").effect(Effect::Random),
    op!(Opaque "aten.normal.Tensor_float", "normal").effect(Effect::Random),
    op!(Opaque "aten.normal.float_Tensor", "normal").effect(Effect::Random),
    op!(Opaque "aten.normal.float_float", "normal").effect(Effect::Random),
    op!(Opaque "aten.exponential.default", "exponential").effect(Effect::Random),
    op!(Opaque "aten.geometric.default", "geometric").effect(Effect::Random),
    op!(Opaque "aten.cauchy.default", "Cauchy").effect(Effect::Random),
    op!(Opaque "aten.log_normal.default", "log-normal").effect(Effect::Random),
    op!(Opaque "aten.random.default", "integers of the dtype's range").effect(Effect::Random),
    op!(Opaque "aten.random.from", "integers in from..to").effect(Effect::Random),
    op!(Opaque "aten.random.to", "integers below to").effect(Effect::Random),
    op!(Opaque "aten.multinomial.default", "indices by weight").effect(Effect::Random),
    op!(Opaque "aten.poisson.default", "Poisson").effect(Effect::Random),
    op!(Opaque "aten.binomial.default", "binomial").effect(Effect::Random),
    op!(Opaque "aten._standard_gamma.default", "gamma").effect(Effect::Random),
    op!(Opaque "aten._sample_dirichlet.default", "Dirichlet").effect(Effect::Random),
    op!(Opaque "aten.dropout.default", "x with elements zeroed, the rest scaled").effect(Effect::Random),
    op!(Opaque "aten.feature_dropout.default", "dropout of whole channels").effect(Effect::Random),
    op!(Opaque "aten.alpha_dropout.default", "dropout that keeps mean and variance").effect(Effect::Random),
    op!(Opaque "aten.feature_alpha_dropout.default", "alpha dropout of whole channels").effect(Effect::Random),
    op!(Opaque "aten._fused_dropout.default", "x·mask/(1 − p), and the mask").effect(Effect::Random),
    // Random draws in place.
    op!(Opaque "aten.bernoulli_.float", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.bernoulli_.Tensor", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.uniform_.default", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.normal_.default", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.exponential_.default", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.random_.default", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.random_.from", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.random_.to", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.geometric_.default", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.cauchy_.default", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.log_normal_.default", "draws in place").effect(Effect::Mutates),
    op!(Opaque "aten.rand_like.generator", "uniform in [0, 1)").effect(Effect::Random),
    op!(Opaque "aten.randn_like.generator", "standard normal").effect(Effect::Random),
    op!(Opaque "aten.randint_like.generator", "integers below high").effect(Effect::Random),
    op!(Opaque "aten.randint_like.low_generator_dtype", "integers in low..high").effect(Effect::Random),
    // Generator state of activation checkpointing.
    op!(Opaque "rngprims.philox_rand.default", "uniform draws of a named position in the stream")
        .effect(Effect::Random),
];

/// `dy·(mask·scale)`.
fn native_dropout_backward(c: &mut Call<'_, '_>) -> RuleResult {
    let (grad, mask) = (operand(c, 0, "grad_output")?, operand(c, 1, "mask")?);
    let scale = c.f64(2, "scale", 1.0)?;
    let to = result_dtype(c, 0)?.compute();
    let (grad, mask) = (c.b.cast(grad, to), c.b.cast(mask, to));
    let scale = full(c, &Arg::Float(scale), &[], to)?;
    let factor = binary(c, PrimOp::Mul, mask, scale)?;
    let y = binary(c, PrimOp::Mul, grad, factor)?;
    one(c, y)
}
