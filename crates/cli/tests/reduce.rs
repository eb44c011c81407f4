//! Failing graphs are made smaller, by the library and by the command.

use permalloy_cli::shrink::shrink;
use permalloy_cli::stages::{run_stages, stages_named};
use permalloy_cli::{CliError, command};
use permalloy_ir::Graph;
use std::fmt::Write;
use std::path::PathBuf;

/// A joint graph of a hundred statements; `%planted` and what it reads are three of them.
fn large() -> String {
    let mut text = String::from(
        "// options: {\"deny\": [\"native:aten.mm.default\"]}\n// input %w = [1.0, 2.0, 3.0, -4.0]\n\
         graph \"large\" joint(forward_outputs=2) {\n  input %x: f32[2, 2] strides=[1, 2]\n  input %w: f32[2, 2]\n  \
         input %t: f32[2, 2] role=tangent\n  %v0: f32[2, 2] = prim.exp(%x)\n",
    );
    for i in 0..96 {
        let op = ["prim.add(%v{}, %x)", "prim.tanh(%v{})", "prim.mul(%v{}, %w)"][i % 3].replace("{}", &i.to_string());
        writeln!(text, "  %v{}: f32[2, 2] = {op}", i + 1).unwrap();
        if i == 40 {
            text += "  %s: f32[2, 2] = prim.sin(%v41)\n  %planted: f32[2, 2] = aten.mm.default(%s, %v3)\n";
            text += "  %after: f32[2, 2] = prim.neg(%planted)\n";
        }
    }
    text + "  %g: f32[2, 2] = prim.mul(%t, %after)\n  output %v96\n  output %after\n  output %g\n}\n"
}

fn operators(text: &str) -> Vec<String> {
    Graph::parse(text).unwrap().nodes().map(|(_, n)| n.op.name().to_string()).collect()
}

/// What the interpreter prints for a graph.
fn interpreted(text: &str) -> Option<String> {
    run_stages(text, &stages_named(["verify", "interp"]).unwrap()).ok()
}

#[test]
fn a_planted_fault_reduces_to_the_statements_that_matter() {
    // The planted fault: a compiler that takes each sine for a cosine.
    let wrong = |text: &str| {
        let (right, wrong) = (interpreted(text)?, interpreted(&text.replace("prim.sin", "prim.cos"))?);
        (right != wrong).then_some("differs")
    };
    let text = large().replace("aten.mm.default(%s, %v3)", "prim.add(%s, %v3)");
    let (small, message) = shrink(&text, 600, &wrong).unwrap();
    assert_eq!(message, "differs");
    assert_eq!(operators(&small), ["prim.sin"], "{small}");
    // It starts from the value that the sine's operand had.
    assert!(small.contains("// input %v41 = [["), "{small}");
    assert!(shrink(&text, 600, &|_: &str| None::<()>).is_none());
}

#[test]
fn sizes_and_arguments_stay_with_what_they_are_about() {
    let text = "// symbol s0 = 3\n// symbol s1 = 2\n// input %x = [1.0, -2.0, 0.5]\n\
                graph \"g\" inference {\n  symbol s0 hint=2\n  symbol s1 hint=2\n  input %x: f32[s0]\n  input %y: f32[s1]\n  \
                %a: f32[s0] = prim.exp(%x)\n  %b: f32[s1] = prim.neg(%y)\n  output %a\n  output %b\n}\n";
    let fails = |text: &str| {
        interpreted(text).filter(|printed| printed.contains("2.718282") && text.contains("exp")).map(|_| ())
    };
    let (small, ()) = shrink(text, 100, &fails).unwrap();
    assert!(small.starts_with("// symbol s0 = 3\n// input %x = [1.0, -2.0, 0.5]\ngraph"), "{small}");
    assert!(!small.contains("s1") && operators(&small) == ["prim.exp"], "{small}");
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("permalloy-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn the_command_reduces_what_does_not_compile() {
    let folder = Folder::new("reduce");
    let path = folder.file("large.pm", &large());
    let said = command(["reduce", &path]).unwrap();
    assert!(said.starts_with("// fails: ") && said.contains("aten.mm.default"), "{said}");
    assert!(said.contains("// options: {\"deny\": [\"native:aten.mm.default\"]}"), "{said}");
    assert_eq!(operators(&said), ["aten.mm.default"]);
    // What it prints fails in the same way, and reduces to itself.
    let again = folder.file("small.pm", &said);
    assert_eq!(command(["reduce", &again]).unwrap(), said);
    let to = folder.0.join("out.pm");
    command(["reduce", "--output", to.to_str().unwrap(), &path]).unwrap();
    assert_eq!(std::fs::read_to_string(&to).unwrap(), said);
}

#[test]
fn a_command_of_the_users_says_what_fails() {
    let folder = Folder::new("reduce-command");
    let path = folder.file("large.pm", &large());
    // Fails for graphs with a sine whose result something reads.
    let script = folder.file("judge.sh", "grep -q 'aten.mm.default(%s' \"$1\" && exit 3\nexit 0\n");
    let said = command(["reduce", &path, "--", "sh", &script]).unwrap();
    assert!(said.starts_with("// fails: status 3\n"), "{said}");
    assert_eq!(operators(&said), ["aten.mm.default"]);
}

#[test]
fn mistakes_are_named() {
    let folder = Folder::new("reduce-mistakes");
    let path = folder.file("sound.pm", &large().replace("native:aten.mm", "native:aten.bmm"));
    let failed = |args: &[&str]| match command(args.iter().copied()) {
        Err(CliError::Failed(m) | CliError::Usage(m)) => m,
        Ok(said) => panic!("{args:?}: {said}"),
    };
    assert!(failed(&["reduce", &path]).contains("does not fail"));
    assert!(failed(&["reduce", &path, "--", "true"]).contains("does not fail"));
    assert!(failed(&["reduce", &path, "--", "no-such-program"]).contains("no-such-program: "));
    assert!(failed(&["reduce"]).contains("reduce needs a file"));
    assert!(failed(&["reduce", "no/such/file.pm"]).contains("no/such/file.pm"));
}
