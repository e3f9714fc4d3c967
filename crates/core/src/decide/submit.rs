//! What a submit onto an id or key leads to.

use std::sync::Arc;

use crate::decide::Moment;
use crate::error::{Conflict, Result};
use crate::ids::{Fence, Fingerprint, Revision, TaskId};
use crate::store::SubmitOutcome;
use crate::task::{
    Due, KeyLifetime, NewTask, OnConflict, Status, Task, TaskSpec, TaskState, Waiting,
};
use crate::time::Timestamp;

/// What a submit leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// A new task.
    Create,
    /// Nothing: this very submit was applied before.
    Repeated,
    /// Nothing: the key stands for this task.
    Existing(TaskId, SubmitOutcome),
    /// A new task in the place of the key's holder, which nobody has claimed and is cancelled.
    Replace,
    /// A new task that waits for the key's holder, which is claimed and asked to stop.
    Succeed,
}

/// Decides a submit. `same_id` is the task with the same id, `holder` the one that the key was
/// last given to.
pub fn submit(
    new: &NewTask,
    same_id: Option<&Task>,
    holder: Option<&Task>,
    now: Timestamp,
) -> Result<Submission> {
    if let Some(task) = same_id {
        return repeated(new, task);
    }
    let (Some(request), Some(holder)) = (&new.key, holder) else {
        return Ok(Submission::Create);
    };
    if !key_stands(holder, now) {
        return Ok(Submission::Create);
    }
    let attach = Ok(Submission::Existing(holder.id(), existing(new, holder)));
    match (holder.status, request.on_conflict) {
        (Status::Scheduled | Status::Pending, OnConflict::ReplacePending)
        | (Status::Scheduled | Status::Pending, OnConflict::CancelAndReplace) => {
            Ok(Submission::Replace)
        }
        (Status::Claimed, OnConflict::CancelAndReplace) => Ok(Submission::Succeed),
        (
            Status::Scheduled
            | Status::Pending
            | Status::Claimed
            | Status::Completed
            | Status::Failed
            | Status::Cancelled,
            OnConflict::Attach,
        )
        | (Status::Claimed, OnConflict::ReplacePending)
        | (
            Status::Completed | Status::Failed | Status::Cancelled,
            OnConflict::ReplacePending | OnConflict::CancelAndReplace,
        ) => attach,
        (
            Status::Scheduled
            | Status::Pending
            | Status::Claimed
            | Status::Completed
            | Status::Failed
            | Status::Cancelled,
            OnConflict::Reject,
        ) => Err(Conflict::KeyTaken {
            key: request.key.clone(),
            holder: holder.id(),
            status: holder.status,
        }
        .into()),
    }
}

fn repeated(new: &NewTask, task: &Task) -> Result<Submission> {
    let same_key = task.spec.key.as_ref().map(|(key, _)| key) == new.key.as_ref().map(|k| &k.key);
    let same = task.spec.lane == new.lane
        && task.spec.fingerprint == Fingerprint::of(&new.payload)
        && same_key;
    if same {
        Ok(Submission::Repeated)
    } else {
        Err(Conflict::IdTaken { task: new.id }.into())
    }
}

fn existing(new: &NewTask, holder: &Task) -> SubmitOutcome {
    if holder.status.is_terminal() {
        SubmitOutcome::ExistingFinished(holder.status)
    } else if holder.spec.fingerprint != Fingerprint::of(&new.payload) {
        SubmitOutcome::ExistingOtherPayload
    } else {
        SubmitOutcome::Existing
    }
}

/// Whether the key of a task still stands for it: it does while the task is active, and after
/// that as long as its lifetime says. Nothing has to be written for it to end.
pub fn key_stands(task: &Task, now: Timestamp) -> bool {
    let Some((_, lifetime)) = &task.spec.key else {
        return false;
    };
    match (task.status, lifetime) {
        (Status::Scheduled | Status::Pending | Status::Claimed, _) => true,
        (Status::Completed | Status::Failed | Status::Cancelled, KeyLifetime::WhileActive) => false,
        (Status::Completed | Status::Failed | Status::Cancelled, KeyLifetime::For(lifetime)) => {
            now < task.spec.created_at.saturating_plus(*lifetime)
        }
        (Status::Completed | Status::Failed | Status::Cancelled, KeyLifetime::Forever) => true,
    }
}

/// The new task, which waits for `predecessor` to end if there is one, and belongs to the group
/// that was opened at `group_born`.
pub fn create(
    new: &NewTask,
    predecessor: Option<TaskId>,
    group_born: Option<Revision>,
    moment: &Moment<'_>,
) -> Result<Task> {
    let now = moment.now;
    let wanted_at = match new.due {
        Due::Now => now,
        Due::After(delay) => now.plus("due", delay)?,
        Due::At(at) => at.max(now),
    };
    let waiting = predecessor.map(|on| Waiting {
        on,
        then_at: wanted_at,
    });
    let (status, runnable_at) = match waiting {
        Some(_) => (Status::Scheduled, Timestamp::MAX),
        None if wanted_at > now => (Status::Scheduled, wanted_at),
        None => (Status::Pending, now),
    };
    let spec = TaskSpec {
        id: new.id,
        lane: new.lane.clone(),
        payload: new.payload.clone(),
        fingerprint: Fingerprint::of(&new.payload),
        key: new.key.as_ref().map(|key| (key.key.clone(), key.lifetime)),
        group: new.group.clone(),
        group_born,
        owner: new.owner.clone(),
        labels: new.labels.clone(),
        retry: new.retry.clone(),
        attempt_timeout: new.attempt_timeout,
        first_stage: new.first_stage.clone(),
        on_failure: new.on_failure.clone(),
        trace: new.trace.clone(),
        created_at: now,
        born: moment.revision,
        lifecycle: new.lifecycle.clone(),
    };
    let state = TaskState {
        status,
        priority: new.priority,
        fence: Fence::ZERO,
        attempts: 0,
        failures: 0,
        defeats: 0,
        redrives: 0,
        runnable_at,
        lease: None,
        cancel: None,
        settled: None,
        waiting,
        successor: None,
        stage: None,
        progress: None,
        checkpoint: None,
        attributes: Default::default(),
        errors: Vec::new(),
        result: None,
        reason: None,
        started_at: None,
        claimed_at: None,
        finished_at: None,
        modified_at: now,
        revision: moment.revision,
    };
    Ok(Task {
        spec: Arc::new(spec),
        state,
    })
}
