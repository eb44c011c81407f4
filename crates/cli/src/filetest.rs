//! Filetests: a graph, what runs on it, and what must come out.
//!
//! ```text
//! // run: verify | interp
//! // input %x = [1.0, 2.0]
//! graph "g" inference {
//!   input %x: f32[2]
//!   %y: f32[2] = prim.neg(%x)
//!   output %y
//! }
//! // expect:
//! // output 0: f32[2] [-1.0, -2.0]
//! ```
//!
//! `// run:` names stages (`permalloy opt --stages`). The block after `// expect:` is exactly what the last stage prints;
//! instead, each `// error:` line is a text that must appear in the error. `BLESS=1` rewrites the block.

use crate::stages::{run_stages, stages_named};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// How a filetest went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Passed,
    /// What differs.
    Failed(String),
    /// The text with its expectation rewritten; only when blessing.
    Blessed(String),
}

/// Runs the text of a filetest.
pub fn run_filetest(text: &str, bless: bool) -> Outcome {
    let test = match Filetest::read(text) {
        Ok(test) => test,
        Err(e) => return Outcome::Failed(e),
    };
    let result = stages_named(test.stages.iter().copied()).and_then(|stages| run_stages(test.source, &stages));
    match (result, test.errors.as_slice()) {
        (Ok(printed), []) if test.expected.as_deref() == Some(&printed) => Outcome::Passed,
        (Ok(printed), []) if bless => Outcome::Blessed(test.with_expectation(&printed)),
        (Ok(printed), []) => match &test.expected {
            Some(expected) => Outcome::Failed(difference(expected, &printed)),
            None => {
                Outcome::Failed(format!("nothing is expected (BLESS=1 writes it); the last stage prints\n{printed}"))
            }
        },
        (Ok(printed), _) => Outcome::Failed(format!("an error is expected, but the last stage prints\n{printed}")),
        (Err(e), []) => Outcome::Failed(format!("unexpected error: {e}")),
        (Err(e), texts) => match texts.iter().find(|t| !e.contains(**t)) {
            Some(missing) => Outcome::Failed(format!("`{missing}` does not appear in the error: {e}")),
            None => Outcome::Passed,
        },
    }
}

/// Runs a file, rewriting it when blessing; the message of a failure says what differs.
pub fn run_file(path: &Path, bless: bool) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    match run_filetest(&text, bless) {
        Outcome::Passed => Ok(()),
        Outcome::Failed(message) => Err(message),
        Outcome::Blessed(new) => std::fs::write(path, new).map_err(|e| e.to_string()),
    }
}

/// The file itself, or every `.pm` file below a folder, sorted.
pub fn files_below(path: &Path) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let fail = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).map_err(fail)? {
        entries.push(entry.map_err(fail)?.path());
    }
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        if entry.is_dir() {
            files.extend(files_below(&entry)?);
        } else if entry.extension().is_some_and(|e| e == "pm") {
            files.push(entry);
        }
    }
    Ok(files)
}

struct Filetest<'t> {
    stages: Vec<&'t str>,
    /// Texts that must appear in the error.
    errors: Vec<&'t str>,
    expected: Option<String>,
    /// Everything before the expectation.
    source: &'t str,
}

impl<'t> Filetest<'t> {
    fn read(text: &'t str) -> Result<Filetest<'t>, String> {
        let start = if text.starts_with("// expect:") { Some(0) } else { text.find("\n// expect:").map(|i| i + 1) };
        let (source, block) = text.split_at(start.unwrap_or(text.len()));
        let mut stages = None;
        let mut errors = Vec::new();
        for line in source.lines() {
            if let Some(list) = line.strip_prefix("// run:") {
                stages = Some(list.split(['|', ',']).map(str::trim).collect());
            } else if let Some(text) = line.strip_prefix("// error:") {
                errors.push(text.trim());
            }
        }
        let stages = stages.ok_or("the file has no `// run: stage | stage` line")?;
        let expected = match start {
            None => None,
            Some(_) => Some(uncommented(block)?),
        };
        if expected.is_some() && !errors.is_empty() {
            return Err("the file expects both an output and an error".to_string());
        }
        Ok(Filetest { stages, errors, expected, source })
    }

    fn with_expectation(&self, printed: &str) -> String {
        let mut text = format!("{}\n// expect:\n", self.source.trim_end());
        for line in printed.lines() {
            let _ = writeln!(text, "{}", format!("// {line}").trim_end());
        }
        text
    }
}

/// The lines below `// expect:` without their comment marks.
fn uncommented(block: &str) -> Result<String, String> {
    let mut out = String::new();
    for line in block.lines().skip(1).filter(|l| !l.trim().is_empty()) {
        let Some(text) = line.strip_prefix("//") else {
            return Err(format!("a line after `// expect:` is no comment: `{line}`"));
        };
        let _ = writeln!(out, "{}", text.strip_prefix(' ').unwrap_or(text));
    }
    Ok(out)
}

/// Both texts, lines that differ marked with `-` (expected) and `+` (printed).
fn difference(expected: &str, printed: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), printed.lines().collect());
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let tail = a[head..].iter().rev().zip(b[head..].iter().rev()).take_while(|(x, y)| x == y).count();
    let mut out = String::from("the output differs (- expected, + printed)\n");
    let marked = [
        ("  ", &a[..head]),
        ("- ", &a[head..a.len() - tail]),
        ("+ ", &b[head..b.len() - tail]),
        ("  ", &a[a.len() - tail..]),
    ];
    for (mark, lines) in marked {
        for line in lines {
            let _ = writeln!(out, "{mark}{line}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "// run: parse | verify\ngraph \"g\" inference {\n  input %x: f32[2]\n  output %x\n}\n";

    #[test]
    fn expectations_are_compared_exactly() {
        let legal = "legal: 1 inputs, 0 nodes, 1 outputs\n";
        let Outcome::Blessed(blessed) = run_filetest(BODY, true) else { panic!("not blessed") };
        assert_eq!(blessed, format!("{BODY}// expect:\n// {legal}"));
        assert_eq!(run_filetest(&blessed, false), Outcome::Passed);
        assert_eq!(run_filetest(&blessed, true), Outcome::Passed);
        let wrong = blessed.replace("0 nodes", "9 nodes");
        let Outcome::Failed(m) = run_filetest(&wrong, false) else { panic!("not failed") };
        assert!(m.contains("- legal: 1 inputs, 9 nodes") && m.contains("+ legal: 1 inputs, 0 nodes"), "{m}");
        assert_eq!(run_filetest(&wrong, true), Outcome::Blessed(blessed));
    }

    #[test]
    fn errors_must_appear_and_are_never_blessed_away() {
        let failing = |bless, text: &str| match run_filetest(text, bless) {
            Outcome::Failed(m) => m,
            other => panic!("{other:?}"),
        };
        let bad = BODY.replace("output %x", "output %y");
        assert!(failing(true, &bad).contains("unexpected error: parse: line 4, column 10"));
        assert_eq!(run_filetest(&format!("// error: line 6\n// error: %y is not\n{bad}"), false), Outcome::Passed);
        assert!(failing(false, &format!("// error: line 4\n{bad}")).contains("`line 4` does not appear"));
        assert!(failing(true, &format!("// error: line 4\n{BODY}")).contains("an error is expected"));
        assert!(failing(false, BODY).contains("nothing is expected"));
        assert!(failing(false, "graph").contains("no `// run:"));
        assert!(failing(false, &BODY.replace("verify", "verfy")).contains("no stage `verfy`; did you mean verify?"));
    }
}
