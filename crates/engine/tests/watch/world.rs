//! A namespace on each store, on a clock that tests move.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Claim, Ending, FailRetry, Pick, Put, Write};
use plimsoll_core::task::{Lane, NewTask, Status, Task, WorkerId};
use plimsoll_core::{Ids, Key, Limits, Memory, Name, Namespace, Store, StoreExt, TaskId};
use plimsoll_engine::{Engine, Retention, Sweeper};
use plimsoll_store_sqlite::{Config, Sqlite};
use tempfile::TempDir;

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Engine,
    _folder: Option<TempDir>,
}

/// One on each store.
pub(crate) async fn worlds() -> Vec<World> {
    worlds_with(Limits::default()).await
}

/// One in memory.
pub(crate) async fn in_memory() -> World {
    worlds().await.swap_remove(0)
}

pub(crate) async fn worlds_with(limits: Limits) -> Vec<World> {
    let clock = ManualClock::new();
    let memory = Memory::with(Arc::new(clock.clone()), limits.clone());
    let memory = Arc::new(memory.open(Namespace::new("test").unwrap()));
    let mut worlds = vec![World::new(memory, clock, None)];
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let config = Config {
        clock: Arc::new(clock.clone()),
        limits,
        ..Config::new(folder.path().join("plimsoll.db"))
    };
    let sqlite = Sqlite::open(config).unwrap();
    let sqlite = sqlite.namespace(Namespace::new("test").unwrap()).await;
    worlds.push(World::new(Arc::new(sqlite.unwrap()), clock, Some(folder)));
    worlds
}

impl World {
    fn new(store: Arc<dyn Store>, clock: ManualClock, folder: Option<TempDir>) -> Self {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let ids = Ids::seeded(1, shared.clone());
        Self {
            engine: Engine::with(store.clone(), shared, ids),
            store,
            clock,
            _folder: folder,
        }
    }

    /// Lets time pass in small steps, so that everything that waits gets its turn. Only in memory,
    /// where nothing waits for another thread.
    pub(crate) async fn pass(&self, duration: Duration) {
        let step = Duration::from_millis(500);
        let mut left = duration;
        self.turns(100).await;
        while !left.is_zero() {
            let now = step.min(left);
            self.clock.advance(now);
            left -= now;
            self.turns(20).await;
        }
        self.turns(500).await;
    }

    async fn turns(&self, count: usize) {
        for _ in 0..count {
            tokio::task::yield_now().await;
        }
    }

    /// The same namespace through another store.
    pub(crate) fn through(&self, store: Arc<dyn Store>) -> Engine {
        let clock = self.engine.clock().clone();
        Engine::with(store, clock, self.engine.ids().clone())
    }

    pub(crate) fn sweeper(&self) -> Sweeper {
        Sweeper::new(self.engine.clone())
    }

    pub(crate) fn worker_id(&self, name: &str) -> WorkerId {
        WorkerId {
            name: Name::new(name).unwrap(),
            incarnation: self.engine.ids().incarnation(),
        }
    }

    pub(crate) fn task(&self, payload: impl Into<bytes::Bytes>) -> NewTask {
        let lane = Lane::new("q", "k").unwrap();
        NewTask::new(self.engine.ids().task(), lane, payload)
    }

    pub(crate) async fn submit(&self, task: NewTask) -> TaskId {
        self.store.submit(task).await.unwrap().id
    }

    pub(crate) async fn claim(&self, id: TaskId, lease: Duration) -> Task {
        let claim = Claim {
            pick: Pick::Ids(vec![id]),
            worker: self.worker_id("elsewhere"),
            lease,
            request: self.engine.ids().request(),
        };
        self.store.claim(claim).await.unwrap().tasks.remove(0)
    }

    /// Ends a task like this.
    pub(crate) async fn end(&self, task: NewTask, how: Ending) -> TaskId {
        let id = self.submit(task).await;
        let holder = self.claim(id, secs(30)).await.holder().unwrap();
        self.store.settle(holder, how).await.unwrap();
        id
    }

    pub(crate) async fn ended(&self, payload: &'static str, status: Status) -> TaskId {
        let how = match status {
            Status::Failed => failure("for good"),
            Status::Cancelled => Ending::Cancel { reason: None },
            _ => Ending::Complete { result: None },
        };
        self.end(self.task(payload), how).await
    }

    /// Registers a worker that will not be heard of again.
    pub(crate) async fn register(&self, name: &str) {
        let id = self.worker_id(name);
        let fields = fields([
            ("worker_id", id.to_string()),
            ("hostname", "host".to_owned()),
            ("version", "1".to_owned()),
            ("pid", "1".to_owned()),
            ("queues", "[\"q\"]".to_owned()),
            ("kinds", "[\"k\"]".to_owned()),
            ("max_concurrent", "1".to_owned()),
            ("stale_after_ms", "30000".to_owned()),
            ("ttl_ms", "86400000".to_owned()),
            ("started_at", "1000000".to_owned()),
            ("status", "active".to_owned()),
            ("current_load", "0".to_owned()),
            ("total_jobs", "0".to_owned()),
            ("failed_jobs", "0".to_owned()),
        ]);
        let key = Key::new(format!("plimsoll.workers.{name}/{}", id.incarnation)).unwrap();
        let put = Put::new(key, fields.unwrap()).ttl(DAY);
        self.store.write(Write::Put(put)).await.unwrap();
    }

    pub(crate) async fn exists(&self, id: TaskId) -> bool {
        self.store.task(id).await.unwrap().is_some()
    }

    pub(crate) async fn archived(&self, id: TaskId) -> bool {
        self.engine.archive().get(id).await.unwrap().is_some()
    }
}

pub(crate) fn failure(error: &str) -> Ending {
    Ending::Fail {
        error: error.to_owned(),
        retry: FailRetry::Fatal,
        jitter: plimsoll_core::ids::Jitter::default(),
    }
}

/// Archives what completed and failed after a day, and removes what was cancelled.
pub(crate) fn after_a_day() -> Retention {
    let mut retention = Retention::default();
    retention.tasks.values_mut().for_each(|age| *age = DAY);
    retention.archive.remove(&Status::Cancelled);
    retention.history = Some(DAY);
    retention
}

#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(future)
}
