//! Making tasks and submitting them.

use bytes::Bytes;
use plimsoll_core::Result;
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{Commit, Outcome, Receipt, Submitted, Write};
use plimsoll_core::task::{Lane, NewTask};
use serde::Serialize;

use crate::answer::{first, unanswered};
use crate::tasks::Tasks;
use crate::tasks::json::encode;

impl Tasks {
    /// A task with this payload, to be filled in further and submitted. It has an id already, so
    /// submitting it again is the same submission.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Memory, Namespace, task::{Priority, RetryPolicy}};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let task = tasks
    ///     .task("media", "transcode", "clip-7")?
    ///     .key("clip-7-transcode".try_into()?)
    ///     .priority(Priority::HIGHEST)
    ///     .after(Duration::from_secs(60))
    ///     .max_attempts(3)
    ///     .owner("ada".try_into()?)
    ///     .label("show".try_into()?, "news".try_into()?)
    ///     .on_failure(tasks.task("media", "alert", "clip-7")?);
    /// assert_eq!(task.payload, "clip-7");
    /// # Ok::<(), plimsoll_core::Error>(())
    /// ```
    pub fn task(
        &self,
        queue: impl AsRef<str>,
        kind: impl AsRef<str>,
        payload: impl Into<Bytes>,
    ) -> Result<NewTask> {
        let lane = Lane::new(queue, kind).map_err(|invalid| invalid.within("task"))?;
        Ok(NewTask::new(self.engine.ids().task(), lane, payload))
    }

    /// Like [`task`](Self::task), with a value that is kept as JSON. Read it back with
    /// [`payload`](crate::tasks::payload()). What could not be read back is `Invalid`: numbers that are not finite, and lists and
    /// objects that are more than 127 deep in each other.
    pub fn json(
        &self,
        queue: impl AsRef<str>,
        kind: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<NewTask> {
        self.task(queue, kind, encode("task.payload", payload)?)
    }

    /// Submits a task, and says whether it is new. A task whose key stands for another one is
    /// answered with that, as its conflict policy says.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace, store::SubmitOutcome};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let task = || Ok::<_, plimsoll_core::Error>(
    ///     tasks.task("mail", "send", "hello")?.key("email-456-send".try_into()?),
    /// );
    /// let (one, two) = (tasks.submit(task()?).await?, tasks.submit(task()?).await?);
    /// assert_eq!(one.outcome, SubmitOutcome::Created);
    /// assert_eq!(two.outcome, SubmitOutcome::Existing);
    /// assert_eq!(one.id, two.id);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn submit(&self, task: NewTask) -> Result<Submitted> {
        let commit = self.submission(task)?;
        submitted(self.commit(commit).await?)
    }

    /// Submits any number of tasks, and answers for each, in order.
    ///
    /// This is not one transaction: each task is submitted on its own, so one that is refused does
    /// not keep its neighbours from being submitted, and others may see some of them before the
    /// rest. To submit a few together or not at all, put them into one
    /// [`complete_with`](crate::tasks::Hold::complete_with), or into one commit of the store.
    ///
    /// Tasks are taken as they are sent, so an iterator of millions needs no more memory than one
    /// call to the store and the answers. When the store stays away for longer than [`Retries`]
    /// allow, the rest is not sent and answered `Unavailable`; submitting all of them again is safe.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let good = tasks.task("mail", "send", "hello")?;
    /// let bad = tasks.task("mail", "send", vec![0; 1_000_000])?;
    /// let answers = tasks.submit_all([bad, good]).await;
    /// assert_eq!(answers[0].as_ref().unwrap_err().code(), "invalid_task");
    /// assert!(answers[1].is_ok());
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    ///
    /// [`Retries`]: crate::tasks::Retries
    pub async fn submit_all<I>(&self, tasks: I) -> Vec<Result<Submitted>>
    where
        I: IntoIterator<Item = NewTask>,
        I::IntoIter: Send,
    {
        let commits = tasks.into_iter().map(|task| self.submission(task));
        let answers = self.commit_all(commits).await;
        answers
            .into_iter()
            .map(|answer| submitted(answer?))
            .collect()
    }

    /// The commit that submits this task. A bad one is told here, before it is sent with others.
    fn submission(&self, mut task: NewTask) -> Result<Commit> {
        self.engine.pin_lifecycle(&mut task);
        let checked = task.check(self.store().limits());
        checked.map_err(|invalid| invalid.within("task"))?;
        Ok(Commit::of(Write::Submit(Box::new(task))))
    }
}

fn submitted(receipt: Receipt) -> Result<Submitted> {
    match first(receipt)? {
        Outcome::Submitted(submitted) => Ok(submitted),
        _ => Err(unanswered()),
    }
}
