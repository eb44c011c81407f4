//! What the ranges of size symbols prove of a size expression.

use crate::dim::Dim;
use crate::graph::SymbolInfo;

/// Whether `d >= 0` whatever the symbols are, as far as their ranges show; false means "not proven".
pub fn non_negative(d: &Dim, symbols: &[SymbolInfo]) -> bool {
    if let Some(v) = d.as_const() {
        return v >= 0;
    }
    let mut names = Vec::new();
    d.collect_symbols(&mut names);
    names.iter().any(|name| {
        let Some(min) = symbols.iter().find(|s| s.name == *name).map(|s| s.min) else { return false };
        let symbol = Dim::sym(name);
        // d = s·q with s >= 0, or d = s + k with k >= -min(s).
        if let Some(q) = d.div_exact(&symbol) {
            return min >= 0 && non_negative(&q, symbols);
        }
        (d - &symbol).as_const().is_some_and(|k| k >= -min)
    })
}
