//! Decomposition rules, one file a topic; each rule stands under its equation.
//!
//! Rules for writing rules: emit prims only (or simpler operators named in the policy as native); say `Decline` for what is
//! not covered instead of guessing; never make the graph larger when the operator is already a prim; keep dtype promotion
//! PyTorch's; compute 16-bit floats in f32 where eager does and cast back at the end.

pub mod activation;
pub mod compare;
pub mod convert;
pub mod creation;
mod emit;
mod expr;
pub mod index;
pub mod loss;
pub mod norm;
pub mod pointwise;
pub mod reduction;
pub mod slice;
pub mod softmax;
pub mod view;

use crate::decl::OpDecl;

/// Every topic with its declarations.
pub const TOPICS: &[(&str, &[OpDecl])] = &[
    ("pointwise", pointwise::DECLS),
    ("compare", compare::DECLS),
    ("convert", convert::DECLS),
    ("activation", activation::DECLS),
    ("norm", norm::DECLS),
    ("softmax", softmax::DECLS),
    ("loss", loss::DECLS),
    ("creation", creation::DECLS),
    ("index", index::DECLS),
    ("reduction", reduction::DECLS),
    ("slice", slice::DECLS),
    ("view", view::DECLS),
];
