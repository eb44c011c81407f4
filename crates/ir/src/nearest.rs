//! "Did you mean": the known names closest to a mistyped one.

/// Up to three of `known` that resemble `name`, best first: those that contain it, then those few edits away.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // A name longer than any operator's resembles none, and must not cost a quadratic comparison.
    if name.len() > 128 {
        return Vec::new();
    }
    let mut scored: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|k| {
            let inside = !name.is_empty() && k.contains(name);
            let score = if inside { 0 } else { distance(name, k) };
            (inside || score <= 1 + name.len() / 4).then_some((score, k))
        })
        .collect();
    scored.sort_unstable();
    scored.truncate(3);
    scored.into_iter().map(|(_, k)| k).collect()
}

/// `; did you mean …?`, or nothing when no known name resembles.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, known).as_slice() {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

/// Edits (insert, delete, replace a byte) between two names.
fn distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_typos_and_parts_of_names() {
        let known = ["exp", "expm1", "erf", "aten.gelu.default", "aten.gelu_backward.default"];
        assert_eq!(nearest("exq", known), ["exp"]);
        assert_eq!(nearest("gelu", known), ["aten.gelu.default", "aten.gelu_backward.default"]);
        assert!(nearest("zzzzzz", known).is_empty());
        assert_eq!(did_you_mean("erg", known), "; did you mean erf?");
    }
}
