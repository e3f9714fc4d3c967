//! What everything in here works with.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::decorate::{Decorated, Observe};
use plimsoll_core::error::Invalid;
use plimsoll_core::lifecycle::Lifecycle;
use plimsoll_core::store::Write;
use plimsoll_core::task::{NewTask, TaskSpec};
use plimsoll_core::{Ids, Name, Result, Store};

use crate::archive::Archive;
use crate::handover::Handover;
use crate::history::{Feeds, History, Reconnect, Tail};
use crate::jobs::{Jobs, Views};
use crate::locks::{Locks, Room};
use crate::records::{Records, of_users};
use crate::registry::Workers;
use crate::retention::StoredRetention;
use crate::tasks::{Tasks, Waiting};
use crate::telemetry::{Labels, Propagation, Telemetry};
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
    /// Reads the history for all who follow it.
    tail: Arc<Tail>,
    /// Who waits for tasks.
    waiting: Arc<Waiting>,
    /// Claims that go with the next task.
    handover: Arc<Handover>,
    /// What of it is watched.
    feeds: Arc<Feeds>,
    /// The job states that are read in this process.
    views: Arc<Views>,
    reconnect: Reconnect,
    lifecycles: Arc<BTreeMap<Name, Lifecycle>>,
    /// Where its locks are.
    room: Arc<Room>,
    telemetry: Arc<Telemetry>,
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
        let tail = Arc::new(Tail::new(store.clone()));
        Self {
            room: Arc::new(Room::new(store.clone(), tail.clone())),
            tail,
            feeds: Arc::default(),
            store,
            clock,
            ids,
            waiting: Arc::default(),
            handover: Arc::default(),
            views: Arc::default(),
            reconnect: Reconnect::default(),
            lifecycles: Arc::default(),
            telemetry: Arc::new(Telemetry::new(Labels::default(), None)),
        }
    }

    /// With a lifecycle for all tasks of a kind that are submitted with this engine from now on. A
    /// task that has one of its own, or a first stage, keeps that.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// use plimsoll_core::lifecycle::Lifecycle;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// let stages = Lifecycle::row(["validating", "processing", "uploading"])?;
    /// let tasks = Engine::new(store).lifecycle("transcode", stages.clone())?.tasks();
    /// let id = tasks.submit(tasks.task("media", "transcode", "clip-7")?).await?.id;
    /// assert_eq!(tasks.get(id).await?.spec.lifecycle, Some(stages));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn lifecycle(mut self, kind: impl AsRef<str>, lifecycle: Lifecycle) -> Result<Self> {
        let kind = Name::for_field("kind", kind)?;
        Arc::make_mut(&mut self.lifecycles).insert(kind, lifecycle);
        Ok(self)
    }

    /// Gives a task, and those that are submitted in its wake, the lifecycles of their kinds.
    pub(crate) fn pin_lifecycle(&self, task: &mut NewTask) {
        if task.lifecycle.is_none() && task.first_stage.is_none() {
            task.lifecycle = self.lifecycles.get(&task.lane.kind).cloned();
        }
        if let Some(next) = &mut task.on_failure {
            self.pin_lifecycle(next);
        }
    }

    /// Whether a task was submitted without the lifecycle that this engine gives to its kind.
    pub(crate) fn misses_lifecycle(&self, task: &TaskSpec) -> bool {
        let bare = task.lifecycle.is_none() && task.first_stage.is_none();
        bare && self.lifecycles.contains_key(&task.lane.kind)
    }

    /// Checks what users write, and gives the tasks among it the lifecycles of their kinds.
    pub(crate) fn admit(&self, writes: &mut [Write]) -> Result<(), Invalid> {
        for write in writes {
            not_of_the_engine(write)?;
            match write {
                Write::Submit(task) => self.pin_lifecycle(task),
                Write::OpenGroup(group) => {
                    let tasks = [&mut group.then, &mut group.on_first_failure];
                    (tasks.into_iter().flatten()).for_each(|task| self.pin_lifecycle(task));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The same engine with its locks on another store. Whatever is to exclude each other must agree
    /// on it. Run a [`Sweeper`](crate::Sweeper) there too: it removes what expires and old history.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # let open = || Ok::<_, plimsoll_core::Invalid>(Arc::new(Memory::new().open(Namespace::new("docs")?)));
    /// let (tasks, locks) = (open()?, open()?);
    /// let engine = Engine::new(tasks).locks_on(locks);
    /// # Ok::<(), plimsoll_core::Invalid>(())
    /// ```
    pub fn locks_on(mut self, store: Arc<dyn Store>) -> Self {
        let tail = Arc::new(Tail::new(store.clone()));
        self.room = Arc::new(Room::new(store, tail));
        self
    }

    /// The client of its locks.
    pub fn locks(&self) -> Locks {
        Locks::new(self.clone())
    }

    /// The client of its history.
    pub fn history(&self) -> History {
        History::new(self.clone())
    }

    /// The client of its partitioned jobs.
    pub fn jobs(&self) -> Jobs {
        Jobs::new(self.clone())
    }

    /// The client of its tasks.
    pub fn tasks(&self) -> Tasks {
        Tasks::new(self.clone())
    }

    /// The client of its records.
    pub fn records(&self) -> Records {
        Records::new(self.clone())
    }

    /// A worker of this name on this store.
    pub fn worker(&self, name: impl Into<String>) -> WorkerBuilder {
        Worker::builder(self.clone(), name)
    }

    /// The client of its archive.
    pub fn archive(&self) -> Archive {
        Archive::new(self.clone())
    }

    /// The client of the retention that is stored with its namespace, which applies to all sweepers that
    /// were not given another one.
    pub fn retention(&self) -> StoredRetention {
        StoredRetention::new(self.clone())
    }

    /// The client of its registry of workers.
    pub fn workers(&self) -> Workers {
        Workers::new(self.clone())
    }

    /// With these labels on its metrics.
    pub fn labels(mut self, labels: Labels) -> Self {
        self.telemetry = Arc::new(self.telemetry.with_labels(labels));
        self
    }

    /// With this patience of those who read job states from now on.
    pub fn reconnecting(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self.views = Arc::new(self.views.anew());
        self
    }

    /// With so many events of each job in memory for subscribers that are slow, of those who subscribe from now
    /// on; 4,096 otherwise, and 4 MiB in any case. One that is further behind reads the history by itself. What subscribers
    /// take at once is an eighth of it at most, or 64 events if that is more.
    pub fn keeping_events(mut self, events: usize) -> Self {
        self.views = Arc::new(Views::keeping(events));
        self
    }

    /// With this to carry traces over in its tasks, instead of what the process has installed.
    pub fn propagation(mut self, propagation: Arc<dyn Propagation>) -> Self {
        self.telemetry = Arc::new(self.telemetry.with_propagation(propagation));
        self
    }

    /// With metrics and traces of every call of its store, and of the store that its locks are on by
    /// now: see [`Observe`](plimsoll_core::decorate::Observe).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # let store = Arc::new(Memory::new().open(Namespace::new("orders")?));
    /// let engine = Engine::new(store).observed();
    /// # Ok::<(), plimsoll_core::Invalid>(())
    /// ```
    pub fn observed(mut self) -> Self {
        let apart = !Arc::ptr_eq(&self.store, &self.room.store);
        self.store = self.observe(&self.store);
        self.tail = Arc::new(Tail::new(self.store.clone()));
        self.room = Arc::new(match apart {
            false => Room::new(self.store.clone(), self.tail.clone()),
            true => {
                let store = self.observe(&self.room.store);
                Room::new(store.clone(), Arc::new(Tail::new(store)))
            }
        });
        self.waiting = Arc::default();
        self.handover = Arc::default();
        self.feeds = Arc::default();
        self.views = Arc::new(self.views.anew());
        self
    }

    fn observe(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        let observe = Observe::new(store.as_ref(), self.clock.clone());
        Arc::new(Decorated::new(store.clone(), observe))
    }

    pub(crate) fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    pub(crate) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    pub(crate) fn waiting(&self) -> &Arc<Waiting> {
        &self.waiting
    }

    pub(crate) fn handover(&self) -> &Arc<Handover> {
        &self.handover
    }

    pub(crate) fn feeds(&self) -> &Arc<Feeds> {
        &self.feeds
    }

    pub(crate) fn views(&self) -> &Views {
        &self.views
    }

    pub(crate) fn reconnect(&self) -> Reconnect {
        self.reconnect
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

/// Whether this write of a user leaves alone what belongs to the engine.
fn not_of_the_engine(write: &Write) -> Result<(), Invalid> {
    let key = match write {
        Write::Put(put) => &put.key,
        Write::Merge(merge) => &merge.key,
        Write::Delete(key) | Write::Touch(key, _) => key,
        // It removes only what has expired.
        Write::ExpireRecord(_) => return Ok(()),
        Write::Submit(_)
        | Write::Settle(_)
        | Write::Amend(_)
        | Write::Cancel(_)
        | Write::Retry(_)
        | Write::Prioritise(..)
        | Write::Promote(_)
        | Write::Expire(_)
        | Write::DeleteTask(_)
        | Write::OpenGroup(_)
        | Write::Arrive(..)
        | Write::Seal(_)
        | Write::Reopen(_)
        | Write::Tally(_)
        | Write::DeleteGroup(_)
        | Write::Log(_) => return Ok(()),
    };
    of_users("key", key.as_str())
}
