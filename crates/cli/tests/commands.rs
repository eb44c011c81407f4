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
fn why_says_which_line_decides_and_on_what_evidence() {
    let why = |args: &[&str]| command([&["ops", "--why"], args].concat()).unwrap();
    let text = why(&["aten.embedding_dense_backward", "--target", "ascend-a2"]);
    assert!(text.starts_with("aten.embedding_dense_backward.default on ascend-a2\n  route     native\n"), "{text}");
    assert!(text.contains("by the policy's line for aten.embedding_dense_backward.default"), "{text}");
    assert!(text.contains("evidence  the vendor sent"), "{text}");
    assert!(text.contains("others    decompose:embedding_dense_backward"), "{text}");
    let text = why(&["aten.gelu_backward"]);
    assert!(text.contains("by no line of the policy") && text.contains("evidence  none"), "{text}");
    assert!(usage(&["ops", "--why"]).contains("--why wants the name of one operator"));
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

#[test]
fn plans_and_runs_need_no_pytorch() {
    let (status, out, err) = permalloy(&["run", "-"], GRAPH);
    assert_eq!((status, out.as_str(), err.as_str()), (Some(0), "output 0: f32[1] [-1.5]\n", ""));
    let without = GRAPH.replace("// input %x = [1.5]\n", "");
    let (a, b) = (permalloy(&["run", "--seed", "1", "-"], &without), permalloy(&["run", "--seed=2", "-"], &without));
    assert!(a.0 == Some(0) && b.0 == Some(0) && a.1 != b.1, "{a:?} {b:?}");
    let (status, out, _) = permalloy(&["explain", "-"], GRAPH);
    assert!(status == Some(0) && out.contains("1 fused kernels, 0 native calls") && out.contains("k0_neg"), "{out}");
    let (status, out, _) = permalloy(&["explain", "--json", "-"], GRAPH);
    assert!(status == Some(0) && out.starts_with('{') && out.contains("\"fused\":1"), "{out}");
}

/// The forward's argument is the caller's; what it saves lives until the backward has read it.
#[test]
fn plans_tell_of_memory() {
    let graph = "graph \"g\" joint(forward_outputs=1) {\n  input %x: f32[1000] @cuda:0\n  \
                 input %g: f32[1000] @cuda:0 role=tangent\n  %y: f32[1000] @cuda:0 = aten.cumsum.default(%x, 0)\n  \
                 %z: f32[1000] @cuda:0 = aten.sin.default(%y)\n  %c: f32[1000] @cuda:0 = aten.cos.default(%y)\n  \
                 %d: f32[1000] @cuda:0 = aten.mul.Tensor(%g, %c)\n  output %z\n  output %d\n}\n";
    let (status, out, err) = permalloy(&["explain", "--target", "cuda", "--json", "-"], graph);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    let plan: serde_json::Value = serde_json::from_str(&out).unwrap();
    let of = |i: usize, what: &str| plan["memory"][i][what].as_u64();
    // The running sum, its sine and its cosine; then the cosine that was saved, the tangent and the gradient.
    assert_eq!([of(0, "peak"), of(0, "arena"), of(1, "peak")], [Some(12000), Some(0), Some(12000)], "{out}");
    let (status, out, _) = permalloy(&["explain", "--target", "cuda", "-"], graph);
    assert!(
        status == Some(0) && out.contains("planned memory") && out.contains("step 0: c 0.0, d 0.0, g 0.0"),
        "{out}"
    );
}

#[test]
fn plans_and_runs_say_what_is_wrong() {
    for name in ["run", "explain"] {
        assert!(usage(&[name]).contains(&format!("{name} needs a file")));
        assert!(usage(&[name, "--frobnicate"]).contains("--frobnicate"));
        assert!(command([name, "--help"]).unwrap().contains(&format!("usage: permalloy {name}")));
        let (status, out, err) = permalloy(&[name, "no/such/file.pm"], "");
        assert_eq!((status, out.as_str()), (Some(1), ""));
        assert!(err.starts_with("no/such/file.pm: No such file"), "{err}");
        let (status, _, err) = permalloy(&[name, "-"], &GRAPH.replace("prim.neg(%x)", "prim.neg(%z)"));
        assert!(status == Some(1) && err.starts_with("-: line 4, column"), "{err}");
    }
    let (status, _, err) = permalloy(&["run", "-"], &GRAPH.replace("prim.neg", "aten.no_such_op.default"));
    assert!(status == Some(1) && err.contains("needs PyTorch"), "{err}");
    let (status, _, err) = permalloy(&["explain", "--target", "cpv", "-"], GRAPH);
    assert!(status == Some(1) && err.contains("no policy for target cpv"), "{err}");
}

#[test]
fn reproducers_are_replayed() {
    let dir = std::env::temp_dir().join(format!("permalloy-replay-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("internal-error-0.pm");
    let path = file.to_str().unwrap();
    let options =
        "// internal error: after lower: broken\n// options: {\"check\": false, \"routes\": [], \"target\": \"cpu\"}\n";
    std::fs::write(&file, format!("{options}{GRAPH}")).unwrap();
    let (status, out, err) = permalloy(&["opt", path], "");
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains("compiles to 1 steps; 1 elements agree with the interpreter"), "{out}");
    std::fs::write(&file, format!("{}{GRAPH}", options.replace("[]", "[[\"aten.foo\", \"native\"]]"))).unwrap();
    let (status, _, err) = permalloy(&["opt", path], "");
    assert!(status == Some(1) && err.contains("still fails: route override `aten.foo` matches no operator"), "{err}");
    for (option, said) in [
        ("\"tune\": \"fast\"", "has an unknown option `tune`"),
        ("\"denny\": []", "did you mean deny?"),
        ("\"deny\": [1]", "has a deny that is no list of texts"),
        ("\"routes\": [[\"a\"]]", "has routes that are no pairs of texts"),
        ("\"strict\": 1", "has a strict that is no bool"),
        ("\"rewrites\": [\"attention\"]", "has rewrites that are no pairs of texts"),
        ("\"rewrites\": [[\"atention\", \"off\"]]", "no rewrite `atention`; did you mean attention?"),
        ("\"rewrites\": [[\"attention\", \"of\"]]", "rewrite attention is on, off or always, not `of`"),
    ] {
        std::fs::write(&file, format!("// options: {{{option}}}\n{GRAPH}")).unwrap();
        let (status, _, err) = permalloy(&["opt", path], "");
        assert!(status == Some(1) && err.contains(said), "{err}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn triton_is_written_for_the_target_asked_for() {
    let dir = std::env::temp_dir().join(format!("permalloy-target-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("neg.pm");
    std::fs::write(&file, format!("// target: cuda-sm90\n{GRAPH}")).unwrap();
    let path = file.to_str().unwrap();
    let of = |args: &[&str]| command(args.iter().copied()).unwrap();
    assert!(!of(&["opt", "--stage", "triton", path]).contains("num_programs"));
    let walks = "graph \"g\" inference {\n  input %x: f32[100000]\n  %y: f32[100000] = prim.neg(%x)\n  output %y\n}\n";
    std::fs::write(&file, walks).unwrap();
    assert!(of(&["opt", "--stage", "triton", "--target", "ascend-a5", path]).contains("tl.num_programs(0)"));
    assert!(usage(&["opt", "--target", "ascend-a5", path]).contains("--stage"));
    std::fs::remove_dir_all(&dir).unwrap();
}
