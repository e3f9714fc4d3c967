//! What a handler knows of its task, and what it may do with it while it holds it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::log::Level;
use plimsoll_core::record::Fields;
use plimsoll_core::task::{Holder, Progress, Task};
use plimsoll_core::{Fence, Name, Result};

use super::States;
use super::lease::Lease;
use super::phase::Phases;
use crate::Engine;
use crate::tasks::{Hold, JobLog, NewStep};

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
    task: Task,
    /// What its holder can do is done through its log, which has the hold.
    log: JobLog,
    lease: Lease,
    states: Arc<States>,
    /// `None`: nobody listens.
    phases: Option<Arc<Phases>>,
}

impl Context {
    pub(super) fn new(
        engine: Engine,
        task: Task,
        holder: Holder,
        lease: Lease,
        states: Arc<States>,
        phases: Option<Arc<Phases>>,
    ) -> Self {
        let hold = Hold::leased(engine.tasks(), holder, lease.clone());
        hold.enter(task.stage.clone());
        let log = JobLog::new(hold);
        if log.hold().engine().misses_lifecycle(&task.spec) {
            let kind = &task.spec.lane.kind;
            log.note(
                Level::Warn,
                format!(
                    "the task was submitted without the lifecycle of {kind}: any stage is allowed"
                ),
            );
        }
        Self {
            inner: Arc::new(Inner {
                task,
                log,
                lease,
                states,
                phases,
            }),
        }
    }

    fn hold(&self) -> &Hold {
        self.inner.log.hold()
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
        self.hold().holder()
    }

    /// Grows with every claim of this task. Give it to other systems that you write to, and let
    /// them refuse a lower one than they have seen.
    pub fn fence(&self) -> Fence {
        self.holder().fence
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
        self.hold().engine()
    }

    /// Whether the lease can still be relied upon, by this worker's own monotonic clock, which on
    /// Linux goes on while the machine is suspended. It asks nobody, so it is cheap: ask before every
    /// step that others will see.
    pub fn still_mine(&self) -> bool {
        self.inner.lease.lasts(Duration::ZERO, self.engine())
    }

    /// Why to stop, if there is a reason.
    pub fn cancelled(&self) -> Option<Cause> {
        self.inner.lease.signal.borrow().cause.clone()
    }

    /// Waits until there is a reason to stop.
    pub async fn cancellation(&self) -> Cause {
        let mut signal = self.inner.lease.signal.clone();
        let stopped = signal.wait_for(|signal| signal.cause.is_some()).await;
        let cause = stopped.ok().and_then(|signal| signal.cause.clone());
        // Otherwise the attempt has ended, or the worker is gone.
        cause.unwrap_or(Cause::LeaseLost)
    }

    /// Says how far the task is. A new attempt begins without progress.
    pub async fn progress(&self, progress: Progress) -> Result<()> {
        self.hold().progress(progress).await
    }

    /// Keeps something for the next attempt, should this one not end well.
    pub async fn checkpoint(&self, checkpoint: impl Into<Bytes>) -> Result<()> {
        self.hold().checkpoint(checkpoint).await
    }

    /// Sets attributes of the task; the others stay. They stay over attempts.
    /// See [`attribute`](crate::tasks::attribute) for names that are known.
    pub async fn set_attributes(&self, set: Fields) -> Result<()> {
        self.hold().set_attributes(set).await
    }

    /// Removes attributes of the task.
    pub async fn unset_attributes(&self, unset: Vec<Name>) -> Result<()> {
        self.hold().unset_attributes(unset).await
    }

    /// Moves the task to a stage: see [`Hold::stage`]. What was logged before has the stage before.
    /// What the handler does from then on is inside a span `phase` of that name, until the next
    /// stage or the end.
    pub async fn stage(&self, stage: Name) -> Result<()> {
        self.hold().stage(stage.clone()).await?;
        if let Some(phases) = &self.inner.phases {
            phases.enter(&stage).await;
        }
        Ok(())
    }

    /// Moves the task to a stage and runs something inside the span of that stage.
    pub async fn in_stage<T>(&self, stage: Name, work: impl Future<Output = T>) -> Result<T> {
        self.hold().stage(stage.clone()).await?;
        Ok(match &self.inner.phases {
            Some(phases) => phases.during(&stage, work).await,
            None => work.await,
        })
    }

    /// Appends a line to the log of the task. It is stored soon, and at the latest with the answer
    /// of the handler: see [`JobLog`].
    pub async fn log(&self, level: Level, message: impl Into<String>) -> Result<()> {
        self.inner.log.log(level, message).await?;
        match self.still_mine() {
            true => Ok(()),
            // A handler that has lost its task should hear of it.
            false => self.inner.log.flush().await,
        }
    }

    /// The log of the task, for lines with metadata, and to be sure that they are stored.
    pub fn job_log(&self) -> &JobLog {
        &self.inner.log
    }

    /// Begins a step of the work, such as a command: see [`JobLog::step`].
    pub fn step(&self, step_id: impl AsRef<str>, kind: impl AsRef<str>) -> Result<NewStep> {
        self.inner.log.step(step_id, kind)
    }
}
