//! From what a handler answered to what is committed.

use std::time::Duration;

use plimsoll_core::error::Conflict;
use plimsoll_core::lifecycle::Phase;
use plimsoll_core::limits::ERROR_BYTES_KEPT;
use plimsoll_core::log::NewLine;
use plimsoll_core::store::{Commit, Ending, Expire, FailRetry, Log, Settle, Write};
use plimsoll_core::task::Holder;
use plimsoll_core::{Error, Ids};

use super::context::Cause;
use super::running::{Running, attempt_of};
use super::{Answer, Completion, Failure};

/// How the work on a task ended in this process.
#[derive(Debug)]
pub(super) enum Ended {
    /// The handler answered; if it failed, with how long to wait instead of what the policy says.
    Answered(Answer, Option<Duration>),
    /// The handler panicked.
    Panicked(String),
    /// The handler was dropped.
    Cut,
}

/// What a worker owes the store for a task.
#[derive(Clone, Debug)]
pub(super) struct Settling {
    pub(super) holder: Holder,
    pub(super) commit: Commit,
    /// How long its handler ran, if one did.
    pub(super) took: Option<Duration>,
    /// When the call was sent that claimed or renewed the task last.
    pub(super) renewed: Duration,
    /// The store said that somebody else has the task, or nobody: its lease is not renewed any more.
    pub(super) lost: bool,
    /// Whether the store has refused an answer for this task before.
    refused: bool,
}

impl Settling {
    pub(super) fn new(holder: &Holder, answer: Answer, renewed: Duration, ids: &Ids) -> Self {
        let (how, with) = ending(answer, ids);
        let settle = Settle {
            holder: holder.clone(),
            how,
        };
        let mut settling = Self::of(holder, Write::Settle(settle), renewed);
        if !with.is_empty() {
            // Settles alone are recognised by their fence; what is written with one needs a name.
            settling.commit = settling.commit.id(ids.commit());
            settling.commit.writes.extend(with);
        }
        settling
    }

    /// Gives a task back.
    pub(super) fn release(holder: &Holder, reason: Option<&str>, renewed: Duration) -> Self {
        let settle = Settle {
            holder: holder.clone(),
            how: Ending::Release {
                reason: reason.map(clean),
            },
        };
        Self::of(holder, Write::Settle(settle), renewed)
    }

    /// Says that the attempt took too long. Only the store can decide that.
    fn overdue(holder: &Holder, renewed: Duration, ids: &Ids) -> Self {
        let expire = Expire {
            task: holder.task,
            fence: holder.fence,
            jitter: ids.jitter(),
        };
        Self::of(holder, Write::Expire(expire), renewed)
    }

    fn of(holder: &Holder, write: Write, renewed: Duration) -> Self {
        Self {
            holder: holder.clone(),
            commit: Commit::of(write),
            took: None,
            renewed,
            lost: false,
            refused: false,
        }
    }

    /// The same after these lines of the log, in one commit.
    pub(super) fn after(mut self, lines: Vec<NewLine>, ids: &Ids) -> Self {
        if lines.is_empty() {
            return self;
        }
        // Lines and what says that an attempt took too long can be repeated as they are, and may
        // have to be.
        if !self.is_overdue() {
            self.commit.id.get_or_insert_with(|| ids.commit());
        }
        let holder = self.holder.clone();
        self.commit
            .writes
            .insert(0, Write::Log(Log { holder, lines }));
        self
    }

    /// Nothing but lines of the log.
    pub(super) fn lines_alone(holder: &Holder, lines: Vec<NewLine>, renewed: Duration) -> Self {
        let log = Log {
            holder: holder.clone(),
            lines,
        };
        Self::of(holder, Write::Log(log), renewed)
    }

    /// The lines of the log that it carries.
    fn lines(&self) -> Vec<NewLine> {
        match self.commit.writes.first() {
            Some(Write::Log(log)) => log.lines.clone(),
            _ => Vec::new(),
        }
    }

    /// What is said of the attempt, after the lines of its log.
    fn end(&self) -> Option<&Write> {
        let mut writes = self.commit.writes.iter();
        writes.find(|write| !matches!(write, Write::Log(_)))
    }

    /// Whether it gives a task back.
    pub(super) fn is_release(&self) -> bool {
        matches!(
            self.end(),
            Some(Write::Settle(settle)) if matches!(settle.how, Ending::Release { .. })
        )
    }

    /// Whether it says that the attempt took too long.
    pub(super) fn is_overdue(&self) -> bool {
        matches!(self.end(), Some(Write::Expire(_)))
    }
}

/// What to commit for a task whose handler has ended, perhaps after its lease had ended.
pub(super) fn settle(running: &Running, ended: Ended, lease_over: bool, ids: &Ids) -> Settling {
    let (holder, renewed) = (&running.hold.holder, running.hold.renewed);
    let release = |reason: &str| Settling::release(holder, Some(reason), renewed);
    let answer = match (ended, &running.told, &running.cut) {
        // It was the worker that had to stop: a handler that says so has not failed.
        (
            Ended::Answered(
                Answer::Fail(Failure {
                    message,
                    retry: FailRetry::Policy,
                }),
                _,
            ),
            Some(Cause::Draining | Cause::LeaseLost),
            _,
        ) => return release(&format!("interrupted: {message}")),
        (Ended::Answered(Answer::Fail(failure), Some(delay)), ..) => Answer::Fail(Failure {
            retry: FailRetry::After(delay),
            ..failure
        }),
        (Ended::Answered(answer, _), ..) => answer,
        (Ended::Panicked(message), ..) => {
            Answer::Fail(Failure::new(format!("panicked: {message}")))
        }
        (Ended::Cut, _, Some(Cause::Deadline)) => return Settling::overdue(holder, renewed, ids),
        (Ended::Cut, _, Some(Cause::Cancelled { reason })) => Answer::Cancel(reason.clone()),
        // Whoever keeps its worker from renewing in time must not be tried for ever.
        (Ended::Cut, _, Some(Cause::LeaseLost)) if lease_over => {
            return Settling::overdue(holder, renewed, ids);
        }
        (Ended::Cut, _, Some(Cause::LeaseLost)) => {
            return release("interrupted: the lease could not be renewed in time");
        }
        (Ended::Cut, _, Some(Cause::Draining) | None) => return release("interrupted"),
    };
    Settling::new(holder, answer, renewed, ids)
}

fn ending(answer: Answer, ids: &Ids) -> (Ending, Vec<Write>) {
    let how = match answer {
        Answer::Complete(Completion { result, with }) => {
            return (Ending::Complete { result }, with);
        }
        Answer::Fail(Failure { message, retry }) => Ending::Fail {
            error: clean(&message),
            retry,
            jitter: ids.jitter(),
        },
        Answer::Snooze(delay) => Ending::Snooze { delay },
        Answer::Release => Ending::Release { reason: None },
        Answer::Cancel(reason) => Ending::Cancel {
            reason: reason.as_deref().map(clean),
        },
    };
    (how, Vec::new())
}

/// An error as every store takes it: what a handler has to say is never a reason to refuse it.
fn clean(message: &str) -> String {
    let kept = &message[..message.floor_char_boundary(ERROR_BYTES_KEPT)];
    kept.replace('\0', "\u{fffd}")
}

/// What to commit instead of what the store refused, if there is anything.
pub(super) fn instead(settling: &Settling, error: &Error, ids: &Ids) -> Option<Settling> {
    let failure = match error {
        // Another try would bring the same answer.
        Error::Invalid(_) | Error::Unsupported(_) => Failure::fatal,
        Error::Conflict(conflict) if completes_too_early(conflict) => Failure::fatal,
        Error::Conflict(_) | Error::NotFound(_) => Failure::new,
        // Something that was to be written with the answer is not this handler's to write.
        Error::LeaseLost(lost) if (lost.task, lost.fence) != attempt_of(&settling.holder) => {
            Failure::new
        }
        Error::LeaseLost(_) | Error::Corrupt(_) | Error::Closed | Error::Unavailable(_) => {
            return None;
        }
    };
    // Lines that travel alone say nothing of how the attempt ended.
    if settling.refused || settling.end().is_none() {
        return None;
    }
    let answer = Answer::Fail(failure(format!("the answer was refused: {error}")));
    let instead = Settling::new(&settling.holder, answer, settling.renewed, ids);
    Some(Settling {
        refused: true,
        took: settling.took,
        ..instead.after(settling.lines(), ids)
    })
}

/// Whether a handler answered success in a stage that does not complete. It would again.
fn completes_too_early(conflict: &Conflict) -> bool {
    matches!(
        conflict,
        Conflict::MoveNotAllowed {
            to: Phase::Completed,
            ..
        }
    )
}
