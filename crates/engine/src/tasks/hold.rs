//! What the holder of a task can do to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::decide::task::held;
use plimsoll_core::store::{
    Commit, Ending, FailRetry, Outcome, Receipt, Renew, Renewal, Settle, Write,
};
use plimsoll_core::task::{Holder, Status};
use plimsoll_core::{Name, Result, Timestamp};
use serde::Serialize;

use crate::Engine;
use crate::answer::{first, unanswered};
use crate::tasks::Tasks;
use crate::tasks::json::encode;
use crate::worker::Lease;

/// Names of attributes that Plimsoll and its documents know. Any other name may be used as well.
pub mod attribute {
    /// What the worker intends to do.
    pub const PLAN: &str = "plan";
    /// The files that the task has made.
    pub const OUTPUT_FILES: &str = "output_files";
    /// Where parameters are that are too large for a payload.
    pub const PARAMS_REF: &str = "params_ref";
    /// Where a result is that is too large to be kept with the task.
    pub const RESULT_REF: &str = "result_ref";
}

/// A worker's hold on a task: everything that needs its fence.
///
/// Once the lease is lost, each of these answers
/// [`LeaseLost`](plimsoll_core::Error::LeaseLost) with the reason and changes
/// nothing: `not_claimed`, `wrong_worker`, `superseded`, `task_completed`, `task_failed`,
/// `task_cancelled`, or `task_not_found` if the task was deleted. The same verb with the same fence
/// again, as after a lost answer, answers what the first one did.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use plimsoll_core::{Memory, Namespace, record::fields, task::{Progress, Status}};
/// # use plimsoll_engine::{Engine, Tasks, tasks::attribute};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
/// # let tasks = Tasks::new(Engine::new(store));
/// let id = tasks.submit(tasks.task("media", "transcode", "clip-7")?).await?.id;
/// let held = tasks.claim(id, &tasks.worker("w1")?, Duration::from_secs(30)).await?;
/// held.set_attributes(fields([(attribute::PLAN, "two passes")])?).await?;
/// held.progress(Progress { percent: Some(50), ..Progress::default() }).await?;
/// held.checkpoint("pass 1 done").await?;
/// held.fail("disk full").await?;
/// let task = tasks.get(id).await?;
/// assert_eq!(task.status, Status::Scheduled);
/// assert_eq!(task.checkpoint.as_deref(), Some(&b"pass 1 done"[..]));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Hold {
    pub(super) tasks: Tasks,
    pub(super) holder: Holder,
    /// How long to wait for a store that is away; `None`: as the client of tasks does.
    lease: Option<Lease>,
    /// The stage that the task is in, as far as this hold and its clones know.
    stage: Arc<Mutex<Option<Option<Name>>>>,
}

/// What became of a task when its holder settled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// What it is now.
    pub status: Status,
    /// When it becomes runnable again, if it does.
    pub runnable_at: Option<Timestamp>,
}

/// A lease that was renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// When it ends.
    pub until: Timestamp,
    /// Whether somebody asked to stop. Confirm with [`Hold::cancel`].
    pub asked_to_stop: bool,
    /// Why, if that was said.
    pub reason: Option<String>,
}

impl Hold {
    pub(super) fn new(tasks: Tasks, holder: Holder) -> Self {
        Self {
            tasks,
            holder,
            lease: None,
            stage: Arc::default(),
        }
    }

    /// A hold that waits for a store that is away as long as the lease can be relied upon.
    pub(crate) fn leased(tasks: Tasks, holder: Holder, lease: Lease) -> Self {
        Self {
            lease: Some(lease),
            ..Self::new(tasks, holder)
        }
    }

    /// The task is in this stage now.
    pub(crate) fn enter(&self, stage: Option<Name>) {
        *self.known_stage() = Some(stage);
    }

    /// The stage that the task is in. Asks the store if nobody has said it here; `None` also if that does
    /// not answer.
    pub(super) async fn stage_now(&self) -> Option<Name> {
        let known = self.known_stage().clone();
        if let Some(stage) = known {
            return stage;
        }
        let found = self.tasks.find(self.holder.task).await.ok().flatten();
        let stage = found.map(|task| task.state.stage)?;
        self.known_stage().get_or_insert(stage).clone()
    }

    fn known_stage(&self) -> MutexGuard<'_, Option<Option<Name>>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.tasks.engine
    }

    /// Task, worker and fence: all that is needed to go on elsewhere with [`Tasks::hold`].
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Whether the task is still held with this fence. The answer may be old by the time it arrives;
    /// what must not happen twice should show the fence to whoever does it.
    pub async fn still_mine(&self) -> Result<bool> {
        let task = self.tasks.find(self.holder.task).await?;
        Ok(task.is_some_and(|task| held(&task, &self.holder).is_ok()))
    }

    /// Prolongs the lease to this long from now, and tells whether somebody asked to stop.
    pub async fn renew(&self, lease: Duration) -> Result<Renewed> {
        let store = self.tasks.store();
        let renew = Renew {
            holders: vec![self.holder.clone()],
            lease,
        };
        let renewals = self.tasks.patiently(|| store.renew(renew.clone())).await?;
        match renewals.into_iter().next().ok_or_else(unanswered)? {
            Renewal::Held { until } => Ok(Renewed {
                until,
                asked_to_stop: false,
                reason: None,
            }),
            Renewal::CancelRequested { until, reason } => Ok(Renewed {
                until,
                asked_to_stop: true,
                reason,
            }),
            Renewal::Lost(lost) => Err(lost.into()),
        }
    }
}

/// Settling.
impl Hold {
    /// Completes the task with this result. A success wins over a request to stop.
    pub async fn complete(&self, result: impl Into<Bytes>) -> Result<Settlement> {
        let result = Some(result.into());
        self.settle(Ending::Complete { result }).await
    }

    /// Completes the task with a value that is kept as JSON: see [`result`](crate::tasks::result()). What could not be read back is
    /// `Invalid`, as in [`Tasks::json`](crate::Tasks::json).
    pub async fn complete_json(&self, result: &(impl Serialize + ?Sized)) -> Result<Settlement> {
        self.complete(encode("result", result)?).await
    }

    /// Completes the task, with a result or without one, and does all of this in the same commit:
    /// submits the tasks that follow, writes records. Either all of it happens or nothing.
    /// Answers what came of each write.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Key, Memory, Namespace, record::fields, store::{Put, Write}};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let id = tasks.submit(tasks.task("orders", "charge", "order-7")?).await?.id;
    /// let held = tasks.claim(id, &tasks.worker("w1")?, Duration::from_secs(30)).await?;
    /// let receipt = Put::new(Key::new("receipts.order-7")?, fields([("paid", "yes")])?);
    /// let ship = tasks.task("orders", "ship", "order-7")?;
    /// let writes = vec![Write::Put(receipt), Write::Submit(Box::new(ship.clone()))];
    /// held.complete_with(None, writes).await?;
    /// assert!(tasks.find(ship.id).await?.is_some());
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn complete_with(
        &self,
        result: Option<Bytes>,
        writes: Vec<Write>,
    ) -> Result<(Settlement, Vec<Outcome>)> {
        let settle = self.settling(Ending::Complete { result });
        let mut commit = Commit::of(settle);
        if !writes.is_empty() {
            // The fence tells a repeated settle, the id tells the rest.
            commit = commit.id(self.tasks.engine.ids().commit());
        }
        commit.writes.extend(writes);
        self.tasks.engine.admit(&mut commit.writes)?;
        let receipt = self.commit(commit).await?;
        let mut outcomes = receipt.outcomes.into_iter();
        let settlement = settlement(outcomes.next().ok_or_else(unanswered)?)?;
        Ok((settlement, outcomes.collect()))
    }

    /// Fails the attempt. The task runs again when its policy says so, or has failed for good.
    pub async fn fail(&self, error: impl Into<String>) -> Result<Settlement> {
        self.fail_as(error.into(), FailRetry::Policy).await
    }

    /// Fails the task for good: trying again is of no use.
    pub async fn fail_fatal(&self, error: impl Into<String>) -> Result<Settlement> {
        self.fail_as(error.into(), FailRetry::Fatal).await
    }

    /// Fails the attempt. The task runs again after this long, if its policy allows one more.
    pub async fn retry_after(
        &self,
        delay: Duration,
        error: impl Into<String>,
    ) -> Result<Settlement> {
        self.fail_as(error.into(), FailRetry::After(delay)).await
    }

    /// Puts the task off for this long; that counts as no failure.
    pub async fn snooze(&self, delay: Duration) -> Result<Settlement> {
        self.settle(Ending::Snooze { delay }).await
    }

    /// Gives the task back: it is runnable at once, in its old place, and nothing is counted. A
    /// reason is kept with its errors.
    pub async fn release(&self, reason: Option<String>) -> Result<Settlement> {
        self.settle(Ending::Release { reason }).await
    }

    /// Ends the task as cancelled: confirms a request to stop, or calls it off.
    pub async fn cancel(&self, reason: Option<String>) -> Result<Settlement> {
        self.settle(Ending::Cancel { reason }).await
    }

    async fn fail_as(&self, error: String, retry: FailRetry) -> Result<Settlement> {
        let jitter = self.tasks.engine.ids().jitter();
        self.settle(Ending::Fail {
            error,
            retry,
            jitter,
        })
        .await
    }

    async fn settle(&self, how: Ending) -> Result<Settlement> {
        settlement(first(self.commit(Commit::of(self.settling(how))).await?)?)
    }

    pub(super) async fn commit(&self, commit: Commit) -> Result<Receipt> {
        match &self.lease {
            None => self.tasks.commit(commit).await,
            Some(lease) => lease.insist(&self.tasks.engine, commit).await,
        }
    }

    fn settling(&self, how: Ending) -> Write {
        let holder = self.holder.clone();
        Write::Settle(Settle { holder, how })
    }
}

fn settlement(outcome: Outcome) -> Result<Settlement> {
    match outcome {
        Outcome::Settled {
            status,
            runnable_at,
        } => Ok(Settlement {
            status,
            runnable_at,
        }),
        _ => Err(unanswered()),
    }
}
