//! What tests work with: a store that counts calls and fails on demand, and a clock that tests move.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use plimsoll_core::change::{Change, Interest};
use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Around, Decorated, FaultPlan, Faults, Method};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Commit, Compact, Put, Receipt, Write};
use plimsoll_core::{Ids, Key, Limits, Memory, Namespace, Prefix, Result, Store, StoreExt};
use plimsoll_engine::Engine;
use plimsoll_engine::history::Seen;

use crate::poor::Poor;

pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) engine: Engine,
    pub(crate) plan: FaultPlan,
    pub(crate) calls: Calls,
    /// Straight to the memory.
    pub(crate) store: Arc<dyn Store>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::over(|store| store)
    }

    /// One whose store hints at nothing.
    pub(crate) fn poor(total_order: bool) -> Self {
        Self::over(|store| Arc::new(Poor { store, total_order }))
    }

    fn over(wrap: impl Fn(Arc<dyn Store>) -> Arc<dyn Store>) -> Self {
        let clock = ManualClock::new();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let memory = Memory::with(shared.clone(), Limits::default());
        let store: Arc<dyn Store> = Arc::new(memory.open(Namespace::new("test").unwrap()));
        let plan = FaultPlan::none();
        let calls = Calls::default();
        let faulty = Decorated::new(store.clone(), Faults::new(plan.clone(), shared.clone()));
        let counted = Decorated::new(Arc::new(faulty), calls.clone());
        let ids = Ids::seeded(1, shared.clone());
        let engine = Engine::with(wrap(Arc::new(counted)), shared, ids);
        Self {
            clock,
            engine,
            plan,
            calls,
            store,
        }
    }

    /// Writes records in one commit, each with a number.
    pub(crate) async fn put(&self, keys: &[&str], number: u64) {
        let put = |key: &&str| {
            let fields = fields([("n", number.to_string())]).unwrap();
            Write::Put(Put::new(Key::new(key).unwrap(), fields))
        };
        let commit = keys.iter().map(put).fold(Commit::new(), Commit::write);
        self.store.commit_one(commit).await.unwrap();
    }

    /// Removes all history that is older than now.
    pub(crate) async fn forget_history(&self) {
        self.clock.advance(Duration::from_secs(1));
        let compact = Compact {
            history: Some(Duration::from_millis(500)),
            limit: 1_000,
            ..Compact::default()
        };
        assert!(self.store.compact(compact).await.unwrap().entries > 0);
    }

    /// Lets everything run that can run without time passing.
    pub(crate) async fn settle(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    /// What this comes to without time passing.
    pub(crate) async fn soon<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        for _ in 0..1_000 {
            if let Poll::Ready(answer) = futures::poll!(&mut future) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
        panic!("nothing happens");
    }

    /// Lets time pass, from one sleep's end to the next.
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
}

pub(crate) fn records(prefix: &str) -> Interest {
    Interest::Records(Prefix::new(prefix).unwrap())
}

/// The key and the number of a record that was put.
pub(crate) fn put_of(seen: &Seen) -> (String, u64) {
    match &seen.change {
        Change::Put(record) => {
            let number = std::str::from_utf8(record.field("n").unwrap()).unwrap();
            (record.key.to_string(), number.parse().unwrap())
        }
        other => panic!("{other:?}"),
    }
}

/// Counts the calls that reach the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls(Arc<Mutex<BTreeMap<Method, usize>>>);

impl Calls {
    pub(crate) fn of(&self, method: Method) -> usize {
        self.0.lock().unwrap().get(&method).copied().unwrap_or(0)
    }

    pub(crate) fn reset(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl Around for Calls {
    async fn around<T, C, F>(&self, method: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        *self.0.lock().unwrap().entry(method).or_default() += 1;
        call().await
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}
