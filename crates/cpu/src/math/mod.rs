//! Vector math: branch-free scalar functions that LLVM vectorises when they are inlined into a loop.
//!
//! Every function is named after its prim and generic over the instruction set: `math::f32::exp::<I>(x)`.
//! [`f32`] is within 2 ulp of the correctly rounded result everywhere, denormals included; [`f64`] is as good as the
//! platform's libm and is not written to vectorise; [`half`] converts the 16-bit formats.

pub mod f32;
pub mod f64;
pub mod half;
