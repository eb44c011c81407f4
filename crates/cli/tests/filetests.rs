//! Runs every file below `tests/filetests`. `BLESS=1 cargo test --test filetests` rewrites what they expect.

use permalloy_cli::filetest::{files_below, run_file};
use std::path::Path;

#[test]
fn every_filetest_gives_what_it_expects() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests");
    let files = files_below(&root).unwrap();
    assert!(files.len() >= 20, "only {} filetests below {}", files.len(), root.display());
    let bless = std::env::var_os("BLESS").is_some_and(|v| v == "1");
    let failures: Vec<String> = files
        .iter()
        .filter_map(|f| {
            let name = f.strip_prefix(&root).unwrap_or(f).display();
            run_file(f, bless).err().map(|e| format!("{name}: {e}"))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {} filetests failed\n\n{}", failures.len(), files.len(), failures.join("\n\n"));
}
