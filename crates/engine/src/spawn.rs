//! The one place that spawns.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Runs futures beside the others, on one runtime.
#[derive(Clone, Debug)]
pub(crate) struct Spawner(Handle);

impl Spawner {
    /// Spawns on the runtime of the caller, which must be inside one.
    pub(crate) fn current() -> Self {
        Self(Handle::current())
    }

    /// Likewise, if the caller is inside one.
    pub(crate) fn try_current() -> Option<Self> {
        Handle::try_current().ok().map(Self)
    }

    /// Runs a future. If the runtime has ended, it is dropped.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(future);
    }
}

/// Runs a future beside the others, until the set is dropped.
#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn_into<T: Send + 'static>(
    set: &mut JoinSet<T>,
    future: impl Future<Output = T> + Send + 'static,
) {
    set.spawn(future);
}
