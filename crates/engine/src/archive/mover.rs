//! Moves finished tasks out of the way, a bounded number at a time.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::error::{Applied, Conflict, NotFound, Unavailable};
use plimsoll_core::store::{Commit, Guard, List, Receipt, Selector, Write};
use plimsoll_core::task::{Status, Task};
use plimsoll_core::{Error, Result, TaskId};

use super::{Archived, Sink};
use crate::{Engine, Tasks};

/// How many pages are looked through for tasks that can be moved. Those that cannot be stand before
/// the others for ever.
const PAGES_MAX: usize = 20;

/// Moves tasks to the archive.
pub(crate) struct Mover<'a> {
    pub(crate) engine: &'a Engine,
    /// Instead of the archive in the store.
    pub(crate) sink: Option<&'a Arc<dyn Sink>>,
    pub(crate) ttl: Option<Duration>,
    /// How many to move.
    pub(crate) limit: usize,
}

/// What was moved.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(crate) tasks: u64,
    /// What could not be moved.
    pub(crate) left: Vec<(TaskId, Error)>,
    pub(crate) more: bool,
}

impl Mover<'_> {
    /// Moves the tasks that were kept longest, up to the limit. One that cannot be moved is left, and
    /// keeps no other from it.
    pub(crate) async fn step(&self, status: Status, age: Duration) -> Result<Moved> {
        let (store, tasks) = (self.engine.store(), Tasks::new(self.engine.clone()));
        let page = self.limit.min(store.limits().page_max);
        let mut list = List::new(Selector::KeptFor(status, age), page);
        let mut moved = Moved::default();
        for _ in 0..PAGES_MAX {
            let page = tasks.patiently(|| store.list(list.clone())).await?;
            self.move_all(page.rows, &mut moved).await;
            if page.next.is_none() {
                return Ok(moved);
            }
            if moved.tasks >= self.limit as u64 {
                moved.more = true;
                return Ok(moved);
            }
            list.cursor = page.next;
        }
        let left = moved.left.len();
        tracing::warn!(left, "too many finished tasks cannot be archived");
        Ok(moved)
    }

    async fn move_all(&self, rows: Vec<Task>, moved: &mut Moved) {
        let kept = match self.sink {
            Some(sink) => self.sink(sink.as_ref(), rows, moved).await,
            None => rows,
        };
        let commits = kept.iter().map(|task| match self.sink {
            Some(_) => Ok(removal(task)),
            None => self.transfer(task),
        });
        let tasks = Tasks::new(self.engine.clone());
        let answers = tasks.commit_all(commits).await;
        for (task, answer) in kept.iter().zip(answers) {
            match gone(answer) {
                Ok(by_us) => moved.tasks += u64::from(by_us),
                Err(error) => moved.left.push((task.id(), error)),
            }
        }
    }

    /// Hands tasks to the sink, and answers those that it keeps.
    async fn sink(&self, sink: &dyn Sink, rows: Vec<Task>, moved: &mut Moved) -> Vec<Task> {
        if rows.is_empty() {
            return rows;
        }
        let mut answers = sink.keep(&rows).await.into_iter();
        let mut kept = Vec::new();
        for task in rows {
            let answer = answers.next();
            match answer.unwrap_or_else(|| Err("the sink did not answer for it".into())) {
                Ok(()) => kept.push(task),
                Err(error) => moved.left.push((task.id(), refused(&error.to_string()))),
            }
        }
        kept
    }

    /// Writes the records of a task and deletes it, in one commit.
    fn transfer(&self, task: &Task) -> Result<Commit> {
        let puts = Archived::of(task)?.puts(self.engine.store().limits(), self.ttl)?;
        let mut commit = removal(task);
        commit.writes.extend(puts.into_iter().map(Write::Put));
        Ok(commit)
    }
}

/// Deletes a task that is still as it was read.
fn removal(task: &Task) -> Commit {
    Commit::of(Write::DeleteTask(task.id())).guard(Guard::TaskAt(task.id(), task.revision))
}

/// Whether it was us who moved it. A task that is gone or has changed is somebody else's concern.
fn gone(answer: Result<Receipt>) -> Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(Error::Conflict(conflict)) if matches!(*conflict, Conflict::Guard { .. }) => Ok(false),
        Err(Error::NotFound(NotFound::Task(_))) => Ok(false),
        Err(error) => Err(error),
    }
}

fn refused(why: &str) -> Error {
    Error::Unavailable(Unavailable {
        applied: Applied::Unknown,
        cause: format!("the sink: {why}"),
    })
}
