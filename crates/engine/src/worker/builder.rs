//! Puts a worker together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::error::Problem;
use plimsoll_core::limits::{DURATION_MAX, LEASE_MAX, NAME_BYTES_MAX};
use plimsoll_core::store::FailRetry;
use plimsoll_core::task::{Lane, Task, WorkerId};
use plimsoll_core::{Invalid, Name};
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service};

use super::driver::Parts;
use super::handler::{Served, Settled};
use super::settings::Settings;
use super::stats::Stats;
use super::{Answer, Context, Failure, Handler, HandlerService, States, Worker};
use crate::registry::Profile;
use crate::{Engine, Sweeper};

/// The shortest lease a worker can renew in time.
const LEASE_MIN: Duration = Duration::from_millis(100);

/// The longest time between two heartbeats, and until a worker counts as offline: long before its
/// record is gone.
const HEARTBEAT_MAX: Duration = Duration::from_secs(60 * 60);
const STALE_MAX: Duration = Duration::from_secs(12 * 60 * 60);

type Delay = dyn Fn(&Task, &Failure) -> Option<Duration> + Send + Sync;

/// A function that says when a failed task is tried again, instead of its policy.
#[derive(Clone)]
pub(super) struct Backoff(Arc<Delay>);

impl Backoff {
    /// How long to wait instead of what the policy says.
    pub(super) fn delay(&self, task: &Task, failure: &Failure) -> Option<Duration> {
        match failure.retry {
            FailRetry::Policy => (self.0)(task, failure),
            FailRetry::After(_) | FailRetry::Fatal => None,
        }
    }
}

type Check = fn(&States) -> Result<(), Invalid>;
type Wrap = Box<dyn Fn(HandlerService) -> HandlerService + Send>;

/// Puts a worker together: see [`Worker`].
pub struct WorkerBuilder {
    engine: Engine,
    name: String,
    queues: Vec<String>,
    handlers: Vec<(String, HandlerService, Check)>,
    rest: Option<(HandlerService, Check)>,
    limits: Vec<(String, usize)>,
    backoffs: Vec<(String, Backoff)>,
    states: States,
    layers: Vec<Wrap>,
    settings: Settings,
    sweeper: Option<Sweeper>,
    version: String,
    registers: bool,
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<&str> = self
            .handlers
            .iter()
            .map(|(kind, ..)| kind.as_str())
            .collect();
        f.debug_struct("WorkerBuilder")
            .field("name", &self.name)
            .field("queues", &self.queues)
            .field("kinds", &kinds)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl WorkerBuilder {
    pub(super) fn new(engine: Engine, name: impl Into<String>) -> Self {
        let sweeper = Some(Sweeper::new(engine.clone()));
        Self {
            engine,
            name: name.into(),
            queues: Vec::new(),
            handlers: Vec::new(),
            rest: None,
            limits: Vec::new(),
            backoffs: Vec::new(),
            states: States::default(),
            layers: Vec::new(),
            settings: Settings::default(),
            sweeper,
            version: concat!("plimsoll ", env!("CARGO_PKG_VERSION")).into(),
            registers: true,
        }
    }

    /// Works on this queue. May be called for several.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queues.push(queue.into());
        self
    }

    /// Works on tasks of this kind with this handler.
    pub fn handle<H: Handler<A>, A: 'static>(
        mut self,
        kind: impl Into<String>,
        handler: H,
    ) -> Self {
        let service = BoxCloneSyncService::new(Served::new(handler));
        self.handlers.push((kind.into(), service, H::check));
        self
    }

    /// Works with this handler on tasks of all kinds that have none of their own. The worker counts
    /// the tasks of its queues now and then to learn which kinds there are.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace, StoreExt, task::{Lane, NewTask}};
    /// # use plimsoll_engine::Engine;
    /// use plimsoll_engine::worker::Worker;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
    /// for kind in ["resize", "rotate"] {
    ///     let task = NewTask::new(engine.ids().task(), Lane::new("images", kind)?, "");
    ///     engine.store().submit(task).await?;
    /// }
    /// let worker = Worker::builder(engine, "w1").queue("images").handle_rest(async || {}).build()?;
    /// assert_eq!(worker.run_until_empty().await?.completed, 2);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn handle_rest<H: Handler<A>, A: 'static>(mut self, handler: H) -> Self {
        let service = BoxCloneSyncService::new(Served::new(handler));
        self.rest = Some((service, H::check));
        self
    }

    /// Shares something with all handlers, which ask for it as `State<T>`.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(state);
        self
    }

    /// Runs this many handlers at the same time.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// Runs at most this many handlers of this kind at the same time, and claims none ahead.
    pub fn concurrency_of(mut self, kind: impl Into<String>, concurrency: usize) -> Self {
        self.limits.push((kind.into(), concurrency));
        self
    }

    /// Decides when a failed task of this kind is tried again; `None`: as the task's policy says.
    /// How often is still the policy's. `task.failures` does not count this failure yet.
    pub fn backoff(
        mut self,
        kind: impl Into<String>,
        delay: impl Fn(&Task, &Failure) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.backoffs.push((kind.into(), Backoff(Arc::new(delay))));
        self
    }

    /// Wraps every handler in a layer. The first layer is the outermost. What a layer answers as
    /// an error is a failure of the task.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace, StoreExt, task::{Lane, NewTask, Status}};
    /// # use plimsoll_engine::Engine;
    /// use plimsoll_engine::worker::{Answer, Context, HandlerService, Worker};
    /// use tower::layer::layer_fn;
    /// use tower::service_fn;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
    /// # let task = NewTask::new(engine.ids().task(), Lane::new("q", "k")?, "");
    /// # let id = engine.store().submit(task).await?.id;
    /// let closed = layer_fn(|_: HandlerService| {
    ///     service_fn(async |_: Context| Err::<Answer, _>("closed on Sundays"))
    /// });
    /// let worker = Worker::builder(engine.clone(), "w1").queue("q");
    /// let worker = worker.layer(closed).handle("k", async || {}).build()?;
    /// assert_eq!(worker.run_until_empty().await?.retried, 1);
    /// let task = engine.store().task(id).await?.unwrap();
    /// assert_eq!(task.errors[0].message, "closed on Sundays");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<HandlerService> + Send + 'static,
        L::Service: Service<Context, Response = Answer> + Clone + Send + Sync + 'static,
        <L::Service as Service<Context>>::Error: fmt::Display,
        <L::Service as Service<Context>>::Future: Send + 'static,
    {
        let wrap = move |service| BoxCloneSyncService::new(Settled::new(layer.layer(service)));
        self.layers.push(Box::new(wrap));
        self
    }

    /// Changes how the worker works.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Whether the worker also decides what is due and what ran out, which is the default. If none
    /// of the workers does, something else must.
    pub fn sweeps(mut self, sweeps: bool) -> Self {
        self.sweeper = sweeps.then(|| Sweeper::new(self.engine.clone()));
        self
    }

    /// Changes how the worker sweeps, if it does: how often, and how long things are kept.
    pub fn sweeper(mut self, change: impl FnOnce(Sweeper) -> Sweeper) -> Self {
        self.sweeper = self.sweeper.map(change);
        self
    }

    /// Says in the registry which program this is, and which version of it.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Whether the worker is in the [registry](crate::registry) while it runs, which is the default.
    pub fn registers(mut self, registers: bool) -> Self {
        self.registers = registers;
        self
    }

    /// Checks everything and makes the worker.
    pub fn build(self) -> Result<Worker, Invalid> {
        self.check_settings()?;
        let queues = (self.queues.iter())
            .map(|queue| Name::for_field("queue", queue))
            .collect::<Result<Vec<_>, _>>()?;
        let mut seen = BTreeSet::new();
        if let Some(twice) = queues.iter().find(|queue| !seen.insert(*queue)) {
            return Err(Invalid::new("queue", Problem::Repeated(twice.to_string())));
        }
        if queues.is_empty() {
            let missing = "name a queue to work on".into();
            return Err(Invalid::new("queue", Problem::Missing(missing)));
        }
        let mut services = BTreeMap::new();
        for (kind, service, check) in self.handlers {
            check(&self.states)
                .map_err(|invalid| invalid.within(format_args!("handler {kind}")))?;
            let wrapped = (self.layers.iter().rev()).fold(service, |inner, wrap| wrap(inner));
            let kind = Name::for_field("kind", &kind)?;
            if services.insert(kind.clone(), wrapped).is_some() {
                return Err(Invalid::new("kind", Problem::Repeated(kind.to_string())));
            }
        }
        let rest = match self.rest {
            Some((service, check)) => {
                check(&self.states).map_err(|invalid| invalid.within("handler of the rest"))?;
                let wrapped = (self.layers.iter().rev()).fold(service, |inner, wrap| wrap(inner));
                Some((wrapped, queues.clone()))
            }
            None => None,
        };
        if services.is_empty() && rest.is_none() {
            let missing = "give a handler for at least one kind".into();
            return Err(Invalid::new("handler", Problem::Missing(missing)));
        }
        let known = |field: &str, kind: &str| -> Result<Name, Invalid> {
            let name = Name::for_field(field, kind)?;
            if !services.contains_key(&name) && rest.is_none() {
                let missing = format!("no handler for {kind}");
                return Err(Invalid::new(field, Problem::Missing(missing.into())));
            }
            Ok(name)
        };
        let mut limits = BTreeMap::new();
        for (kind, limit) in &self.limits {
            at_least_one("concurrency_of", *limit)?;
            limits.insert(known("concurrency_of", kind)?, *limit);
        }
        let mut backoffs = BTreeMap::new();
        for (kind, backoff) in &self.backoffs {
            backoffs.insert(known("backoff", kind)?, backoff.clone());
        }
        let lane = |queue: &Name, kind: &Name| Lane {
            queue: queue.clone(),
            kind: kind.clone(),
        };
        let lanes = (queues.iter())
            .flat_map(|queue| services.keys().map(move |kind| lane(queue, kind)))
            .collect::<Vec<_>>();
        let settings = &self.settings;
        let (most, stale_after) = (settings.concurrency, settings.stale_after);
        let profile = (self.registers)
            .then(|| Profile::of_this_process(self.version, &lanes, most, stale_after));
        let id = WorkerId {
            name: Name::for_field("worker", &self.name)?,
            incarnation: self.engine.ids().incarnation(),
        };
        Ok(Worker::new(
            Parts {
                engine: self.engine,
                id,
                settings: self.settings,
                lanes,
                services,
                rest,
                limits,
                backoffs,
                states: Arc::new(self.states),
                stats: Stats::default(),
            },
            self.sweeper,
            profile,
        ))
    }

    fn check_settings(&self) -> Result<(), Invalid> {
        let settings = &self.settings;
        at_least_one("concurrency", settings.concurrency)?;
        between("lease", settings.lease, LEASE_MIN, LEASE_MAX)?;
        let least = Duration::from_millis(1);
        between("poll", settings.poll, least, DURATION_MAX)?;
        for (field, duration) in [
            ("cancel_grace", settings.cancel_grace),
            ("drain_soft", settings.drain_soft),
            ("drain_hard", settings.drain_hard),
        ] {
            between(field, duration, Duration::ZERO, DURATION_MAX)?;
        }
        between("heartbeat", settings.heartbeat, least, HEARTBEAT_MAX)?;
        between(
            "stale_after",
            settings.stale_after,
            settings.heartbeat,
            STALE_MAX,
        )?;
        let (bytes, max) = (self.version.len(), NAME_BYTES_MAX);
        if bytes > max {
            return Err(Invalid::new("version", Problem::TooLong { bytes, max }));
        }
        Ok(())
    }
}

fn at_least_one(field: &str, number: usize) -> Result<(), Invalid> {
    if number == 0 {
        return Err(Invalid::new(
            field,
            Problem::OutOfRange {
                value: "0".into(),
                min: "1".into(),
                max: usize::MAX.to_string(),
            },
        ));
    }
    Ok(())
}

fn between(field: &str, value: Duration, min: Duration, max: Duration) -> Result<(), Invalid> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let show = |duration: Duration| format!("{duration:?}");
    Err(Invalid::new(
        field,
        Problem::OutOfRange {
            value: show(value),
            min: show(min),
            max: show(max),
        },
    ))
}
