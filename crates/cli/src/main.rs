//! The `permalloy` command. Arguments are read with lexopt: a few flags do not pay for a parser framework's build time.

use std::io::Write;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: permalloy_alloc::Mimalloc = permalloy_alloc::Mimalloc;

fn main() -> ExitCode {
    let (status, text) = permalloy_cli::outcome(std::env::args_os().skip(1));
    // A reader that stops early (`| head`) is no error of ours.
    let _ = match status {
        0 => std::io::stdout().write_all(text.as_bytes()),
        _ => std::io::stderr().write_all(text.as_bytes()),
    };
    ExitCode::from(status)
}
