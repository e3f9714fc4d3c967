//! What tests work with: a job in memory, processes that read it, and a clock that tests move.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Decorated, Fault, FaultPlan, Faults, Method};
use plimsoll_core::record::{Fields, fields, integer};
use plimsoll_core::store::{Commit, Compact, Merge, Put, Write};
use plimsoll_core::{Ids, Key, Limits, Memory, Name, Namespace, Result, Store, StoreExt};
use plimsoll_engine::Engine;
use plimsoll_engine::jobs::{Monitor, Scope, State, StateEvent, SubscribeOptions, Subscription};
use tokio::task::JoinHandle;

use crate::history::History;

pub(crate) const JOB: &str = "import";

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn tag(tag: &str) -> Scope {
    Scope::all().tag(tag).unwrap()
}

pub(crate) fn partition(partition: u32) -> Scope {
    Scope::all().partition(partition)
}

/// A state in short: `0-a=5 v1`.
pub(crate) fn short(state: &State) -> String {
    let tag = state.tag.as_ref().map_or("", Name::as_str);
    let (partition, status) = (state.partition, state.status);
    format!("{partition}-{tag}={status} v{}", state.version)
}

/// An event in short.
pub(crate) fn told(event: &Result<StateEvent>) -> String {
    match event {
        Ok(StateEvent::State(state)) => {
            let when = if state.is_replay() { "was" } else { "now" };
            format!("{when} {}", short(state))
        }
        Ok(StateEvent::ReplayComplete { .. }) => "marker".into(),
        Ok(StateEvent::Restarted) => "restarted".into(),
        Err(error) => error.code().into(),
    }
}

/// One namespace in memory.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    memory: Memory,
}

/// An engine of its own on that namespace, as another process has it.
pub(crate) struct Process {
    pub(crate) engine: Engine,
    pub(crate) plan: FaultPlan,
    pub(crate) history: History,
}

impl World {
    /// With a job of so many partitions.
    pub(crate) async fn with(partitions: u32) -> Self {
        let world = Self::empty();
        world.create(partitions, "1").await;
        world
    }

    pub(crate) fn empty() -> Self {
        let clock = ManualClock::new();
        let limits = Limits {
            page_max: 100,
            ..Limits::default()
        };
        let memory = Memory::with(Arc::new(clock.clone()), limits);
        Self { clock, memory }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.memory.open(Namespace::new("test").unwrap()))
    }

    pub(crate) fn process(&self) -> Process {
        self.process_of(1)
    }

    pub(crate) fn process_of(&self, seed: u64) -> Process {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let (plan, history) = (FaultPlan::none(), History::default());
        let odd = history.around(self.store());
        let store = Decorated::new(odd, Faults::new(plan.clone(), clock.clone()));
        let engine = Engine::with(Arc::new(store), clock.clone(), Ids::seeded(seed, clock));
        Process {
            engine,
            plan,
            history,
        }
    }

    pub(crate) async fn commit(&self, write: Write) {
        self.store().commit_one(Commit::of(write)).await.unwrap();
    }

    /// The job begins.
    pub(crate) async fn create(&self, partitions: u32, generation: &'static str) {
        let fields = fields([
            ("partitions", partitions.to_string()),
            ("created_at", "0".into()),
            ("floor", "0".into()),
            ("generation", generation.into()),
        ]);
        let key = Key::new("plimsoll.jobs.import").unwrap();
        self.commit(Write::Put(Put::new(key, fields.unwrap())))
            .await;
    }

    /// Nothing of the job may be written any more.
    pub(crate) async fn mark_deleted(&self) {
        let key = Key::new("plimsoll.jobs.import").unwrap();
        let deleted = fields([("deleted", "1"), ("deleted_at", "0")]).unwrap();
        let generation = Name::new("generation").unwrap();
        let moved = Merge::new(key).unset(generation).set(deleted);
        self.commit(Write::Merge(moved)).await;
    }

    pub(crate) fn key(partition: u32, tag: &str) -> Key {
        Key::new(format!("plimsoll.states.import.{partition}-{tag}")).unwrap()
    }

    /// A partition says how far it is.
    pub(crate) async fn set(&self, partition: u32, tag: &str, status: i32) {
        let key = Self::key(partition, tag);
        let before = self.store().record(&key).await.unwrap();
        let version = before.and_then(|record| integer(record.field("version")?));
        let fields = stored(status, version.unwrap_or(0) + 1);
        self.commit(Write::Put(Put::new(key, fields))).await;
    }

    /// Somebody writes a state by hand, as whichever version.
    pub(crate) async fn write(&self, partition: u32, tag: &str, (status, version): (i32, i64)) {
        let put = Put::new(Self::key(partition, tag), stored(status, version));
        self.commit(Write::Put(put)).await;
    }

    /// A state ends.
    pub(crate) async fn remove(&self, partition: u32, tag: &str) {
        self.commit(Write::Delete(Self::key(partition, tag))).await;
    }

    /// Removes all the history that there is.
    pub(crate) async fn compact(&self) {
        let compact = Compact {
            tasks: BTreeMap::new(),
            groups: None,
            history: Some(Duration::ZERO),
            logs: None,
            limit: 100,
        };
        while self.store().compact(compact.clone()).await.unwrap().more {}
    }

    /// Lets everything run that can run without time passing.
    pub(crate) async fn settle(&self) {
        for _ in 0..200 {
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

    /// What a subscription tells without time passing.
    pub(crate) async fn events(&self, of: &mut Subscription) -> Vec<Result<StateEvent>> {
        let mut events = Vec::new();
        loop {
            self.settle().await;
            let before = events.len();
            while let Some(Some(event)) = of.next().now_or_never() {
                events.push(event.map(StateEvent::keep));
            }
            if events.len() == before {
                return events;
            }
        }
    }

    /// The same in short.
    pub(crate) async fn told(&self, of: &mut Subscription) -> Vec<String> {
        self.events(of).await.iter().map(told).collect()
    }

    /// The answer of what must be done without time passing.
    pub(crate) async fn soon<T>(&self, doing: JoinHandle<T>) -> T {
        self.settle().await;
        assert!(doing.is_finished(), "nothing happens any more");
        doing.await.unwrap()
    }
}

impl Process {
    pub(crate) async fn monitor(&self) -> Monitor {
        self.engine.jobs().monitor(JOB).await.unwrap()
    }

    pub(crate) async fn subscribe(&self, scope: Scope) -> Subscription {
        let options = SubscribeOptions::default();
        self.monitor()
            .await
            .subscribe(scope, options)
            .await
            .unwrap()
    }

    /// The history cannot be read, so many times.
    pub(crate) fn disconnect(&self, times: usize) {
        for _ in 0..times {
            self.plan.next(Method::Changes, Fault::ErrorBefore);
        }
    }
}

/// The fields of a state.
pub(crate) fn stored(status: i32, version: i64) -> Fields {
    let fields = fields([
        ("status", status.to_string()),
        ("message", format!("at {status}")),
        ("version", version.to_string()),
        ("event_id", format!("event-{version}")),
        ("schema_version", "1".into()),
        ("events", "[]".into()),
    ]);
    fields.unwrap()
}

#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(future)
}
