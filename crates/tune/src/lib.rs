//! Routes chosen by evidence: an operator with several is timed by each on the device at hand, once, and the fastest is
//! taken (`config.tune`).
//!
//! [`Evidence`] is asked by the `route` pass for each call that the user's own lines leave open. What runs the candidates is
//! a [`Bench`], so that this crate knows no device and no Python; what was measured is kept by a [`Store`]. It times only
//! calls that it can make up arguments for, and never inside of a step of the user's.

mod store;
mod timing;

pub use store::{Key, Store, Times};

use permalloy_driver::cost::{DeviceCost, Work};
use permalloy_driver::{Options, compile_graph};
use permalloy_ops::policy::Route;
use permalloy_passes::{IsolatedCall, Measured, Tuner, routes_to_time};
use permalloy_runtime::Executable;
use permalloy_runtime::provider::Provider;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

/// Another route than the policy's must be faster by this part: less is noise.
const MARGIN: f64 = 0.05;
/// Estimates that differ by less than this factor are close.
const CLOSE: f64 = 4.0;

/// Which operators are timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Those whose estimates are close, or speak against the policy.
    Fast,
    /// All that can be.
    Full,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        match text {
            "fast" => Ok(Mode::Fast),
            "full" => Ok(Mode::Full),
            other => Err(format!("tune is one of off, fast, full; got {other}")),
        }
    }
}

/// Makes executables of a device's, and has its memory.
pub trait Bench: fmt::Debug + Send + Sync {
    /// A graph's text as it would run, with `routes` for its operators. Must not ask a tuner.
    fn load(&self, text: &str, routes: &[(String, String)]) -> Result<Executable, String>;

    fn provider(&self) -> Arc<dyn Provider>;
}

/// One route of a call by the cost model.
#[derive(Clone, PartialEq, Debug)]
pub struct Estimate {
    pub route: String,
    pub work: Work,
}

/// What each possible route of a call costs by the model. Routes that decline the call, or that the options forbid, are
/// left out.
pub fn estimates(call: &IsolatedCall, options: &Options) -> Vec<Estimate> {
    let text = call.graph.to_string();
    let Some(device) = DeviceCost::of(&options.target) else { return vec![] };
    let estimate = |route: String| {
        let routes = vec![(call.op.name.to_string(), route.clone())];
        let own = Options { routes, strict: false, tuner: None, chunked_loss: None, ..options.clone() };
        let made = compile_graph(&text, &own).ok()?;
        // A rule that declines leaves the operator to PyTorch.
        let taken = made.records.iter().find(|r| *r.op == *call.op.name)?.route_name();
        (taken == route).then(|| Estimate { route, work: Work::of(&made.program, device) })
    };
    routes_to_time(call.op).into_iter().flatten().filter_map(estimate).collect()
}

/// A tuner that remembers.
#[derive(Debug)]
pub struct Evidence {
    mode: Mode,
    store: Store,
    /// `cpu: NAME`
    device: String,
    /// Versions and settings that times depend on.
    with: String,
    options: Options,
    bench: Box<dyn Bench>,
    /// What was decided in this process. Held while something is timed, so that nothing else is.
    known: Mutex<BTreeMap<String, Option<Measured>>>,
}

impl Evidence {
    /// `device` names the device (see [`cpu_name`]), `with` what else times depend on, such as versions and threads.
    /// `options` are those of the compile.
    pub fn new(
        mode: Mode,
        store: Store,
        device: String,
        with: &str,
        options: Options,
        bench: Box<dyn Bench>,
    ) -> Evidence {
        let isa = permalloy_cpu::isa::IsaLevel::detect();
        let casts = if options.emulate_eager_casts { ", emulate_eager_casts" } else { "" };
        let with = format!("{with}, permalloy {} on {isa:?}{casts}", env!("CARGO_PKG_VERSION"));
        Evidence { mode, store, device, with, options, bench, known: Mutex::default() }
    }

    fn decide(&self, call: &IsolatedCall, text: &str) -> Option<Measured> {
        if timing::bytes(&call.graph).is_none_or(|b| b > timing::MOST_BYTES) {
            return None;
        }
        // Logits that are to be made in pieces must be left to the rules, which the pieces are made of.
        let large = |most: i64| call.graph.values().any(|(_, v)| v.ty.bytes().is_none_or(|b| b > most));
        if self.options.chunked_loss.is_some_and(large) {
            return None;
        }
        let estimates = estimates(call, &self.options);
        let possible = |route: &&str| estimates.iter().any(|e| e.route == **route);
        // Where the policy's rule declines, PyTorch's kernel is taken.
        let default = [call.default.as_str(), "native"].into_iter().find(possible)?;
        if estimates.len() < 2 || (self.mode == Mode::Fast && clear(&estimates, default)) {
            return None;
        }
        let key = Key {
            operator: call.op.name.to_string(),
            device: self.device.clone(),
            with: self.with.clone(),
            call: text.to_string(),
        };
        let same = |t: &Times| t.0.iter().map(|(r, _)| r).eq(estimates.iter().map(|e| &e.route));
        let (times, kept) = match self.store.load(&key).filter(same) {
            Some(times) => (times, true),
            None => (self.time(call, text, &estimates)?, false),
        };
        if !kept {
            self.store.keep(&key, &times);
        }
        verdict(&times, default, if kept { "kept" } else { "timed now" })
    }

    /// None when a candidate does not run.
    fn time(&self, call: &IsolatedCall, text: &str, estimates: &[Estimate]) -> Option<Times> {
        let load = |e: &Estimate| self.bench.load(text, &[(call.op.name.to_string(), e.route.clone())]).ok();
        let candidates = estimates.iter().map(load).collect::<Option<Vec<_>>>()?;
        let expected: Vec<f64> = estimates.iter().map(|e| e.work.seconds).collect();
        let seconds = timing::fastest(call, &candidates, &expected, &*self.bench.provider()).ok()?;
        Some(Times(estimates.iter().map(|e| e.route.clone()).zip(seconds).collect()))
    }
}

impl Tuner for Evidence {
    fn choose(&self, call: &IsolatedCall) -> Option<Measured> {
        let text = call.graph.to_string();
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = known.get(&text) {
            return known.clone();
        }
        let decided = self.decide(call, &text);
        known.insert(text, decided.clone());
        decided
    }
}

/// The estimates are far apart, and the policy's route is the best of them.
fn clear(estimates: &[Estimate], default: &str) -> bool {
    let own = estimates.iter().find(|e| e.route == default).map_or(f64::INFINITY, |e| e.work.seconds);
    estimates.iter().filter(|e| e.route != default).all(|e| e.work.seconds > own * CLOSE)
}

fn verdict(times: &Times, default: &str, source: &str) -> Option<Measured> {
    let (best, fastest) = times.0.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let own = times.0.iter().find(|(r, _)| r == default)?.1;
    let stays = own * (1.0 - MARGIN) <= *fastest;
    let taken = if stays { default } else { best };
    let note = if stays && best != default { ", too close to leave the table's route" } else { "" };
    let route = match taken.strip_prefix("decompose:") {
        Some(rule) => Route::Decompose(Some(rule.to_string())),
        None => Route::Native,
    };
    Some(Measured { route, detail: format!("{} ({source}{note})", times.text()) })
}

/// `cpu: ` and the processor's name as the system has it.
pub fn cpu_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_else(|_| String::new());
    let name = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
    format!("cpu: {}", name.map_or("unknown", |(_, name)| name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(native: f64, rule: f64) -> Times {
        Times(vec![("native".into(), native), ("decompose:r".into(), rule)])
    }

    #[test]
    fn the_fastest_wins_by_more_than_noise() {
        let taken = |native, rule, default: &str| verdict(&times(native, rule), default, "kept").unwrap();
        let rule = Route::Decompose(Some("r".to_string()));
        assert_eq!(taken(1e-3, 2e-3, "decompose:r").route, Route::Native);
        assert_eq!(taken(1e-3, 0.5e-3, "native").route, rule);
        let close = taken(1e-3, 1.03e-3, "decompose:r");
        assert_eq!(close.route, rule);
        assert_eq!(close.detail, "native 1.00 ms, r 1.03 ms (kept, too close to leave the table's route)");
        assert_eq!(taken(1e-3, 2e-3, "native").detail, "native 1.00 ms, r 2.00 ms (kept)");
    }

    #[test]
    fn an_estimate_is_clear_when_it_backs_the_policy_by_far() {
        let estimate =
            |route: &str, seconds| Estimate { route: route.to_string(), work: Work { seconds, ..Work::default() } };
        let both = [estimate("native", 1.0), estimate("decompose:r", 5.0)];
        assert!(clear(&both, "native"));
        assert!(!clear(&both, "decompose:r"), "the policy may be wrong");
        assert!(!clear(&[estimate("native", 1.0), estimate("decompose:r", 3.0)], "native"));
    }

    #[test]
    fn modes_are_named() {
        assert_eq!("fast".parse(), Ok(Mode::Fast));
        assert!("fats".parse::<Mode>().unwrap_err().contains("off, fast, full"));
    }
}
