//! Damaged filetests: whatever the text, each stage gives a result or an error, never a panic.

use permalloy_cli::filetest::files_below;
use permalloy_cli::stages::{Stage, run_stages, stages_named};
use permalloy_ir::{Dim, Graph, PrimOp, SymbolValues};
use std::panic::{catch_unwind, set_hook};
use std::path::Path;

/// What replaces a word: corners of every kind of argument.
const CORNERS: &[&str] = &[
    "-1",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "s0",
    "[]",
    "[0]",
    "[-1]",
    "[9223372036854775807]",
    "floordiv(s0, 0)",
    "mod(s0, -1)",
    "dim=9",
    "dim=-1",
    "step=9223372036854775807",
    "size=-4",
    "end=9223372036854775807",
    "start=-9223372036854775808",
    "1e308",
    "nan",
    "none",
    "bool",
    "i64",
    "u8",
    "c64",
    "f32[0]",
    "i64[0, 9223372036854775807]",
];

#[test]
fn no_damaged_text_panics() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests");
    let texts = files_below(&root).unwrap().into_iter().map(|f| std::fs::read_to_string(f).unwrap());
    let texts: Vec<String> = texts.filter(|t| elements(t) < 100_000).collect();
    let direct = stages_named(["verify", "interp"]).unwrap();
    let decomposed = stages_named(["verify", "decompose", "verify", "interp"]).unwrap();
    // Rules panic by contract on operands they cannot take, which the stage turns into an error: no noise for those.
    set_hook(Box::new(|_| {}));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut ran = 0;
    for _ in 0..4_000 {
        let mut text = texts[random.below(texts.len())].clone();
        for _ in 0..=random.below(3) {
            damage(&mut text, &mut random);
        }
        for stages in [&direct, &decomposed] {
            let stages: &[&Stage] = stages;
            match catch_unwind(|| run_stages(&text, stages)) {
                Ok(result) => ran += usize::from(result.is_ok()),
                Err(_) => panic!("a stage panicked on\n{text}"),
            }
        }
    }
    // The damage is mild enough that much still runs, which is where the interesting states are.
    assert!(ran > 200, "{ran} texts ran");
}

/// Elements of all values of a legal text. Some have real sizes, as generated code depends on them; the interpreter would
/// take minutes for those.
fn elements(text: &str) -> i64 {
    let Ok(graph) = Graph::parse(text) else { return 0 };
    let hints: SymbolValues = graph.symbols.iter().map(|s| (s.name.clone(), s.hint)).collect();
    let size = |shape: &[Dim]| shape.iter().fold(1i64, |n, d| n.saturating_mul(d.eval(&hints).unwrap_or(1)));
    graph.values().fold(0, |n, (_, v)| n.saturating_add(size(&v.ty.shape)))
}

/// Replaces one word: a prim by another prim, anything else by a corner or another prim.
fn damage(text: &mut String, random: &mut Random) {
    let is_word = |c: char| c.is_alphanumeric() || "_.%-=".contains(c);
    let mut words = Vec::new();
    let mut start = None;
    for (i, c) in text.char_indices() {
        match (is_word(c), start) {
            (true, None) => start = Some(i),
            (false, Some(from)) => {
                words.push(from..i);
                start = None;
            }
            _ => {}
        }
    }
    if words.is_empty() {
        return;
    }
    let word = words[random.below(words.len())].clone();
    let prim = PrimOp::ALL[random.below(PrimOp::ALL.len())].to_string();
    let corner = CORNERS[random.below(CORNERS.len())];
    let with = if text[word.clone()].starts_with("prim.") || random.below(8) == 0 { &prim } else { corner };
    text.replace_range(word, with);
}

/// Xorshift: the same damage in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}
