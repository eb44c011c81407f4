//! What the table says of one operator, and what a decomposition rule is.

use permalloy_ir::{Arg, Builder, DType, Dim, Node, TensorType, ValueId};

/// What running the operator costs beside reading its inputs and writing its outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// Indices only.
    View,
    /// Elementwise: bound by memory.
    Pointwise,
    /// A fold or a norm: bound by memory, read more than once if unfused.
    Reduction,
    /// Data-dependent addresses.
    Indexing,
    /// Matrix product, convolution, attention: bound by arithmetic; never recomputed to save memory.
    Compute,
    /// Anything else: never recomputed.
    Opaque,
}

/// What else happens when the operator runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    Pure,
    /// Draws from a generator: keeps its place in the order, runs exactly once.
    Random,
    /// Talks to other processes: keeps its place in the order, runs exactly once.
    Collective,
    /// Writes to one of its arguments.
    Mutates,
}

/// A rule does not apply to these arguments; the reason goes into the record, and the operator runs natively.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decline(pub String);

impl<S: Into<String>> From<S> for Decline {
    fn from(s: S) -> Decline {
        Decline(s.into())
    }
}

/// What a rule gives back: one value a result, None where the operator returns nothing.
pub type RuleResult = Result<Vec<Option<ValueId>>, Decline>;

/// A named decomposition into prims (and into simpler operators that stay native, such as `aten.mm.default`).
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// `matmul_backward::fold`
    pub name: &'static str,
    pub apply: fn(&mut Call<'_, '_>) -> RuleResult,
}

/// One operator.
#[derive(Clone, Copy, Debug)]
pub struct OpDecl {
    /// Full name with overload: `aten.gelu_backward.default`.
    pub name: &'static str,
    pub cost: Cost,
    pub effect: Effect,
    /// Elements of the last dim of an operand must lie side by side. (PyTorch picks such a kernel by the strides it
    /// sees; ours may differ.)
    pub reads_rows: bool,
    /// Decomposition rules, best first; the policy may name another.
    pub rules: &'static [Rule],
    /// PyTorch has a kernel for it on the usual devices (composite operators that never reach us may not).
    pub native: bool,
    /// The equation, or what it does, in one line.
    pub doc: &'static str,
}

impl OpDecl {
    /// A pure operator with one rule named like the operator itself.
    pub const fn new(name: &'static str, cost: Cost, rules: &'static [Rule], doc: &'static str) -> OpDecl {
        OpDecl { name, cost, effect: Effect::Pure, rules, native: true, reads_rows: false, doc }
    }

    /// The kernel reads its tensors row by row: their last dim must have stride 1.
    pub const fn reads_rows(mut self) -> OpDecl {
        self.reads_rows = true;
        self
    }

    pub const fn effect(mut self, effect: Effect) -> OpDecl {
        self.effect = effect;
        self
    }

    pub const fn without_native(mut self) -> OpDecl {
        self.native = false;
        self
    }

    /// Why PyTorch's kernel is the route to want where no rule applies; None when a rule is what is missing.
    pub fn library(&self) -> Option<&'static str> {
        match (self.effect, self.cost) {
            (Effect::Random, _) => Some("draws from PyTorch's generator"),
            (Effect::Collective, _) => Some("talks to other processes"),
            (Effect::Mutates, _) => Some("writes to an argument, which autograd has to see"),
            (Effect::Pure, Cost::Compute) => Some("bound by arithmetic, where the library is best"),
            (Effect::Pure, _) => None,
        }
    }
}

/// The node a rule rewrites, its arguments already values of the graph being built, and the builder to emit into.
pub struct Call<'a, 'g> {
    pub b: &'a mut Builder<'g>,
    pub node: &'a Node,
    /// Types that PyTorch promised for the results; the caller checks them against what the rule made.
    pub results: &'a [Option<TensorType>],
}

impl Call<'_, '_> {
    /// Argument by position or keyword name; `None` (absent) and `Arg::None` are the same.
    pub fn arg(&self, position: usize, name: &str) -> Option<&Arg> {
        self.node.arg(position, name).filter(|a| !a.is_none())
    }

    /// A tensor argument that must be there.
    pub fn tensor(&self, position: usize, name: &str) -> Result<ValueId, Decline> {
        self.opt_tensor(position, name).ok_or_else(|| format!("argument {name} is not a tensor").into())
    }

    pub fn opt_tensor(&self, position: usize, name: &str) -> Option<ValueId> {
        self.arg(position, name).and_then(Arg::as_value)
    }

    /// A static number, or `default` when absent.
    pub fn f64(&self, position: usize, name: &str, default: f64) -> Result<f64, Decline> {
        match self.arg(position, name) {
            None => Ok(default),
            Some(a) => a.as_f64().ok_or_else(|| format!("argument {name} is not a static number").into()),
        }
    }

    /// A static integer, or `default` when absent.
    pub fn i64(&self, position: usize, name: &str, default: i64) -> Result<i64, Decline> {
        match self.arg(position, name) {
            None => Ok(default),
            Some(a) => a.as_i64().ok_or_else(|| format!("argument {name} is not a static integer").into()),
        }
    }

    /// A size, possibly symbolic.
    pub fn dim(&self, position: usize, name: &str) -> Result<Dim, Decline> {
        self.arg(position, name)
            .and_then(Arg::as_dim)
            .ok_or_else(|| format!("argument {name} is not an integer").into())
    }

    pub fn bool(&self, position: usize, name: &str, default: bool) -> Result<bool, Decline> {
        match self.arg(position, name) {
            None => Ok(default),
            Some(a) => a.as_bool().ok_or_else(|| format!("argument {name} is not a bool").into()),
        }
    }

    /// A list of static integers, such as `dim=[0, -1]`; None when absent.
    pub fn ints(&self, position: usize, name: &str) -> Result<Option<Vec<i64>>, Decline> {
        match self.arg(position, name) {
            None => Ok(None),
            Some(a) => a.as_i64s().map(Some).ok_or_else(|| format!("argument {name} is not a list of integers").into()),
        }
    }

    /// A list of sizes; None when absent.
    pub fn dims(&self, position: usize, name: &str) -> Result<Option<Vec<Dim>>, Decline> {
        match self.arg(position, name) {
            None => Ok(None),
            Some(a) => a.as_dims().map(Some).ok_or_else(|| format!("argument {name} is not a list of sizes").into()),
        }
    }

    pub fn str(&self, position: usize, name: &str) -> Option<&str> {
        match self.arg(position, name) {
            Some(Arg::Str(s)) => Some(s),
            _ => None,
        }
    }

    pub fn dtype_arg(&self, position: usize, name: &str) -> Option<DType> {
        match self.arg(position, name) {
            Some(Arg::DType(d)) => Some(*d),
            _ => None,
        }
    }

    /// Promised type of a result; a declined rule when the operator does not return it.
    pub fn result(&self, position: usize) -> Result<&TensorType, Decline> {
        self.results.get(position).and_then(Option::as_ref).ok_or_else(|| format!("result {position} is absent").into())
    }

    /// A dim argument made non-negative for a tensor of this rank (0-d tensors count as 1-d).
    pub fn wrap(dim: i64, rank: usize) -> Result<usize, Decline> {
        let n = rank.max(1) as i64;
        if (-n..n).contains(&dim) {
            Ok(((dim + n) % n) as usize)
        } else {
            Err(format!("dim {dim} is outside of rank {rank}").into())
        }
    }
}
