//! What operators and submitters do to tasks that they do not hold.

use std::time::Duration;

use plimsoll_core::error::NotFound;
use plimsoll_core::store::{Cancel, Commit, Outcome, Retry, Write};
use plimsoll_core::task::{Priority, Status};
use plimsoll_core::{IdempotencyKey, Result, TaskId};

use crate::answer::unanswered;
use crate::tasks::Tasks;

/// What a verb did to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changed it; this is what it is now. A cancelled task that is still `Claimed` was asked to
    /// stop, and ends when its holder confirms or its lease ends.
    Changed(Status),
    /// Nothing: it was that way already. This is what it is.
    Already(Status),
}

impl Effect {
    /// What the task is now.
    pub fn status(self) -> Status {
        match self {
            Self::Changed(status) | Self::Already(status) => status,
        }
    }
}

impl Tasks {
    /// Makes a task run again at once: one that failed or was cancelled, if its policy allows one
    /// more attempt, or one that waits. A claimed one is taken away from its holder, whose lease is
    /// revoked and counts as no failure. A completed one stays completed: `task_completed`.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Memory, Namespace, task::Status};
    /// # use plimsoll_engine::{Engine, Tasks, tasks::Effect};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let id = tasks.submit(tasks.task("mail", "send", "hello")?.max_attempts(1)).await?.id;
    /// let held = tasks.claim(id, &tasks.worker("w1")?, Duration::from_secs(30)).await?;
    /// held.fail("no route").await?;
    /// assert_eq!(tasks.retry(id).await.unwrap_err().code(), "max_attempts_reached");
    /// let forced = tasks.retry_with(id, true, Duration::ZERO).await?;
    /// assert_eq!(forced, Effect::Changed(Status::Pending));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn retry(&self, id: TaskId) -> Result<Effect> {
        self.retry_with(id, false, Duration::ZERO).await
    }

    /// Like [`retry`](Self::retry), after a delay, and if forced although the task has failed as
    /// often as it may: that grants one more attempt.
    pub async fn retry_with(&self, id: TaskId, force: bool, delay: Duration) -> Result<Effect> {
        let task = id;
        self.affect(Write::Retry(Retry { task, force, delay }))
            .await
    }

    /// Cancels a task. One that nobody holds ends at once; the holder of one that is claimed is
    /// asked to stop.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace, task::Status};
    /// # use plimsoll_engine::{Engine, Tasks, tasks::Effect};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let id = tasks.submit(tasks.task("mail", "send", "hello")?).await?.id;
    /// assert_eq!(tasks.cancel(id, Some("typo".into())).await?, Effect::Changed(Status::Cancelled));
    /// assert_eq!(tasks.cancel(id, None).await?, Effect::Already(Status::Cancelled));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn cancel(&self, id: TaskId, reason: Option<String>) -> Result<Effect> {
        let task = id;
        self.affect(Write::Cancel(Cancel { task, reason })).await
    }

    /// Cancels the task that a key was last given to.
    pub async fn cancel_by_key(
        &self,
        key: &IdempotencyKey,
        reason: Option<String>,
    ) -> Result<Effect> {
        let task = self.get_by_key(key).await?;
        self.cancel(task.id(), reason).await
    }

    /// Changes how urgent a task is. One that has ended has no urgency: `task_completed` and so on.
    pub async fn prioritise(&self, id: TaskId, priority: Priority) -> Result<Effect> {
        self.affect(Write::Prioritise(id, priority)).await
    }

    /// Removes a task that has ended, with its key and its log. One that has not is refused with
    /// `not_finished`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let id = tasks.submit(tasks.task("mail", "send", "hello")?).await?.id;
    /// assert_eq!(tasks.delete(id).await.unwrap_err().code(), "not_finished");
    /// tasks.cancel(id, None).await?;
    /// tasks.delete(id).await?;
    /// assert_eq!(tasks.delete(id).await.unwrap_err().code(), "task_not_found");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn delete(&self, id: TaskId) -> Result<()> {
        match self.commit_once(Commit::of(Write::DeleteTask(id))).await? {
            Outcome::Removed { existed: true } => Ok(()),
            Outcome::Removed { existed: false } => Err(NotFound::Task(id).into()),
            _ => Err(unanswered()),
        }
    }

    async fn affect(&self, write: Write) -> Result<Effect> {
        match self.commit_once(Commit::of(write)).await? {
            Outcome::Changed { status, .. } => Ok(Effect::Changed(status)),
            Outcome::Already { status } => Ok(Effect::Already(status)),
            _ => Err(unanswered()),
        }
    }
}
