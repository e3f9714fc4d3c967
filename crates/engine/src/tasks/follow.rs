//! Reading the log of a task while it is written.

use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use plimsoll_core::error::NotFound;
use plimsoll_core::log::{Level, Line};
use plimsoll_core::store::{Cursor, LogPage, Logs};
use plimsoll_core::wake::Listener;
use plimsoll_core::{Error, Result, StoreExt, TaskId};

use crate::tasks::Tasks;

/// How long a follower waits for a hint.
const POLL: Duration = Duration::from_secs(1);
/// How far apart two looks are at least, if there was nothing to read.
const APART: Duration = Duration::from_millis(100);

impl Tasks {
    /// The lines of a task's log of at least this level: those that are there, then those that come,
    /// until the task has ended and everything is read. `task_not_found` if there is no such task;
    /// one that is deleted has ended.
    ///
    /// New lines are read when the store hints at them, ten times a second at most, and once a second
    /// without hints. While the
    /// store is unavailable the stream waits, however long. A slow reader holds one page of lines.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use futures::TryStreamExt;
    /// # use plimsoll_core::{Memory, Namespace, log::Level};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let id = tasks.submit(tasks.task("mail", "send", "hello")?).await?.id;
    /// let work = async {
    ///     let held = tasks.claim(id, &tasks.worker("w1")?, Duration::from_secs(30)).await?;
    ///     held.log(Level::Info, "connected").await?;
    ///     held.log(Level::Warn, "slow").await?;
    ///     held.complete("sent").await
    /// };
    /// let lines = tasks.follow_logs(id, Level::Info).try_collect::<Vec<_>>();
    /// let (lines, _) = futures::try_join!(lines, work)?;
    /// assert_eq!(lines[1].line.message, "slow");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn follow_logs(&self, task: TaskId, level: Level) -> BoxStream<'static, Result<Line>> {
        self.follow_logs_after(task, level, None)
    }

    /// The same, from where a page of [`Tasks::logs`] of this task and level ended.
    pub fn follow_logs_after(
        &self,
        task: TaskId,
        level: Level,
        cursor: Option<Cursor>,
    ) -> BoxStream<'static, Result<Line>> {
        let follower = Follower {
            // From here on nothing is missed: hints come before the first read.
            hints: self.store().wakeups(),
            tasks: self.clone(),
            logs: Logs {
                task,
                level,
                cursor,
                limit: self.page(),
            },
            seen: false,
            ended: false,
            looked: Duration::ZERO,
        };
        let pages = stream::try_unfold(Some(follower), |follower| async move {
            let Some(mut follower) = follower else {
                return Ok::<_, Error>(None);
            };
            let (lines, more) = follower.next().await?;
            let lines = stream::iter(lines).map(Ok);
            Ok(Some((lines, more.then_some(follower))))
        });
        pages.try_flatten().boxed()
    }
}

struct Follower {
    tasks: Tasks,
    hints: Listener,
    logs: Logs,
    /// Whether the task was there once.
    seen: bool,
    /// Whether the task had ended before the log was read last: then that was all.
    ended: bool,
    /// When it looked last.
    looked: Duration,
}

impl Follower {
    /// The next lines, and whether there may be more.
    async fn next(&mut self) -> Result<(Vec<Line>, bool)> {
        let mut failures = 0;
        loop {
            match self.turn().await {
                Ok(Some(page)) => {
                    let over = self.ended && !page.more;
                    self.logs.cursor = Some(page.next);
                    return Ok((page.lines, !over));
                }
                Ok(None) => {
                    failures = 0;
                    self.wait().await;
                }
                Err(Error::Unavailable(_)) => {
                    failures += 1;
                    let engine = &self.tasks.engine;
                    let delay = (self.tasks.retries).delay(failures, engine.ids().jitter());
                    engine.clock().sleep(delay).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A page, unless there is nothing new and the task goes on. The task is read only when there is
    /// nothing to read, and the log once more when that has ended: then everything was in it.
    async fn turn(&mut self) -> Result<Option<LogPage>> {
        let clock = self.tasks.engine.clock();
        self.looked = clock.monotonic();
        let store = self.tasks.store();
        let page = store.logs(self.logs.clone()).await?;
        if !page.lines.is_empty() || page.more || self.ended {
            self.seen = true;
            return Ok(Some(page));
        }
        match store.task(self.logs.task).await? {
            Some(task) => self.ended = task.status.is_terminal(),
            None if self.seen => self.ended = true,
            None => return Err(NotFound::Task(self.logs.task).into()),
        }
        self.seen = true;
        match self.ended {
            true => Ok(Some(store.logs(self.logs.clone()).await?)),
            false => Ok(None),
        }
    }

    /// Waits for a hint, or for a while. Whoever writes line after line does not make readers look as often.
    async fn wait(&mut self) {
        let hinted = async {
            loop {
                let wake = self.hints.next().await;
                if wake.logs || wake.history {
                    return;
                }
            }
        };
        let clock = self.tasks.engine.clock();
        tokio::select! {
            biased;
            () = hinted => {}
            () = clock.sleep(POLL) => {}
        }
        let since = clock.monotonic().saturating_sub(self.looked);
        clock.sleep(APART.saturating_sub(since)).await;
    }
}
