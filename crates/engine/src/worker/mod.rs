//! Workers: handlers by kind, run for as long as there are tasks.
//!
//! A handler is an async function. Its arguments say what it needs ([`FromTask`]): the payload as
//! [`Json`] or `Bytes`, what all handlers share as [`State`], the task at hand as [`Context`]. What
//! it answers says what becomes of the task ([`IntoAnswer`]).
//!
//! A worker holds no more than it can start soon, settles and claims in one round trip, renews its
//! leases in the background, and asks handlers to stop before a lease could end. Middleware is
//! [tower layers](WorkerBuilder::layer).

mod answer;
mod attempt;
mod builder;
mod claims;
mod context;
mod desk;
mod discover;
mod drain;
mod driver;
mod exchange;
mod extract;
mod handler;
mod lease;
mod patience;
mod phase;
mod renewal;
mod running;
mod settings;
mod settle;
mod stats;
mod traced;

use std::time::Duration;

use plimsoll_core::task::WorkerId;
use plimsoll_core::{Error, Result};
use tokio::sync::{oneshot, watch};

pub use answer::{Answer, Completion, Failure, IntoAnswer};
pub use builder::WorkerBuilder;
pub use context::{Cause, Context};
pub use extract::{FromTask, Json, State, States};
pub use handler::{Handler, HandlerService};
pub use settings::Settings;
pub use stats::{Stats, Summary};

use driver::{Driver, Parts};
pub(crate) use lease::Lease;

use crate::registry::{Presence, Profile};
use crate::{Engine, Sweeper};

/// How long a worker that ends waits for the store to hear that others may sweep.
const HAND_OVER: Duration = Duration::from_secs(1);

/// Runs handlers for the tasks of some queues.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace, StoreExt, task::{Lane, NewTask, Status}};
/// use plimsoll_engine::worker::{Failure, Json, Worker};
/// use plimsoll_engine::Engine;
///
/// async fn double(Json(number): Json<u32>) -> Result<Json<u32>, Failure> {
///     Ok(Json(number.checked_mul(2).ok_or("too large")?))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
/// let task = NewTask::new(engine.ids().task(), Lane::new("numbers", "double")?, "21");
/// let id = engine.store().submit(task).await?.id;
///
/// let worker = Worker::builder(engine.clone(), "w1")
///     .queue("numbers")
///     .handle("double", double)
///     .build()?;
/// let summary = worker.run_until_empty().await?;
/// assert_eq!(summary.completed, 1);
/// let task = engine.store().task(id).await?.unwrap();
/// assert_eq!((task.status, task.result.as_deref()), (Status::Completed, Some(&b"42"[..])));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
pub struct Worker {
    parts: Parts,
    sweeper: Option<Sweeper>,
    /// What it says of itself, if it is to be registered.
    profile: Option<Profile>,
    stop: watch::Sender<Stop>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.parts.id)
            .field("lanes", &self.parts.lanes)
            .field("settings", &self.parts.settings)
            .finish_non_exhaustive()
    }
}

/// Whether a worker goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    Go,
    Drain,
    Now,
}

/// Ends a worker from outside.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace, StoreExt, task::{Lane, NewTask, Status}};
/// # use plimsoll_engine::Engine;
/// # use plimsoll_engine::worker::Worker;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
/// # let task = NewTask::new(engine.ids().task(), Lane::new("q", "k")?, "");
/// # let id = engine.store().submit(task).await?.id;
/// let worker = Worker::builder(engine, "w1").queue("q").handle("k", async || {}).build()?;
/// let stopper = worker.stopper();
/// stopper.drain();
/// let summary = worker.run().await?;
/// assert_eq!((summary.started, summary.interrupted), (0, 0));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<Stop>);

impl Stopper {
    /// Claims nothing more, gives back what has not been started, lets handlers end; asks them to
    /// stop at the soft deadline and drops them at the hard one.
    pub fn drain(&self) {
        self.raise(Stop::Drain);
    }

    /// Drops all handlers and gives their tasks back.
    pub fn now(&self) {
        self.raise(Stop::Now);
    }

    fn raise(&self, to: Stop) {
        self.0.send_if_modified(|stop| {
            let further = to > *stop;
            *stop = to.max(*stop);
            further
        });
    }
}

impl Worker {
    /// A worker of this name. Every start of it is another life, which inherits nothing.
    pub fn builder(engine: Engine, name: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder::new(engine, name)
    }

    fn new(parts: Parts, sweeper: Option<Sweeper>, profile: Option<Profile>) -> Self {
        let (stop, _) = watch::channel(Stop::Go);
        Self {
            parts,
            sweeper,
            profile,
            stop,
        }
    }

    /// Its name and this life of it.
    pub fn id(&self) -> &WorkerId {
        &self.parts.id
    }

    /// Ends it from outside.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// What it does, for others to look at while it runs.
    pub fn stats(&self) -> Stats {
        self.parts.stats.clone()
    }

    /// Works until its [`Stopper`] says otherwise.
    pub async fn run(self) -> Result<Summary> {
        let presence = self.presence();
        let sweeper = self.sweeper;
        let stopped = self.stop.subscribe();
        // On the heap: both are large, and whoever runs several workers may have a small stack.
        let clock = self.parts.engine.clock().clone();
        let (goes_on, over) = oneshot::channel::<()>();
        let over = async { over.await.unwrap_or(()) };
        let work = Box::pin(Driver::new(self.parts, false).run(stopped));
        let work = async {
            let Some(sweeper) = sweeper else {
                return work.await;
            };
            let mut sweep = Box::pin(sweeper.run_until(over));
            let summary = tokio::select! {
                biased;
                summary = work => summary,
                () = &mut sweep => return Err(Error::Closed),
            };
            drop(goes_on);
            // If it leads, others may lead at once, and need not wait until its term is over.
            tokio::select! {
                biased;
                () = sweep => {}
                () = clock.sleep(HAND_OVER) => {}
            }
            summary
        };
        registered(presence, work).await
    }

    fn presence(&self) -> Option<Presence> {
        let parts = &self.parts;
        Some(Presence::new(
            parts.engine.clone(),
            parts.id.clone(),
            self.profile.clone()?,
            parts.stats.clone(),
            parts.settings.heartbeat,
            self.stop.subscribe(),
        ))
    }

    /// Works until SIGTERM or an interrupt, then drains. A second signal drops all handlers and gives
    /// their tasks back; a third one does not even wait for that.
    pub async fn run_until_signal(self) -> Result<Summary> {
        let (stopper, stats) = (self.stopper(), self.stats());
        let mut signals = crate::signals::Signals::listen()?;
        let work = self.run();
        tokio::pin!(work);
        let mut heard = 0;
        loop {
            tokio::select! {
                biased;
                summary = &mut work => return summary,
                () = signals.next() => {
                    heard += 1;
                    match heard {
                        1 => stopper.drain(),
                        2 => stopper.now(),
                        // Somebody is in a hurry: leases end what is left.
                        _ => return Ok(stats.cut_off()),
                    }
                }
            }
        }
    }

    /// Works until there is nothing to be had. Tasks that are due later are left.
    pub async fn run_until_empty(self) -> Result<Summary> {
        let presence = self.presence();
        let stopped = self.stop.subscribe();
        let work = async {
            if let Some(sweeper) = &self.sweeper {
                sweeper.catch_up().await?;
            }
            Driver::new(self.parts, true).run(stopped).await
        };
        registered(presence, work).await
    }
}

/// Works, and is in the registry meanwhile.
async fn registered<T>(presence: Option<Presence>, work: impl Future<Output = T>) -> T {
    let Some(mut presence) = presence else {
        return work.await;
    };
    let done = tokio::select! {
        biased;
        done = work => done,
        never = presence.keep() => match never {},
    };
    presence.leave().await;
    done
}
