//! Writers, readers, listeners and workers at work, and in the end the books.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::change::{Change, Interest, TaskEvent};
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::record::integer;
use plimsoll_core::store::{Changes, Commit, Get, Merge, Start, Tasks, Write};
use plimsoll_core::task::Status;
use plimsoll_core::{Error, Name, Position, Store, TaskId};
use plimsoll_engine::Engine;
use plimsoll_engine::worker::{Completion, Context, Failure, Stopper};
use plimsoll_store_postgres::{Config, PostgresStore};
use tokio::task::JoinSet;

use crate::world::{
    WELL_WITHIN, World, assert_soon, is_full_speed, key, lane, submit, until, within,
};

const WRITERS: usize = 4;
/// How much must be done after a fault to say that work goes on.
const GOES_ON: u64 = 60;
const COUNTER: &str = "counter";

/// Everything that happens, as those who take part see it.
#[derive(Default)]
struct Seen {
    /// Whether nothing more is to be written.
    enough: AtomicBool,
    stop: AtomicBool,
    acknowledged: Mutex<Vec<TaskId>>,
    added: AtomicU64,
    completed: AtomicU64,
    reads: AtomicU64,
    wakes: AtomicU64,
    /// What was refused, by its words.
    refused: Mutex<BTreeMap<String, u64>>,
    /// Events of the history, of each task.
    history: Mutex<BTreeMap<TaskId, Vec<TaskEvent>>>,
    /// Where each event of the history was found.
    positions: Mutex<Vec<Position>>,
}

impl Seen {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn done(&self) -> [u64; 4] {
        [&self.added, &self.completed, &self.reads, &self.wakes]
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// Only what may be tried again may be refused.
    fn refuse(&self, error: Error) {
        let Error::Unavailable(told) = error else {
            panic!("a fault of the server was answered {error}");
        };
        *lock(&self.refused).entry(told.cause).or_default() += 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(crate) struct Traffic {
    seen: Arc<Seen>,
    /// How long it took at best to do some more.
    usual: Cell<Duration>,
    store: Arc<PostgresStore>,
    writers: JoinSet<()>,
    all: JoinSet<()>,
    stopper: Stopper,
}

impl Traffic {
    /// One process writes, reads and listens, another one works.
    #[allow(clippy::disallowed_methods, reason = "all are waited for")]
    pub(crate) async fn start(world: &World, config: &Config) -> Self {
        let seen = Arc::<Seen>::default();
        let store = Arc::new(world.open_with(config).await);
        let workers_store = Arc::new(world.open_with(config).await);
        let worker = Engine::new(workers_store).worker("worker").queue("queue");
        let worker = worker.handle("kind", handle).concurrency(8);
        let worker = worker.settings(|settings| settings.lease = Duration::from_secs(3));
        let worker = worker.build().expect("a worker");
        let stopper = worker.stopper();
        let (mut writers, mut all) = (JoinSet::new(), JoinSet::new());
        for _ in 0..WRITERS {
            writers.spawn(write(store.clone(), seen.clone(), world.ids.clone()));
        }
        all.spawn(read(store.clone(), seen.clone()));
        all.spawn(listen(store.clone(), seen.clone()));
        all.spawn(follow(store.clone(), seen.clone()));
        all.spawn(async { _ = worker.run().await.expect("a worker") });
        let traffic = Self {
            seen,
            usual: Cell::new(Duration::MAX),
            store,
            writers,
            all,
            stopper,
        };
        // What is usual is known after a few rounds.
        for _ in 0..3 {
            traffic.goes_on().await;
        }
        traffic
    }

    /// Everybody gets on with it, soon at full speed.
    pub(crate) async fn goes_on(&self) {
        let mut slow = Duration::ZERO;
        loop {
            let took = self.some_more().await;
            let usual = self.usual.get().min(took);
            self.usual.set(usual);
            if is_full_speed(took, usual) {
                break;
            }
            slow += took;
            assert_soon(slow, usual);
        }
    }

    /// How long it takes until everybody has done some more.
    async fn some_more(&self) -> Duration {
        let before = self.seen.done();
        let clock = SystemClock::new();
        until(WELL_WITHIN, "going on", async || {
            let done = self.seen.done();
            done.iter()
                .zip(before)
                .all(|(now, then)| now - then >= GOES_ON)
        })
        .await;
        clock.monotonic()
    }

    /// Ends everything, checks the books, and that no connection is left. Answers what was refused meanwhile.
    pub(crate) async fn end(self, world: &World) -> BTreeMap<String, u64> {
        let stranger = world.stranger().await;
        let (store, refused) = self.finish(world).await;
        let most = world.config.writers + world.config.readers + 2;
        let connections = world.connections(&stranger).await;
        assert!(connections.len() <= 2 * most, "{connections:#?}");
        drop(store);
        let mut left = Vec::new();
        until(5, "closing all connections", async || {
            let now = world.connections(&stranger).await;
            if now.len() != left.len() {
                println!("left: {now:#?}");
            }
            left = now;
            left.is_empty()
        })
        .await;
        refused
    }

    /// Ends everything and checks the books. Answers the store that was used, and what was refused meanwhile.
    pub(crate) async fn finish(
        mut self,
        world: &World,
    ) -> (Arc<PostgresStore>, BTreeMap<String, u64>) {
        // Before a worker ends, there must be nothing more to come.
        self.seen.enough.store(true, Ordering::Relaxed);
        while let Some(ended) = within(30, "writing", self.writers.join_next()).await {
            ended.expect("nobody panics");
        }
        self.seen.stop.store(true, Ordering::Relaxed);
        until(30, "completing all", async || {
            let wanted = lock(&self.seen.acknowledged).len() as u64;
            self.seen.completed.load(Ordering::Relaxed) >= wanted
        })
        .await;
        self.stopper.drain();
        // Those who listen hear of this.
        let last = Commit::of(Write::Submit(Box::new(world.task())));
        self.store.commit(vec![last]).await;
        while let Some(ended) = within(30, "ending", self.all.join_next()).await {
            ended.expect("nobody panics");
        }
        self.audit().await;
        let refused = std::mem::take(&mut *lock(&self.seen.refused));
        println!("refused: {refused:#?}");
        (self.store, refused)
    }

    async fn audit(&self) {
        let acknowledged = lock(&self.seen.acknowledged).clone();
        println!("{} tasks", acknowledged.len());
        let history = std::mem::take(&mut *lock(&self.seen.history));
        for ids in acknowledged.chunks(1_000) {
            let found = self.store.tasks(Tasks { ids: ids.to_vec() }).await;
            let keys = ids.iter().map(|id| key(&format!("done.{id}"))).collect();
            let done = self.store.get(Get { keys }).await.expect("records");
            for ((task, id), done) in found.expect("tasks").iter().zip(ids).zip(done) {
                let status = task.as_ref().map(|task| task.status);
                assert_eq!(status, Some(Status::Completed), "{id} was acknowledged");
                let times = done.as_ref().and_then(|done| integer(done.field("n")?));
                assert_eq!(times, Some(1), "{id} is completed once");
                let told = |event| history[id].iter().filter(|told| **told == event).count();
                assert_eq!(told(TaskEvent::Submitted), 1, "{id} in the history");
                assert_eq!(told(TaskEvent::Completed), 1, "{id} in the history");
            }
        }
        let keys = vec![key(COUNTER)];
        let counter = self.store.get(Get { keys }).await.expect("a counter");
        let counted = counter[0].as_ref().and_then(|it| integer(it.field("n")?));
        let added = self.seen.added.load(Ordering::Relaxed);
        assert_eq!(counted.map(i64::unsigned_abs), Some(added));
        let positions = lock(&self.seen.positions).clone();
        assert!(positions.is_sorted_by(|a, b| a < b), "no entry comes twice");
    }
}

fn add(key_of: &str) -> Write {
    Write::Merge(Merge::new(key(key_of)).add(Name::new("n").expect("a name"), 1))
}

async fn handle(context: Context) -> Result<Completion, Failure> {
    let done = format!("done.{}", context.task().id());
    Ok(Completion::new().write(add(&done)))
}

/// Submits and counts, each until it is acknowledged.
async fn write(store: Arc<PostgresStore>, seen: Arc<Seen>, ids: plimsoll_core::Ids) {
    let clock = SystemClock::new();
    let until_acknowledged = async |commit: Commit| {
        let commit = commit.id(ids.commit());
        while let Err(error) = store.commit(vec![commit.clone()]).await.remove(0) {
            seen.refuse(error);
            clock.sleep(Duration::from_millis(10)).await;
        }
    };
    while !seen.enough.load(Ordering::Relaxed) {
        let id = ids.task();
        let task = plimsoll_core::task::NewTask::new(id, lane(), "payload");
        until_acknowledged(submit(task)).await;
        lock(&seen.acknowledged).push(id);
        until_acknowledged(Commit::of(add(COUNTER))).await;
        count(&seen.added);
    }
}

async fn read(store: Arc<PostgresStore>, seen: Arc<Seen>) {
    let clock = SystemClock::new();
    while seen.goes_on() {
        match store
            .get(Get {
                keys: vec![key(COUNTER)],
            })
            .await
        {
            Ok(_) => count(&seen.reads),
            Err(error) => seen.refuse(error),
        }
        clock.sleep(Duration::from_millis(2)).await;
    }
}

async fn listen(store: Arc<PostgresStore>, seen: Arc<Seen>) {
    let mut wakeups = store.wakeups();
    while seen.goes_on() {
        wakeups.next().await;
        count(&seen.wakes);
    }
}

/// Reads the history as it grows.
async fn follow(store: Arc<PostgresStore>, seen: Arc<Seen>) {
    let clock = SystemClock::new();
    let mut start = Start::Oldest;
    let mut last = false;
    loop {
        let stopped = !seen.goes_on();
        let changes = Changes {
            start,
            interests: vec![Interest::tasks()],
            limit: 1_000,
        };
        let page = match store.changes(changes).await {
            Ok(page) => page,
            Err(error) => {
                seen.refuse(error);
                clock.sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        start = Start::After(page.next);
        for entry in page.entries {
            lock(&seen.positions).push(entry.position);
            for change in entry.changes {
                if let Change::Task(change) = change {
                    if change.event == TaskEvent::Completed {
                        count(&seen.completed);
                    }
                    lock(&seen.history)
                        .entry(change.id)
                        .or_default()
                        .push(change.event);
                }
            }
        }
        let acknowledged = lock(&seen.acknowledged).len() as u64;
        let complete = seen.completed.load(Ordering::Relaxed) >= acknowledged;
        if last && !page.more {
            return;
        }
        last = stopped && complete;
        clock.sleep(Duration::from_millis(5)).await;
    }
}
