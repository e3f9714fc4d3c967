//! What tests work with: a client over a store that can be made to fail and be watched.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Around, Decorated, FaultPlan, Faults, Method};
use plimsoll_core::store::{Changes, Receipt, Scan, Start};
use plimsoll_core::{Error, Ids, Limits, Memory, Namespace, Prefix, Result, Store};
use plimsoll_engine::{Engine, Records, Retries, Tasks};

use crate::stored::{Stored, UnderWay};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Runs tests, which take a world, on each store.
macro_rules! on_each_store {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $test() -> plimsoll_core::Result<()> {
                super::$test(crate::world::World::memory()).await
            })+
        }
        mod stored {
            $(#[tokio::test]
            async fn $test() -> plimsoll_core::Result<()> {
                super::$test(crate::world::World::stored().await).await
            })+
        }
    };
}
pub(crate) use on_each_store;

/// A client over a store that may fail, beside one of another process that does not.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) plan: FaultPlan,
    pub(crate) spy: Spy,
    pub(crate) records: Records,
    /// Of the same engine.
    pub(crate) tasks: Tasks,
    /// The same namespace without faults, and not counted.
    pub(crate) bare: Arc<dyn Store>,
    pub(crate) others: Records,
    /// How often it was begun again: each time, ids are others.
    life: u64,
    place: Option<Stored>,
}

impl World {
    pub(crate) fn memory() -> Self {
        let clock = ManualClock::new();
        let memory = Memory::with(Arc::new(clock.clone()), Limits::default());
        let open = || -> Arc<dyn Store> { Arc::new(memory.open(namespace())) };
        Self::over(clock, 0, open(), open(), None)
    }

    /// Two processes on one file, or on one namespace of a server.
    pub(crate) async fn stored() -> Self {
        Self::opened(ManualClock::new(), 0, Stored::new()).await
    }

    /// The same, opened by processes that have just begun.
    pub(crate) async fn restarted(self) -> Self {
        let (clock, life, place) = (self.clock.clone(), self.life, self.place.clone());
        drop(self);
        Self::opened(clock, life + 1, place.unwrap()).await
    }

    async fn opened(clock: ManualClock, life: u64, place: Stored) -> Self {
        let (far, bare) = (place.open(&clock).await, place.open(&clock).await);
        Self::over(clock, life, far, bare, Some(place))
    }

    fn over(
        clock: ManualClock,
        life: u64,
        far: Arc<dyn Store>,
        bare: Arc<dyn Store>,
        place: Option<Stored>,
    ) -> Self {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let (plan, spy) = (FaultPlan::none(), Spy::default());
        let faulty = Decorated::new(far, Faults::new(plan.clone(), shared.clone()));
        let store = Arc::new(Decorated::new(Arc::new(faulty), spy.clone()));
        // Calls are repeated without a pause, so that no time passes.
        let hasty = Retries {
            first: Duration::ZERO,
            ..Retries::default()
        };
        let client = |store, seed| {
            let ids = Ids::seeded(seed, shared.clone());
            Engine::with(store, shared.clone(), ids)
        };
        let (one, other) = (client(store, 2 * life), client(bare.clone(), 2 * life + 1));
        Self {
            records: one.records().with_retries(hasty),
            tasks: one.tasks(),
            others: other.records().with_retries(hasty),
            clock,
            plan,
            spy,
            bare,
            life,
            place,
        }
    }

    /// Whether others count in the same numbers, so that those of two runs differ.
    pub(crate) fn shares_numbers(&self) -> bool {
        matches!(self.place, Some(Stored::Server(..)))
    }

    pub(crate) async fn text(&self, key: &str, field: &str) -> Result<Option<String>> {
        let value = self.others.get_field(key, field).await?;
        Ok(value.map(|value| String::from_utf8(value.to_vec()).unwrap()))
    }

    /// Lets time pass, a millisecond at a time whenever the store has answered, until the future is done.
    pub(crate) async fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        let mut passed = 0;
        while passed < 100_000 {
            if let Poll::Ready(answer) = futures::poll!(&mut future) {
                return answer;
            }
            tokio::task::yield_now().await;
            if self.spy.under_way.is_none() {
                self.clock.advance(Duration::from_millis(1));
                passed += 1;
            }
        }
        panic!("nothing happens any more");
    }

    /// Everything that is stored, as text: records and history.
    pub(crate) async fn everything(&self) -> Result<String> {
        let records = self.bare.scan(Scan::new(Prefix::any(), 1_000)).await?;
        let changes = Changes {
            start: Start::Oldest,
            interests: Vec::new(),
            limit: 1_000,
        };
        let entries = self.bare.changes(changes).await?.entries;
        Ok(format!("{records:#?}\n{entries:#?}"))
    }
}

fn namespace() -> Namespace {
    Namespace::new("test").unwrap()
}

pub(crate) fn code<T: fmt::Debug>(answer: Result<T>) -> &'static str {
    answer.unwrap_err().code()
}

type Hook = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Counts calls, and lets others act once, before or after a call.
#[derive(Clone, Default)]
pub(crate) struct Spy {
    calls: Arc<Mutex<BTreeMap<Method, u64>>>,
    before: Arc<Mutex<Option<(Method, Hook)>>>,
    after: Arc<Mutex<Option<(Method, Hook)>>>,
    under_way: UnderWay,
}

impl fmt::Debug for Spy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spy")
    }
}

impl Spy {
    pub(crate) fn calls(&self, method: Method) -> u64 {
        let calls = self.calls.lock().unwrap();
        calls.get(&method).copied().unwrap_or(0)
    }

    /// Lets somebody else act before the next call of this method.
    pub(crate) fn before(
        &self,
        method: Method,
        act: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        *self.before.lock().unwrap() = Some((method, Box::new(act)));
    }

    /// Lets somebody else act after the next call of this method.
    pub(crate) fn after(
        &self,
        method: Method,
        act: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        *self.after.lock().unwrap() = Some((method, Box::new(act)));
    }
}

async fn run(hook: &Mutex<Option<(Method, Hook)>>, method: Method) {
    let due = hook.lock().unwrap().take_if(|(of, _)| *of == method);
    if let Some((_, act)) = due {
        act().await;
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
        let _under_way = self.under_way.begin();
        // Others may always come in between.
        tokio::task::yield_now().await;
        run(&self.before, method).await;
        let answer = call().await;
        run(&self.after, method).await;
        answer
    }

    fn committed(&self, _: &[Result<Receipt, Error>]) {}
}
