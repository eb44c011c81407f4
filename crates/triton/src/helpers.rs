//! The Python functions that kernels may call, cut out of `helpers.py`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

const SOURCE: &str = include_str!("helpers.py");
const START: &str = "@triton.jit\ndef ";

/// Source of every function by name.
fn functions() -> &'static BTreeMap<&'static str, &'static str> {
    static FUNCTIONS: OnceLock<BTreeMap<&str, &str>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        let mut out = BTreeMap::new();
        let starts: Vec<usize> = SOURCE.match_indices(START).map(|(i, _)| i).collect();
        for (n, start) in starts.iter().enumerate() {
            let text = SOURCE[*start..starts.get(n + 1).copied().unwrap_or(SOURCE.len())].trim_end();
            let name = text[START.len()..].split('(').next().unwrap_or(text);
            out.insert(name, text);
        }
        out
    })
}

/// Names of all functions: nothing in a kernel may be called like one.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    functions().keys().copied()
}

/// The functions that `body` calls, and those that they call, as source text in the order of their names.
pub(crate) fn used_by(body: &str) -> Vec<&'static str> {
    let mut used: Vec<&'static str> = Vec::new();
    let mut texts = vec![body];
    while let Some(text) = texts.pop() {
        for (name, source) in functions() {
            if !used.contains(name) && calls(text, name) {
                used.push(name);
                texts.push(source);
            }
        }
    }
    used.sort_unstable();
    used.into_iter().map(|n| functions()[n]).collect()
}

fn calls(text: &str, name: &str) -> bool {
    let part_of_a_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    text.match_indices(name).any(|(i, _)| {
        let before = &text[..i];
        let after = &text[i + name.len()..];
        after.starts_with('(') && !before.ends_with(part_of_a_name) && !before.ends_with("def ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_bring_what_they_call() {
        let sources = used_by("    y = sinh(x) + tl.exp(x)\n");
        let names: Vec<&str> = sources.iter().map(|s| s[START.len()..].split('(').next().unwrap()).collect();
        assert_eq!(names, ["exp", "expm1", "sinh"]);
        assert!(used_by("y = tl.exp(my_tanh(x))").is_empty());
    }
}
