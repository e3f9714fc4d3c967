//! The one place of this store that spawns: connections have to be driven, inboxes
//! emptied, and what claims have skipped looked at.

use std::future::Future;

/// Runs a future beside the others, on the runtime of the caller.
#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(future);
}

/// Likewise, from where there may be no runtime any more: then nothing happens.
#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn_if_running(future: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(future);
    }
}
