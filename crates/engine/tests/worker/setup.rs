//! A store, a clock that tests move, and workers on them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::clock::ManualClock;
use plimsoll_core::decorate::{Decorated, Fault, FaultPlan, Faults, Method};
use plimsoll_core::store::{Claim, Pick};
use plimsoll_core::task::{Lane, NewTask, Task, WorkerId};
use plimsoll_core::{Ids, Limits, Memory, Name, Namespace, Result, Store, StoreExt, TaskId};
use plimsoll_engine::worker::{Settings, Stats, Stopper, Summary, Worker, WorkerBuilder};
use plimsoll_engine::{Engine, Sweeper};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::calls::Calls;
use crate::unlike::Unlike;

/// How long a lease runs unless a test says otherwise.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Everything a test needs.
pub(crate) struct Bench {
    pub(crate) clock: ManualClock,
    /// What workers work with: its calls are counted, and go wrong as planned.
    pub(crate) engine: Engine,
    pub(crate) faults: FaultPlan,
    pub(crate) calls: Calls,
    /// The store itself, where nothing goes wrong and nothing is counted.
    pub(crate) store: Arc<dyn Store>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(FaultPlan::none(), Limits::default(), false)
    }

    /// Nothing hints at anything.
    pub(crate) fn without_hints() -> Self {
        Self::with(FaultPlan::none(), Limits::default(), true)
    }

    /// The store writes several things at once.
    pub(crate) fn concurrent() -> Self {
        Self::made(FaultPlan::none(), Limits::default(), false, true)
    }

    pub(crate) fn with(faults: FaultPlan, limits: Limits, quiet: bool) -> Self {
        Self::made(faults, limits, quiet, false)
    }

    fn made(faults: FaultPlan, limits: Limits, quiet: bool, concurrent: bool) -> Self {
        let clock = ManualClock::new();
        let shared = Arc::new(clock.clone());
        let namespace = Namespace::new("test").unwrap();
        let store: Arc<dyn Store> = Arc::new(Memory::with(shared.clone(), limits).open(namespace));
        let calls = Calls::default();
        let counted = Decorated::new(store.clone(), calls.clone());
        let faulty = Decorated::new(
            Arc::new(counted),
            Faults::new(faults.clone(), shared.clone()),
        );
        let seen = Arc::new(Unlike {
            store: Arc::new(faulty),
            quiet,
            concurrent,
        });
        let ids = Ids::seeded(1, shared.clone());
        Self {
            engine: Engine::with(seen, shared, ids),
            clock,
            faults,
            calls,
            store,
        }
    }

    /// Another store on the same clock.
    pub(crate) fn other_store(&self, namespace: &str) -> Arc<dyn Store> {
        let memory = Memory::with(Arc::new(self.clock.clone()), Limits::default());
        Arc::new(memory.open(Namespace::new(namespace).unwrap()))
    }

    /// A task of queue `q`.
    pub(crate) fn task(&self, kind: &str, payload: &'static str) -> NewTask {
        let lane = Lane::new("q", kind).unwrap();
        NewTask::new(self.engine.ids().task(), lane, payload)
    }

    pub(crate) async fn submit(&self, kind: &str, payload: &'static str) -> TaskId {
        self.add(self.task(kind, payload)).await
    }

    pub(crate) async fn add(&self, task: NewTask) -> TaskId {
        self.store.submit(task).await.unwrap().id
    }

    pub(crate) async fn get(&self, id: TaskId) -> Task {
        self.store.task(id).await.unwrap().unwrap()
    }

    pub(crate) async fn cancel(&self, id: TaskId) {
        self.store.cancel(id, Some("enough".into())).await.unwrap();
    }

    /// Claims for somebody who is no worker of this process.
    pub(crate) async fn claim_elsewhere(&self, kind: &str, limit: usize) -> Vec<Task> {
        let worker = WorkerId {
            name: Name::new("elsewhere").unwrap(),
            incarnation: self.engine.ids().incarnation(),
        };
        let claim = Claim {
            pick: Pick::Next {
                lanes: vec![Lane::new("q", kind).unwrap()],
                limit,
            },
            worker,
            lease: LEASE,
            request: self.engine.ids().request(),
        };
        self.store.claim(claim).await.unwrap().tasks
    }

    /// Decides what is due, once, without letting anybody else run.
    pub(crate) async fn sweep(&self) {
        self.store.sweep(1_000, self.engine.ids()).await.unwrap();
    }

    /// A worker on queue `q` that leaves sweeping to others, and is not registered, so that calls of
    /// the store are its own.
    pub(crate) fn worker(&self) -> WorkerBuilder {
        Worker::builder(self.engine.clone(), "w")
            .queue("q")
            .sweeps(false)
            .registers(false)
    }

    /// The same with these settings changed.
    pub(crate) fn worker_with(&self, change: impl FnOnce(&mut Settings)) -> WorkerBuilder {
        self.worker().settings(change)
    }

    /// Lets time pass in small steps, so that everything that waits gets its turn.
    pub(crate) async fn pass(&self, duration: Duration) {
        self.pass_in(duration, millis(10)).await;
    }

    /// Lets time pass in steps of this size.
    pub(crate) async fn pass_in(&self, duration: Duration, step: Duration) {
        let mut left = duration;
        settle_down().await;
        while !left.is_zero() {
            let now = step.min(left);
            self.clock.advance(now);
            left -= now;
            turns(16).await;
        }
        settle_down().await;
    }

    /// The next calls of these methods do not reach the store, until `calm`.
    pub(crate) fn away(&self, methods: &[Method]) {
        for method in methods {
            for _ in 0..10_000 {
                self.faults.next(*method, Fault::ErrorBefore);
            }
        }
    }

    /// A sweeper beside everything else.
    pub(crate) fn start_sweeper(&self) -> JoinHandle<()> {
        spawn(Sweeper::new(self.engine.clone()).run())
    }
}

/// A worker that runs beside the test.
pub(crate) struct Started {
    pub(crate) stopper: Stopper,
    pub(crate) stats: Stats,
    pub(crate) work: JoinHandle<Result<Summary>>,
}

pub(crate) fn start(builder: WorkerBuilder) -> Started {
    let worker = builder.build().unwrap();
    Started {
        stopper: worker.stopper(),
        stats: worker.stats(),
        work: spawn(worker.run()),
    }
}

impl Started {
    /// What it has done so far.
    pub(crate) fn summary(&self) -> Summary {
        self.stats.summary()
    }

    /// Waits for its end, which must come without time passing.
    pub(crate) async fn end(self) -> Summary {
        settle_down().await;
        assert!(
            self.work.is_finished(),
            "still at work: {:?}",
            self.summary()
        );
        self.work.await.unwrap().unwrap()
    }
}

#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// Lets everything run that can run now.
pub(crate) async fn settle_down() {
    turns(50).await;
}

async fn turns(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// Handlers wait here until they are let through.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    arrived: Arc<AtomicUsize>,
    passes: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            arrived: Arc::default(),
            passes: Arc::new(Semaphore::new(0)),
        }
    }

    pub(crate) async fn wait(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        self.passes.acquire().await.unwrap().forget();
    }

    pub(crate) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self, passes: usize) {
        self.passes.add_permits(passes);
    }
}

/// What handlers wrote down, in order.
#[derive(Clone, Debug)]
pub(crate) struct Notes<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone> Notes<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn add(&self, note: T) {
        self.0.lock().unwrap().push(note);
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}
