//! Graph IR of Permalloy: dtypes, symbolic dims, tensor types and SSA nodes.
//!
//! The crate defines what a graph *is*; it knows no operator's meaning beyond the type rules of the prims, runs nothing
//! and depends on nothing. A graph's text form is the interchange format between Python and Rust and between a bug
//! report and a test.
//!
//! ```
//! use permalloy_ir::{Builder, DType, Dim, Graph, GraphKind, Output, PrimOp, Role, TensorType};
//!
//! let mut g = Graph::new("example", GraphKind::Inference);
//! let x = g.add_input("x", TensorType::new(DType::F32, vec![Dim::sym("s0"), Dim::from(8)]), Role::Primal);
//! let mut b = Builder::new(&mut g);
//! let e = b.unary(PrimOp::Exp, x);
//! let total = b.sum(e, &[-1], false);
//! g.outputs.push(Output::Value(total));
//! assert_eq!(g.shape(total), [Dim::sym("s0")]);
//! ```

mod bound;
mod builder;
mod cursor;
mod dim;
mod dtype;
mod graph;
mod hash;
mod infer;
mod names;
mod nearest;
mod parse;
mod prim;
mod rebuild;
mod text;
mod verify;

pub use bound::non_negative;
pub use builder::Builder;
pub use cursor::ParseError;
pub use dim::{Atom, Dim, EvalError, Poly, Symbol, SymbolValues};
pub use dtype::{DType, Device};
pub use graph::{
    Arg, Def, Graph, GraphKind, Input, Mark, Node, NodeId, Op, Output, Role, SymbolInfo, TensorType, Value, ValueId,
    contiguous_strides, hints,
};
pub use hash::{MixHash, MixHasher};
pub use infer::{infer, shape as shape_text};
pub use nearest::{did_you_mean, nearest};
pub use prim::{PrimKind, PrimOp};
pub use rebuild::{Missing, Rebuild, needed, output_values};
pub use text::{float_text, quote};
pub use verify::{VerifyError, verify};
