//! The `permalloy` command. Arguments are read with lexopt: a few flags do not pay for a parser framework's build time.

use permalloy_cli::{CliError, command};
use std::io::Write;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: permalloy_alloc::Mimalloc = permalloy_alloc::Mimalloc;

fn main() -> ExitCode {
    match command(std::env::args_os().skip(1)) {
        Ok(text) => {
            // A reader that stops early (`| head`) is no error of ours.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(CliError::Failed(text)) => {
            let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
            ExitCode::from(1)
        }
        Err(CliError::Usage(text)) => {
            let _ = writeln!(std::io::stderr(), "permalloy: {}", text.trim_end());
            ExitCode::from(2)
        }
    }
}
