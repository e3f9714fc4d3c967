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

use super::{States, patience};
use crate::Engine;

/// How long a handler's write waits at most before it is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signal {
    /// Why it should stop.
    pub(super) cause: Option<Cause>,
    /// Its time is over: it is dropped where it stands.
    pub(super) cut: bool,
}

/// The task at hand, and what its holder may do with it.
///
/// A handler that takes long should ask [`cancelled`](Self::cancelled) between its steps, or race
/// [`cancellation`](Self::cancellation); one that does not is dropped at an `await` when its time is
/// over. What it writes waits for a store that is away, as long as the lease can be relied upon.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace, StoreExt, task::{Lane, NewTask, Status}};
/// # use plimsoll_engine::Engine;
/// use plimsoll_core::task::Progress;
/// use plimsoll_engine::worker::{Answer, Completion, Context, Failure, Worker};
///
/// async fn copy(context: Context) -> Result<Answer, Failure> {
///     let done: u8 = match context.last_checkpoint() {
///         Some(checkpoint) => std::str::from_utf8(checkpoint)?.parse()?,
///         None => 0,
///     };
///     for page in done..4 {
///         if context.cancelled().is_some() {
///             return Ok(Answer::Release);
///         }
///         context.checkpoint((page + 1).to_string()).await?;
///         let percent = Some((page + 1) * 25);
///         context.progress(Progress { percent, ..Progress::default() }).await?;
///     }
///     Ok(Answer::Complete(Completion::bytes("4 pages")))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
/// # let task = NewTask::new(engine.ids().task(), Lane::new("q", "k")?, "");
/// # let id = engine.store().submit(task).await?.id;
/// let worker = Worker::builder(engine.clone(), "w1").queue("q").handle("k", copy).build()?;
/// worker.run_until_empty().await?;
/// let task = engine.store().task(id).await?.unwrap();
/// assert_eq!(task.status, Status::Completed);
/// assert_eq!(task.checkpoint.as_deref(), Some(&b"4"[..]));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
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

/// Until when a lease may be relied upon, by the worker's own clock: a margin before it ends.
#[derive(Debug, Default)]
pub(super) struct Trust(AtomicU64);

impl Trust {
    pub(super) fn set(&self, until: Duration) {
        self.0.store(micros(until), Ordering::Release);
    }

    fn until(&self) -> Duration {
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
        self.mine_for(Duration::ZERO)
    }

    fn mine_for(&self, duration: Duration) -> bool {
        let then = self.inner.engine.clock().monotonic() + duration;
        then < self.inner.trust.until() && !self.inner.signal.borrow().cut
    }

    /// Why to stop, if there is a reason.
    pub fn cancelled(&self) -> Option<Cause> {
        self.inner.signal.borrow().cause.clone()
    }

    /// Waits until there is a reason to stop.
    pub async fn cancellation(&self) -> Cause {
        let mut signal = self.inner.signal.clone();
        let stopped = signal.wait_for(|signal| signal.cause.is_some()).await;
        let cause = stopped.ok().and_then(|signal| signal.cause.clone());
        // Otherwise the attempt has ended, or the worker is gone.
        cause.unwrap_or(Cause::LeaseLost)
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

    /// Tries again while the store is away and the lease can be relied upon. Setting the same thing
    /// again is harmless, and a line of a log has an id, so that nothing happens twice.
    async fn write(&self, write: Write) -> Result<()> {
        let engine = &self.inner.engine;
        let mut errors = 0;
        loop {
            let error = match engine.store().write(write.clone()).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let pause = patience::pause(errors, PAUSE_MAX, engine.ids());
            if !patience::is_passing(&error) || !self.mine_for(pause) {
                return Err(error);
            }
            errors += 1;
            engine.clock().sleep(pause).await;
        }
    }
}
