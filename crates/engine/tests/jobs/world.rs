//! What tests work with: processes that share a store, and a clock that tests move.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Around, Decorated, FaultPlan, Faults, Method};
use plimsoll_core::record::Record;
use plimsoll_core::store::{Receipt, Scan};
use plimsoll_core::{Ids, Key, Limits, Memory, Name, Namespace, Prefix, Result, Store, StoreExt};
use plimsoll_engine::jobs::{Manager, NewState};
use plimsoll_engine::tasks::Retries;
use plimsoll_engine::{Engine, Jobs, Sweeper};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::stored::{Stored, UnderWay};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// One namespace on a store.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<dyn Store>,
    under_way: UnderWay,
    _place: Option<Stored>,
}

/// An engine of its own on that namespace, as another process has it.
pub(crate) struct Process {
    pub(crate) engine: Engine,
    pub(crate) jobs: Jobs,
    pub(crate) plan: FaultPlan,
    pub(crate) spy: Spy,
}

/// One in memory.
pub(crate) fn in_memory() -> World {
    in_memory_with(Limits::default())
}

pub(crate) fn in_memory_with(limits: Limits) -> World {
    let clock = ManualClock::new();
    let memory = Memory::with(Arc::new(clock.clone()), limits);
    World {
        clock,
        store: Arc::new(memory.open(Namespace::new("test").unwrap())),
        under_way: UnderWay::default(),
        _place: None,
    }
}

/// One on each store; if a server is named, on that alone.
pub(crate) async fn worlds() -> Vec<World> {
    let (clock, place) = (ManualClock::new(), Stored::new());
    let stored = World {
        store: place.open(&clock).await,
        clock,
        under_way: UnderWay::default(),
        _place: Some(place.clone()),
    };
    match place {
        Stored::File(_) => vec![in_memory(), stored],
        Stored::Server(..) => vec![stored],
    }
}

impl World {
    /// Another process. It repeats calls without a pause, so that no time passes.
    pub(crate) fn process(&self, seed: u64) -> Process {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let spy = Spy {
            under_way: self.under_way.clone(),
            ..Spy::default()
        };
        let plan = FaultPlan::none();
        let faults = Faults::new(plan.clone(), clock.clone());
        let faulty = Decorated::new(self.store.clone(), faults);
        let store = Arc::new(Decorated::new(Arc::new(faulty), spy.clone()));
        let engine = self.through(seed, store);
        Process {
            jobs: hasty(&engine),
            engine,
            plan,
            spy,
        }
    }

    /// An engine on this store.
    pub(crate) fn through(&self, seed: u64, store: Arc<dyn Store>) -> Engine {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let ids = Ids::seeded(seed, clock.clone());
        Engine::with(store, clock, ids)
    }

    /// A sweeper of another process; each must have another seed, or else it makes the same ids.
    pub(crate) fn sweeper(&self, seed: u64) -> Sweeper {
        Sweeper::new(self.through(seed, self.store.clone()))
    }

    /// The record of a state.
    pub(crate) async fn state(&self, job: &str, partition: u32, tag: &str) -> Option<Record> {
        let key = format!("plimsoll.states.{job}.{partition}-{tag}");
        self.record(&key).await
    }

    /// The record of a job.
    pub(crate) async fn job(&self, job: &str) -> Option<Record> {
        self.record(&format!("plimsoll.jobs.{job}")).await
    }

    async fn record(&self, key: &str) -> Option<Record> {
        let key = Key::new(key).unwrap();
        self.store.record(&key).await.unwrap()
    }

    /// All records with this prefix.
    pub(crate) async fn records(&self, prefix: &str) -> Vec<Record> {
        let mut scan = Scan::new(Prefix::new(prefix).unwrap(), 1_000);
        let mut rows = Vec::new();
        loop {
            let page = self.store.scan(scan.clone()).await.unwrap();
            rows.extend(page.rows);
            scan.cursor = page.next;
            if scan.cursor.is_none() {
                return rows;
            }
        }
    }

    /// Lets everything run that can run without time passing, and waits for what processes have asked the store.
    pub(crate) async fn settle(&self) {
        loop {
            let begun = self.under_way.begun();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            if self.under_way.is_none() && self.under_way.begun() == begun {
                return;
            }
        }
    }

    /// Lets time pass whenever nothing else happens and the store has answered, until this is done.
    pub(crate) async fn time<T>(&self, doing: impl Future<Output = T>) -> T {
        tokio::pin!(doing);
        loop {
            for _ in 0..50 {
                tokio::select! {
                    biased;
                    done = &mut doing => return done,
                    () = tokio::task::yield_now() => {}
                }
            }
            if self.under_way.is_none()
                && let Some(next) = self.clock.next_sleep()
            {
                self.clock.advance(next);
            }
        }
    }
}

fn hasty(engine: &Engine) -> Jobs {
    engine.jobs().with_retries(Retries {
        first: Duration::ZERO,
        ..Retries::default()
    })
}

/// The text of a field.
pub(crate) fn text(record: &Record, field: &str) -> Option<String> {
    let value = record.field(field)?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

/// The number in a field.
pub(crate) fn number(record: &Record, field: &str) -> i64 {
    text(record, field).unwrap().parse().unwrap()
}

/// A state of a tag.
pub(crate) fn at(tag: &str, status: i32) -> NewState {
    NewState::new(tag, status).unwrap()
}

pub(crate) fn of(tag: &str) -> NewState {
    NewState::of(tag).unwrap()
}

/// Writes a state that is finished.
pub(crate) async fn finish(manager: &Manager, tag: &str) {
    manager.set_finished(of(tag)).await.unwrap();
}

pub(crate) fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

pub(crate) fn code<T: fmt::Debug>(answer: Result<T>) -> &'static str {
    answer.unwrap_err().code()
}

pub(crate) fn message<T: fmt::Debug>(answer: Result<T>) -> String {
    answer.unwrap_err().to_string()
}

#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(future)
}

type Gate = (Method, Arc<Semaphore>);

/// Counts calls, and holds back those of a method when asked to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spy {
    calls: Arc<Mutex<BTreeMap<Method, u64>>>,
    commits: Arc<Mutex<Vec<usize>>>,
    gate: Arc<Mutex<Option<Gate>>>,
    under_way: UnderWay,
}

impl Spy {
    pub(crate) fn calls(&self, method: Method) -> u64 {
        let calls = self.calls.lock().unwrap();
        calls.get(&method).copied().unwrap_or(0)
    }

    /// How many commits each call had since the last look.
    pub(crate) fn commits(&self) -> Vec<usize> {
        std::mem::take(&mut self.commits.lock().unwrap())
    }

    /// Calls of this method do not leave the process from now on until they may go.
    pub(crate) fn hold(&self, method: Method) {
        *self.gate.lock().unwrap() = Some((method, Arc::new(Semaphore::new(0))));
    }

    pub(crate) fn let_go(&self) {
        if let Some((_, gate)) = self.gate.lock().unwrap().take() {
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
        let gate = self.gate.lock().unwrap().clone();
        if let Some((_, gate)) = gate.filter(|(held, _)| *held == method) {
            // Closed when calls may go.
            gate.acquire().await.map(drop).ok();
        }
        let _under_way = self.under_way.begin();
        call().await
    }

    fn committed(&self, results: &[Result<Receipt>]) {
        self.commits.lock().unwrap().push(results.len());
    }
}
