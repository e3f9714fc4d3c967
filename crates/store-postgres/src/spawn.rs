//! The one place of this store that spawns: connections have to be driven.

use std::future::Future;

/// Runs a future beside the others, on the runtime of the caller.
#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(future);
}
