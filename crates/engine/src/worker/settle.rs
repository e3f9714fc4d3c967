//! From what a handler answered to what is committed.

use plimsoll_core::store::{Commit, Ending, Expire, Settle, Write};
use plimsoll_core::task::Holder;
use plimsoll_core::{Error, Ids};

use super::context::Cause;
use super::{Answer, Completion, Failure};

/// How the work on a task ended in this process.
#[derive(Debug)]
pub(super) enum Ended {
    /// The handler answered.
    Answered(Answer),
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
    /// Whether the store has refused an answer for this task before.
    pub(super) refused: bool,
}

/// What to commit for a task whose handler has ended. `cause` is why it was asked to stop, if it was.
pub(super) fn settle(holder: &Holder, ended: Ended, cause: Option<&Cause>, ids: &Ids) -> Settling {
    let answer = match (ended, cause) {
        (Ended::Answered(answer), _) => answer,
        (Ended::Panicked(message), _) => Answer::Fail(Failure::new(format!("panicked: {message}"))),
        (Ended::Cut, Some(Cause::Deadline)) => return overdue(holder, ids),
        (Ended::Cut, Some(Cause::Cancelled { reason })) => Answer::Cancel(reason.clone()),
        (Ended::Cut, Some(Cause::LeaseLost)) => {
            return release(holder, Some("the lease could not be renewed in time"));
        }
        (Ended::Cut, Some(Cause::Draining) | None) => return release(holder, Some("interrupted")),
    };
    let (how, with) = ending(answer, ids);
    let mut commit = Commit::of(Write::Settle(Settle {
        holder: holder.clone(),
        how,
    }));
    if !with.is_empty() {
        // Settles alone are recognised by their fence; what is written with one needs a name.
        commit = commit.id(ids.commit());
        commit.writes.extend(with);
    }
    Settling {
        holder: holder.clone(),
        commit,
        refused: false,
    }
}

fn ending(answer: Answer, ids: &Ids) -> (Ending, Vec<Write>) {
    let how = match answer {
        Answer::Complete(Completion { result, with }) => {
            return (Ending::Complete { result }, with);
        }
        Answer::Fail(Failure { message, retry }) => Ending::Fail {
            error: message,
            retry,
            jitter: ids.jitter(),
        },
        Answer::Snooze(delay) => Ending::Snooze { delay },
        Answer::Release => Ending::Release { reason: None },
        Answer::Cancel(reason) => Ending::Cancel { reason },
    };
    (how, Vec::new())
}

/// Gives a task back.
pub(super) fn release(holder: &Holder, reason: Option<&str>) -> Settling {
    let how = Ending::Release {
        reason: reason.map(Into::into),
    };
    Settling {
        holder: holder.clone(),
        commit: Commit::of(Write::Settle(Settle {
            holder: holder.clone(),
            how,
        })),
        refused: false,
    }
}

/// The store says that the attempt took too long, if it thinks so too; otherwise a sweep will.
fn overdue(holder: &Holder, ids: &Ids) -> Settling {
    let expire = Write::Expire(Expire {
        task: holder.task,
        fence: holder.fence,
        jitter: ids.jitter(),
    });
    Settling {
        holder: holder.clone(),
        commit: Commit::of(expire),
        refused: false,
    }
}

/// What to commit instead of what the store refused, if there is anything.
pub(super) fn instead(settling: Settling, error: &Error, ids: &Ids) -> Option<Settling> {
    let failure = match error {
        // Another try would bring the same answer.
        Error::Invalid(_) | Error::Unsupported(_) => Failure::fatal,
        Error::Conflict(_) | Error::NotFound(_) => Failure::new,
        Error::LeaseLost(_) | Error::Corrupt(_) | Error::Closed | Error::Unavailable(_) => {
            return None;
        }
    };
    if settling.refused {
        return None;
    }
    let answer = Answer::Fail(failure(format!("the answer was refused: {error}")));
    Some(Settling {
        refused: true,
        ..settle(&settling.holder, Ended::Answered(answer), None, ids)
    })
}
