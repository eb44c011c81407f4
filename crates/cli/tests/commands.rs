//! The command line, as a process and as a function.

use permalloy_cli::stages::STAGES;
use permalloy_cli::{CliError, command};
use std::io::Write;
use std::process::{Command, Stdio};

const GRAPH: &str =
    "// input %x = [1.5]\ngraph \"g\" inference {\n  input %x: f32[1]\n  %y: f32[1] = prim.neg(%x)\n  output %y\n}\n";

/// Exit status, standard output and standard error of the program.
fn permalloy(args: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_permalloy"))
        .args(args)
        .env_remove("BLESS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that fails before reading closes its end.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let out = child.wait_with_output().unwrap();
    (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
}

fn usage(args: &[&str]) -> String {
    match command(args) {
        Err(CliError::Usage(m)) => m,
        other => panic!("{args:?}: {other:?}"),
    }
}

#[test]
fn stages_run_on_standard_input() {
    let (status, out, err) = permalloy(&["opt", "--stage", "verify,interp", "-"], GRAPH);
    assert_eq!((status, out.as_str(), err.as_str()), (Some(0), "output 0: f32[1] [-1.5]\n", ""));
    let (status, out, err) = permalloy(&["opt", "--stage", "interp", "-"], &GRAPH.replace("1.5", "1, 2"));
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert_eq!(err, "-: interp: input %x: 2 elements given, 1 needed\n");
    let (status, _, err) = permalloy(&["opt", "--stage", "interp", "-"], "graph");
    assert_eq!(status, Some(1));
    assert!(err.contains("parse: line 1, column 6: expected the graph's name in quotes"), "{err}");
}

#[test]
fn stages_are_listed() {
    let listing = command(["opt", "--stages"]).unwrap();
    for s in STAGES {
        assert!(listing.lines().any(|l| l.starts_with(s.name) && l.ends_with(s.doc)), "{listing}");
    }
}

#[test]
fn filetests_report_and_bless() {
    let dir = std::env::temp_dir().join(format!("permalloy-commands-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("neg.pm");
    let path = file.to_str().unwrap();
    std::fs::write(&file, format!("// run: interp\n{GRAPH}// expect:\n// output 0: f32[1] [1.5]\n")).unwrap();
    let (status, _, err) = permalloy(&["opt", path], "");
    assert_eq!(status, Some(1));
    assert!(err.contains("+ output 0: f32[1] [-1.5]") && err.contains("1 filetests, 1 failed"), "{err}");
    assert_eq!(permalloy(&["opt", "--bless", path], "").0, Some(0));
    let (status, out, _) = permalloy(&["opt", dir.to_str().unwrap()], "");
    assert_eq!((status, out), (Some(0), format!("ok     {path}\n1 filetests, 0 failed\n")));
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(permalloy(&["opt", path], "").0, Some(1));
}

#[test]
fn operators_are_listed_with_route_and_reason() {
    let listing = command(["ops"]).unwrap();
    let gelu: Vec<&str> = listing.lines().filter(|l| l.starts_with("aten.gelu.default ")).collect();
    assert_eq!(gelu.len(), 1, "{listing}");
    assert!(gelu[0].contains("pointwise") && gelu[0].contains("decompose:gelu"), "{listing}");
    assert_eq!(listing.lines().count(), 1 + permalloy_ops::table().len());
    let one = command(["ops", "--target", "cpu", "aten.gelu.default"]).unwrap();
    assert!(one.contains("route   decompose:gelu on cpu: "), "{one}");
    let json = command(["ops", "--json"]).unwrap();
    assert!(json.starts_with("[\n{\"name\": \"") && json.ends_with("}\n]\n"), "{json}");
    assert!(json.contains("\"rules\": [\"gelu\"], \"native\": true, \"route\": \"decompose:gelu\""), "{json}");
}

#[test]
fn mistakes_get_the_nearest_name() {
    let Err(CliError::Failed(m)) = command(["ops", "aten.gelo.default"]) else { panic!("found") };
    assert!(m.starts_with("operator `aten.gelo.default` is not declared; did you mean aten.gelu.default"), "{m}");
    assert!(usage(&["ops", "--target", "cpv"]).contains("no target `cpv`; did you mean cpu?"));
    assert!(usage(&["opt", "--stage", "verfy", "x.pm"]).contains("no stage `verfy`; did you mean verify?"));
    assert!(usage(&["ops", "--jsn"]).contains("--jsn"));
    assert!(usage(&["opd"]).contains("no command `opd`"));
    assert!(usage(&["opt"]).contains("needs a file"));
    let (status, out, err) = permalloy(&["frobnicate"], "");
    assert_eq!((status, out.as_str()), (Some(2), ""));
    assert!(err.starts_with("permalloy: there is no command `frobnicate`"), "{err}");
    assert!(permalloy(&["--help"], "").1.contains("permalloy COMMAND"));
    assert!(permalloy(&["--version"], "").1.starts_with("permalloy 0."));
}
