//! Waiting for tasks to end.

use std::sync::Arc;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::task::{NewTask, Task};
use plimsoll_core::{Result, TaskId};

use crate::tasks::Tasks;
use crate::tasks::waiting::Waiter;

impl Tasks {
    /// Waits until the task has ended, and answers it: completed, failed or cancelled. One that has
    /// ended already is answered at once; `task_not_found` if there is none, or it is deleted.
    ///
    /// Any number may wait: all clones of this engine follow one tail of the history together, which
    /// starts with the first and ends with the last of them. While the store is unavailable they
    /// wait on, however long. To stop waiting, drop the future.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Memory, Namespace, task::Status};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let id = tasks.submit(tasks.task("mail", "send", "hello")?).await?.id;
    /// let work = async {
    ///     let held = tasks.claim(id, &tasks.worker("w1")?, Duration::from_secs(30)).await?;
    ///     held.complete("sent").await
    /// };
    /// let (ended, _) = futures::try_join!(tasks.wait(id), work)?;
    /// assert_eq!(ended.status, Status::Completed);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn wait(&self, id: TaskId) -> Result<Task> {
        let mut waiter = Waiter::register(id, &self.engine, self.retries);
        match (&mut waiter.answer).await {
            Ok(answer) => answer,
            // Nobody gives up a waiter without an answer but a runtime that ends.
            Err(_) => Err(Unavailable {
                applied: Applied::No,
                cause: "the runtime in which the history was followed has ended".into(),
            }
            .into()),
        }
    }

    /// Submits a task and waits until it has ended; if its key stands for another task, waits for
    /// that one.
    pub async fn submit_and_wait(&self, task: NewTask) -> Result<Task> {
        let submitted = self.submit(task).await?;
        self.wait(submitted.id).await
    }

    /// Closes this handle to the store. Whatever is asked of it afterwards, and whoever waits, is
    /// answered `closed`. What is stored stays.
    ///
    /// A program that submits many tasks and ends closes it before: workers of other processes are told
    /// of the last ones first. If nobody tells them, they find these when they look by themselves.
    pub async fn close(&self) -> Result<()> {
        let store = Arc::clone(self.store());
        self.patiently(|| store.close()).await?;
        self.engine.tail().look();
        Ok(())
    }
}
