//! Decomposition rules, one file a topic; each rule stands under its equation.
//!
//! Rules for writing rules: emit prims only (or simpler operators named in the policy as native); say `Decline` for what is
//! not covered instead of guessing; never make the graph larger when the operator is already a prim; keep dtype promotion
//! PyTorch's; compute 16-bit floats in f32 where eager does and cast back at the end.

pub mod activation;
pub mod creation;
mod emit;
pub mod index;
pub mod matmul;
pub mod reduction;
pub mod slice;
pub mod view;

use crate::decl::OpDecl;

/// Every topic with its declarations.
pub const TOPICS: &[(&str, &[OpDecl])] = &[
    ("activation", activation::DECLS),
    ("creation", creation::DECLS),
    ("index", index::DECLS),
    ("matmul", matmul::DECLS),
    ("reduction", reduction::DECLS),
    ("slice", slice::DECLS),
    ("view", view::DECLS),
];
