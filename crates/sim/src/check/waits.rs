//! What the client told those who wait, and those who operate.

use std::time::Duration;

use plimsoll_core::change::{Change, TaskChange, TaskEvent};
use plimsoll_core::error::NotFound;
use plimsoll_core::task::Task;
use plimsoll_core::{Error, Position, Result, TaskId};
use plimsoll_engine::tasks::Effect;

use super::Checker;

/// How long an answer may take once the task has ended and nothing goes wrong: a look each second,
/// and calls that were under way when it became calm.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// When somebody began to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    position: Position,
    at: Duration,
}

impl Checker {
    /// Somebody begins to wait for a task.
    pub(crate) fn waits(&mut self, id: TaskId) -> Since {
        self.awaited.insert(id);
        Since {
            position: self.newest(),
            at: self.now,
        }
    }

    /// Who waited was answered: with an end that the task had come to at some moment since.
    pub(crate) fn waited(&mut self, id: TaskId, since: Since, answer: &Result<Task>) {
        self.awaited.remove(&id);
        let model = self.tasks.get(&id);
        let wrong = match answer {
            Ok(task) => {
                let ended = |change: &TaskChange| {
                    change.revision == task.revision && change.status == task.status
                };
                let over = self.changes_of(id).any(|(position, change)| {
                    position <= since.position && change.revision > task.revision
                });
                let told = task.id() == id && task.status.is_terminal();
                if !told || !self.changes_of(id).any(|(_, change)| ended(change)) {
                    Some(format!("was never {} at {}", task.status, task.revision))
                } else if over {
                    Some(format!("was not {} any more", task.status))
                } else {
                    None
                }
            }
            Err(Error::NotFound(NotFound::Task(_))) if model.is_some_and(|model| model.gone) => {
                None
            }
            Err(error) => Some(format!("was answered: {error}")),
        };
        let late = (model.zip(self.calm_since)).is_some_and(|(model, calm)| {
            self.now > model.changed_at.max(since.at).max(calm) + ANSWER_MAX
        });
        let wrong = wrong.or_else(|| late.then(|| "was answered late".into()));
        if let Some(wrong) = wrong {
            let name = self.name(id);
            self.blame("waits", format!("{name}, which was waited for, {wrong}"));
        }
    }

    /// An operator is about to make a task run again.
    pub(crate) fn asked_to_retry(&mut self, id: TaskId) {
        *self.retries_asked.entry(id).or_default() += 1;
    }

    /// A task was made to run again: never more often than operators asked, however often the
    /// client repeated itself.
    pub(super) fn look_at_retry(&mut self, id: TaskId) {
        let left = self.retries_asked.entry(id).or_default();
        match left.checked_sub(1) {
            Some(less) => *left = less,
            None => {
                let name = self.name(id);
                let wrong = format!("{name} was made to run again, and nobody said so");
                self.blame("unasked", wrong);
            }
        }
    }

    /// An operator was told what a verb did, which shows as one of these events.
    pub(crate) fn affected(&mut self, id: TaskId, events: &[TaskEvent], effect: Effect) {
        let happened = self.changes_of(id).any(|(_, change)| match effect {
            Effect::Changed(status) => events.contains(&change.event) && change.status == status,
            Effect::Already(status) => change.status == status,
        });
        if !happened {
            let name = self.name(id);
            self.blame(
                "acknowledged",
                format!("{name}: no {events:?} came to {effect:?}"),
            );
        }
    }

    fn changes_of(&self, id: TaskId) -> impl Iterator<Item = (Position, &TaskChange)> {
        self.entries.iter().flat_map(move |entry| {
            let changes = entry.changes.iter();
            changes.filter_map(move |change| match change {
                Change::Task(task) if task.id == id => Some((entry.position, task)),
                _ => None,
            })
        })
    }
}
