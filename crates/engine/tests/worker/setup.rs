//! A store, a clock that tests move, and workers on them.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::ManualClock;
use plimsoll_core::task::{Lane, NewTask, Task};
use plimsoll_core::{Ids, Limits, Memory, Namespace, StoreExt, TaskId};
use plimsoll_engine::Engine;
use plimsoll_engine::worker::{Worker, WorkerBuilder};

/// Everything a test needs.
pub(crate) struct Bench {
    pub(crate) clock: ManualClock,
    pub(crate) engine: Engine,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let shared = Arc::new(clock.clone());
        let store =
            Memory::with(shared.clone(), Limits::default()).open(Namespace::new("test").unwrap());
        let ids = Ids::seeded(1, shared.clone());
        let engine = Engine::with(Arc::new(store), shared, ids);
        Self { clock, engine }
    }

    /// A task of queue `q`.
    pub(crate) fn task(&self, kind: &str, payload: &'static str) -> NewTask {
        NewTask::new(
            self.engine.ids().task(),
            Lane::new("q", kind).unwrap(),
            payload,
        )
    }

    pub(crate) async fn submit(&self, kind: &str, payload: &'static str) -> TaskId {
        let task = self.task(kind, payload);
        self.engine.store().submit(task).await.unwrap().id
    }

    pub(crate) async fn get(&self, id: TaskId) -> Task {
        self.engine.store().task(id).await.unwrap().unwrap()
    }

    /// A worker on queue `q`.
    pub(crate) fn worker(&self) -> WorkerBuilder {
        Worker::builder(self.engine.clone(), "w").queue("q")
    }

    /// Lets time pass in small steps, so that everything that waits gets its turn.
    pub(crate) async fn pass(&self, duration: Duration) {
        let step = Duration::from_millis(10);
        let mut left = duration;
        while !left.is_zero() {
            settle_down().await;
            let now = step.min(left);
            self.clock.advance(now);
            left -= now;
        }
        settle_down().await;
    }
}

/// Lets everything run that can run now.
pub(crate) async fn settle_down() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
