//! What a handler knows of its task, and what it may do with it while it holds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::record::Fields;
use plimsoll_core::store::{Amend, Log, Write};
use plimsoll_core::task::{Holder, Progress, Task};
use plimsoll_core::{Fence, Name, Result, StoreExt};
use tokio::sync::watch;

use super::States;
use crate::Engine;

/// Why a handler should stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Somebody cancelled the task.
    Cancelled {
        /// Why.
        reason: Option<String>,
    },
    /// The lease is lost, or could not be renewed in time: another worker may begin with the task.
    LeaseLost,
    /// The attempt takes longer than it may.
    Deadline,
    /// The worker is about to end.
    Draining,
}

/// What a worker tells a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Go,
    Stop(Cause),
    /// The handler's time is over: it is dropped where it stands.
    Cut,
}

/// The task at hand, and what its holder may do with it.
#[derive(Clone, Debug)]
pub struct Context {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Engine,
    task: Task,
    holder: Holder,
    trust: Arc<Trust>,
    states: Arc<States>,
    signal: watch::Receiver<Signal>,
}

/// Until when a lease may be relied upon, by the worker's own clock.
#[derive(Debug)]
pub(super) struct Trust(AtomicU64);

impl Trust {
    pub(super) fn new(until: Duration) -> Self {
        Self(AtomicU64::new(micros(until)))
    }

    pub(super) fn extend(&self, until: Duration) {
        self.0.store(micros(until), Ordering::Release);
    }

    pub(super) fn until(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Acquire))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Context {
    pub(super) fn new(
        engine: Engine,
        task: Task,
        holder: Holder,
        trust: Arc<Trust>,
        states: Arc<States>,
        signal: watch::Receiver<Signal>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                engine,
                task,
                holder,
                trust,
                states,
                signal,
            }),
        }
    }

    pub(super) fn states(&self) -> &States {
        &self.inner.states
    }

    /// The task as it was claimed.
    pub fn task(&self) -> &Task {
        &self.inner.task
    }

    /// What proves that this worker holds the task.
    pub fn holder(&self) -> &Holder {
        &self.inner.holder
    }

    /// Grows with every claim of this task. Give it to other systems that you write to, and let
    /// them refuse a lower one than they have seen.
    pub fn fence(&self) -> Fence {
        self.inner.holder.fence
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.task.attempts
    }

    /// What an earlier attempt left for this one.
    pub fn last_checkpoint(&self) -> Option<&Bytes> {
        self.inner.task.checkpoint.as_ref()
    }

    /// The store this worker works on.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Whether the lease can still be relied upon, by this worker's own clock. It asks nobody, so
    /// it is cheap: ask before every step that others will see.
    pub fn still_mine(&self) -> bool {
        let lost = matches!(
            &*self.inner.signal.borrow(),
            Signal::Stop(Cause::LeaseLost) | Signal::Cut
        );
        !lost && self.inner.engine.clock().monotonic() < self.inner.trust.until()
    }

    /// Why to stop, if there is a reason.
    pub fn cancelled(&self) -> Option<Cause> {
        match &*self.inner.signal.borrow() {
            Signal::Stop(cause) => Some(cause.clone()),
            Signal::Go | Signal::Cut => None,
        }
    }

    /// Waits until there is a reason to stop.
    pub async fn cancellation(&self) -> Cause {
        let mut signal = self.inner.signal.clone();
        let stopped = signal.wait_for(|signal| *signal != Signal::Go).await;
        match stopped.as_deref() {
            Ok(Signal::Stop(cause)) => cause.clone(),
            // The worker is gone, or drops this handler now.
            Ok(Signal::Go | Signal::Cut) | Err(_) => Cause::LeaseLost,
        }
    }

    /// Says how far the task is.
    pub async fn progress(&self, progress: Progress) -> Result<()> {
        self.amend(|amend| amend.progress = Some(progress)).await
    }

    /// Keeps something for the next attempt, should this one not end well.
    pub async fn checkpoint(&self, checkpoint: impl Into<Bytes>) -> Result<()> {
        let checkpoint = checkpoint.into();
        self.amend(|amend| amend.checkpoint = Some(checkpoint))
            .await
    }

    /// Attaches attributes to the task.
    pub async fn set(&self, attributes: Fields) -> Result<()> {
        self.amend(|amend| amend.set = attributes).await
    }

    /// Moves the task to a stage.
    pub async fn stage(&self, stage: Name) -> Result<()> {
        self.amend(|amend| amend.stage = Some(stage)).await
    }

    /// Appends a line to the task's log.
    pub async fn log(&self, level: Level, message: impl Into<String>) -> Result<()> {
        let id = self.inner.engine.ids().line();
        self.log_lines(vec![NewLine::new(id, level, message)]).await
    }

    /// Appends lines to the task's log.
    pub async fn log_lines(&self, lines: Vec<NewLine>) -> Result<()> {
        let holder = self.inner.holder.clone();
        self.write(Write::Log(Log { holder, lines })).await
    }

    async fn amend(&self, change: impl FnOnce(&mut Amend)) -> Result<()> {
        let mut amend = Amend::new(self.inner.holder.clone());
        change(&mut amend);
        self.write(Write::Amend(Box::new(amend))).await
    }

    /// Setting the same thing again is harmless, so that nothing needs to be remembered of it.
    async fn write(&self, write: Write) -> Result<()> {
        self.inner.engine.store().write(write).await.map(drop)
    }
}
