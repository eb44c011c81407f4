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
pub mod foreach;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod native;
pub mod norm;
pub mod pointwise;
pub mod random;
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
    ("foreach", foreach::DECLS),
    ("index", index::DECLS),
    ("matmul", matmul::DECLS),
    ("native", native::DECLS),
    ("random", random::DECLS),
    ("reduction", reduction::DECLS),
    ("slice", slice::DECLS),
    ("view", view::DECLS),
];

#[cfg(test)]
mod tests {
    use super::TOPICS;

    #[test]
    fn every_operator_is_declared_once_and_documented() {
        let mut names: Vec<&str> = TOPICS.iter().flat_map(|(_, decls)| decls.iter().map(|d| d.name)).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|w| w[0] == w[1]).map(|w| w[0]).collect();
        assert!(twice.is_empty(), "declared twice: {twice:?}");
        for d in TOPICS.iter().flat_map(|(_, decls)| decls.iter()) {
            assert!(!d.doc.is_empty() && d.name.split('.').count() >= 3, "{}", d.name);
        }
    }
}
