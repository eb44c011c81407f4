//! Reference interpreter: what a graph means, computed in f64, slowly and obviously. The oracle of every test.
//!
//! It evaluates every prim as its signature in `permalloy_ir::PrimOp` says, a few external operators that decompositions
//! leave native (`external.rs`), and any other operator by the first decomposition rule that accepts it. It must not be
//! clever: no fusion, no in-place work, no blocking. Bad input (a wrong shape, an index out of range, an operator
//! without a rule) is an [`InterpError`] that names the place; nothing a verified graph contains makes it panic.
//!
//! ```
//! use permalloy_interp::{InputValue, Options, OutputValue, Tensor, run};
//! use permalloy_ir::{DType, Graph};
//!
//! let g = Graph::parse("graph \"g\" inference {
//!   symbol s0 hint=4 range=[1, 100]
//!   input %x: f32[s0]
//!   %y: f32[] = prim.sum(%x, dims=[0])
//!   output %y
//!   output 2*s0
//! }").unwrap();
//! let x = Tensor::floats(DType::F32, &[3], vec![1.0, 2.0, 4.0]);
//! let out = run(&g, &[InputValue::Tensor(x)], Options::default()).unwrap();
//! assert_eq!(out, [OutputValue::Tensor(Tensor::floats(DType::F32, &[], vec![7.0])), OutputValue::Int(6)]);
//! ```

mod bind;
pub mod bounds;
mod external;
mod index;
mod pointwise;
mod reduce;
mod round;
mod rule;
mod special;
mod tensor;
mod view;

pub use round::{round_to, wrap};
pub use tensor::{Data, Tensor};

use permalloy_ir::{Arg, Dim, Graph, Node, Op, Output, PrimKind, PrimOp, SymbolValues, TensorType, ValueId, verify};
use std::fmt;
use tensor::sizes;

/// An argument of a run, one an input of the graph.
#[derive(Clone, PartialEq, Debug)]
pub enum InputValue {
    Tensor(Tensor),
    Int(i64),
}

/// A result of a run, one an output of the graph.
#[derive(Clone, PartialEq, Debug)]
pub enum OutputValue {
    Tensor(Tensor),
    Int(i64),
    None,
}

/// How to compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Round floats to their dtype after each operator, inputs too. Without it every float is exact to f64 whatever its
    /// dtype, and a cast between floats changes nothing: the ideal result that both eager and we approximate.
    pub round: bool,
}

/// A run failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterpError {
    /// The statement that failed, as the text form writes it; None for a bad argument of the run.
    pub statement: Option<String>,
    /// Names the operator and its place in the user's model.
    pub message: String,
}

impl fmt::Display for InterpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.statement {
            Some(s) => write!(f, "\n  {s}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for InterpError {}

/// Runs a graph; verifies it first.
pub fn run(graph: &Graph, inputs: &[InputValue], options: Options) -> Result<Vec<OutputValue>, InterpError> {
    run_nested(graph, inputs, options, 0)
}

/// Rules may emit operators that have rules; one that emits itself must end.
const MAX_NESTING: usize = 16;

fn run_nested(
    graph: &Graph,
    inputs: &[InputValue],
    options: Options,
    depth: usize,
) -> Result<Vec<OutputValue>, InterpError> {
    let plain = |message: String| InterpError { statement: None, message };
    verify(graph).map_err(|e| plain(e.to_string()))?;
    let symbols = bind::bind(graph, inputs).map_err(plain)?;
    let mut values: Vec<Option<Tensor>> = vec![None; graph.value_count()];
    for (input, given) in graph.inputs.iter().zip(inputs) {
        if let (permalloy_ir::Input::Tensor { value, .. }, InputValue::Tensor(t)) = (input, given) {
            values[value.0 as usize] = Some(finish(t.clone(), options));
        }
    }
    for (id, node) in graph.nodes() {
        let fail = |message: String| {
            let at = node.loc.as_ref().map_or(String::new(), |l| format!(" at {l}"));
            InterpError { statement: Some(graph.node_text(id)), message: format!("{}{at}: {message}", node.op) }
        };
        let scope = Scope { graph, node, symbols: &symbols, values: &values, options, depth };
        for (v, t) in scope.results().map_err(fail)? {
            values[v.0 as usize] = Some(finish(t, options));
        }
    }
    let tensor =
        |v: &ValueId| values[v.0 as usize].clone().ok_or_else(|| plain("an output was not computed".to_string()));
    let output = |o: &Output| match o {
        Output::Value(v) => tensor(v).map(OutputValue::Tensor),
        Output::Int(d) => d.eval(&symbols).map(OutputValue::Int).map_err(|e| plain(e.to_string())),
        Output::None => Ok(OutputValue::None),
    };
    graph.outputs.iter().map(output).collect()
}

/// Rounds floats if asked to.
fn finish(mut t: Tensor, options: Options) -> Tensor {
    if let (Data::F(v), true) = (&mut t.data, options.round) {
        v.iter_mut().for_each(|x| *x = round_to(t.dtype, *x));
    }
    t
}

/// One node with everything it may read.
pub(crate) struct Scope<'a> {
    pub graph: &'a Graph,
    pub node: &'a Node,
    pub symbols: &'a SymbolValues,
    pub values: &'a [Option<Tensor>],
    pub options: Options,
    pub depth: usize,
}

impl<'a> Scope<'a> {
    /// What the node computes: every result that it declares, with the declared type.
    fn results(&self) -> Result<Vec<(ValueId, Tensor)>, String> {
        let mut results = Vec::new();
        for (v, t) in self.node.results.iter().zip(self.eval()?) {
            let Some(v) = *v else { continue };
            let t = t.ok_or_else(|| format!("%{} was not computed", self.graph.value(v).name))?;
            self.check(v, &t)?;
            results.push((v, t));
        }
        Ok(results)
    }

    /// One tensor a result, in the order of the node's results.
    fn eval(&self) -> Result<Vec<Option<Tensor>>, String> {
        match &self.node.op {
            Op::Prim(p) => self.prim(*p).map(|t| vec![Some(t)]),
            Op::External(name) => match external::eval(name, self) {
                Some(result) => result.map(|t| vec![Some(t)]),
                None => rule::eval(name, self),
            },
        }
    }

    fn prim(&self, op: PrimOp) -> Result<Tensor, String> {
        let operands: Vec<&Tensor> =
            (0..self.node.args.len()).map(|i| self.tensor(i, "operand")).collect::<Result<_, _>>()?;
        match op.kind() {
            PrimKind::Unary => pointwise::unary(op, operands[0]),
            PrimKind::Binary => pointwise::binary(op, operands[0], operands[1]),
            PrimKind::Compare => pointwise::compare(op, &operands),
            PrimKind::Select if op == PrimOp::Cast => {
                pointwise::cast(operands[0], self.result_type()?.dtype, self.options.round)
            }
            PrimKind::Select => pointwise::select(operands[0], operands[1], operands[2]),
            PrimKind::Source => self.source(op),
            PrimKind::Reduce => reduce::reduce(op, operands[0], &self.positions("dims")?),
            PrimKind::Scan => reduce::scan(op, operands[0], self.position("dim")?),
            PrimKind::View => view::eval(op, &operands, self),
            PrimKind::Index => index::eval(op, operands[0], operands[1], self),
        }
    }

    fn source(&self, op: PrimOp) -> Result<Tensor, String> {
        if op == PrimOp::Iota {
            let shape = sizes(&[self.int("size")?])?;
            return Ok(Tensor::ints(self.result_type()?.dtype, &shape, (0..shape[0] as i64).collect()));
        }
        let (dtype, shape) = (self.result_type()?.dtype, self.shape("shape")?);
        let one = match self.node.kwarg("value") {
            Some(Arg::Float(x)) => Tensor::floats(permalloy_ir::DType::F64, &[], vec![*x]),
            _ => Tensor::ints(permalloy_ir::DType::I64, &[], vec![self.int("value")?]),
        };
        let one = pointwise::cast(&one, dtype, self.options.round)?;
        Ok(one.rearrange(&shape, |_| Some(0)))
    }

    /// The computed result is what the graph declares.
    fn check(&self, v: ValueId, t: &Tensor) -> Result<(), String> {
        let value = self.graph.value(v);
        let shape = self.type_sizes(&value.ty)?;
        if (t.dtype, &t.shape) != (value.ty.dtype, &shape) {
            let declared = format!("{}{shape:?}", value.ty.dtype);
            return Err(format!("%{} is {}{:?}, but the graph declares {declared}", value.name, t.dtype, t.shape));
        }
        Ok(())
    }

    // --- arguments ---

    /// A tensor argument that must be there.
    pub fn tensor(&self, position: usize, name: &str) -> Result<&'a Tensor, String> {
        self.opt_tensor(position, name).ok_or_else(|| format!("argument {name} is not a tensor"))
    }

    pub fn opt_tensor(&self, position: usize, name: &str) -> Option<&'a Tensor> {
        self.node.arg(position, name).and_then(Arg::as_value).and_then(|v| self.values.get(v.0 as usize)?.as_ref())
    }

    pub fn result_type(&self) -> Result<&'a TensorType, String> {
        self.node.result().map(|v| self.graph.ty(v)).ok_or_else(|| "the operator's first result is absent".to_string())
    }

    pub fn dim(&self, d: &Dim) -> Result<i64, String> {
        d.eval(self.symbols).map_err(|e| e.to_string())
    }

    pub fn type_sizes(&self, ty: &TensorType) -> Result<Vec<usize>, String> {
        sizes(&ty.shape.iter().map(|d| self.dim(d)).collect::<Result<Vec<_>, _>>()?)
    }

    /// Attribute `name` as integers.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>, String> {
        let dims = self.node.kwarg(name).and_then(Arg::as_dims).ok_or_else(|| format!("attribute {name} is absent"))?;
        dims.iter().map(|d| self.dim(d)).collect()
    }

    pub fn int(&self, name: &str) -> Result<i64, String> {
        self.ints(name)?.first().copied().ok_or_else(|| format!("attribute {name} is empty"))
    }

    /// Attribute `name` as a shape.
    pub fn shape(&self, name: &str) -> Result<Vec<usize>, String> {
        sizes(&self.ints(name)?)
    }

    /// Attribute `name` as numbers of dims, which the verifier has checked against the rank.
    pub fn positions(&self, name: &str) -> Result<Vec<usize>, String> {
        self.ints(name)?.iter().map(|i| usize::try_from(*i).map_err(|_| format!("{name}: {i} is negative"))).collect()
    }

    pub fn position(&self, name: &str) -> Result<usize, String> {
        let i = self.int(name)?;
        usize::try_from(i).map_err(|_| format!("{name}={i} is negative"))
    }
}
