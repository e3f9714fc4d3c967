//! What tests work with: a client, its clock, and a store that can be made to fail and be watched.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_core::change::Change;
use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Around, Decorated, FaultPlan, Faults, Method};
use plimsoll_core::log::Level;
use plimsoll_core::memory::MemoryStore;
use plimsoll_core::store::{Changes, Logs, Receipt, Start};
use plimsoll_core::task::{Lane, NewTask, Status, Task, WorkerId};
use plimsoll_core::{
    Error, Ids, Limits, Memory, Namespace, Result, Store, StoreExt, TaskId, Timestamp,
};
use plimsoll_engine::tasks::{Held, Retries};
use plimsoll_engine::{Engine, Tasks};

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A client over a store that may fail, beside a bare handle to the same namespace.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) ids: Ids,
    pub(crate) plan: FaultPlan,
    pub(crate) spy: Spy,
    /// What the client works with.
    pub(crate) store: Arc<dyn Store>,
    /// The same namespace without faults, and not counted.
    pub(crate) bare: Arc<MemoryStore>,
    pub(crate) tasks: Tasks,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(1, Limits::default())
    }

    pub(crate) fn with(seed: u64, limits: Limits) -> Self {
        let clock = ManualClock::new();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let memory = Memory::with(shared.clone(), limits);
        let namespace = Namespace::new("test").unwrap();
        let plan = FaultPlan::none();
        let faults = Faults::new(plan.clone(), shared.clone());
        let inner = Arc::new(memory.open(namespace.clone()));
        let spy = Spy::default();
        let faulty = Arc::new(Decorated::new(inner, faults));
        let store: Arc<dyn Store> = Arc::new(Decorated::new(faulty, spy.clone()));
        let ids = Ids::seeded(seed, shared.clone());
        let engine = Engine::with(store.clone(), shared, ids.clone());
        Self {
            clock,
            ids,
            plan,
            spy,
            store,
            bare: Arc::new(memory.open(namespace)),
            tasks: Tasks::new(engine),
        }
    }

    /// Repeats calls without a pause, so that no time passes.
    pub(crate) fn hasty(mut self) -> Self {
        self.tasks = self.tasks.with_retries(Retries {
            first: Duration::ZERO,
            ..Retries::default()
        });
        self
    }

    /// A client of its own over the bare handle.
    pub(crate) fn other_client(&self) -> Tasks {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        Tasks::new(Engine::with(
            self.bare.clone(),
            clock.clone(),
            Ids::seeded(99, clock),
        ))
    }

    pub(crate) fn task(&self, payload: &str) -> NewTask {
        let payload = payload.to_owned();
        self.tasks.task("q", "k", payload).unwrap()
    }

    pub(crate) fn worker(&self, name: &str) -> WorkerId {
        self.tasks.worker(name).unwrap()
    }

    pub(crate) async fn submitted(&self) -> Result<TaskId> {
        Ok(self.tasks.submit(self.task("work")).await?.id)
    }

    pub(crate) async fn held(&self) -> Result<Held> {
        self.hold(self.task("work")).await
    }

    pub(crate) async fn hold(&self, task: NewTask) -> Result<Held> {
        let id = self.tasks.submit(task).await?.id;
        self.tasks.claim(id, &self.worker("w"), LEASE).await
    }

    pub(crate) async fn status(&self, id: TaskId) -> Result<Status> {
        Ok(self.stored(id).await?.status)
    }

    /// The task as it is stored, whatever is wrong with the client's store.
    pub(crate) async fn stored(&self, id: TaskId) -> Result<Task> {
        let task = self.bare.task(id).await?;
        task.ok_or_else(|| plimsoll_core::error::NotFound::Task(id).into())
    }

    /// Lets time pass, 10 ms at a time, until the future is done.
    pub(crate) async fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        for _ in 0..100_000 {
            if let Poll::Ready(answer) = futures::poll!(&mut future) {
                return answer;
            }
            self.settle().await;
            self.clock.advance(Duration::from_millis(10));
        }
        panic!("nothing happens any more");
    }

    /// Lets everything run until the future is done, without time passing.
    pub(crate) async fn soon<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        for _ in 0..1_000 {
            if let Poll::Ready(answer) = futures::poll!(&mut future) {
                return answer;
            }
            self.settle().await;
        }
        panic!("nothing happens any more");
    }

    /// Lets everything run that can run without time passing.
    pub(crate) async fn settle(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Everything that is stored, as text: tasks, history and logs.
    pub(crate) async fn everything(&self) -> Result<String> {
        let history = self.bare.changes(Changes {
            start: Start::Oldest,
            interests: Vec::new(),
            limit: 1_000,
        });
        let entries = history.await?.entries;
        let ids: BTreeSet<TaskId> = (entries.iter().flat_map(|entry| &entry.changes))
            .filter_map(|change| match change {
                Change::Task(task) => Some(task.id),
                _ => None,
            })
            .collect();
        let mut text = format!("{entries:#?}");
        for id in ids {
            let logs = self.bare.logs(Logs {
                task: id,
                level: Level::Debug,
                cursor: None,
                limit: 1_000,
            });
            let lines = logs.await?.lines;
            text += &format!("{:#?}\n{lines:#?}", self.bare.task(id).await?);
        }
        Ok(text)
    }
}

pub(crate) fn lane() -> Lane {
    Lane::new("q", "k").unwrap()
}

pub(crate) fn code<T: fmt::Debug>(answer: Result<T>) -> &'static str {
    answer.unwrap_err().code()
}

/// A seed to print: from the environment to run a failure again, or a new one.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("PLIMSOLL_SEED").ok();
    let seed = given.map_or_else(
        || Ids::random(Arc::new(ManualClock::new())).below(u64::MAX),
        |seed| seed.parse().unwrap(),
    );
    println!("PLIMSOLL_SEED={seed}");
    seed
}

type Hook = Arc<dyn Fn(Method) -> BoxFuture<'static, ()> + Send + Sync>;

/// Counts calls, and does something before or after them.
#[derive(Clone, Default)]
pub(crate) struct Spy {
    calls: Arc<Mutex<BTreeMap<Method, u64>>>,
    before: Arc<Mutex<Option<Hook>>>,
    after: Arc<Mutex<Option<Hook>>>,
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

    pub(crate) fn all_calls(&self) -> u64 {
        self.calls.lock().unwrap().values().sum()
    }

    pub(crate) fn before(
        &self,
        hook: impl Fn(Method) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        *self.before.lock().unwrap() = Some(Arc::new(hook));
    }

    pub(crate) fn after(
        &self,
        hook: impl Fn(Method) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) {
        *self.after.lock().unwrap() = Some(Arc::new(hook));
    }
}

async fn run(hook: &Mutex<Option<Hook>>, method: Method) {
    let hook = hook.lock().unwrap().clone();
    if let Some(hook) = hook {
        hook(method).await;
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
        run(&self.before, method).await;
        let answer = call().await;
        run(&self.after, method).await;
        answer
    }

    fn committed(&self, _: &[Result<Receipt, Error>]) {}
}
