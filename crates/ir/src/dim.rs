//! Symbolic integers: sizes, strides, offsets and every integer argument of an operator.
//!
//! A [`Dim`] is a constant or a polynomial in canonical form, whose atoms are size symbols and the four operations that
//! do not distribute (`floordiv`, `mod`, `min`, `max`). Equal canonical forms are equal values, so comparing two sizes
//! is comparing two small sorted lists; static graphs never leave the constant case.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Name of a size symbol, such as `s0`.
pub type Symbol = Arc<str>;

/// An integer that may depend on size symbols.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Dim {
    Const(i64),
    Expr(Arc<Poly>),
}

/// Sum of `coefficient × monomial`, sorted by monomial, no zero coefficients, never constant.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Poly {
    terms: Vec<(Monomial, i64)>,
}

/// Product of atoms with their powers, sorted; the empty one is the constant term.
type Monomial = Vec<(Atom, u32)>;

/// What a polynomial cannot look into.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Atom {
    Sym(Symbol),
    FloorDiv(Dim, Dim),
    Mod(Dim, Dim),
    Min(Dim, Dim),
    Max(Dim, Dim),
}

/// Values of the size symbols in one run.
pub type SymbolValues = BTreeMap<Symbol, i64>;

/// An expression could not be evaluated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EvalError {
    Unbound(Symbol),
    DivisionByZero,
    Overflow,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvalError::Unbound(s) => write!(f, "size symbol {s} has no value"),
            EvalError::DivisionByZero => f.write_str("division by zero in a size expression"),
            EvalError::Overflow => f.write_str("a size expression overflows 64 bits"),
        }
    }
}

impl std::error::Error for EvalError {}

impl Dim {
    pub const ZERO: Dim = Dim::Const(0);
    pub const ONE: Dim = Dim::Const(1);

    /// A size symbol.
    pub fn sym(name: &str) -> Dim {
        Dim::atom(Atom::Sym(name.into()))
    }

    fn atom(a: Atom) -> Dim {
        Dim::Expr(Arc::new(Poly { terms: vec![(vec![(a, 1)], 1)] }))
    }

    /// The value, if it depends on no symbol.
    pub fn as_const(&self) -> Option<i64> {
        match self {
            Dim::Const(c) => Some(*c),
            Dim::Expr(_) => None,
        }
    }

    pub fn is_const(&self, c: i64) -> bool {
        self.as_const() == Some(c)
    }

    /// `floor(self / other)`; simplified when exact.
    pub fn floor_div(&self, other: &Dim) -> Dim {
        match (self, other) {
            (_, Dim::Const(1)) => self.clone(),
            (Dim::Const(a), Dim::Const(b)) if *b != 0 => {
                let floor = a.wrapping_div(*b);
                Dim::Const(floor - i64::from(a.wrapping_rem(*b) != 0 && (*a < 0) != (*b < 0)))
            }
            _ => self.div_exact(other).unwrap_or_else(|| Dim::atom(Atom::FloorDiv(self.clone(), other.clone()))),
        }
    }

    /// Remainder with the sign of the divisor, as Python's `%`.
    pub fn modulo(&self, other: &Dim) -> Dim {
        match (self, other) {
            (_, Dim::Const(1)) => Dim::ZERO,
            (Dim::Const(a), Dim::Const(b)) if *b != 0 => {
                let r = a.wrapping_rem(*b);
                Dim::Const(if r != 0 && (r < 0) != (*b < 0) { r + *b } else { r })
            }
            _ if self.div_exact(other).is_some() => Dim::ZERO,
            _ => Dim::atom(Atom::Mod(self.clone(), other.clone())),
        }
    }

    pub fn min(&self, other: &Dim) -> Dim {
        match (self, other) {
            (a, b) if a == b => a.clone(),
            (Dim::Const(a), Dim::Const(b)) => Dim::Const(*a.min(b)),
            (a, b) if a <= b => Dim::atom(Atom::Min(a.clone(), b.clone())),
            (a, b) => Dim::atom(Atom::Min(b.clone(), a.clone())),
        }
    }

    pub fn max(&self, other: &Dim) -> Dim {
        match (self, other) {
            (a, b) if a == b => a.clone(),
            (Dim::Const(a), Dim::Const(b)) => Dim::Const(*a.max(b)),
            (a, b) if a <= b => Dim::atom(Atom::Max(a.clone(), b.clone())),
            (a, b) => Dim::atom(Atom::Max(b.clone(), a.clone())),
        }
    }

    /// `self / other` when it is provably a polynomial with integer coefficients.
    pub fn div_exact(&self, other: &Dim) -> Option<Dim> {
        match (self, other) {
            (_, Dim::Const(0)) => None,
            (_, Dim::Const(1)) => Some(self.clone()),
            (Dim::Const(a), Dim::Const(b)) => (a.wrapping_rem(*b) == 0).then(|| Dim::Const(a.wrapping_div(*b))),
            (Dim::Const(0), _) => Some(Dim::ZERO),
            _ if self == other => Some(Dim::ONE),
            _ => poly_div(terms_of(self), &terms_of(other)),
        }
    }

    /// Quotient and rest such that `self = quotient · other + rest`, where every term that `other` divides goes into the
    /// quotient; the rest is not bounded by `other`.
    pub fn div_terms(&self, other: &Dim) -> (Dim, Dim) {
        if let Some(q) = self.div_exact(other) {
            return (q, Dim::ZERO);
        }
        let (mut quotient, mut rest) = (Dim::ZERO, Dim::ZERO);
        for (monomial, coefficient) in terms_of(self) {
            let term = from_terms(Terms::from([(monomial, coefficient)]));
            match term.div_exact(other) {
                Some(q) => quotient = &quotient + &q,
                None => rest = &rest + &term,
            }
        }
        (quotient, rest)
    }

    /// Value under the given symbol values.
    pub fn eval(&self, symbols: &SymbolValues) -> Result<i64, EvalError> {
        let poly = match self {
            Dim::Const(c) => return Ok(*c),
            Dim::Expr(p) => p,
        };
        let mut sum = 0i64;
        for (monomial, coefficient) in &poly.terms {
            let mut product = *coefficient;
            for (atom, power) in monomial {
                let v = atom.eval(symbols)?;
                for _ in 0..*power {
                    product = product.checked_mul(v).ok_or(EvalError::Overflow)?;
                }
            }
            sum = sum.checked_add(product).ok_or(EvalError::Overflow)?;
        }
        Ok(sum)
    }

    /// Adds every symbol the expression reads to `out`.
    pub fn collect_symbols(&self, out: &mut Vec<Symbol>) {
        let Dim::Expr(p) = self else { return };
        for (atom, _) in p.terms.iter().flat_map(|(m, _)| m) {
            match atom {
                Atom::Sym(s) => {
                    if !out.contains(s) {
                        out.push(s.clone());
                    }
                }
                Atom::FloorDiv(a, b) | Atom::Mod(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => {
                    a.collect_symbols(out);
                    b.collect_symbols(out);
                }
            }
        }
    }

    /// The symbol itself, if the expression is just one.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        let Dim::Expr(p) = self else { return None };
        match p.terms.as_slice() {
            [(m, 1)] => match m.as_slice() {
                [(Atom::Sym(s), 1)] => Some(s),
                _ => None,
            },
            _ => None,
        }
    }

    /// Number of terms of the polynomial: what adding and multiplying it costs.
    pub fn term_count(&self) -> usize {
        match self {
            Dim::Const(_) => 1,
            Dim::Expr(p) => p.terms.len(),
        }
    }

    /// Product of a list of sizes.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        dims.into_iter().fold(Dim::ONE, |acc, d| &acc * d)
    }
}

impl Atom {
    fn eval(&self, symbols: &SymbolValues) -> Result<i64, EvalError> {
        let two = |a: &Dim, b: &Dim| Ok((a.eval(symbols)?, b.eval(symbols)?));
        match self {
            Atom::Sym(s) => symbols.get(s).copied().ok_or_else(|| EvalError::Unbound(s.clone())),
            Atom::FloorDiv(a, b) | Atom::Mod(a, b) => {
                let (a, b) = two(a, b)?;
                if b == 0 {
                    return Err(EvalError::DivisionByZero);
                }
                let (a, b) = (Dim::Const(a), Dim::Const(b));
                let r = if matches!(self, Atom::Mod(..)) { a.modulo(&b) } else { a.floor_div(&b) };
                Ok(r.as_const().unwrap_or(0))
            }
            Atom::Min(a, b) => two(a, b).map(|(a, b)| a.min(b)),
            Atom::Max(a, b) => two(a, b).map(|(a, b)| a.max(b)),
        }
    }
}

type Terms = BTreeMap<Monomial, i64>;

fn terms_of(d: &Dim) -> Terms {
    match d {
        Dim::Const(0) => Terms::new(),
        Dim::Const(c) => Terms::from([(Vec::new(), *c)]),
        Dim::Expr(p) => p.terms.iter().cloned().collect(),
    }
}

fn from_terms(mut terms: Terms) -> Dim {
    terms.retain(|_, c| *c != 0);
    match terms.len() {
        0 => Dim::ZERO,
        1 if terms.contains_key(&Vec::new()) => Dim::Const(terms[&Vec::new()]),
        _ => Dim::Expr(Arc::new(Poly { terms: terms.into_iter().collect() })),
    }
}

fn multiply(a: &Monomial, b: &Monomial) -> Monomial {
    let mut powers: BTreeMap<Atom, u32> = a.iter().cloned().collect();
    for (atom, power) in b {
        *powers.entry(atom.clone()).or_insert(0) += power;
    }
    powers.into_iter().collect()
}

fn divide(a: &Monomial, b: &Monomial) -> Option<Monomial> {
    let mut powers: BTreeMap<Atom, u32> = a.iter().cloned().collect();
    for (atom, power) in b {
        let p = powers.get_mut(atom)?;
        *p = p.checked_sub(*power)?;
    }
    powers.retain(|_, p| *p > 0);
    Some(powers.into_iter().collect())
}

/// Long division by the term of highest degree; gives up after as many steps as any exact quotient could need.
fn poly_div(mut rest: Terms, by: &Terms) -> Option<Dim> {
    let degree = |m: &Monomial| m.iter().map(|(_, p)| *p).sum::<u32>();
    let lead = |t: &Terms| t.iter().max_by_key(|(m, _)| (degree(m), (*m).clone())).map(|(m, c)| (m.clone(), *c));
    let (by_monomial, by_coefficient) = lead(by)?;
    let mut quotient = Terms::new();
    for _ in 0..16 {
        let Some((m, c)) = lead(&rest) else { return Some(from_terms(quotient)) };
        if c.checked_rem(by_coefficient)? != 0 {
            return None;
        }
        let (qm, qc) = (divide(&m, &by_monomial)?, c.checked_div(by_coefficient)?);
        for (bm, bc) in by {
            let slot = rest.entry(multiply(&qm, bm)).or_insert(0);
            *slot = slot.checked_sub(qc.checked_mul(*bc)?)?;
        }
        rest.retain(|_, c| *c != 0);
        let slot = quotient.entry(qm).or_insert(0);
        *slot = slot.checked_add(qc)?;
    }
    None
}

impl std::ops::Add for &Dim {
    type Output = Dim;
    fn add(self, other: &Dim) -> Dim {
        match (self, other) {
            (Dim::Const(a), Dim::Const(b)) => Dim::Const(a.wrapping_add(*b)),
            (Dim::Const(0), d) | (d, Dim::Const(0)) => d.clone(),
            _ => {
                let mut terms = terms_of(self);
                for (m, c) in terms_of(other) {
                    let slot = terms.entry(m).or_insert(0);
                    *slot = slot.wrapping_add(c);
                }
                from_terms(terms)
            }
        }
    }
}

impl std::ops::Mul for &Dim {
    type Output = Dim;
    fn mul(self, other: &Dim) -> Dim {
        match (self, other) {
            (Dim::Const(a), Dim::Const(b)) => Dim::Const(a.wrapping_mul(*b)),
            (Dim::Const(1), d) | (d, Dim::Const(1)) => d.clone(),
            (Dim::Const(0), _) | (_, Dim::Const(0)) => Dim::ZERO,
            _ => {
                let mut terms = Terms::new();
                for (am, ac) in &terms_of(self) {
                    for (bm, bc) in &terms_of(other) {
                        let slot = terms.entry(multiply(am, bm)).or_insert(0);
                        *slot = slot.wrapping_add(ac.wrapping_mul(*bc));
                    }
                }
                from_terms(terms)
            }
        }
    }
}

impl std::ops::Sub for &Dim {
    type Output = Dim;
    fn sub(self, other: &Dim) -> Dim {
        self + &(other * &Dim::Const(-1))
    }
}

impl From<i64> for Dim {
    fn from(c: i64) -> Dim {
        Dim::Const(c)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Const(c) => write!(f, "{c}"),
            Dim::Expr(p) => {
                for (i, (monomial, c)) in p.terms.iter().enumerate() {
                    let sign = match (i, *c < 0) {
                        (0, true) => "-",
                        (0, false) => "",
                        (_, true) => " - ",
                        (_, false) => " + ",
                    };
                    f.write_str(sign)?;
                    let c = c.unsigned_abs();
                    if c != 1 || monomial.is_empty() {
                        write!(f, "{c}")?;
                    }
                    let mut first = c == 1;
                    for (atom, power) in monomial {
                        for _ in 0..*power {
                            f.write_str(if first { "" } else { "*" })?;
                            write!(f, "{atom}")?;
                            first = false;
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Sym(s) => f.write_str(s),
            Atom::FloorDiv(a, b) => write!(f, "floordiv({a}, {b})"),
            Atom::Mod(a, b) => write!(f, "mod({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(name: &str) -> Dim {
        Dim::sym(name)
    }

    #[test]
    fn canonical_forms_compare_equal() {
        let (a, b) = (s("a"), s("b"));
        assert_eq!(&(&a + &b) * &Dim::from(2), &(&b * &Dim::from(2)) + &(&a * &Dim::from(2)));
        assert_eq!((&a - &a), Dim::ZERO);
        assert_eq!(&a * &b, &b * &a);
    }

    #[test]
    fn exact_division_of_products_and_sums() {
        let (a, b) = (s("a"), s("b"));
        let sum = &(&a * &b) + &a;
        assert_eq!(sum.div_exact(&a), Some(&b + &Dim::ONE));
        assert_eq!(sum.div_exact(&(&b + &Dim::ONE)), Some(a.clone()));
        assert_eq!(sum.div_exact(&b), None);
        assert_eq!((&a * &Dim::from(6)).div_exact(&Dim::from(4)), None);
    }

    #[test]
    fn evaluation_follows_python_for_negative_operands() {
        let env = SymbolValues::from([("a".into(), -7), ("b".into(), 2)]);
        assert_eq!(s("a").floor_div(&s("b")).eval(&env), Ok(-4));
        assert_eq!(s("a").modulo(&s("b")).eval(&env), Ok(1));
        assert_eq!(Dim::from(7).floor_div(&Dim::from(-2)), Dim::from(-4));
        assert_eq!(Dim::from(7).modulo(&Dim::from(-2)), Dim::from(-1));
        assert_eq!(Dim::from(-7).floor_div(&Dim::from(2)), Dim::from(-4));
        assert_eq!(Dim::from(-7).modulo(&Dim::from(2)), Dim::from(1));
        assert_eq!(Dim::from(-7).floor_div(&Dim::from(-2)), Dim::from(3));
        assert_eq!(Dim::from(i64::MIN).floor_div(&Dim::from(-1)), Dim::from(i64::MIN));
        assert_eq!(s("c").eval(&env), Err(EvalError::Unbound("c".into())));
    }

    #[test]
    fn prints_in_the_form_the_parser_reads() {
        let d = &(&(&s("a") * &s("b")) * &Dim::from(-2)) + &Dim::from(3);
        assert_eq!(d.to_string(), "3 - 2*a*b");
        assert_eq!(s("a").floor_div(&Dim::from(2)).to_string(), "floordiv(a, 2)");
    }
}
