//! What must hold of every task, and from one look at it to the next.
//!
//! The deciders keep all of it. Tests, the simulation and whoever examines a store ask here, so
//! that there is one list.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::lifecycle::Lifecycle;
use crate::limits::ERRORS_KEPT;
use crate::task::{Status, Task, TaskState};

/// Something about a task that must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// Claimed tasks have a worker, and only they.
    Lease,
    /// A lease ends no later than its deadline.
    Deadline,
    /// Only claimed tasks are in a stage.
    StageUnclaimed,
    /// A claimed task is in a stage of its lifecycle.
    StageUnknown,
    /// Only claimed tasks are asked to stop.
    CancelUnclaimed,
    /// Only scheduled tasks wait for another one.
    Waiting,
    /// Tasks that have ended have an end, and only they.
    Finished,
    /// Only completed tasks have a result.
    Result,
    /// Only tasks that have ended have a reason for it.
    Reason,
    /// A task that was claimed has started; neither its start nor its last claim is after its end.
    Started,
    /// Failures do not exceed the cap, and what may still run has not reached it.
    Failures,
    /// Every claim raises the fence.
    Fence,
    /// So many errors are not kept.
    Errors,
    /// It is another task than before.
    Identity,
    /// What never changes has changed.
    Spec,
    /// A task that has ended stays as it is, unless it is retried.
    Revived,
    /// A completed task stays completed.
    Uncompleted,
    /// Fence, revision, attempts, defeats and redrives never fall.
    Fell,
    /// Failures fall only when a retry is forced.
    Forgotten,
    /// When a task was claimed first does not change.
    Restarted,
    /// Within an attempt, a task moves only along its lifecycle.
    Moved,
}

impl Violation {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "claimed tasks have a worker, and only they",
            Self::Deadline => "a lease ends no later than its deadline",
            Self::StageUnclaimed => "only claimed tasks are in a stage",
            Self::StageUnknown => "a claimed task is in a stage of its lifecycle",
            Self::CancelUnclaimed => "only claimed tasks are asked to stop",
            Self::Waiting => "only scheduled tasks wait for another one",
            Self::Finished => "tasks that have ended have an end, and only they",
            Self::Result => "only completed tasks have a result",
            Self::Reason => "only tasks that have ended have a reason for it",
            Self::Started => "a task starts when it is claimed, and not after its end",
            Self::Failures => {
                "failures do not exceed the cap, and a task that has reached it has ended"
            }
            Self::Fence => "every claim raises the fence",
            Self::Errors => "the errors of the last attempts are kept, and no more",
            Self::Identity => "it is another task than before",
            Self::Spec => "what never changes has changed",
            Self::Revived => "a task that has ended stays so, unless it is retried",
            Self::Uncompleted => "a completed task stays completed",
            Self::Fell => "fence, revision, attempts, defeats and redrives never fall",
            Self::Forgotten => "failures fall only when a retry is forced",
            Self::Restarted => "when a task was claimed first does not change",
            Self::Moved => "a task moves only along its lifecycle",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Those that do not hold.
fn broken<const N: usize>(rules: [(bool, Violation); N]) -> Vec<Violation> {
    let broken = rules.into_iter().filter(|(holds, _)| !holds);
    broken.map(|(_, violation)| violation).collect()
}

impl Task {
    /// Everything about the task that must not be. It is empty.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace, StoreExt, TaskId, task::{Lane, NewTask}};
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let store = Memory::new().open(Namespace::new("docs")?);
    /// # let new = NewTask::new(TaskId::from_u128(1), Lane::new("q", "k")?, "");
    /// # let id = store.submit(new).await?.id;
    /// # let task = store.task(id).await?.unwrap();
    /// assert_eq!(task.violations(), []);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn violations(&self) -> Vec<Violation> {
        let claimed = self.status == Status::Claimed;
        let (cap, lease) = (self.spec.retry.max_attempts, self.lease.as_ref());
        let deadline_holds = |deadline| lease.is_none_or(|lease| lease.until <= deadline);
        let known = |lifecycle: &Lifecycle| {
            self.stage
                .as_ref()
                .is_some_and(|stage| lifecycle.has(stage))
        };
        let started = match (self.started_at, self.claimed_at) {
            (None, None) => self.attempts == 0 && !claimed,
            (Some(_), Some(claimed)) => {
                self.attempts > 0 && self.finished_at.is_none_or(|finished| claimed <= finished)
            }
            (Some(_), None) | (None, Some(_)) => false,
        };
        let began_before_end = match (self.started_at, self.finished_at) {
            (Some(started), Some(finished)) => started <= finished,
            _ => true,
        };
        broken([
            (claimed == lease.is_some(), Violation::Lease),
            (
                (lease.and_then(|lease| lease.deadline)).is_none_or(deadline_holds),
                Violation::Deadline,
            ),
            (claimed || self.stage.is_none(), Violation::StageUnclaimed),
            (
                !claimed || self.spec.lifecycle.as_ref().is_none_or(known),
                Violation::StageUnknown,
            ),
            (claimed || self.cancel.is_none(), Violation::CancelUnclaimed),
            (
                self.status == Status::Scheduled || self.waiting.is_none(),
                Violation::Waiting,
            ),
            (
                self.status.is_terminal() == self.finished_at.is_some(),
                Violation::Finished,
            ),
            (
                self.status == Status::Completed || self.result.is_none(),
                Violation::Result,
            ),
            (
                self.status.is_terminal() || self.reason.is_none(),
                Violation::Reason,
            ),
            (started && began_before_end, Violation::Started),
            (
                match cap {
                    0 => true,
                    cap if self.status.is_terminal() => self.failures <= cap,
                    cap => self.failures < cap,
                },
                Violation::Failures,
            ),
            (
                self.fence.get() >= u64::from(self.attempts),
                Violation::Fence,
            ),
            (self.errors.len() <= ERRORS_KEPT, Violation::Errors),
        ])
    }

    /// Everything that must not have happened to the task since this earlier look at it.
    /// It is empty, however much happened in between.
    pub fn violations_since(&self, before: &Task) -> Vec<Violation> {
        let (retried, cap) = (
            self.redrives > before.redrives,
            self.spec.retry.max_attempts,
        );
        let counters = |task: &Task| {
            let of = [task.attempts, task.defeats, task.redrives].map(u64::from);
            (task.fence.get(), task.revision.get(), of)
        };
        let ((fence, revision, of), (fence_before, revision_before, of_before)) =
            (counters(self), counters(before));
        let fell = fence < fence_before
            || revision < revision_before
            || of.iter().zip(&of_before).any(|(now, before)| now < before);
        let moved = match (&self.spec.lifecycle, &before.stage, &self.stage) {
            (Some(lifecycle), Some(from), Some(to)) if self.fence == before.fence => {
                lifecycle.leads(from, to)
            }
            _ => true,
        };
        broken([
            (self.id() == before.id(), Violation::Identity),
            (self.spec == before.spec, Violation::Spec),
            (
                !before.status.is_terminal() || retried || self.is_as(before),
                Violation::Revived,
            ),
            (
                before.status != Status::Completed || self.status == Status::Completed,
                Violation::Uncompleted,
            ),
            (!fell, Violation::Fell),
            (
                // A forced retry grants one more attempt, and a retry within the cap forgets nothing.
                self.failures >= before.failures
                    || (retried && cap > 0 && self.failures >= cap - 1),
                Violation::Forgotten,
            ),
            (
                before.started_at.is_none() || self.started_at == before.started_at,
                Violation::Restarted,
            ),
            (moved, Violation::Moved),
        ])
    }

    /// Whether nothing has changed but when it was written.
    fn is_as(&self, before: &Task) -> bool {
        let written = TaskState {
            revision: self.revision,
            modified_at: self.modified_at,
            ..before.state.clone()
        };
        self.state == written
    }
}
