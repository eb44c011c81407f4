//! The closed set of prims, in which every decomposition ends.
//!
//! Values are immutable tensors; a prim never mutates, never aliases, and knows nothing of memory layout.
//! Operands of an elementwise prim have **equal shapes and equal dtypes**: broadcasting is an explicit `expand`, promotion
//! an explicit `cast`. For bf16 and f16 operands an engine may compute in f32 and round once, when a value is stored;
//! an explicit `cast` always rounds.
//!
//! The table in [`PrimOp::signature`] is the contract of each: operands, attributes, result.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

/// What family a prim belongs to; lowering and the interpreter dispatch on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrimKind {
    /// One elementwise operand.
    Unary,
    /// Two elementwise operands.
    Binary,
    /// Comparison or test: the result is bool.
    Compare,
    /// `where`, `cast`: elementwise with a dtype rule of their own.
    Select,
    /// No operand.
    Source,
    /// Folds the dims of attribute `dims`.
    Reduce,
    /// Rearranges indices; no arithmetic.
    View,
    /// Data-dependent addresses.
    Index,
    /// Prefix computation along one dim.
    Scan,
}

macro_rules! prims {
    ($($variant:ident $name:literal $kind:ident $signature:literal;)*) => {
        /// A primitive operation; the text form writes it as `prim.NAME`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum PrimOp { $($variant),* }

        impl PrimOp {
            /// Every prim.
            pub const ALL: &'static [PrimOp] = &[$(PrimOp::$variant),*];

            /// Name without the `prim.` prefix.
            pub fn name(self) -> &'static str {
                match self { $(PrimOp::$variant => $name),* }
            }

            pub fn kind(self) -> PrimKind {
                match self { $(PrimOp::$variant => PrimKind::$kind),* }
            }

            /// Operands, attributes and result, in one line.
            pub fn signature(self) -> &'static str {
                match self { $(PrimOp::$variant => $signature),* }
            }
        }
    };
}

prims! {
    // Unary: (x) -> same shape and dtype. Float only unless the line says otherwise.
    Neg "neg" Unary "(x) -> -x; any but bool, integers wrap";
    Abs "abs" Unary "(x) -> |x|; any but bool";
    Sign "sign" Unary "(x) -> -1, 0 or 1; NaN gives NaN; any";
    Exp "exp" Unary "(x)";
    Exp2 "exp2" Unary "(x)";
    Expm1 "expm1" Unary "(x)";
    Log "log" Unary "(x)";
    Log2 "log2" Unary "(x)";
    Log10 "log10" Unary "(x)";
    Log1p "log1p" Unary "(x)";
    Sqrt "sqrt" Unary "(x)";
    Rsqrt "rsqrt" Unary "(x) -> 1/sqrt(x)";
    Reciprocal "reciprocal" Unary "(x) -> 1/x";
    Sin "sin" Unary "(x)";
    Cos "cos" Unary "(x)";
    Tan "tan" Unary "(x)";
    Asin "asin" Unary "(x)";
    Acos "acos" Unary "(x)";
    Atan "atan" Unary "(x)";
    Sinh "sinh" Unary "(x)";
    Cosh "cosh" Unary "(x)";
    Tanh "tanh" Unary "(x)";
    Asinh "asinh" Unary "(x)";
    Acosh "acosh" Unary "(x)";
    Atanh "atanh" Unary "(x)";
    Erf "erf" Unary "(x)";
    Erfc "erfc" Unary "(x)";
    Erfinv "erfinv" Unary "(x)";
    Lgamma "lgamma" Unary "(x)";
    Digamma "digamma" Unary "(x)";
    Sigmoid "sigmoid" Unary "(x) -> 1/(1+exp(-x))";
    Floor "floor" Unary "(x); integers unchanged";
    Ceil "ceil" Unary "(x); integers unchanged";
    Round "round" Unary "(x) -> nearest, ties to even; integers unchanged";
    Trunc "trunc" Unary "(x); integers unchanged";
    Not "not" Unary "(x) -> logical not of bool, bitwise not of an integer";

    // Binary: (a, b) -> same shape and dtype.
    Add "add" Binary "(a, b); integers wrap; on bool: or";
    Sub "sub" Binary "(a, b); integers wrap; not bool";
    Mul "mul" Binary "(a, b); integers wrap; on bool: and";
    Div "div" Binary "(a, b) -> a/b; float only";
    FloorDiv "floor_div" Binary "(a, b) -> floor(a/b); not bool; an integer divided by zero is an error in eager, 0 here";
    TruncDiv "trunc_div" Binary "(a, b) -> trunc(a/b); same";
    Mod "mod" Binary "(a, b) -> remainder with the divisor's sign (Python); not bool; integer by zero gives 0";
    Fmod "fmod" Binary "(a, b) -> remainder with the dividend's sign (C); not bool";
    Pow "pow" Binary "(a, b) -> a**b; not bool; integers by repeated multiplication, wrapping; a negative integer power gives 0 (1 and -1 aside)";
    Min "min" Binary "(a, b); NaN if either is";
    Max "max" Binary "(a, b); NaN if either is";
    Atan2 "atan2" Binary "(a, b) -> angle of (b, a); float only";
    CopySign "copysign" Binary "(a, b) -> |a| with b's sign bit; float only";
    Hypot "hypot" Binary "(a, b); float only";
    And "and" Binary "(a, b); bool or integer, bitwise";
    Or "or" Binary "(a, b); bool or integer, bitwise";
    Xor "xor" Binary "(a, b); bool or integer, bitwise";
    Shl "shl" Binary "(a, b); integer";
    Shr "shr" Binary "(a, b); integer, arithmetic";

    // Compare: -> bool, same shape.
    Eq "eq" Compare "(a, b)";
    Ne "ne" Compare "(a, b); true when either is NaN";
    Lt "lt" Compare "(a, b)";
    Le "le" Compare "(a, b)";
    Gt "gt" Compare "(a, b)";
    Ge "ge" Compare "(a, b)";
    IsNan "is_nan" Compare "(x)";
    IsInf "is_inf" Compare "(x)";

    // Select.
    Where "where" Select "(cond: bool, a, b) -> a where cond else b";
    Cast "cast" Select "(x, dtype=) -> round to nearest even; float to integer truncates; any to bool is x != 0";

    // Source.
    Full "full" Source "(value=, shape=, dtype=) -> every element is value (int, float or bool)";
    Iota "iota" Source "(size=) -> i64[size]: 0, 1, 2, …";

    // Reduce: dims=[sorted, non-negative], the reduced dims vanish (no keepdim). Empty: the identity.
    Sum "sum" Reduce "(x, dims=) -> same dtype; 16-bit floats accumulate in f32; integers wrap; on bool: error";
    Prod "prod" Reduce "(x, dims=) -> same dtype";
    Amax "amax" Reduce "(x, dims=) -> same dtype; NaN wins; empty: lowest";
    Amin "amin" Reduce "(x, dims=) -> same dtype; NaN wins; empty: highest";
    Any "any" Reduce "(x: bool, dims=) -> bool";
    All "all" Reduce "(x: bool, dims=) -> bool";
    Argmax "argmax" Reduce "(x, dims=[one]) -> i64: the first of equals; NaN wins";
    Argmin "argmin" Reduce "(x, dims=[one]) -> i64: the first of equals; NaN wins";

    // View.
    Reshape "reshape" View "(x, shape=) -> same elements in row-major order";
    Permute "permute" View "(x, perm=) -> result dim i is operand dim perm[i]";
    Expand "expand" View "(x, shape=) -> same rank; dims of size 1 repeat";
    Slice "slice" View "(x, dim=, start=, end=, step=) -> 0 <= start <= end <= size, step >= 1; size is ceil((end-start)/step)";
    Flip "flip" View "(x, dims=)";
    Window "window" View "(x, dim=, count=, size=, step=) -> windows that may overlap: x[.., i*step + j, ..] with i in dim's place, j as a new last dim; step >= 1";
    Pad "pad" View "(x, low=[..], high=[..]) -> zeros (false) around, one pair a dim, all >= 0";
    After "after" View "(x, y0, …) -> x, not read before y0, … are made: keeps apart what would be alive at the same time";
    Concat "concat" View "(x0, x1, …, dim=) -> joined along dim";

    // Index. Indices are i64 or i32 and must lie in 0 <= i < size (rules wrap negative ones first); else the run is an error.
    Gather "gather" Index "(x, index, dim=) -> shape of index; x[.., index[..], ..]; other dims of index equal x's";
    Take "take" Index "(x, index, dim=) -> x.shape[..dim] ++ index.shape ++ x.shape[dim+1..]";
    IndexSum "index_sum" Index "(src, index, dim=, size=) -> transpose of take: src's dims dim..dim+rank(index) collapse to one of the given size; out[.., index[j], ..] += src[.., j, ..]; f32 accumulation";
    ScatterSum "scatter_sum" Index "(src, index, dim=, size=) -> transpose of gather: out[.., index[..], ..] += src[..]; other dims equal index's";

    // Scan.
    CumSum "cumsum" Scan "(x, dim=) -> same shape and dtype";
    CumProd "cumprod" Scan "(x, dim=) -> same shape and dtype";
}

impl PrimOp {
    /// The name with its `prim.` prefix, made once.
    pub fn shared_name(self) -> Arc<str> {
        static NAMES: LazyLock<Vec<Arc<str>>> =
            LazyLock::new(|| PrimOp::ALL.iter().map(|p| p.to_string().into()).collect());
        NAMES[self as usize].clone()
    }
}

impl fmt::Display for PrimOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "prim.{}", self.name())
    }
}

impl FromStr for PrimOp {
    type Err = ();
    /// Accepts the name with its `prim.` prefix.
    fn from_str(s: &str) -> Result<Self, ()> {
        let name = s.strip_prefix("prim.").ok_or(())?;
        PrimOp::ALL.iter().copied().find(|p| p.name() == name).ok_or(())
    }
}

/// The name of an attribute as nodes hold it. Those of the prims are made once.
pub(crate) fn attribute_name(name: &str) -> Arc<str> {
    static NAMES: LazyLock<[Arc<str>; ATTRIBUTES.len()]> = LazyLock::new(|| ATTRIBUTES.map(Arc::from));
    match ATTRIBUTES.iter().position(|n| *n == name) {
        Some(i) => NAMES[i].clone(),
        None => name.into(),
    }
}

/// Attributes of the prims, the most frequent ones first.
const ATTRIBUTES: [&str; 13] =
    ["shape", "dims", "value", "dtype", "dim", "perm", "size", "start", "end", "step", "low", "high", "count"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_names_are_those_printed() {
        PrimOp::ALL.iter().for_each(|p| assert_eq!(*p.shared_name(), *p.to_string()));
    }

    #[test]
    fn every_attribute_of_a_prim_is_listed() {
        for p in PrimOp::ALL {
            let arguments = p.signature().split(')').next().unwrap();
            for (name, _) in arguments.split([' ', '(', ',']).filter_map(|word| word.split_once('=')) {
                assert!(ATTRIBUTES.contains(&name), "{p}: {name}");
            }
        }
    }
}
