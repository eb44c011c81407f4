//! The pipeline with a tuner, on the embedded provider.

use permalloy_driver::{Compiled, Options, compile_graph};
use permalloy_passes::{Reason, Tuner};
use permalloy_runtime::Executable;
use permalloy_runtime::embedded::EmbeddedProvider;
use permalloy_runtime::engine::TileEngine;
use permalloy_runtime::provider::Provider;
use permalloy_tune::{Bench, Evidence, Mode, Store, Times};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const LAYER: &str = "graph \"layer\" inference {
  input %b: f32[24]
  input %x: f32[32, 16]
  input %w: f32[16, 24]
  %y: f32[32, 24] = aten.addmm.default(%b, %x, %w)
  %z: f32[32, 24] = aten.relu.default(%y)
  %t: f32[32, 24] = aten.addmm.default(%b, %x, %w)
  %u: f32[32, 24] = aten.relu.default(%t)
  output %z
  output %u
}
";

/// The tile engine and Rust's matrix products; counts what it loads.
#[derive(Debug, Default)]
struct Embedded {
    loads: Arc<AtomicUsize>,
    fails: bool,
}

impl Bench for Embedded {
    fn load(&self, text: &str, routes: &[(String, String)]) -> Result<Executable, String> {
        if self.fails {
            return Err("no such device".to_string());
        }
        self.loads.fetch_add(1, Ordering::Relaxed);
        let made = compile_graph(text, &Options { routes: routes.to_vec(), ..Options::default() });
        let program = made.map_err(|e| e.to_string())?.program;
        let exe = Executable::new(Arc::new(program), self.provider(), Arc::new(TileEngine::new()));
        exe.map_err(|e| e.to_string())
    }

    fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(EmbeddedProvider::new(1))
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("permalloy-evidence-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn compile(cache: &Path, mode: Mode, bench: Embedded, options: &Options) -> Compiled {
    let evidence =
        Evidence::new(mode, Store::under(cache), "cpu: test".into(), "test", options.clone(), Box::new(bench));
    let tuner: Arc<dyn Tuner> = Arc::new(evidence);
    compile_graph(LAYER, &Options { tuner: Some(tuner), ..options.clone() }).unwrap()
}

/// Route, reason and detail of each product.
fn products(made: &Compiled) -> Vec<(String, Reason, String)> {
    let records = made.records.iter().filter(|r| &*r.op == "aten.addmm.default");
    records.map(|r| (r.route_name(), r.reason, r.detail.clone())).collect()
}

#[test]
fn a_call_is_timed_once_and_the_next_compile_reads_what_was_kept() {
    let cache = Folder::new("once");
    let loads = Arc::new(AtomicUsize::new(0));
    let bench = || Embedded { loads: loads.clone(), fails: false };
    let first = products(&compile(&cache.0, Mode::Full, bench(), &Options::default()));
    assert_eq!(loads.load(Ordering::Relaxed), 2, "both routes, once for two equal calls");
    let [(_, Reason::Measured, detail), (_, Reason::Measured, again)] = first.as_slice() else { panic!("{first:?}") };
    assert!(detail.contains("native ") && detail.contains(", addmm::mm_add ") && detail.contains("timed now"));
    assert_eq!(detail, again);
    let second = products(&compile(&cache.0, Mode::Full, bench(), &Options::default()));
    assert_eq!(loads.load(Ordering::Relaxed), 2, "nothing was timed");
    assert!(second[0].2.contains("kept") && second[0].0 == first[0].0, "{second:?}");
}

#[test]
fn the_faster_route_is_taken_and_the_users_line_wins() {
    let cache = Folder::new("faster");
    compile(&cache.0, Mode::Full, Embedded::default(), &Options::default());
    let store = Store::under(&cache.0);
    let kept = store.of_operator("aten.addmm.default");
    let [(key, _)] = kept.as_slice() else { panic!("{kept:?}") };
    let times = |native, rule| Times(vec![("native".into(), native), ("decompose:addmm::mm_add".into(), rule)]);
    let taken = |options: &Options| products(&compile(&cache.0, Mode::Full, Embedded::default(), options))[0].clone();

    store.keep(key, &times(1e-3, 2e-3));
    let (route, reason, detail) = taken(&Options::default());
    assert_eq!(
        (&*route, reason, &*detail),
        ("native", Reason::Measured, "native 1.00 ms, addmm::mm_add 2.00 ms (kept)")
    );
    store.keep(key, &times(2e-3, 1e-3));
    assert_eq!(taken(&Options::default()).0, "decompose:addmm::mm_add");

    let routes = vec![("aten.addmm.*".to_string(), "native".to_string())];
    let (route, reason, _) = taken(&Options { routes, ..Options::default() });
    assert_eq!((&*route, reason), ("native", Reason::Override));
    // What the options forbid is no candidate, and one candidate is no choice.
    let deny = vec!["native:aten.addmm.default".to_string()];
    let (route, reason, _) = taken(&Options { deny, ..Options::default() });
    assert_eq!((&*route, reason), ("decompose:addmm::mm_add", Reason::Policy));
}

#[test]
fn what_cannot_be_timed_follows_the_policy() {
    let cache = Folder::new("fails");
    let bench = Embedded { fails: true, ..Embedded::default() };
    let found = products(&compile(&cache.0, Mode::Full, bench, &Options::default()));
    assert!(found.iter().all(|(route, reason, _)| route == "decompose:addmm::mm_add" && *reason == Reason::Policy));
    assert!(Store::under(&cache.0).of_operator("aten.addmm.default").is_empty());
}
