//! What is known of every element of a tensor: that all are one constant, or within bounds, or follow from the index.
//!
//! The analysis runs over the prims of a routed graph. It says "not known" ([`Fact::Unknown`]) rather than guess: a fact
//! holds for every run, whatever the sizes are (within the ranges of their symbols) and whatever the inputs hold.

use permalloy_ir::{Arg, DType, Dim, Graph, Node, PrimOp, SymbolInfo, ValueId, non_negative};

/// `Σ coefficients[d] · index[d] + offset` over the dims of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Affine {
    pub coefficients: Vec<i64>,
    pub offset: Dim,
}

/// What holds for the elements of a value.
#[derive(Clone, PartialEq, Debug)]
pub enum Fact {
    Unknown,
    /// Every element lies in `low..=high` and none is NaN. `low == high` means a constant.
    Within {
        low: f64,
        high: f64,
    },
    /// An integer that follows from the index.
    Index(Affine),
    /// `yes` where the affine form is not negative, `no` elsewhere.
    Split {
        at: Affine,
        yes: f64,
        no: f64,
    },
}

impl Fact {
    fn constant(c: f64) -> Fact {
        if c.is_nan() { Fact::Unknown } else { Fact::Within { low: c, high: c } }
    }

    /// The value of every element, if it is one.
    pub fn as_constant(&self) -> Option<f64> {
        match self {
            Fact::Within { low, high } if low.to_bits() == high.to_bits() => Some(*low),
            _ => None,
        }
    }

    /// Bounds of every element; None when it may be anything, NaN included.
    pub fn bounds(&self) -> Option<(f64, f64)> {
        match self {
            Fact::Within { low, high } => Some((*low, *high)),
            Fact::Split { yes, no, .. } => Some((yes.min(*no), yes.max(*no))),
            Fact::Unknown | Fact::Index(_) => None,
        }
    }
}

/// Facts of every value of a graph.
#[derive(Debug)]
pub struct Facts {
    facts: Vec<Fact>,
}

impl Facts {
    pub fn of(graph: &Graph) -> Facts {
        let mut f = Facts { facts: vec![Fact::Unknown; graph.value_count()] };
        for (v, value) in graph.values() {
            // Whatever a bool holds, it is one of two.
            if value.ty.dtype == DType::Bool {
                f.facts[v.0 as usize] = Fact::Within { low: 0.0, high: 1.0 };
            }
        }
        for (_, node) in graph.nodes() {
            if let (Some(p), Some(v)) = (node.prim(), node.result()) {
                let fact = f.prim(graph, p, node, v);
                if fact != Fact::Unknown {
                    f.facts[v.0 as usize] = fact;
                }
            }
        }
        f
    }

    pub fn get(&self, v: ValueId) -> &Fact {
        &self.facts[v.0 as usize]
    }

    fn prim(&self, g: &Graph, p: PrimOp, node: &Node, result: ValueId) -> Fact {
        let ty = g.ty(result);
        let fact = |i: usize| node.operand(i).map_or(Fact::Unknown, |v| self.get(v).clone());
        match p {
            PrimOp::Full => {
                let value = node.kwarg("value").and_then(Arg::as_f64).and_then(|c| exact(ty.dtype, c));
                value.map_or(Fact::Unknown, Fact::constant)
            }
            PrimOp::Iota => Fact::Index(Affine { coefficients: vec![1], offset: Dim::ZERO }),
            PrimOp::Reshape | PrimOp::Permute | PrimOp::Expand => {
                let Some(x) = node.operand(0) else { return Fact::Unknown };
                moved(self.get(x), &sources(p, node, g.shape(x), &ty.shape))
            }
            PrimOp::Slice | PrimOp::Flip | PrimOp::Window | PrimOp::Take | PrimOp::Gather => match fact(0) {
                Fact::Within { low, high } => Fact::Within { low, high },
                split => split.bounds().map_or(Fact::Unknown, |(low, high)| Fact::Within { low, high }),
            },
            PrimOp::Cast => self.cast(g, node, ty.dtype),
            PrimOp::Where => select(fact(0), fact(1), fact(2)),
            PrimOp::Eq | PrimOp::Ne | PrimOp::Lt | PrimOp::Le | PrimOp::Gt | PrimOp::Ge => {
                compare(p, fact(0), fact(1), &ty.shape, &g.symbols)
            }
            PrimOp::Not if ty.dtype == DType::Bool => {
                each(fact(0), |x| Some(1.0 - x), |(low, high)| (1.0 - high, 1.0 - low))
            }
            PrimOp::Neg if ty.dtype.is_float() => each(fact(0), |x| Some(-x), |(low, high)| (-high, -low)),
            PrimOp::And | PrimOp::Or if ty.dtype == DType::Bool => logic(p, fact(0), fact(1)),
            PrimOp::Add | PrimOp::Mul if ty.dtype == DType::Bool => {
                logic(if p == PrimOp::Add { PrimOp::Or } else { PrimOp::And }, fact(0), fact(1))
            }
            PrimOp::Add | PrimOp::Sub | PrimOp::Mul | PrimOp::Min | PrimOp::Max => {
                arithmetic(p, ty.dtype, &fact(0), &fact(1))
            }
            _ => Fact::Unknown,
        }
    }

    fn cast(&self, g: &Graph, node: &Node, to: DType) -> Fact {
        let Some(x) = node.operand(0) else { return Fact::Unknown };
        let from = g.dtype(x);
        let fact = self.get(x).clone();
        if let Fact::Index(a) = fact {
            // Other dtypes need not hold every index.
            return if from == to || to == DType::I64 { Fact::Index(a) } else { Fact::Unknown };
        }
        if to == DType::Bool {
            return each(fact, |c| Some(f64::from(c != 0.0)), |_| (0.0, 1.0));
        }
        if to.is_int() && from.is_float() {
            return Fact::Unknown;
        }
        let Some((low, high)) = fact.bounds() else { return Fact::Unknown };
        if exact(to, low).is_none() || exact(to, high).is_none() {
            return Fact::Unknown;
        }
        each(fact, |c| exact(to, c), |(low, high)| (exact(to, low).unwrap_or(low), exact(to, high).unwrap_or(high)))
    }
}

/// `c` as an element of `dtype` holds it; None where this analysis does not say how it is rounded.
fn exact(dtype: DType, c: f64) -> Option<f64> {
    let whole = |low: f64, high: f64| (c.fract() == 0.0 && (low..=high).contains(&c)).then_some(c);
    match dtype {
        DType::F64 => Some(c),
        DType::F32 => Some(f64::from(c as f32)),
        DType::BF16 => (f64::from(c as f32) == c).then(|| f64::from(to_bf16(c as f32))),
        DType::F16 if c.is_infinite() || c.abs() == 65504.0 => Some(c),
        DType::F16 => whole(-2048.0, 2048.0),
        DType::Bool => whole(0.0, 1.0),
        DType::U8 => whole(0.0, 255.0),
        DType::I8 => whole(-128.0, 127.0),
        DType::I16 => whole(-32768.0, 32767.0),
        DType::I32 => whole(f64::from(i32::MIN), f64::from(i32::MAX)),
        // Beyond, f64 has gaps.
        DType::I64 => whole(-9007199254740992.0, 9007199254740992.0),
        _ => None,
    }
}

/// The nearest number of bf16, the even one of two; no NaN.
fn to_bf16(c: f32) -> f32 {
    let bits = c.to_bits();
    let half = 0x7fff + (bits >> 16 & 1);
    if c.is_finite() { f32::from_bits((bits + half) & 0xffff_0000) } else { c }
}

/// For each dim of a view's result the operand's dim that its index goes to; None where the index does not matter.
/// The whole is None when the dims do not correspond.
fn sources(p: PrimOp, node: &Node, from: &[Dim], to: &[Dim]) -> Option<Vec<Option<usize>>> {
    match p {
        PrimOp::Permute => Some(node.ints_attr("perm").iter().map(|d| usize::try_from(*d).ok()).collect()),
        PrimOp::Expand => Some((0..to.len()).map(|d| (from[d] == to[d]).then_some(d)).collect()),
        _ => {
            let mut wide = (0..from.len()).filter(|d| !from[*d].is_const(1));
            let mut out = Vec::with_capacity(to.len());
            for size in to {
                if size.is_const(1) {
                    out.push(None);
                } else {
                    out.push(Some(wide.next().filter(|d| from[*d] == *size)?));
                }
            }
            wide.next().is_none().then_some(out)
        }
    }
}

fn moved(fact: &Fact, sources: &Option<Vec<Option<usize>>>) -> Fact {
    let affine = |a: &Affine| -> Option<Affine> {
        let sources = sources.as_ref()?;
        let coefficients = sources.iter().map(|s| s.map_or(0, |d| a.coefficients[d])).collect();
        Some(Affine { coefficients, offset: a.offset.clone() })
    };
    match fact {
        Fact::Index(a) => affine(a).map_or(Fact::Unknown, Fact::Index),
        Fact::Split { at, yes, no } => match affine(at) {
            Some(at) => Fact::Split { at, yes: *yes, no: *no },
            None => Fact::Within { low: yes.min(*no), high: yes.max(*no) },
        },
        other => other.clone(),
    }
}

/// A function of each element: `f` for single values, `bounds` for a range.
fn each(fact: Fact, f: impl Fn(f64) -> Option<f64>, bounds: impl Fn((f64, f64)) -> (f64, f64)) -> Fact {
    if let Some(c) = fact.as_constant() {
        return f(c).map_or(Fact::Unknown, Fact::constant);
    }
    match fact {
        Fact::Split { at, yes, no } => split(at, f(yes), f(no)),
        Fact::Within { low, high } => {
            let (low, high) = bounds((low, high));
            Fact::Within { low, high }
        }
        _ => Fact::Unknown,
    }
}

fn split(at: Affine, yes: Option<f64>, no: Option<f64>) -> Fact {
    match (yes, no) {
        (Some(yes), Some(no)) if yes.to_bits() == no.to_bits() => Fact::constant(yes),
        (Some(yes), Some(no)) if !yes.is_nan() && !no.is_nan() => Fact::Split { at, yes, no },
        _ => Fact::Unknown,
    }
}

fn select(condition: Fact, a: Fact, b: Fact) -> Fact {
    match condition.as_constant() {
        Some(c) => return if c != 0.0 { a } else { b },
        None => {
            if let (Fact::Split { at, yes, no }, Some(a), Some(b)) = (&condition, a.as_constant(), b.as_constant()) {
                let pick = |c: f64| Some(if c != 0.0 { a } else { b });
                return split(at.clone(), pick(*yes), pick(*no));
            }
        }
    }
    match (a.bounds(), b.bounds()) {
        (Some((al, ah)), Some((bl, bh))) => Fact::Within { low: al.min(bl), high: ah.max(bh) },
        _ => Fact::Unknown,
    }
}

/// `and`, `or` of bools.
fn logic(p: PrimOp, a: Fact, b: Fact) -> Fact {
    let decides = f64::from(p == PrimOp::Or);
    match (a.as_constant(), b.as_constant()) {
        (Some(c), _) => return if c == decides { a } else { b },
        (_, Some(c)) => return if c == decides { b } else { a },
        _ => {}
    }
    if a == b { a } else { Fact::Within { low: 0.0, high: 1.0 } }
}

fn arithmetic(p: PrimOp, dtype: DType, a: &Fact, b: &Fact) -> Fact {
    let f = |x: f64, y: f64| {
        let z = match p {
            PrimOp::Add => x + y,
            PrimOp::Sub => x - y,
            PrimOp::Mul => x * y,
            PrimOp::Min => x.min(y),
            _ => x.max(y),
        };
        exact(dtype, z)
    };
    if let (Some(a), Some(c)) = (as_affine(a, b), as_affine(b, a))
        && dtype == DType::I64
        && let Some(a) = combine(p, &a, &c)
    {
        return Fact::Index(a);
    }
    match (a, b, a.as_constant(), b.as_constant()) {
        (_, _, Some(x), Some(y)) => f(x, y).map_or(Fact::Unknown, Fact::constant),
        (Fact::Split { at, yes, no }, _, _, Some(c)) => split(at.clone(), f(*yes, c), f(*no, c)),
        (_, Fact::Split { at, yes, no }, Some(c), _) => split(at.clone(), f(c, *yes), f(c, *no)),
        (Fact::Split { at, yes, no }, Fact::Split { at: other, yes: y, no: n }, ..) if at == other => {
            split(at.clone(), f(*yes, *y), f(*no, *n))
        }
        _ => {
            let (Some((al, ah)), Some((bl, bh))) = (a.bounds(), b.bounds()) else { return Fact::Unknown };
            // Products and sums of finite bounds are monotonous in each; with infinities a NaN may lie between.
            let corners = [f(al, bl), f(al, bh), f(ah, bl), f(ah, bh)];
            let all: Option<Vec<f64>> = corners.into_iter().collect();
            match all {
                Some(c) if [al, ah, bl, bh].iter().all(|x| x.is_finite()) => Fact::Within {
                    low: c.iter().copied().fold(f64::INFINITY, f64::min),
                    high: c.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                },
                _ => Fact::Unknown,
            }
        }
    }
}

/// An index form, or an integer constant as one of the other's rank.
fn as_affine(a: &Fact, other: &Fact) -> Option<Affine> {
    match (a, other) {
        (Fact::Index(a), _) => Some(a.clone()),
        (_, Fact::Index(o)) => {
            let c = a.as_constant().filter(|c| c.fract() == 0.0 && c.abs() < 9e15)?;
            Some(Affine { coefficients: vec![0; o.coefficients.len()], offset: Dim::from(c as i64) })
        }
        _ => None,
    }
}

fn combine(p: PrimOp, a: &Affine, b: &Affine) -> Option<Affine> {
    let zip = |f: fn(i64, i64) -> Option<i64>| -> Option<Vec<i64>> {
        a.coefficients.iter().zip(&b.coefficients).map(|(x, y)| f(*x, *y)).collect()
    };
    match p {
        PrimOp::Add => Some(Affine { coefficients: zip(i64::checked_add)?, offset: &a.offset + &b.offset }),
        PrimOp::Sub => Some(Affine { coefficients: zip(i64::checked_sub)?, offset: &a.offset - &b.offset }),
        _ => None,
    }
}

fn compare(p: PrimOp, a: Fact, b: Fact, shape: &[Dim], symbols: &[SymbolInfo]) -> Fact {
    if let (Some(x), Some(y)) = (as_affine(&a, &b), as_affine(&b, &a)) {
        let (more, less) = match p {
            PrimOp::Le | PrimOp::Lt => (y, x),
            PrimOp::Ge | PrimOp::Gt => (x, y),
            _ => return Fact::Within { low: 0.0, high: 1.0 },
        };
        let Some(mut at) = combine(PrimOp::Sub, &more, &less) else { return Fact::Unknown };
        if matches!(p, PrimOp::Lt | PrimOp::Gt) {
            at.offset = &at.offset - &Dim::ONE;
        }
        return if non_negative(&at.least(shape), symbols) {
            Fact::constant(1.0)
        } else if non_negative(&(&Dim::from(-1) - &at.most(shape)), symbols) {
            Fact::constant(0.0)
        } else {
            Fact::Split { at, yes: 1.0, no: 0.0 }
        };
    }
    let holds = |x: f64, y: f64| match p {
        PrimOp::Eq => x == y,
        PrimOp::Ne => x != y,
        PrimOp::Lt => x < y,
        PrimOp::Le => x <= y,
        PrimOp::Gt => x > y,
        _ => x >= y,
    };
    let bit = |x: f64, y: f64| Some(f64::from(holds(x, y)));
    match (&a, &b, a.as_constant(), b.as_constant()) {
        (_, _, Some(x), Some(y)) => return bit(x, y).map_or(Fact::Unknown, Fact::constant),
        (Fact::Split { at, yes, no }, _, _, Some(c)) => return split(at.clone(), bit(*yes, c), bit(*no, c)),
        (_, Fact::Split { at, yes, no }, Some(c), _) => return split(at.clone(), bit(c, *yes), bit(c, *no)),
        _ => {}
    }
    // Ranges that do not touch, or touch where the comparison allows it.
    if let (Some((al, ah)), Some((bl, bh))) = (a.bounds(), b.bounds()) {
        let corners = [holds(al, bl), holds(al, bh), holds(ah, bl), holds(ah, bh)];
        let ordered = !matches!(p, PrimOp::Eq | PrimOp::Ne);
        if ordered && corners.iter().all(|c| *c) {
            return Fact::constant(1.0);
        }
        if ordered && corners.iter().all(|c| !*c) {
            return Fact::constant(0.0);
        }
    }
    Fact::Within { low: 0.0, high: 1.0 }
}

impl Affine {
    /// Its least value over the indices of a shape without empty dims.
    pub fn least(&self, shape: &[Dim]) -> Dim {
        self.extreme(shape, |c| c < 0)
    }

    /// Its greatest value over the indices of a shape without empty dims.
    pub fn most(&self, shape: &[Dim]) -> Dim {
        self.extreme(shape, |c| c > 0)
    }

    fn extreme(&self, shape: &[Dim], at_end: impl Fn(i64) -> bool) -> Dim {
        self.coefficients.iter().zip(shape).fold(self.offset.clone(), |sum, (c, n)| {
            if at_end(*c) { &sum + &(&Dim::from(*c) * &(n - &Dim::ONE)) } else { sum }
        })
    }

    /// Coefficients of the last two dims when the others do not matter.
    pub fn of_last_two(&self) -> Option<(i64, i64)> {
        let (rest, last) = self.coefficients.split_at(self.coefficients.len().checked_sub(2)?);
        rest.iter().all(|c| *c == 0).then_some((last[0], last[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact_of(body: &str, result: &str) -> Fact {
        let text = format!(
            "graph \"g\" inference {{\n  symbol s0 hint=8 range=[1, inf]\n  input s0\n{body}\n  output %{result}\n}}\n"
        );
        let g = Graph::parse(&text).unwrap();
        let facts = Facts::of(&g);
        let v = g.values().find(|(_, v)| &*v.name == result).unwrap().0;
        facts.get(v).clone()
    }

    const INDICES: &str = "  %i: i64[s0] = prim.iota(size=s0)\n  %r: i64[s0, 1] = prim.reshape(%i, shape=[s0, 1])\n  \
        %rows: i64[s0, s0] = prim.expand(%r, shape=[s0, s0])\n  %c: i64[1, s0] = prim.reshape(%i, shape=[1, s0])\n  \
        %cols: i64[s0, s0] = prim.expand(%c, shape=[s0, s0])\n";

    #[test]
    fn an_index_is_not_negative() {
        let body = "  %i: i64[s0] = prim.iota(size=s0)\n  %z: i64[s0] = prim.full(value=0, shape=[s0], dtype=i64)\n  \
                    %m: bool[s0] = prim.ge(%i, %z)";
        assert_eq!(fact_of(body, "m").as_constant(), Some(1.0));
        let body = body.replace("prim.ge", "prim.lt");
        assert_eq!(fact_of(&body, "m").as_constant(), Some(0.0));
    }

    #[test]
    fn a_triangle_is_a_split() {
        let body = format!("{INDICES}  %m: bool[s0, s0] = prim.le(%cols, %rows)");
        let Fact::Split { at, yes, no } = fact_of(&body, "m") else { panic!("no split") };
        assert_eq!((at.of_last_two(), at.offset, yes, no), (Some((1, -1)), Dim::ZERO, 1.0, 0.0));
    }

    #[test]
    fn an_additive_mask_keeps_the_triangle() {
        let body = format!(
            "{INDICES}  %m: bool[s0, s0] = prim.lt(%rows, %cols)\n  \
             %z: f32[s0, s0] = prim.full(value=0.0, shape=[s0, s0], dtype=f32)\n  \
             %f: f32[s0, s0] = prim.full(value=-inf, shape=[s0, s0], dtype=f32)\n  %w: f32[s0, s0] = prim.where(%m, %f, %z)"
        );
        let Fact::Split { at, yes, no } = fact_of(&body, "w") else { panic!("no split") };
        assert_eq!((at.of_last_two(), at.offset, yes, no), (Some((-1, 1)), Dim::from(-1), f64::NEG_INFINITY, 0.0));
    }

    #[test]
    fn infinite_bounds_do_not_add_up() {
        let body = "  input %m: bool[4]\n  %z: f32[4] = prim.full(value=0.0, shape=[4], dtype=f32)\n  \
                    %p: f32[4] = prim.full(value=inf, shape=[4], dtype=f32)\n  \
                    %a: f32[4] = prim.where(%m, %p, %z)\n  %d: f32[4] = prim.sub(%a, %a)";
        assert_eq!(fact_of(body, "d"), Fact::Unknown);
    }

    #[test]
    fn a_mask_times_the_lowest_number_is_finite() {
        let body = "  input %m: bool[4]\n  %x: f32[4] = prim.cast(%m, dtype=f32)\n  \
                    %l: f32[4] = prim.full(value=-3.4028234663852886e38, shape=[4], dtype=f32)\n  \
                    %y: f32[4] = prim.mul(%x, %l)";
        assert_eq!(fact_of(body, "y").bounds(), Some((f64::from(f32::MIN), 0.0)));
    }
}
