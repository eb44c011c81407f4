//! What the mask of an attention written by hand hides, and how a kernel is told.

use crate::uniform::{Affine, Fact, Facts};
use permalloy_ir::{Arg, Builder, DType, Dim, Graph, PrimOp, SymbolInfo, ValueId, non_negative};

/// One step between the scaled scores and the softmax.
#[derive(Clone, PartialEq, Debug)]
pub enum Term {
    /// `where(mask == hidden, fill, scores)`.
    Fill { mask: ValueId, hidden: bool, fill: f64 },
    /// `scores + mask`.
    Add { mask: ValueId },
}

/// How the kernel hides what the mask hides.
#[derive(Clone, PartialEq, Debug)]
pub enum Mask {
    None,
    Causal,
    /// `attn_mask=` a sum of these.
    Additive(Vec<Term>),
}

/// `Σ` of facts as they bear on one softmax.
pub struct Sight<'a> {
    pub graph: &'a Graph,
    pub facts: &'a Facts,
    /// Queries and keys.
    pub rows: &'a Dim,
    pub columns: &'a Dim,
    /// A row that is −∞ throughout gives 0, not NaN.
    pub safe: bool,
}

/// Whether a fact says `key <= query` of the last two dims: the rest is hidden.
pub fn is_causal(fact: &Fact, shown: impl Fn(f64) -> bool, hidden: impl Fn(f64) -> bool) -> bool {
    let Fact::Split { at, yes, no } = fact else { return false };
    let form = at.of_last_two().zip(at.offset.as_const());
    // query − key >= 0 is shown, or key − query − 1 >= 0 hidden.
    (form == Some(((1, -1), 0)) && shown(*yes) && hidden(*no))
        || (form == Some(((-1, 1), -1)) && hidden(*yes) && shown(*no))
}

impl Sight<'_> {
    /// How a kernel that gives 0 for a row without keys can do the same; the error says why it cannot.
    ///
    /// A fill stands for −∞ if it is −∞, or so low that what it hides underflows to 0 beside a key that is seen. So each
    /// row must see a key. An added mask is used as it is, so it only must not be −∞ throughout a row.
    pub fn mask(&self, terms: &[Term]) -> Result<Mask, String> {
        let mut kept: Vec<Term> = Vec::new();
        for t in terms {
            if !self.hides_nothing(t) {
                kept.push(t.clone());
            }
        }
        let mut hiding = 0;
        for t in &kept {
            match t {
                Term::Fill { mask, hidden, fill } => {
                    // exp(−1e30 − max) is 0 for any max a score in use can have.
                    if *fill > -1e30 {
                        return Err(format!("hidden scores are {fill:?}, which a score may come near"));
                    }
                    if kept.len() > 1 && fill.is_finite() {
                        return Err(format!("scores are filled with {fill:?} beside another mask"));
                    }
                    hiding += 1;
                    let forgiven = self.safe && *fill == f64::NEG_INFINITY;
                    if !forgiven && !self.every_row_sees(self.facts.get(*mask), |c| (c != 0.0) != *hidden) {
                        return Err("a row of the mask may hide every key".to_string());
                    }
                }
                Term::Add { mask } => {
                    let fact = self.facts.get(*mask);
                    let finite = fact.bounds().is_some_and(|(low, high)| low.is_finite() && high.is_finite());
                    if finite {
                        continue;
                    }
                    hiding += 1;
                    if !self.safe && !self.every_row_sees(fact, f64::is_finite) {
                        return Err("the added mask may be -inf throughout a row".to_string());
                    }
                }
            }
        }
        if hiding > 1 && !self.safe {
            return Err("several masks together may hide every key of a row".to_string());
        }
        Ok(match kept.as_slice() {
            [] => Mask::None,
            [one] if self.causal(one) => Mask::Causal,
            _ => Mask::Additive(kept),
        })
    }

    fn hides_nothing(&self, t: &Term) -> bool {
        match t {
            Term::Fill { mask, hidden, .. } => {
                self.facts.get(*mask).as_constant().is_some_and(|c| (c != 0.0) != *hidden)
            }
            Term::Add { mask } => self.facts.get(*mask).as_constant() == Some(0.0),
        }
    }

    fn causal(&self, t: &Term) -> bool {
        match t {
            Term::Fill { mask, hidden, .. } => {
                is_causal(self.facts.get(*mask), |c| (c != 0.0) != *hidden, |c| (c != 0.0) == *hidden)
            }
            Term::Add { mask } => is_causal(self.facts.get(*mask), |c| c == 0.0, |c| c == f64::NEG_INFINITY),
        }
    }

    /// Whether every row has an element that `sees` accepts.
    fn every_row_sees(&self, fact: &Fact, sees: impl Fn(f64) -> bool) -> bool {
        let Fact::Split { at, yes, no } = fact else { return fact.as_constant().is_some_and(sees) };
        match (sees(*yes), sees(*no)) {
            (true, true) => true,
            (true, false) => self.reaches(at),
            // No is where −at − 1 >= 0.
            (false, true) => self.reaches(&Affine {
                coefficients: at.coefficients.iter().map(|c| -c).collect(),
                offset: &Dim::from(-1) - &at.offset,
            }),
            (false, false) => false,
        }
    }

    /// For every row there is a column at which the form is not negative.
    fn reaches(&self, at: &Affine) -> bool {
        let Some((row, column)) = at.of_last_two() else { return false };
        let lowest = if row < 0 { &Dim::from(row) * &(self.rows - &Dim::ONE) } else { Dim::ZERO };
        let highest = if column > 0 { &Dim::from(column) * &(self.columns - &Dim::ONE) } else { Dim::ZERO };
        self.proves(&(&(&lowest + &highest) + &at.offset))
    }

    fn proves(&self, d: &Dim) -> bool {
        let symbols: &[SymbolInfo] = &self.graph.symbols;
        non_negative(d, symbols)
    }
}

/// The sum of the terms as one tensor `[B or 1, H or 1, Sq or 1, Sk or 1]`, fills in `dtype`; None if a mask has a shape
/// that is not of this kind. Each term comes with its [`compact`] mask in the graph that is built; `batch` and `head`
/// are `B` and `H`.
pub fn additive(
    b: &mut Builder<'_>,
    terms: &[(Term, ValueId)],
    (batch, head): (&Dim, &Dim),
    dtype: DType,
) -> Option<ValueId> {
    let mut sum: Option<ValueId> = None;
    for (t, mask) in terms {
        let small = four_dims(b, *mask, batch, head)?;
        let term = match t {
            Term::Add { .. } => small,
            Term::Fill { hidden, fill, .. } => {
                let shape = b.shape(small);
                let full = |b: &mut Builder<'_>, c: f64| b.full(Arg::Float(c), &shape, dtype);
                let (low, zero) = (full(b, *fill), full(b, 0.0));
                let (yes, no) = if *hidden { (low, zero) } else { (zero, low) };
                b.prim(PrimOp::Where, &[small, yes, no], vec![])
            }
        };
        sum = Some(match sum {
            None => term,
            Some(s) => {
                // An added mask is as wide as the scores were.
                let dtype = b.dtype(s).promote(b.dtype(term));
                let (s, term) = (b.cast(s, dtype), b.cast(term, dtype));
                b.add(s, term)
            }
        });
    }
    sum
}

/// The mask of a term before it was expanded.
pub fn compact(graph: &Graph, term: &Term) -> ValueId {
    let (Term::Fill { mask: mut v, .. } | Term::Add { mask: mut v }) = *term;
    while let Some(up) = graph.producer(v).filter(|n| n.prim() == Some(PrimOp::Expand)).and_then(|n| n.operand(0)) {
        v = up;
    }
    v
}

fn four_dims(b: &mut Builder<'_>, x: ValueId, batch: &Dim, head: &Dim) -> Option<ValueId> {
    let shape = b.shape(x);
    let rest = shape.get(shape.len().checked_sub(2)?..)?;
    let front: Vec<Dim> = match &shape[..shape.len() - 2] {
        [] => vec![Dim::ONE, Dim::ONE],
        [one] if one.is_const(1) => vec![Dim::ONE, Dim::ONE],
        [all] if *all == batch * head => vec![batch.clone(), head.clone()],
        [a, c] => vec![a.clone(), c.clone()],
        _ => return None,
    };
    let shape: Vec<Dim> = front.into_iter().chain(rest.iter().cloned()).collect();
    Some(b.reshape(x, &shape))
}
