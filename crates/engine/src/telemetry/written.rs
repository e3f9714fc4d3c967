//! What an answered write means for the metrics.

use plimsoll_core::Name;
use plimsoll_core::log::NewLine;
use plimsoll_core::store::{Ending, Outcome, SubmitOutcome, Write};
use plimsoll_core::task::Status;

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    Failed,
    Cancelled,
}

impl End {
    pub(super) const ALL: [Self; 3] = [Self::Completed, Self::Failed, Self::Cancelled];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    fn of(status: Status) -> Option<Self> {
        match status {
            Status::Completed => Some(Self::Completed),
            Status::Failed => Some(Self::Failed),
            Status::Cancelled => Some(Self::Cancelled),
            Status::Scheduled | Status::Pending | Status::Claimed => None,
        }
    }
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fact<'a> {
    /// A task of this owner is new.
    Created(Option<&'a Name>),
    /// A task ended, perhaps because its lease ran out.
    Ended { end: End, expired: bool },
    /// An attempt failed, perhaps because its lease ran out, and the task runs again.
    Retried { expired: bool },
    /// These lines are in a log.
    Logged(&'a [NewLine]),
}

/// What a write came to, if it is anything to count. Whoever repeats a write after a lost answer is
/// answered once, so that it is counted once.
pub(super) fn fact<'a>(write: &'a Write, outcome: &Outcome) -> Option<Fact<'a>> {
    match (write, outcome) {
        (Write::Submit(task), Outcome::Submitted(submitted)) => {
            let new = submitted.outcome == SubmitOutcome::Created;
            new.then_some(Fact::Created(task.owner.as_ref()))
        }
        (Write::Settle(settle), Outcome::Settled { status, .. }) => match End::of(*status) {
            Some(end) => Some(Fact::Ended {
                end,
                expired: false,
            }),
            None => matches!(settle.how, Ending::Fail { .. })
                .then_some(Fact::Retried { expired: false }),
        },
        (Write::Cancel(_), Outcome::Changed { status, .. }) => {
            let end = End::of(*status)?;
            Some(Fact::Ended {
                end,
                expired: false,
            })
        }
        (Write::Expire(_), Outcome::Changed { status, .. } | Outcome::Settled { status, .. }) => {
            Some(match End::of(*status) {
                Some(end) => Fact::Ended { end, expired: true },
                None => Fact::Retried { expired: true },
            })
        }
        (Write::Log(log), Outcome::Logged) => Some(Fact::Logged(&log.lines)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
