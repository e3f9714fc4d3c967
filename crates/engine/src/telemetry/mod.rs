//! What the engine tells about itself: metrics, and the traces that tasks belong to.
//!
//! Metrics go through the [`metrics`] facade, traces and events through [`tracing`]. Neither costs
//! anything worth a thought as long as nobody listens. Every metric is in one table, [`METRICS`].
//!
//! An engine registers its metrics when it is made. So install a recorder first, and open the
//! engine then: what was registered before counts for nobody.

mod at_work;
mod coordination;
mod handles;
mod labels;
mod page;
mod propagation;
mod quota;
mod sampler;
mod states;
mod table;
mod written;

pub use labels::Labels;
pub use page::markdown;
pub use propagation::{Propagation, propagate};
pub use sampler::{Sampled, Sampler, Waiting};
pub use table::{Kind, METRICS, Metric, describe};

pub(crate) use at_work::{AtWork, AttemptEnd};
pub(crate) use coordination::{Heartbeat, Leads};
pub(crate) use handles::{Renewed, Telemetry};
pub(crate) use quota::Quota;
