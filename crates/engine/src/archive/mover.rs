//! Moves finished tasks out of the way, a bounded number at a time.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::error::{Conflict, NotFound};
use plimsoll_core::store::{Commit, Cursor, Guard, List, Receipt, Selector, Write};
use plimsoll_core::task::{Status, Task};
use plimsoll_core::{Error, Result, TaskId};

use super::{Archived, Sink};
use crate::sweeper::Reason;
use crate::{Engine, Tasks};

/// How many pages are looked through in one step. Tasks that cannot be moved stand before the others
/// for ever.
const PAGES_MAX: usize = 20;
/// How long a sink may take for a page.
const KEEP_MAX: Duration = Duration::from_secs(60);

/// Moves tasks to the archive.
pub(crate) struct Mover<'a> {
    pub(crate) engine: &'a Engine,
    /// Instead of the archive in the store.
    pub(crate) sink: Option<&'a Arc<dyn Sink>>,
    pub(crate) ttl: Option<Duration>,
    /// How many to move.
    pub(crate) limit: usize,
}

/// Where the next step goes on; `None`: with the tasks that were kept longest. Without it, those that
/// cannot be moved would hide those behind them.
pub(crate) type Place = Option<Cursor>;

/// What was moved.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(crate) tasks: u64,
    /// What could not be moved.
    pub(crate) left: Vec<(TaskId, Reason)>,
    pub(crate) more: bool,
}

impl Mover<'_> {
    /// Moves tasks from this place on, up to the limit. One that cannot be moved is left, and keeps no
    /// other from it.
    pub(crate) async fn step(
        &self,
        status: Status,
        age: Duration,
        place: &mut Place,
    ) -> Result<Moved> {
        let (store, tasks) = (self.engine.store(), Tasks::new(self.engine.clone()));
        let page = self.limit.min(store.limits().page_max);
        let mut list = List::new(Selector::KeptFor(status, age), page);
        let mut moved = Moved::default();
        for _ in 0..PAGES_MAX {
            list.cursor.clone_from(place);
            let page = tasks.patiently(|| store.list(list.clone())).await?;
            *place = page.next;
            moved.more = place.is_some();
            let answered = self.move_all(page.rows, &mut moved).await;
            if !answered || !moved.more || moved.tasks >= self.limit as u64 {
                break;
            }
        }
        Ok(moved)
    }

    /// Moves these, and answers whether the sink has answered.
    async fn move_all(&self, rows: Vec<Task>, moved: &mut Moved) -> bool {
        let (kept, answered) = match self.sink {
            Some(sink) => self.sink(sink.as_ref(), rows, moved).await,
            None => (rows, true),
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
                Err(error) => moved.left.push((task.id(), Reason::Store(error))),
            }
        }
        answered
    }

    /// Hands tasks to the sink, and answers those that it keeps, and whether it has answered at all.
    async fn sink(&self, sink: &dyn Sink, rows: Vec<Task>, moved: &mut Moved) -> (Vec<Task>, bool) {
        if rows.is_empty() {
            return (rows, true);
        }
        let late = self.engine.clock().sleep(KEEP_MAX);
        let answers = tokio::select! {
            biased;
            answers = sink.keep(&rows, self.engine) => Some(answers),
            () = late => None,
        };
        let answered = answers.is_some();
        let mut answers = answers.into_iter().flatten();
        let mut kept = Vec::new();
        for task in rows {
            let why = match answers.next() {
                Some(Ok(())) => {
                    kept.push(task);
                    continue;
                }
                Some(Err(error)) => error.to_string(),
                None if answered => "no answer for it".to_owned(),
                None => format!("no answer within {KEEP_MAX:?}"),
            };
            moved.left.push((task.id(), Reason::Sink(why)));
        }
        (kept, answered)
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
