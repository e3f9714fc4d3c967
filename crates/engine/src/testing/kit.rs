//! What a test works with.

use std::sync::Arc;

use futures::FutureExt;
use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::memory::MemoryStore;
use plimsoll_core::store::{Counts, List, Selector};
use plimsoll_core::task::Task;
use plimsoll_core::{Ids, Limits, Memory, Namespace, Result, Store, StoreExt, TaskId};

use super::store::TestStore;
use crate::worker::WorkerBuilder;
use crate::{Engine, Tasks};

/// How often time is moved before a test has gone on for too long.
const MOVES_MAX: u32 = 10_000;

/// Tasks and workers in memory, on a clock that stands still until it is moved, with ids that are
/// the same in every run. Each kit is a world of its own.
///
/// ```
/// use plimsoll_engine::testing::Kit;
/// use plimsoll_engine::worker::{Failure, Json};
///
/// async fn double(Json(number): Json<u32>) -> Result<Json<u32>, Failure> {
///     Ok(Json(number.checked_mul(2).ok_or("too large")?))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// // In a test: #[tokio::test] async fn twice_21_is_42() {
/// let kit = Kit::new();
/// let worker = kit.worker("w1").queue("numbers").handle("double", double);
/// let task = kit.perform(worker, kit.tasks().json("numbers", "double", &21)?).await;
/// kit.assert_completed_with(task.id(), &42);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Kit {
    pub(super) clock: ManualClock,
    pub(super) store: Arc<TestStore>,
    /// The same tasks, for looking at: that is no activity, and never closed.
    memory: Arc<MemoryStore>,
    engine: Engine,
    tasks: Tasks,
    pub(super) moves_max: u32,
}

impl Default for Kit {
    fn default() -> Self {
        Self::new()
    }
}

impl Kit {
    /// An empty world in which it is 2030-01-01.
    pub fn new() -> Self {
        Self::seeded(1)
    }

    /// The same with other ids and other random samples.
    ///
    /// ```
    /// use plimsoll_engine::testing::Kit;
    /// let first = |seed| Kit::seeded(seed).engine().ids().task();
    /// assert_eq!(first(1), first(1));
    /// assert_ne!(first(1), first(2));
    /// ```
    pub fn seeded(seed: u64) -> Self {
        let clock = ManualClock::new();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let memory = Memory::with(shared.clone(), Limits::default());
        let namespace = Namespace::new("test").expect("a good name");
        let store = Arc::new(TestStore::new(memory.open(namespace.clone())));
        let ids = Ids::seeded(seed, shared.clone());
        let engine = Engine::with(store.clone(), shared, ids);
        Self {
            clock,
            store,
            memory: Arc::new(memory.open(namespace)),
            tasks: engine.tasks(),
            engine,
            moves_max: MOVES_MAX,
        }
    }

    /// Fails a test that moves time more often than this in one go, or calls the store a hundred
    /// times as often without time moving at all; 10,000 unless told otherwise.
    pub fn moves_max(mut self, moves_max: u32) -> Self {
        self.moves_max = moves_max;
        self
    }

    /// What workers and clients are made of.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The client of its tasks.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// The clock of everything in here. [`pass`](Self::pass) lets workers keep up with it.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// A worker of this name, to be given to [`perform`](Self::perform), [`drain`](Self::drain) and
    /// the like.
    pub fn worker(&self, name: impl Into<String>) -> WorkerBuilder {
        self.engine.worker(name)
    }

    /// The task with this id.
    ///
    /// ```
    /// # use plimsoll_engine::testing::Kit;
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let kit = Kit::new();
    /// let id = kit.tasks().submit(kit.tasks().task("mail", "send", "hello")?).await?.id;
    /// assert_eq!(kit.task(id).spec.payload, "hello");
    /// assert_eq!(kit.all().len(), 1);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    #[track_caller]
    pub fn task(&self, id: TaskId) -> Task {
        match now(self.memory.task(id)) {
            Some(task) => task,
            None => panic!("there is no task {id}. {}", self.there_are()),
        }
    }

    /// All tasks in the order of their ids, which is the order in which the ids were made.
    pub fn all(&self) -> Vec<Task> {
        let mut all = Vec::new();
        for of_lane in now(self.memory.counts(Counts::default())) {
            for status in of_lane.by_status.into_keys() {
                let selector = Selector::Lane(of_lane.lane.clone(), status);
                let mut next = Some(List::new(selector, self.memory.limits().page_max));
                while let Some(list) = next {
                    let page = now(self.memory.list(list.clone()));
                    all.extend(page.rows);
                    next = page.next.map(|cursor| List {
                        cursor: Some(cursor),
                        ..list
                    });
                }
            }
        }
        all.sort_by_key(Task::id);
        all
    }
}

/// What memory answers, which it does at once.
#[track_caller]
fn now<T>(answer: impl Future<Output = Result<T>>) -> T {
    let answer = answer.now_or_never().expect("memory answers at once");
    answer.unwrap_or_else(|error| panic!("{error}"))
}
