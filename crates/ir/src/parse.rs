//! Reads a graph from its text form.
//!
//! One pass over the text, without a token list; names resolve through hash maps, so the time is linear in the text.
//! Any input gives a graph or an error: nesting and the size of a size expression are bounded.

use crate::cursor::{Cursor, Number, ParseError, Parsed};
use crate::dim::Dim;
use crate::dtype::{DType, Device};
use crate::graph::{Arg, Graph, GraphKind, Input, Op, Output, Role, SymbolInfo, TensorType, ValueId};
use crate::hash::MixHash;
use crate::nearest::did_you_mean;
use crate::prim::{PrimOp, attribute_name};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl Graph {
    /// Reads the text form (ARCHITECTURE.md, section 9). What comes back is well formed, not yet verified.
    ///
    /// ```
    /// use permalloy_ir::Graph;
    ///
    /// let g = Graph::parse("graph \"g\" inference {\n  input %x: f32[4]\n  %y: f32[4] = prim.exp(%x)\n  output %y\n}\n")?;
    /// assert_eq!(g.node_count(), 1);
    /// let e = Graph::parse("graph \"g\" inference {\n  output %y\n}\n").unwrap_err();
    /// assert_eq!((e.line, e.column), (2, 10));
    /// # Ok::<(), permalloy_ir::ParseError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Graph, ParseError> {
        // A statement is seldom shorter. Tables that grow look at all their names again.
        let statements = text.len() / 64;
        let mut parser = Parser {
            c: Cursor::new(text),
            graph: Graph::new("", GraphKind::Inference),
            values: HashMap::with_capacity_and_hasher(statements, MixHash::default()),
            symbols: HashMap::new(),
            depth: 0,
        };
        parser.graph()?;
        parser.graph.forget_tables();
        Ok(parser.graph)
    }
}

/// Words that cannot name a symbol, since an argument of that name means something else.
pub(crate) fn is_reserved(word: &str) -> bool {
    const WORDS: [&str; 12] =
        ["true", "false", "none", "inf", "nan", "floordiv", "mod", "min", "max", "layout", "memory_format", "_"];
    WORDS.contains(&word) || word.parse::<DType>().is_ok()
}

/// Deepest nesting of lists and size expressions.
const MAX_DEPTH: usize = 64;
/// Most terms (and factors of a term) of a size expression; adding and multiplying cost that much each.
const MAX_TERMS: usize = 256;

struct Parser<'t> {
    c: Cursor<'t>,
    graph: Graph,
    values: HashMap<&'t str, ValueId, MixHash>,
    symbols: HashMap<&'t str, Dim>,
    depth: usize,
}

/// A result left of `=`: where its name stands, the name and the type.
type NamedType<'t> = (usize, &'t str, Arc<TensorType>);

impl<'t> Parser<'t> {
    fn graph(&mut self) -> Parsed<()> {
        if !self.c.eat_word("graph") {
            return Err(self.c.expected("`graph`"));
        }
        self.graph.name = self.string("the graph's name in quotes")?.into();
        self.graph.kind = self.kind()?;
        self.c.expect(b'{')?;
        while !self.c.eat(b'}') {
            self.statement()?;
            self.c.end_of_statement()?;
        }
        match self.c.peek() {
            None => Ok(()),
            Some(_) => Err(self.c.expected("nothing after the graph")),
        }
    }

    fn kind(&mut self) -> Parsed<GraphKind> {
        let what = "joint, forward, backward or inference";
        self.c.skip();
        let at = self.c.at;
        match self.c.word() {
            Some("forward") => Ok(GraphKind::Forward),
            Some("backward") => Ok(GraphKind::Backward),
            Some("inference") => Ok(GraphKind::Inference),
            Some("joint") => {
                self.c.expect(b'(')?;
                self.attribute("forward_outputs")?;
                let forward_outputs = self.count()?;
                self.c.expect(b')')?;
                Ok(GraphKind::Joint { forward_outputs })
            }
            _ => {
                self.c.at = at;
                Err(self.c.expected(what))
            }
        }
    }

    fn statement(&mut self) -> Parsed<()> {
        match self.c.peek() {
            Some(b'%' | b'_') => self.node(),
            Some(b) if b.is_ascii_alphabetic() => {
                let start = self.c.at;
                match self.c.word() {
                    Some("symbol") => self.symbol(),
                    Some("input") => self.input(),
                    Some("output") => self.output(),
                    _ => {
                        self.c.at = start;
                        self.node()
                    }
                }
            }
            _ => Err(self.c.expected("a statement (symbol, input, output, `%name: type = op(…)`) or `}`")),
        }
    }

    // --- statements ---

    fn symbol(&mut self) -> Parsed<()> {
        self.c.skip();
        let at = self.c.at;
        let Some(name) = self.c.word() else { return Err(self.c.expected("a symbol's name")) };
        if is_reserved(name) || name.starts_with('_') {
            return Err(self.c.error(at, format!("a size symbol cannot be called `{name}`")));
        }
        self.attribute("hint")?;
        let hint = self.signed()?;
        let (mut min, mut max) = (0, i64::MAX);
        if self.c.eat_word("range") {
            self.c.expect(b'=')?;
            self.c.expect(b'[')?;
            min = self.bound()?;
            self.c.expect(b',')?;
            max = self.bound()?;
            self.c.expect(b']')?;
        }
        self.graph.symbols.push(SymbolInfo { name: name.into(), hint, min, max });
        Ok(())
    }

    fn input(&mut self) -> Parsed<()> {
        if self.c.peek() != Some(b'%') {
            let dim = self.expr()?;
            self.graph.inputs.push(Input::Int(dim));
            return Ok(());
        }
        let (at, name, ty) = self.typed_name()?;
        let mut role = Role::Primal;
        if self.c.eat_word("role") {
            self.c.expect(b'=')?;
            role = match self.c.word() {
                Some("tangent") => Role::Tangent,
                Some("primal") => Role::Primal,
                _ => return Err(self.c.expected("primal or tangent")),
            };
        }
        self.new_name(at, name)?;
        let v = self.graph.add_input(name, ty, role);
        self.values.insert(name, v);
        Ok(())
    }

    fn output(&mut self) -> Parsed<()> {
        let output = if self.c.peek() == Some(b'%') {
            Output::Value(self.value()?)
        } else if self.c.eat_word("none") {
            Output::None
        } else {
            Output::Int(self.expr()?)
        };
        self.graph.outputs.push(output);
        Ok(())
    }

    fn node(&mut self) -> Parsed<()> {
        let results = self.results()?;
        let op = self.op()?;
        self.c.expect(b'(')?;
        let (mut args, mut kwargs, mut seen) = (Vec::new(), Vec::new(), HashSet::<_, MixHash>::default());
        while !self.c.eat(b')') {
            if !(args.is_empty() && kwargs.is_empty()) {
                if !self.c.eat(b',') {
                    return Err(self.c.expected("`,` or `)`"));
                }
                if self.c.eat(b')') {
                    break;
                }
            }
            self.c.skip();
            let at = self.c.at;
            if let Some(name) = self.keyword() {
                if !seen.insert(name) {
                    return Err(self.c.error(at, format!("keyword {name} is given twice")));
                }
                let value = self.arg()?;
                kwargs.push((attribute_name(name), value));
            } else if kwargs.is_empty() {
                args.push(self.arg()?);
            } else {
                return Err(self.c.expected("a keyword argument `name=`, as before"));
            }
        }
        let loc = if self.c.eat_word("loc") {
            self.c.expect(b'=')?;
            Some(self.string("the location in quotes")?.into())
        } else {
            None
        };
        let named = results.iter().map(|r| r.as_ref().map(|(_, name, ty)| (Arc::from(*name), ty.clone()))).collect();
        for (at, name, _) in results.iter().flatten() {
            self.new_name(*at, name)?;
            // The handle is set below, once the node exists; until then a second `%name` of this list is found here.
            self.values.insert(name, ValueId(u32::MAX));
        }
        let id = self.graph.add_node(op, args, kwargs, named, loc);
        for (r, v) in results.iter().zip(&self.graph.node(id).results) {
            if let (Some((_, name, _)), Some(v)) = (r, v) {
                self.values.insert(name, *v);
            }
        }
        Ok(())
    }

    /// `%a: type, _, %b: type =`, or nothing before an operator without results.
    fn results(&mut self) -> Parsed<Vec<Option<NamedType<'t>>>> {
        let mut results = Vec::new();
        if !matches!(self.c.peek(), Some(b'%' | b'_')) {
            return Ok(results);
        }
        loop {
            results.push(match self.c.peek() {
                Some(b'%') => Some(self.typed_name()?),
                _ if self.c.eat_word("_") => None,
                _ => return Err(self.c.expected("a result `%name: type` or `_`")),
            });
            if self.c.eat(b'=') {
                return Ok(results);
            }
            if !self.c.eat(b',') {
                return Err(self.c.expected("`,` or `=`"));
            }
        }
    }

    fn op(&mut self) -> Parsed<Op> {
        self.c.skip();
        let at = self.c.at;
        let name = self.c.dotted();
        if let Some(prim) = name.strip_prefix("prim.") {
            return match name.parse() {
                Ok(p) => Ok(Op::Prim(p)),
                Err(()) => {
                    let hint = did_you_mean(prim, PrimOp::ALL.iter().map(|p| p.name()));
                    Err(self.c.error(at, format!("there is no prim `{prim:.40}`{hint}")))
                }
            };
        }
        if !name.contains('.') || !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            self.c.at = at;
            return Err(self.c.expected("an operator such as prim.exp or aten.mm.default"));
        }
        Ok(Op::External(name.into()))
    }

    // --- names and types ---

    /// `%name: type`.
    fn typed_name(&mut self) -> Parsed<NamedType<'t>> {
        let (at, name) = self.percent_name()?;
        self.c.expect(b':')?;
        let ty = self.ty()?;
        Ok((at, name, self.graph.share(ty)))
    }

    fn percent_name(&mut self) -> Parsed<(usize, &'t str)> {
        self.c.skip();
        let at = self.c.at;
        self.c.expect(b'%')?;
        let name = self.c.dotted();
        if name.is_empty() { Err(self.c.expected("a name right after `%`")) } else { Ok((at, name)) }
    }

    fn new_name(&self, at: usize, name: &str) -> Parsed<()> {
        if self.values.contains_key(name) {
            return Err(self.c.error(at, format!("expected a new name, but %{name:.80} is already defined")));
        }
        Ok(())
    }

    fn value(&mut self) -> Parsed<ValueId> {
        let (at, name) = self.percent_name()?;
        match self.values.get(name) {
            Some(v) => Ok(*v),
            None => Err(self.c.error(at, format!("expected a value defined above, but %{name:.80} is not"))),
        }
    }

    fn ty(&mut self) -> Parsed<TensorType> {
        self.c.skip();
        let at = self.c.at;
        let Some(dtype) = self.c.word().and_then(|w| w.parse().ok()) else {
            self.c.at = at;
            return Err(self.c.expected("a type such as f32[4, s0]"));
        };
        let mut ty = TensorType::new(dtype, self.dims()?);
        if self.c.eat_word("strides") {
            self.c.expect(b'=')?;
            ty.strides = Some(self.dims()?);
        }
        if self.c.peek() == Some(b'@') {
            ty.device = self.device()?;
        }
        Ok(ty)
    }

    fn dims(&mut self) -> Parsed<Vec<Dim>> {
        self.c.expect(b'[')?;
        let mut dims = Vec::new();
        while !self.c.eat(b']') {
            if !dims.is_empty() {
                if !self.c.eat(b',') {
                    return Err(self.c.expected("`,` or `]`"));
                }
                if self.c.eat(b']') {
                    break;
                }
            }
            dims.push(self.expr()?);
        }
        Ok(dims)
    }

    fn device(&mut self) -> Parsed<Device> {
        self.c.expect(b'@')?;
        let at = self.c.at;
        let text = self.c.run_of(|b| b.is_ascii_alphanumeric() || b == b':');
        text.parse()
            .map_err(|()| self.c.error(at, format!("expected a device such as cpu or cuda:0, found `{text:.40}`")))
    }

    // --- arguments ---

    /// `name=`, or None (and nothing taken).
    fn keyword(&mut self) -> Option<&'t str> {
        let start = self.c.at;
        let name = self.c.word()?;
        if self.c.eat(b'=') {
            return Some(name);
        }
        self.c.at = start;
        None
    }

    fn arg(&mut self) -> Parsed<Arg> {
        match self.c.peek() {
            Some(b'%') => Ok(Arg::Value(self.value()?)),
            Some(b'"') => Ok(Arg::Str(self.c.string()?.into())),
            Some(b'@') => Ok(Arg::Device(self.device()?)),
            Some(b'[') => self.list(),
            Some(b) if b.is_ascii_alphabetic() => self.word_arg(),
            Some(b) if b.is_ascii_digit() || b == b'-' => match self.float()? {
                Some(x) => Ok(Arg::Float(x)),
                None => Ok(Arg::Int(self.expr()?)),
            },
            Some(b'(') => Ok(Arg::Int(self.expr()?)),
            _ => Err(self.c.expected("an argument")),
        }
    }

    fn list(&mut self) -> Parsed<Arg> {
        self.c.expect(b'[')?;
        self.enter()?;
        let mut items = Vec::new();
        while !self.c.eat(b']') {
            if !items.is_empty() {
                if !self.c.eat(b',') {
                    return Err(self.c.expected("`,` or `]`"));
                }
                if self.c.eat(b']') {
                    break;
                }
            }
            items.push(self.arg()?);
        }
        self.depth -= 1;
        Ok(Arg::List(items.into()))
    }

    fn word_arg(&mut self) -> Parsed<Arg> {
        let start = self.c.at;
        let word = self.c.word().unwrap_or("");
        Ok(match word {
            "true" => Arg::Bool(true),
            "false" => Arg::Bool(false),
            "none" => Arg::None,
            "inf" => Arg::Float(f64::INFINITY),
            "nan" => Arg::Float(f64::NAN),
            "layout" | "memory_format" => {
                self.c.expect(b':')?;
                let Some(name) = self.c.word() else { return Err(self.c.expected("a name such as strided")) };
                if word == "layout" { Arg::Layout(name.into()) } else { Arg::MemoryFormat(name.into()) }
            }
            _ => match word.parse() {
                Ok(dtype) => Arg::DType(dtype),
                Err(()) => {
                    self.c.at = start;
                    Arg::Int(self.expr()?)
                }
            },
        })
    }

    /// A float with its sign; None (and nothing taken) where an integer expression stands.
    fn float(&mut self) -> Parsed<Option<f64>> {
        let start = self.c.at;
        let sign = if self.c.eat(b'-') { -1.0 } else { 1.0 };
        match self.c.peek() {
            Some(b) if b.is_ascii_digit() => {
                if let Number::Float(x) = self.c.number()? {
                    return Ok(Some(sign * x));
                }
            }
            _ => {
                if self.c.eat_word("inf") {
                    return Ok(Some(sign * f64::INFINITY));
                }
            }
        }
        self.c.at = start;
        Ok(None)
    }

    fn string(&mut self, what: &str) -> Parsed<String> {
        if self.c.peek() == Some(b'"') { self.c.string() } else { Err(self.c.expected(what)) }
    }

    /// `name=` that must come next.
    fn attribute(&mut self, name: &str) -> Parsed<()> {
        if self.c.eat_word(name) { self.c.expect(b'=') } else { Err(self.c.expected(&format!("`{name}=`"))) }
    }

    // --- integers and size expressions ---

    fn count(&mut self) -> Parsed<usize> {
        self.c.skip();
        let at = self.c.at;
        match self.c.number()? {
            Number::Int(n) => usize::try_from(n).map_err(|_| self.c.error(at, format!("{n} is too large"))),
            Number::Float(_) => Err(self.c.error(at, "expected an integer".to_string())),
        }
    }

    fn signed(&mut self) -> Parsed<i64> {
        self.c.skip();
        let at = self.c.at;
        self.expr()?.as_const().ok_or_else(|| self.c.error(at, "expected a constant integer".to_string()))
    }

    /// An end of a range, where `inf` is no bound.
    fn bound(&mut self) -> Parsed<i64> {
        self.c.skip();
        let start = self.c.at;
        let negative = self.c.eat(b'-');
        if self.c.eat_word("inf") {
            return Ok(if negative { i64::MIN } else { i64::MAX });
        }
        self.c.at = start;
        self.signed()
    }

    /// Sum of signed terms.
    fn expr(&mut self) -> Parsed<Dim> {
        self.c.skip();
        let at = self.c.at;
        self.enter()?;
        let negative = self.c.eat(b'-');
        let mut sum = self.term(negative)?;
        loop {
            let negative = match self.c.peek() {
                Some(b'+') => false,
                Some(b'-') => true,
                _ => break,
            };
            self.c.at += 1;
            let term = self.term(negative)?;
            sum = match (&sum, &term) {
                (Dim::Const(a), Dim::Const(b)) => Dim::Const(a.checked_add(*b).ok_or_else(|| self.overflow(at))?),
                (a, b) if a.term_count() + b.term_count() > MAX_TERMS => return Err(self.too_large(at)),
                (a, b) => a + b,
            };
        }
        self.depth -= 1;
        Ok(sum)
    }

    /// Product of factors, negated if a minus stood before it.
    fn term(&mut self, negative: bool) -> Parsed<Dim> {
        self.c.skip();
        let at = self.c.at;
        let mut product = self.factor(negative)?;
        let mut factors = 1;
        while self.c.eat(b'*') {
            let factor = self.factor(false)?;
            factors += 1;
            product = match (&product, &factor) {
                (Dim::Const(a), Dim::Const(b)) => Dim::Const(a.checked_mul(*b).ok_or_else(|| self.overflow(at))?),
                (a, b) if factors.max(a.term_count() * b.term_count()) > MAX_TERMS => return Err(self.too_large(at)),
                (a, b) => a * b,
            };
        }
        Ok(product)
    }

    /// One factor, negated if asked: only there does the lowest 64-bit integer exist.
    fn factor(&mut self, negative: bool) -> Parsed<Dim> {
        self.c.skip();
        let at = self.c.at;
        let dim = match self.c.byte() {
            Some(b) if b.is_ascii_digit() => {
                let Number::Int(n) = self.c.number()? else {
                    return Err(self.c.error(at, "expected an integer, found a float".to_string()));
                };
                let n = if negative { -i128::from(n) } else { i128::from(n) };
                return i64::try_from(n).map(Dim::Const).map_err(|_| self.overflow(at));
            }
            Some(b'(') => {
                self.c.at += 1;
                let inner = self.expr()?;
                self.c.expect(b')')?;
                inner
            }
            _ => match self.c.word() {
                Some(f @ ("floordiv" | "mod" | "min" | "max")) => self.call(f)?,
                Some(name) if !is_reserved(name) && !name.starts_with('_') => {
                    self.symbols.entry(name).or_insert_with(|| Dim::sym(name)).clone()
                }
                _ => {
                    self.c.at = at;
                    return Err(self.c.expected("an integer or a size expression"));
                }
            },
        };
        Ok(if negative { &Dim::ZERO - &dim } else { dim })
    }

    /// The two arguments of a function of sizes, and its value.
    fn call(&mut self, function: &str) -> Parsed<Dim> {
        self.c.expect(b'(')?;
        let a = self.expr()?;
        self.c.expect(b',')?;
        let b = self.expr()?;
        self.c.expect(b')')?;
        Ok(match function {
            "floordiv" => a.floor_div(&b),
            "mod" => a.modulo(&b),
            "min" => Dim::min(&a, &b),
            _ => Dim::max(&a, &b),
        })
    }

    fn enter(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.c.error(self.c.at, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(())
    }

    fn overflow(&self, at: usize) -> ParseError {
        self.c.error(at, "the integer does not fit 64 bits".to_string())
    }

    fn too_large(&self, at: usize) -> ParseError {
        self.c.error(at, format!("the size expression has more than {MAX_TERMS} terms or factors"))
    }
}
