//! Timing an operator's routes on PyTorch's operators and the device of a compile.

use crate::pipeline::{CompileError, Options, driver_error, driver_options};
use crate::target::{self, Runners};
use permalloy_runtime::Executable;
use permalloy_runtime::provider::Provider;
use permalloy_tune::{Bench, Evidence, Store, cpu_name};
use std::path::Path;
use std::sync::Arc;

/// The tuner that the options ask for.
pub fn tuner(options: &Options) -> Result<Option<Arc<Evidence>>, CompileError> {
    let Some(tuning) = &options.tuning else { return Ok(None) };
    let mode = tuning.mode.parse().map_err(CompileError::Options)?;
    let device = match options.target.as_str() {
        "cuda" => format!("cuda: {}", tuning.device_name),
        _ => cpu_name(),
    };
    let driver = driver_options(options);
    let options = Options { tuning: None, strict: false, chunked_loss: None, check_kernels: false, ..options.clone() };
    let store = Store::under(Path::new(&tuning.cache_dir));
    let bench = Box::new(Device { provider: target::provider_of(&options)?, options });
    Ok(Some(Arc::new(Evidence::new(mode, store, device, &tuning.versions, driver, bench))))
}

/// The device that a compile is for.
struct Device {
    options: Options,
    provider: Arc<dyn Provider>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({} {})", self.options.target, self.options.device)
    }
}

impl Bench for Device {
    fn load(&self, text: &str, routes: &[(String, String)]) -> Result<Executable, String> {
        let options = Options { routes: routes.to_vec(), ..self.options.clone() };
        let lower = |o: &permalloy_driver::Options| permalloy_driver::compile_graph(text, o).map_err(driver_error);
        let (made, Runners { provider, engines }) = target::compile(&options, lower).map_err(|e| format!("{e:?}"))?;
        // An operator whose kernel does not compile goes to PyTorch, which is another candidate.
        let taken =
            |(op, route): &(String, String)| made.records.iter().all(|r| *r.op != **op || r.route_name() == *route);
        if !routes.iter().all(taken) {
            return Err("the route has no kernel".to_string());
        }
        let engine = engines.into_iter().next().ok_or("a graph has one program")?;
        Executable::new(Arc::new(made.program), provider, engine).map_err(|e| e.to_string())
    }

    fn provider(&self) -> Arc<dyn Provider> {
        self.provider.clone()
    }
}
