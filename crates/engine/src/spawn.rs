//! The one place that spawns.

use std::future::Future;

use tokio::task::JoinHandle;

/// Runs a future beside the others, on the runtime of the caller.
#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(future)
}
