//! Passes over the graph IR: routes, rewrites, cleaning, partition. Each is a function from graph to graph with a name.
//!
//! No pass knows how a kernel is run or calls a native operator.

mod algebra;
mod budget;
mod flow;
mod memory;
mod partition;
mod record;
mod rewrite;
mod route;
mod simplify;
mod stored;
mod timing;
mod tuning;
mod uniform;

pub use algebra::algebra;
pub use partition::{Partition, PartitionError, partition};
pub use record::{Reason, Record, RouteTaken};
pub use rewrite::{Chunks, REWRITES, Rewrite, RewriteOptions, Rewritten, held, merge_records, rewrite, rewrites_apply};
pub use route::{RouteOptions, Routed, parse_overrides, route};
pub use simplify::simplify;
pub use timing::Timing;
pub use tuning::{IsolatedCall, Measured, Tuner, isolated_calls, routes_to_time};
