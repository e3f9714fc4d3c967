//! What tests work with: processes that share a store, and a clock that tests move.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Around, Decorated, Fault, FaultPlan, Faults, Method};
use plimsoll_core::record::Record;
use plimsoll_core::store::{Changes, Compact, Receipt, Scan, Start};
use plimsoll_core::{Error, Ids, Limits, Memory, Namespace, Prefix, Result, Store};
use plimsoll_engine::locks::LockGuard;
use plimsoll_engine::tasks::Retries;
use plimsoll_engine::{Engine, Locks};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::wire::Wire;

pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// One namespace in memory.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    memory: Memory,
}

/// An engine of its own on that namespace, as another process has it.
pub(crate) struct Process {
    pub(crate) engine: Engine,
    pub(crate) locks: Locks,
    pub(crate) plan: FaultPlan,
    pub(crate) spy: Spy,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let memory = Memory::with(Arc::new(clock.clone()), Limits::default());
        Self { clock, memory }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.memory.open(Namespace::new("test").unwrap()))
    }

    /// Another process. It repeats calls without a pause, so that no time passes.
    pub(crate) fn process(&self, seed: u64) -> Process {
        self.process_with(seed, FaultPlan::none())
    }

    pub(crate) fn process_with(&self, seed: u64, plan: FaultPlan) -> Process {
        self.process_over(seed, plan, &Wire::default())
    }

    /// Another process, whose way to the store is this wire.
    pub(crate) fn process_over(&self, seed: u64, plan: FaultPlan, wire: &Wire) -> Process {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let spy = Spy::default();
        let far = wire.around(self.store());
        let faulty = Decorated::new(far, Faults::new(plan.clone(), clock.clone()));
        let store = Decorated::new(Arc::new(faulty), spy.clone());
        let ids = Ids::seeded(seed, clock.clone());
        let engine = Engine::with(Arc::new(store), clock, ids);
        let hasty = Retries {
            first: Duration::ZERO,
            ..Retries::default()
        };
        Process {
            locks: engine.locks().with_retries(hasty),
            engine,
            plan,
            spy,
        }
    }

    /// Lets everything run that can run without time passing.
    pub(crate) async fn settle(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// Lets time pass from one sleep's end to the next, and everything run in between.
    pub(crate) async fn pass(&self, time: Duration) {
        let end = self.clock.monotonic() + time;
        while self.clock.monotonic() < end {
            self.settle().await;
            let left = end - self.clock.monotonic();
            let next = self.clock.next_sleep().unwrap_or(left);
            self.clock.advance(next.min(left));
        }
        self.settle().await;
    }

    /// The answer of what must be done without time passing.
    pub(crate) async fn soon<T>(&self, doing: JoinHandle<T>) -> T {
        self.settle().await;
        assert!(doing.is_finished(), "nothing happens any more");
        doing.await.unwrap()
    }

    /// How long it takes until this is done, and its answer.
    pub(crate) async fn time<T>(&self, doing: JoinHandle<T>) -> (Duration, T) {
        let began = self.clock.monotonic();
        loop {
            self.settle().await;
            if doing.is_finished() {
                let took = self.clock.monotonic() - began;
                return (took, doing.await.unwrap());
            }
            let next = self.clock.next_sleep();
            self.clock.advance(next.expect("nothing happens any more"));
            let waited = self.clock.monotonic() - began;
            assert!(waited < Duration::from_secs(3_600), "it never ends");
        }
    }

    /// All records of the engine itself.
    pub(crate) async fn records(&self) -> Vec<Record> {
        let scan = Scan::new(Prefix::new("plimsoll.").unwrap(), 1_000);
        self.store().scan(scan).await.unwrap().rows
    }

    /// How many entries the history has.
    pub(crate) async fn entries(&self) -> usize {
        let changes = Changes {
            start: Start::Oldest,
            interests: Vec::new(),
            limit: 1_000,
        };
        let page = self.store().changes(changes).await.unwrap();
        assert!(!page.more);
        page.entries.len()
    }
}

impl Process {
    /// One who waits for the lock, beside the test.
    pub(crate) fn waits(&self, name: &str, owner: &str) -> JoinHandle<Result<LockGuard>> {
        let lock = self.locks.lock(name).owner(owner);
        spawn(async move { lock.acquire().await })
    }

    /// From here on, the store is out of reach for this process.
    pub(crate) fn cut_off(&self) {
        for method in [Method::Commit, Method::Get, Method::Scan, Method::Changes] {
            for _ in 0..10_000 {
                self.plan.next(method, Fault::ErrorBefore);
            }
        }
    }
}

/// Removes everything that may be removed.
pub(crate) async fn compact(store: &dyn Store) -> Result<()> {
    let compact = Compact {
        tasks: BTreeMap::new(),
        groups: None,
        history: Some(Duration::ZERO),
        logs: None,
        limit: 1_000,
    };
    store.compact(compact).await.map(drop)
}

pub(crate) fn code<T: fmt::Debug>(answer: Result<T>) -> &'static str {
    answer.unwrap_err().code()
}

#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(future)
}

type Gate = Arc<Semaphore>;

/// Counts calls, and holds back answers to commits, or calls of a method, when asked to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spy {
    calls: Arc<Mutex<BTreeMap<Method, u64>>>,
    gate: Arc<Mutex<Option<Gate>>>,
    held: Arc<Mutex<Option<(Method, Gate)>>>,
}

impl Spy {
    pub(crate) fn calls(&self, method: Method) -> u64 {
        let calls = self.calls.lock().unwrap();
        calls.get(&method).copied().unwrap_or(0)
    }

    pub(crate) fn all_calls(&self) -> u64 {
        self.calls.lock().unwrap().values().sum()
    }

    /// Commits are made, but not answered from now on until the gate is opened again.
    pub(crate) fn hold_answers(&self) {
        *self.gate.lock().unwrap() = Some(Arc::new(Semaphore::new(0)));
    }

    pub(crate) fn answer_again(&self) {
        if let Some(gate) = self.gate.lock().unwrap().take() {
            gate.close();
        }
    }
}

impl Spy {
    /// Calls of this method do not leave the process from now on until they may go.
    pub(crate) fn hold_calls(&self, method: Method) {
        *self.held.lock().unwrap() = Some((method, Arc::new(Semaphore::new(0))));
    }

    pub(crate) fn let_go(&self) {
        if let Some((_, gate)) = self.held.lock().unwrap().take() {
            gate.close();
        }
    }
}

impl Around for Spy {
    async fn around<T, C, F>(&self, method: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        *self.calls.lock().unwrap().entry(method).or_default() += 1;
        let held = self.held.lock().unwrap().clone();
        if let Some((_, gate)) = held.filter(|(held, _)| *held == method) {
            // Closed when calls may go.
            gate.acquire().await.map(drop).ok();
        }
        let answer = call().await;
        let gate = self.gate.lock().unwrap().clone();
        if let Some(gate) = gate.filter(|_| method == Method::Commit) {
            // Closed when answers are given again.
            gate.acquire().await.map(drop).ok();
        }
        answer
    }

    fn committed(&self, _: &[Result<Receipt, Error>]) {}
}
