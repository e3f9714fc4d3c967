//! What everything in here works with.

use std::sync::Arc;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::{Ids, Store};

use crate::tasks::{Tail, Tasks};
use crate::worker::{Worker, WorkerBuilder};

/// A store with the clock and the source of ids that go with it. Cloning it is cheap.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll_core::{Memory, Namespace};
/// use plimsoll_engine::Engine;
/// let store = Arc::new(Memory::new().open(Namespace::new("orders")?));
/// let engine = Engine::new(store);
/// assert_eq!(engine.store().namespace().as_str(), "orders");
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Ids,
    /// Follows the history for all who wait for tasks.
    tail: Arc<Tail>,
}

impl Engine {
    /// With the clock of the operating system and random ids.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let ids = Ids::random(clock.clone());
        Self::with(store, clock, ids)
    }

    /// With this clock and these ids: for tests and simulation.
    pub fn with(store: Arc<dyn Store>, clock: Arc<dyn Clock>, ids: Ids) -> Self {
        Self {
            store,
            clock,
            ids,
            tail: Arc::default(),
        }
    }

    /// The client of its tasks.
    pub fn tasks(&self) -> Tasks {
        Tasks::new(self.clone())
    }

    /// A worker of this name on this store.
    pub fn worker(&self, name: impl Into<String>) -> WorkerBuilder {
        Worker::builder(self.clone(), name)
    }

    pub(crate) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The clock that waits and leases are measured by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Where ids and random samples come from.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }
}
