//! A task as the history tells it.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::change::{TaskChange, TaskEvent};
use plimsoll_core::task::{Lane, Priority, Status, Task, WorkerId};
use plimsoll_core::{Fence, IdempotencyKey, Revision, TaskId, Timestamp};

/// The place of a task in its lane.
pub(super) type Place = (Reverse<Priority>, Timestamp, TaskId);

/// A task as the history tells it, and what only rows can tell.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) lane: Lane,
    /// `None` until the history says that it was submitted.
    pub(super) status: Option<Status>,
    pub(super) fence: Fence,
    pub(super) revision: Revision,
    pub(super) attempts: u32,
    pub(super) failures: u32,
    pub(super) cap: u32,
    /// What is submitted when it fails for good, and how often it did.
    on_failure: Option<TaskId>,
    defeats: u32,
    /// Fences that an operator revoked.
    pub(super) revoked: BTreeSet<Fence>,
    /// When it changed last.
    pub(super) changed_at: Duration,
    /// The store has removed it.
    pub(super) gone: bool,
    // Below: from the row.
    pub(super) key: Option<IdempotencyKey>,
    pub(super) place: Place,
    pub(super) waiting: bool,
    pub(super) holder: Option<WorkerId>,
}

impl Model {
    pub(super) fn new(row: &Task) -> Self {
        let mut model = Self {
            lane: row.spec.lane.clone(),
            status: None,
            fence: Fence::ZERO,
            revision: Revision::ZERO,
            attempts: 0,
            failures: 0,
            cap: row.spec.retry.max_attempts,
            on_failure: row.spec.on_failure.as_ref().map(|task| task.id),
            defeats: 0,
            revoked: BTreeSet::new(),
            changed_at: Duration::ZERO,
            gone: false,
            key: row.spec.key.as_ref().map(|(key, _)| key.clone()),
            place: (Reverse(row.priority), row.runnable_at, row.id()),
            waiting: false,
            holder: None,
        };
        model.look_at(row);
        model
    }

    /// Takes over what only the row tells.
    pub(super) fn look_at(&mut self, row: &Task) {
        self.place = (Reverse(row.priority), row.runnable_at, row.id());
        self.waiting = row.waiting.is_some();
        self.holder = row.lease.as_ref().map(|lease| lease.worker.clone());
    }

    pub(super) fn is_active(&self) -> bool {
        !self.gone && self.status.is_some_and(|status| !status.is_terminal())
    }

    /// What must be submitted in the same commit, if it has just failed for good.
    pub(super) fn failure_task(&mut self, change: &TaskChange) -> Option<TaskId> {
        if change.status != Status::Failed || change.event == TaskEvent::Deleted {
            return None;
        }
        self.defeats += 1;
        let defeats = self.defeats;
        self.on_failure.map(|task| task.nth(defeats - 1))
    }

    /// Goes through a change; what is wrong with it, by rule.
    pub(super) fn step(&mut self, change: &TaskChange) -> Result<(), (&'static str, String)> {
        let before = self.status;
        if !allowed(change.event, before, change.status) {
            let was = before.map_or("nothing", Status::as_str);
            let wrong = format!("{:?} made {} of {was}", change.event, change.status);
            return Err(("transition", wrong));
        }
        let fence = match (change.event, before) {
            (TaskEvent::Claimed, _) => self.fence.next(),
            (TaskEvent::Retried, Some(Status::Claimed)) => {
                self.revoked.insert(self.fence);
                self.fence.next()
            }
            _ => self.fence,
        };
        if change.fence != fence {
            let wrong = format!("{:?} left {}, not {fence}", change.event, change.fence);
            return Err(("fence", wrong));
        }
        // Several changes of one commit share a revision.
        if change.revision < self.revision {
            let wrong = format!("{} after {}", change.revision, self.revision);
            return Err(("revision", wrong));
        }
        self.count(change, before);
        self.status = Some(change.status);
        self.gone = change.event == TaskEvent::Deleted;
        self.fence = change.fence;
        self.revision = change.revision;
        if self.cap > 0 && self.failures > self.cap {
            let wrong = format!("failed {} times, may {}", self.failures, self.cap);
            return Err(("failures", wrong));
        }
        Ok(())
    }

    fn count(&mut self, change: &TaskChange, before: Option<Status>) {
        match change.event {
            TaskEvent::Claimed => self.attempts += 1,
            TaskEvent::Failed => self.failures += 1,
            // A task that was asked to stop is cancelled: that is no failure.
            TaskEvent::Expired if change.status != Status::Cancelled => self.failures += 1,
            // Force grants one more attempt.
            TaskEvent::Retried if self.cap > 0 && before.is_some_and(Status::is_terminal) => {
                self.failures = self.failures.min(self.cap - 1);
            }
            _ => {}
        }
    }
}

/// Whether an event may make this of that.
fn allowed(event: TaskEvent, before: Option<Status>, after: Status) -> bool {
    use Status::{Cancelled, Claimed, Completed, Failed, Pending, Scheduled};
    let Some(before) = before else {
        return event == TaskEvent::Submitted && matches!(after, Scheduled | Pending);
    };
    match event {
        TaskEvent::Submitted => false,
        TaskEvent::Promoted => (before, after) == (Scheduled, Pending),
        TaskEvent::Claimed => (before, after) == (Pending, Claimed),
        TaskEvent::Completed => (before, after) == (Claimed, Completed),
        TaskEvent::Failed => before == Claimed && matches!(after, Failed | Scheduled | Pending),
        TaskEvent::Snoozed => before == Claimed && matches!(after, Scheduled | Pending),
        TaskEvent::Released => (before, after) == (Claimed, Pending),
        TaskEvent::CancelRequested => (before, after) == (Claimed, Claimed),
        TaskEvent::Cancelled => !before.is_terminal() && after == Cancelled,
        TaskEvent::Expired => {
            before == Claimed && matches!(after, Scheduled | Pending | Failed | Cancelled)
        }
        TaskEvent::Retried => {
            !matches!(before, Pending | Completed) && matches!(after, Scheduled | Pending)
        }
        TaskEvent::Unblocked => before == Scheduled && matches!(after, Scheduled | Pending),
        TaskEvent::Amended => before == after && !before.is_terminal(),
        TaskEvent::Deleted => before.is_terminal(),
    }
}
