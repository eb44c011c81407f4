//! What Triton's compiler is asked for: a launch's source without the names of the user's graph, so that layers that compute
//! the same share one kernel.

use crate::helpers;
use crate::launch::{ArgKind, KernelLaunch};
use std::collections::BTreeMap;

/// The name of every function that is compiled.
pub const ENTRY: &str = "kernel";

/// Words that mean something to Python or Triton.
const WORDS: &[&str] =
    &["tl", "for", "in", "range", "if", "else", "and", "or", "not", "int", "float", "bool", "True", "False", "None"];

/// One kernel to compile. Equal requests give equal kernels.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CompileRequest {
    /// A Python module whose function [`ENTRY`] is the kernel.
    pub source: String,
    /// Types of the parameters, constants excepted.
    pub signature: Vec<String>,
    /// Values of the constants, which are the last parameters.
    pub constants: Vec<i64>,
    /// Positions of parameters that are multiples of 16.
    pub aligned: Vec<usize>,
    pub num_warps: u32,
    pub num_stages: u32,
}

impl KernelLaunch {
    /// The kernel as the compiler gets it. Pointers are taken to be aligned to 16 bytes: whoever launches it sees to that.
    pub fn compile_request(&self) -> CompileRequest {
        let aligned = |kind: &ArgKind| match kind {
            ArgKind::Pointer { .. } => true,
            ArgKind::Size { multiple_of_16, .. } => *multiple_of_16,
        };
        CompileRequest {
            source: without_names(&self.source, &self.name),
            signature: self.args.iter().map(|a| a.signature()).collect(),
            constants: self.constants.iter().map(|(_, v)| *v).collect(),
            aligned: (0..self.args.len()).filter(|i| aligned(&self.args[*i].kind)).collect(),
            num_warps: self.num_warps,
            num_stages: self.num_stages,
        }
    }
}

/// The module without its header, the names of its kernel replaced by numbered ones in the order they appear.
fn without_names(source: &str, name: &str) -> String {
    let start = source.find("import triton").unwrap_or(0);
    let Some(kernel) = source.rfind(&format!("def {name}(")) else { return source[start..].to_string() };
    let mut out = source[start..kernel].to_string();
    let body = &source[kernel + "def ".len() + name.len()..];
    let kept: Vec<&str> = WORDS.iter().copied().chain(helpers::names()).collect();
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    out.push_str("def ");
    out.push_str(ENTRY);
    let mut rest = body;
    let mut before = '(';
    while let Some(c) = rest.chars().next() {
        let end = token(rest, c);
        let text = &rest[..end];
        rest = &rest[end..];
        let keyword = rest.starts_with('=') && !rest.starts_with("==");
        if is_name(c) && before != '.' && !keyword && !kept.contains(&text) {
            let next = names.len();
            out.push_str(names.entry(text).or_insert_with(|| format!("v{next}")));
        } else {
            out.push_str(text);
        }
        before = c;
    }
    out
}

fn is_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Length of the token that begins the text with `c`: a name, a number, a string, or one character.
fn token(text: &str, c: char) -> usize {
    let until = |stop: &dyn Fn(char, char) -> bool| {
        let mut last = c;
        for (i, d) in text.char_indices().skip(1) {
            if stop(last, d) {
                return i;
            }
            last = d;
        }
        text.len()
    };
    match c {
        c if is_name(c) => until(&|_, d| !(d.is_alphanumeric() || d == '_')),
        // An exponent has a sign.
        '0'..='9' => {
            until(&|last, d| !(d.is_alphanumeric() || d == '.' || matches!(d, '+' | '-') && matches!(last, 'e' | 'E')))
        }
        '"' => text[1..].find('"').map_or(text.len(), |i| i + 2),
        c => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str, x: &str, y: &str) -> String {
        format!(
            "# {name}\n#   prim.exp  # model.py:{}\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\ndef \
             exp(x):\n    return x\n\n\n@triton.jit\ndef {name}({x}_ptr, X_BLOCK: tl.constexpr):\n    {x} = tl.load({x}_ptr, \
             mask={y} < 1e-05, other=float(\"nan\"))\n    {y} = exp({x}).to(tl.float32) * 1e-5\n",
            name.len()
        )
    }

    #[test]
    fn kernels_that_differ_in_names_alone_are_one() {
        let a = without_names(&module("k0_exp", "view_3", "exp_1"), "k0_exp");
        assert_eq!(a, without_names(&module("k17_exp", "hidden", "mask"), "k17_exp"));
        let body = a.split("def kernel").nth(1).unwrap();
        assert_eq!(
            body,
            "(v0, v1: tl.constexpr):\n    v2 = tl.load(v0, mask=v3 < 1e-05, other=float(\"nan\"))\n    v3 = \
             exp(v2).to(tl.float32) * 1e-5\n"
        );
        assert!(a.contains("def exp(x)") && !a.contains("model.py"));
    }
}
