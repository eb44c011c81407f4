//! `permalloy reduce`: the smallest graph that still fails.

use crate::CliError;
use crate::compare::{Compared, Disagreement, compare_with};
use crate::execute::Machine;
use crate::plan::{options_of, read};
use crate::shrink::shrink;
use lexopt::{Arg, Parser, ValueExt};
use permalloy_driver::Options;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const REDUCE: &str = "\
usage: permalloy reduce [--budget N] [--output OUT] FILE [-- COMMAND ARG…]

  Shrinks the graph in FILE, with the arguments its comments give, while it still fails; prints the smallest one found or
  writes it to OUT. Files are graphs such as `PERMALLOY_DUMP` and internal errors leave.
  A graph fails when compiling it (with the options of its `// options:` line) or running it is an error, or when its
  results are not the interpreter's. With a COMMAND it fails when the command, given the path of a graph as its last
  argument, exits with the status that it has for FILE, which must not be 0.
  --budget N     graphs to try, 2000 if not given
";

const BUDGET: usize = 2000;

pub fn command(mut parser: Parser) -> Result<String, CliError> {
    let (mut budget, mut output, mut path) = (BUDGET, None, None::<PathBuf>);
    let mut judge: Vec<OsString> = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("budget") => budget = parser.value()?.parse()?,
            Arg::Long("output") | Arg::Short('o') => output = Some(PathBuf::from(parser.value()?)),
            Arg::Long("help") | Arg::Short('h') => return Ok(REDUCE.to_string()),
            Arg::Value(v) if path.is_none() => {
                path = Some(PathBuf::from(v));
                if let Some(mut rest) = parser.try_raw_args()
                    && rest.next_if(|a| a == "--").is_some()
                {
                    judge = rest.collect();
                }
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let path = path.ok_or_else(|| CliError::Usage(format!("reduce needs a file\n{REDUCE}")))?;
    let failed = |e: String| CliError::Failed(format!("{}: {e}", path.display()));
    let text = read(&path)?;
    let found = match judge.split_first() {
        None => {
            // Without such a line the defaults hold.
            let options = Options { check: true, ..options_of(&text).map_err(failed)?.unwrap_or_default() };
            quietly(|| by_comparison(&text, budget, &options))
        }
        Some((program, arguments)) => {
            let scratch = Scratch::new().map_err(failed)?;
            let status = |text: &str| scratch.status(text, program, arguments);
            let given = status(&text).map_err(failed)?;
            let same = |text: &str| (given != 0 && status(text) == Ok(given)).then(|| format!("status {given}"));
            shrink(&text, budget, &same)
        }
    };
    let (small, message) = found.ok_or_else(|| failed("does not fail".to_string()))?;
    let reduced: String = message.lines().map(|l| format!("// fails: {l}\n")).collect::<String>() + &small;
    match output {
        None => Ok(reduced),
        Some(to) => {
            let e = |e| CliError::Failed(format!("{}: {e}", to.display()));
            std::fs::write(&to, &reduced).map(|()| format!("{}: {message}\n", to.display())).map_err(e)
        }
    }
}

/// Shrinks while the graph fails in the way it does now: to compile or run, or to give the right numbers.
fn by_comparison(text: &str, budget: usize, options: &Options) -> Option<(String, String)> {
    let first = disagreement(text, options)?;
    let same = |text: &str| {
        let now = disagreement(text, options)?;
        (std::mem::discriminant(&now) == std::mem::discriminant(&first)).then(|| now.to_string())
    };
    shrink(text, budget, &same)
}

fn disagreement(text: &str, options: &Options) -> Option<Disagreement> {
    let said = guarded(|| compare_with(text, options, Machine::default()));
    said.err().filter(|e| !matches!(e, Disagreement::NoReference(_)))
}

/// A comparison in which a panic is a failure like others.
pub fn guarded(compare: impl FnOnce() -> Result<Compared, Disagreement>) -> Result<Compared, Disagreement> {
    catch_unwind(AssertUnwindSafe(compare)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        let message = message.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(Disagreement::Failed(format!("panic: {}", message.as_deref().unwrap_or("without a message"))))
    })
}

/// Without a line on standard error for each panic that is caught.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = work();
    std::panic::set_hook(hook);
    result
}

/// A file for the graphs that a command judges.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, String> {
        let folder = std::env::temp_dir().join(format!("permalloy-reduce-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Scratch(folder))
    }

    /// Exit status of the command on a graph; -1 where a signal ended it.
    fn status(&self, text: &str, program: &OsString, arguments: &[OsString]) -> Result<i32, String> {
        let file = self.0.join("graph.pm");
        std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
        let mut command = Command::new(program);
        command.args(arguments).arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().map_err(|e| format!("{}: {e}", Path::new(program).display()))?;
        Ok(status.code().unwrap_or(-1))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system, as temporary files are.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
