//! `permalloy opt`: runs filetests, or single stages on a graph.

use crate::CliError;
use crate::filetest::{files_below, run_file};
use crate::plan::{options_of, read, replay};
use crate::stages::{STAGES, run_stages_for, stages_named};
use lexopt::{Arg, Parser, ValueExt};
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub fn command(mut parser: Parser) -> Result<String, CliError> {
    let (mut list, mut bless, mut stages, mut target) =
        (false, std::env::var_os("BLESS").is_some_and(|v| v == "1"), None, None);
    let mut paths: Vec<PathBuf> = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("stages") => list = true,
            Arg::Long("bless") => bless = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(crate::HELP.to_string()),
            Arg::Long("stage") => stages = Some(parser.value()?.string()?),
            Arg::Long("target") => target = Some(parser.value()?.string()?),
            Arg::Value(path) => paths.push(path.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    if list {
        return Ok(STAGES.iter().map(|s| format!("{:<10} {}\n", s.name, s.doc)).collect());
    }
    match (stages, paths.as_slice()) {
        (_, []) => Err(CliError::Usage("opt needs a file (or --stages)".to_string())),
        (Some(names), [path]) => {
            let stages = stages_named(names.split(',').map(str::trim)).map_err(CliError::Usage)?;
            let text = read(path)?;
            run_stages_for(&text, &stages, target.as_deref())
                .map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))
        }
        _ if target.is_some() => Err(CliError::Usage("opt --target goes with --stage and one file".to_string())),
        (Some(_), _) => Err(CliError::Usage("opt --stage takes one file".to_string())),
        (None, paths) => run_all(paths, bless),
    }
}

/// Runs every filetest; the output has one line a file, failures with what differs.
fn run_all(paths: &[PathBuf], bless: bool) -> Result<String, CliError> {
    let mut files = Vec::new();
    for path in paths {
        files.extend(files_below(path).map_err(CliError::Failed)?);
    }
    let (mut report, mut failed) = (String::new(), 0);
    for file in &files {
        // Writing to a string cannot fail.
        let _ = match one(file, bless) {
            Ok(said) => writeln!(report, "ok     {}{said}", file.display()),
            Err(message) => {
                failed += 1;
                writeln!(report, "FAILED {}\n{}", file.display(), message.trim_end())
            }
        };
    }
    let _ = writeln!(report, "{} filetests, {failed} failed", files.len());
    if failed == 0 { Ok(report) } else { Err(CliError::Failed(report)) }
}

/// A filetest, or a reproducer: a graph with compiler options instead of stages.
fn one(file: &Path, bless: bool) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
    match options_of(&text)? {
        Some(options) if !text.lines().any(|l| l.starts_with("// run:")) => {
            replay(&text, &options).map(|said| format!(": {}", said.trim_end()))
        }
        _ => run_file(file, bless).map(|()| String::new()),
    }
}
