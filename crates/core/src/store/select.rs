//! The parameters and answers of the methods that let the store select.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, LeaseLost};
use crate::ids::{Fence, RequestId, TaskId};
use crate::names::{GroupId, Key};
use crate::store::{Commit, Receipt};
use crate::task::{Holder, Lane, Status, Task, WorkerId};
use crate::time::Timestamp;

/// Takes tasks for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which tasks.
    pub pick: Pick,
    /// Who takes them.
    pub worker: WorkerId,
    /// For how long, if the worker does not renew.
    pub lease: Duration,
    /// Names this claim, so that it can be repeated when its answer was lost.
    pub request: RequestId,
}

/// Which tasks a claim takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The next ones of these lanes.
    Next {
        /// The lanes.
        lanes: Vec<Lane>,
        /// How many at most.
        limit: usize,
    },
    /// These.
    Ids(Vec<TaskId>),
}

/// What a claim took.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The tasks, in the order in which they should run, each with its lease.
    pub tasks: Vec<Task>,
    /// Of a claim by ids: which could not be taken, and why.
    pub refused: Vec<(TaskId, Error)>,
    /// Of a claim of the next that took fewer than asked: when the next scheduled task of these
    /// lanes is due. A moment that has passed means that it waits to be promoted.
    pub next_due: Option<Timestamp>,
}

/// Prolongs leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// What the worker holds.
    pub holders: Vec<Holder>,
    /// How long from now the leases are to run.
    pub lease: Duration,
}

/// What became of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renewal {
    /// It runs until then.
    Held {
        /// When it ends. Never later than the deadline of the attempt.
        until: Timestamp,
    },
    /// It runs until then, but somebody asked to stop.
    CancelRequested {
        /// When it ends.
        until: Timestamp,
        /// Why to stop.
        reason: Option<String>,
    },
    /// It is lost.
    Lost(LeaseLost),
}

/// Commits, renews and claims in one round trip, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exchange {
    /// What to commit.
    pub commits: Vec<Commit>,
    /// What to renew.
    pub renew: Option<Renew>,
    /// What to claim.
    pub claim: Option<Claim>,
}

/// What an exchange did. The three parts succeed or fail independently.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchanged {
    /// One for each commit.
    pub commits: Vec<Result<Receipt, Error>>,
    /// What became of the leases.
    pub renewals: Option<Result<Vec<Renewal>, Error>>,
    /// What was claimed.
    pub claimed: Option<Result<Claimed, Error>>,
}

/// Selects what time has made ready for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// How many of each at most.
    pub limit: usize,
}

/// What time has made ready for a decision. Nothing has been changed yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueNow {
    /// Scheduled tasks that are due, the longest overdue first.
    pub scheduled: Vec<TaskId>,
    /// Attempts whose lease or deadline ran out, the longest overdue first.
    pub expired: Vec<(TaskId, Fence)>,
    /// Records that have expired, the longest overdue first.
    pub records: Vec<Key>,
    /// Groups whose counts, kept apart, may be complete.
    pub groups: Vec<GroupId>,
    /// When the next of all these is due, if nothing is left that is due now.
    pub next: Option<Timestamp>,
    /// Whether a limit cut something off.
    pub more: bool,
}

impl DueNow {
    /// Whether there is nothing to decide.
    pub fn is_empty(&self) -> bool {
        self.scheduled.is_empty()
            && self.expired.is_empty()
            && self.records.is_empty()
            && self.groups.is_empty()
    }
}

/// Removes what has been kept long enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compact {
    /// How long finished tasks are kept, by status. A status that is not named is kept for ever.
    /// A very long log may take several calls after its task has gone.
    pub tasks: BTreeMap<Status, Duration>,
    /// How long drained groups are kept; `None`: for ever.
    pub groups: Option<Duration>,
    /// How long history is kept; `None`: for ever.
    pub history: Option<Duration>,
    /// How long lines of logs are kept, whatever their task is; `None`: as long as their task.
    pub logs: Option<Duration>,
    /// How many of each at most.
    pub limit: usize,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// Tasks, with their keys and logs.
    pub tasks: u64,
    /// Groups.
    pub groups: u64,
    /// Entries of the history.
    pub entries: u64,
    /// Lines of logs, besides those that went at once with their tasks.
    pub lines: u64,
    /// Commit ids and claim requests that were remembered long enough.
    pub remembered: u64,
    /// Whether a limit cut something off.
    pub more: bool,
}
