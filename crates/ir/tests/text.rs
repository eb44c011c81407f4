//! Text form: what is printed reads back as the same graph, and what is wrong gets a placed error.

use permalloy_ir::{Arg, Graph, GraphKind, Op};
use std::fmt::Write;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const EVERYTHING: &str = r#"graph "name \"q\" \\ é" joint(forward_outputs=1) {
  symbol s0 hint=8 range=[2, 1000]
  symbol s1 hint=3 range=[0, inf]
  input %primals_1: f32[4096, 256] strides=[256, 1]
  input %idx: i64[s0] @cuda:1
  input %tangents_1: bf16[] role=tangent
  input s0
  input -2*s0*s1 + 3
  %a: f32[s0, 256] = aten.embedding.default(%primals_1, %idx) loc="model.py:12 \"forward\"\n\u0001"
  %y: f32[s0, 256], %m: f32[s0, 1], _ = aten.native_layer_norm.default(%a, [256], none, none, 1e-5)
  aten._assert_async.msg(%m, "text // no comment")
  _ = aten.foo.default([%a, [%y, none], []], -1, 1 + 2*s0, floordiv(s0, 2), mod(s0, 3), min(4, s0), max(s0, s1))
  %c: f8e4m3fn[0, s0*s1] strides=[1, 1] = aten.bar.default(1.0, -0.0, inf, -inf, nan, 1e300, 5e-324, true, false, dtype=bf16, device=@cuda:0, layout=layout:strided, memory_format=memory_format:contiguous_format)
  %e: f32[s0, 256] = prim.exp(%y)
  %t: f32[s0] = prim.sum(%e, dims=[1])
  output %t
  output none
  output 1 + 2*s0
}
"#;

fn parse(text: &str) -> Graph {
    Graph::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn body(statements: &str) -> String {
    format!("graph \"t\" inference {{\n{statements}\n}}\n")
}

/// Line, column and message of the error in a graph with this body; line 1 is the body's first.
fn error(statements: &str) -> (usize, usize, String) {
    let e = Graph::parse(&body(statements)).expect_err(statements);
    (e.line - 1, e.column, e.message)
}

#[test]
fn everything_prints_as_it_was_read() {
    let g = parse(EVERYTHING);
    // The one line whose written form is not canonical.
    let canonical = EVERYTHING.replace("input -2*s0*s1 + 3", "input 3 - 2*s0*s1");
    assert_eq!(g.to_string(), canonical);
    assert_eq!(parse(&g.to_string()).to_string(), canonical);
    assert_eq!(g.kind, GraphKind::Joint { forward_outputs: 1 });
    assert_eq!(&*g.name, "name \"q\" \\ é");
    let (id, ln) = g.nodes().nth(1).unwrap();
    assert_eq!(ln.results.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
    assert!(canonical.lines().nth(g.node_line(id) - 1).unwrap().contains("native_layer_norm"));
    assert_eq!(g.nodes().next().unwrap().1.loc.as_deref(), Some("model.py:12 \"forward\"\n\u{1}"));
}

#[test]
fn reading_gives_equal_graphs() {
    let text = EVERYTHING.replace(", nan,", ",");
    let g = parse(&text);
    assert_eq!(parse(&g.to_string()), g);
}

#[test]
fn what_python_writes_is_read() {
    let g = parse(&body(
        "  // a comment\n  input %x : f32[2,3,] // another\n  %y: f32[2] = aten.f.default(%x, 1e-05, 1.5E+3, -1.0, (1 + 2)*3,\n    \"\\ud83d\\ude00\\/\", k = [1, -2], )\n  output %y",
    ));
    let (_, n) = g.nodes().next().unwrap();
    assert_eq!(n.op, Op::External("aten.f.default".into()));
    assert_eq!(n.args[1..5], [Arg::Float(1e-5), Arg::Float(1500.0), Arg::Float(-1.0), Arg::Int(9.into())]);
    assert_eq!(n.args[5], Arg::Str("😀/".into()));
    assert_eq!(n.kwarg("k").and_then(Arg::as_i64s), Some(vec![1, -2]));
}

#[test]
fn extreme_integers_survive() {
    let text = body("  output -9223372036854775808\n  output 9223372036854775807\n  output -9223372036854775808*s0");
    assert_eq!(parse(&text).to_string(), text);
    // Divisions whose exact result does not fit must not trap either.
    parse(&body("  output floordiv(-9223372036854775808, -1)\n  output mod(-9223372036854775808, -1)"));
    parse(&body("  output floordiv(-9223372036854775808*s0, -1*s0)\n  output floordiv(s0, 0)\n  output mod(1, 0)"));
}

#[test]
fn errors_name_line_column_and_what_was_expected() {
    // `^` marks the place of the error and is no part of the text.
    let cases = [
        ("  %y: f32[2] = prim.exp(^%x)", "expected a value defined above, but %x is not"),
        ("  input %x: f32[2]\n  input ^%x: f32[2]", "expected a new name, but %x is already defined"),
        ("  %a: f32[], ^%a: f32[] = aten.f.default()", "expected a new name, but %a"),
        ("  input %x: ^f31[2]", "expected a type such as f32[4, s0], found `f31`"),
        ("  input %x: f32[2, ^1.5]", "expected an integer, found a float"),
        ("  input %x: f32[2\n^}", "expected `,` or `]`, found `}`"),
        ("  input %x: f32[2] @^gpu", "expected a device"),
        ("  input %^: f32[2]", "expected a name right after `%`, found `:`"),
        ("  input %x: f32[2] ^output %x", "expected the end of the line, found `output`"),
        ("  input %x: f32[2]\n  %y: f32[2] = ^prim.exq(%x)", "no prim `exq`; did you mean eq or exp?"),
        ("  %y: f32[2] = ^exp()", "expected an operator such as prim.exp"),
        ("  %y: f32[2] = aten.f.default(a=1, ^2)", "expected a keyword argument"),
        ("  %y: f32[2] = aten.f.default(a=1, ^a=2)", "keyword a is given twice"),
        ("  %y: f32[2] = aten.f.default(^\"abc\n)", "no closing"),
        ("  %y: f32[2] = aten.f.default(\"\\^q\")", "unknown escape"),
        ("  %y: f32[2] = aten.f.default(^99999999999999999999)", "does not fit 64 bits"),
        ("  output ^9223372036854775807 + 1", "does not fit 64 bits"),
        ("  output ^9223372036854775808", "does not fit 64 bits"),
        ("  output ^true", "expected an integer or a size expression, found `true`"),
        ("  symbol ^f32 hint=1", "a size symbol cannot be called `f32`"),
        ("  symbol s0 ^range=[1, 2]", "expected `hint=`, found `range`"),
        ("  ^frobnicate", "expected an operator"),
        ("  ^?", "expected a statement"),
        ("  %^é: f32[]", "expected a name right after `%`, found `é`"),
    ];
    for (marked, message) in cases {
        let before = &marked[..marked.find('^').expect(marked)];
        let line = 1 + before.matches('\n').count();
        let column = 1 + before.chars().rev().take_while(|c| *c != '\n').count();
        let (l, c, m) = error(&marked.replace('^', ""));
        assert!(m.contains(message), "{marked}: {m}");
        assert_eq!((l, c), (line, column), "{marked}: {m}");
    }
    assert_eq!(
        Graph::parse("").unwrap_err().to_string(),
        "line 1, column 1: expected `graph`, found the end of the text"
    );
    assert!(
        Graph::parse("graph \"x\" sideways {}").unwrap_err().message.contains("joint, forward, backward or inference")
    );
    assert!(Graph::parse(&(body("") + "x")).unwrap_err().message.contains("nothing after the graph"));
}

#[test]
fn hostile_sizes_are_refused() {
    let deep = format!("  output {}1{}", "min(".repeat(100_000), ", 1)".repeat(100_000));
    assert!(error(&deep).2.contains("nested deeper"));
    let lists = format!("  aten.f.default({})", "[".repeat(100_000));
    assert!(error(&lists).2.contains("nested deeper"));
    let wide = format!("  output {}", vec!["(a + b + c + d)"; 40].join("*"));
    assert!(error(&wide).2.contains("more than 256 terms"));
    let long = format!("  output {}", (0..1000).map(|i| format!("s{i}")).collect::<Vec<_>>().join(" + "));
    assert!(error(&long).2.contains("more than 256 terms"));
}

/// Damages a good text in every single place: each result is a graph that prints and reads back, or an error.
#[test]
fn no_damage_panics() {
    let bytes = EVERYTHING.as_bytes();
    for i in 0..bytes.len() {
        for patch in [&b""[..], b"%", b"(", b"\"", b"\\", b"-", b"9999999999999999999", b"\n", b"="] {
            let damaged = [&bytes[..i], patch, &bytes[i + 1..]].concat();
            if let Ok(text) = std::str::from_utf8(&damaged)
                && let Ok(g) = Graph::parse(text)
            {
                let printed = g.to_string();
                assert_eq!(parse(&printed).to_string(), printed);
            }
        }
        if let Ok(text) = std::str::from_utf8(&bytes[..i]) {
            assert_eq!(Graph::parse(text).is_err(), i < EVERYTHING.trim_end().len());
        }
    }
}

#[test]
fn time_is_linear_in_the_text() {
    let text = |nodes: usize| {
        let mut s = String::from("  symbol s0 hint=8 range=[2, 1000]\n  input %v0: f32[s0, 256]\n");
        for i in 0..nodes {
            let _ =
                writeln!(s, "  %v{}: f32[s0, 256] = prim.add(%v{i}, %v{}) loc=\"model.py:{i} forward\"", i + 1, i / 2);
        }
        body(&s)
    };
    let time = |nodes: usize| {
        let text = text(nodes);
        let once = |_| {
            let start = cpu_time();
            assert_eq!(parse(&text).node_count(), nodes);
            cpu_time() - start
        };
        (0..2).map(once).min().unwrap()
    };
    let (small, large) = (time(5_000), time(80_000));
    println!("5,000 nodes {small:?}, 80,000 nodes {large:?}");
    // Sixteen times the text; a quadratic parser would take 256 times as long.
    assert!(large < small * 60 + Duration::from_millis(50), "5,000 nodes {small:?}, 80,000 nodes {large:?}");
}

/// Time this thread has computed, where the system tells: on a busy machine the clock on the wall measures the others.
fn cpu_time() -> Duration {
    let nanoseconds = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|s| s.split(' ').next()?.parse().ok())
        .map(Duration::from_nanos);
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    nanoseconds.unwrap_or_else(|| START.elapsed())
}
