//! Taking tasks.

use std::ops::Deref;
use std::time::Duration;

use plimsoll_core::store::{Claim, Claimed, Pick};
use plimsoll_core::task::{Holder, Lane, Task, WorkerId};
use plimsoll_core::{Result, TaskId};
use serde::de::DeserializeOwned;

use crate::answer::unanswered;
use crate::tasks::json::payload;
use crate::tasks::{Hold, Tasks};

/// A task that was claimed, as it was then, with all that its [`Hold`] can do.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use plimsoll_core::{Memory, Namespace, task::Status};
/// # use plimsoll_engine::{Engine, Tasks};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
/// # let tasks = Tasks::new(Engine::new(store));
/// let id = tasks.submit(tasks.json("mail", "send", "hello")?).await?.id;
/// let held = tasks.claim(id, &tasks.worker("w1")?, Duration::from_secs(30)).await?;
/// assert_eq!(held.payload::<String>()?, "hello");
/// assert_eq!(held.task().attempts, 1);
/// assert_eq!(held.complete("sent").await?.status, Status::Completed);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Held {
    task: Task,
    hold: Hold,
}

impl Held {
    /// The task as it was when it was claimed.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// What the task is about: see [`payload`](crate::tasks::payload()).
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T> {
        payload(&self.task)
    }
}

impl Deref for Held {
    type Target = Hold;
    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl Tasks {
    /// Takes this task for this long. Taking it again is a no-op that answers the same lease; so it
    /// is also when the answer was lost. Otherwise the error tells why it cannot be taken:
    /// `already_claimed`, `task_completed`, `task_failed`, `task_cancelled`, `not_due`, `waiting`
    /// or `task_not_found`.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let (a, b) = (tasks.worker("a")?, tasks.worker("b")?);
    /// let lease = Duration::from_secs(30);
    /// let id = tasks.submit(tasks.task("mail", "send", "hello")?).await?.id;
    /// let held = tasks.claim(id, &a, lease).await?;
    /// assert_eq!(tasks.claim(id, &b, lease).await.unwrap_err().code(), "already_claimed");
    /// assert_eq!(tasks.claim(id, &a, lease).await?.holder(), held.holder());
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn claim(&self, id: TaskId, worker: &WorkerId, lease: Duration) -> Result<Held> {
        let claimed = self.pick(Pick::Ids(vec![id]), worker, lease).await?;
        match (
            claimed.tasks.into_iter().next(),
            claimed.refused.into_iter().next(),
        ) {
            (Some(task), _) => self.held(task),
            (None, Some((_, why))) => Err(why),
            (None, None) => Err(unanswered()),
        }
    }

    /// Takes the next tasks of these lanes, at most `limit`: the most urgent first, then those that
    /// have been runnable for longest. Answers nothing when nothing is runnable.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Memory, Namespace, task::Lane};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let lane = Lane::new("mail", "send")?;
    /// tasks.submit(tasks.task("mail", "send", "hello")?).await?;
    /// let lease = Duration::from_secs(30);
    /// for held in tasks.claim_next([lane], 10, &tasks.worker("w1")?, lease).await? {
    ///     held.complete("sent").await?;
    /// }
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn claim_next(
        &self,
        lanes: impl IntoIterator<Item = Lane>,
        limit: usize,
        worker: &WorkerId,
        lease: Duration,
    ) -> Result<Vec<Held>> {
        let lanes = lanes.into_iter().collect();
        let pick = Pick::Next { lanes, limit };
        let claimed = self.pick(pick, worker, lease).await?;
        let tasks = claimed.tasks.into_iter();
        tasks.map(|task| self.held(task)).collect()
    }

    /// What the holder of a task can do, for who has stored the holder.
    pub fn hold(&self, holder: Holder) -> Hold {
        Hold::new(self.clone(), holder)
    }

    async fn pick(&self, pick: Pick, worker: &WorkerId, lease: Duration) -> Result<Claimed> {
        let claim = Claim {
            pick,
            worker: worker.clone(),
            lease,
            request: self.engine.ids().request(),
        };
        let store = self.store();
        self.patiently(|| store.claim(claim.clone())).await
    }

    fn held(&self, task: Task) -> Result<Held> {
        let holder = task.holder().ok_or_else(unanswered)?;
        let hold = self.hold(holder);
        hold.enter(task.stage.clone());
        Ok(Held { task, hold })
    }
}
