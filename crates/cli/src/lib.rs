//! What the `permalloy` command does; `main.rs` only prints it. Commands return their output as text, so that tests
//! call them without a process.
//!
//! ```
//! let listing = permalloy_cli::command(["ops", "aten.gelu.default"]).unwrap();
//! assert!(listing.contains("pointwise"));
//! ```

pub mod compare;
mod decompose;
pub mod execute;
pub mod filetest;
pub mod kernels;
mod memory;
pub mod ops;
pub mod opt;
pub mod plan;
pub mod reduce;
pub mod shrink;
pub mod stages;
mod values;

pub use decompose::decompose;

use lexopt::{Arg, Parser};
use std::ffi::OsString;

const HELP: &str = "\
usage: permalloy COMMAND …

  opt [--bless] FILE…            run filetests (files or folders of .pm) and compare with what they expect
  opt --stage NAME,… FILE        run stages on a graph and print the result (FILE `-` is standard input);
                                 stage `triton` writes for `--target cuda-sm90`, `ascend-a2`, …
  opt FILE                       a reproducer of an internal error: compile it again, compare what it computes
  opt --stages                   list the stages
  explain [--json] FILE          show the plan for a graph: routes, kernels, what is saved, pass times
  reduce FILE [-- COMMAND …]     shrink a graph while it still fails
  run [--seed N] FILE            compile a graph, run it without PyTorch and print its outputs
  ops [--target cpu] [--json]    list the declared operators with cost and route
  ops [--target cpu] NAME        show one operator
  ops --why NAME [--target cpu] [--cache FOLDER]
                                 say what decides its route: the policy's line, its reason and evidence, and what
                                 `config.tune` measured here
";

/// Why a command gives no output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CliError {
    /// The arguments make no sense; exit status 2.
    Usage(String),
    /// The command ran and failed; exit status 1.
    Failed(String),
}

impl From<lexopt::Error> for CliError {
    fn from(e: lexopt::Error) -> CliError {
        CliError::Usage(e.to_string())
    }
}

/// Exit status of a command, and its output (status 0) or message.
pub fn outcome<I>(args: I) -> (u8, String)
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    match command(args) {
        Ok(text) => (0, text),
        Err(CliError::Failed(text)) => (1, format!("{}\n", text.trim_end())),
        Err(CliError::Usage(text)) => (2, format!("permalloy: {}\n", text.trim_end())),
    }
}

/// Runs a command given by its arguments, without the program's name; gives what it prints.
pub fn command<I>(args: I) -> Result<String, CliError>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let mut parser = Parser::from_args(args);
    match parser.next()? {
        None | Some(Arg::Long("help") | Arg::Short('h')) => Ok(HELP.to_string()),
        Some(Arg::Long("version") | Arg::Short('V')) => {
            Ok(concat!("permalloy ", env!("CARGO_PKG_VERSION"), "\n").to_string())
        }
        Some(Arg::Value(name)) => match name.to_str() {
            Some("opt") => opt::command(parser),
            Some("ops") => ops::command(parser),
            Some("explain") => plan::explain(parser),
            Some("reduce") => reduce::command(parser),
            Some("run") => plan::run(parser),
            _ => {
                let name = name.to_string_lossy();
                let hint = permalloy_ir::did_you_mean(&name, ["opt", "ops", "explain", "reduce", "run"]);
                Err(CliError::Usage(format!("there is no command `{name}`{hint}\n{HELP}")))
            }
        },
        Some(other) => Err(other.unexpected().into()),
    }
}
