//! What becomes of a task: one function for each event, each with one `match` over the status.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::decide::Moment;
use crate::error::{Conflict, Invalid, LeaseLost, Lost, Result};
use crate::ids::{Fence, Jitter, TaskId};
use crate::lifecycle::{Lifecycle, Phase};
use crate::limits::{ERROR_BYTES_KEPT, ERRORS_KEPT};
use crate::store::check::Check;
use crate::store::{Amend, Ending, FailRetry, Renewal};
use crate::task::{
    AttemptError, CancelRequest, FailureKind, Holder, Lease, Priority, Settled, Status, Task,
    WorkerId,
};
use crate::time::Timestamp;

/// What an event makes of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// This.
    Changed(Box<Task>, TaskEvent),
    /// Nothing: it was so already.
    Unchanged,
}

/// Whether the holder holds the task.
pub fn held<'a>(task: &'a Task, holder: &Holder) -> Result<&'a Lease, LeaseLost> {
    let lost = |why| LeaseLost {
        task: holder.task,
        fence: holder.fence,
        why,
    };
    match (task.status, &task.lease) {
        (Status::Claimed, Some(lease)) if lease.worker != holder.worker => {
            Err(lost(Lost::WrongWorker {
                holder: lease.worker.clone(),
            }))
        }
        (Status::Claimed, Some(_)) if task.fence != holder.fence => {
            Err(lost(Lost::Superseded { fence: task.fence }))
        }
        (Status::Claimed, Some(lease)) => Ok(lease),
        (status @ (Status::Scheduled | Status::Pending | Status::Claimed), _) => {
            Err(lost(Lost::NotClaimed { status }))
        }
        (status @ (Status::Completed | Status::Failed | Status::Cancelled), _) => {
            Err(lost(Lost::Finished { status }))
        }
    }
}

/// The first result, if this very settle was applied before.
pub fn settled_before<'a>(task: &'a Task, holder: &Holder, how: &Ending) -> Option<&'a Settled> {
    let settled = task.settled.as_ref()?;
    let same = settled.fence == holder.fence
        && settled.by == holder.worker.incarnation
        && settled.verb == how.verb();
    same.then_some(settled)
}

/// A worker claims the task.
pub fn claim(
    task: &Task,
    worker: &WorkerId,
    lease: Duration,
    moment: &Moment<'_>,
) -> Result<Verdict> {
    let refuse = |conflict: Conflict| Err(conflict.into());
    match task.status {
        Status::Pending => {}
        Status::Scheduled => {
            if let Some(waiting) = &task.waiting {
                return refuse(Conflict::Waiting {
                    task: task.id(),
                    on: waiting.on,
                });
            }
            if task.runnable_at > moment.now {
                return refuse(Conflict::NotDue {
                    task: task.id(),
                    due_at: task.runnable_at,
                });
            }
        }
        Status::Claimed => {
            return match &task.lease {
                Some(lease) if lease.worker != *worker => refuse(Conflict::AlreadyClaimed {
                    task: task.id(),
                    holder: lease.worker.clone(),
                    until: lease.until,
                }),
                Some(_) | None => Ok(Verdict::Unchanged),
            };
        }
        Status::Completed | Status::Failed | Status::Cancelled => {
            return refuse(Conflict::Finished {
                task: task.id(),
                status: task.status,
            });
        }
    }
    let now = moment.now;
    let deadline = (task.spec.attempt_timeout).map(|timeout| now.saturating_plus(timeout));
    let mut after = written(task, moment);
    after.status = Status::Claimed;
    after.fence = task.fence.next();
    after.attempts = task.attempts.saturating_add(1);
    after.lease = Some(Lease {
        worker: worker.clone(),
        until: lease_end(now, lease, deadline),
        deadline,
    });
    let first = task.spec.lifecycle.as_ref().map(Lifecycle::first);
    after.stage = first.or(task.spec.first_stage.as_ref()).cloned();
    after.progress = None;
    after.started_at = task.started_at.or(Some(now));
    after.claimed_at = Some(now);
    Ok(Verdict::Changed(Box::new(after), TaskEvent::Claimed))
}

/// The holder prolongs its lease. The answer, and the end of the lease if it is still held.
pub fn renew(task: Option<&Task>, holder: &Holder, lease: Duration, now: Timestamp) -> Renewal {
    let Some(task) = task else {
        return Renewal::Lost(gone(holder));
    };
    match held(task, holder) {
        Err(lost) => Renewal::Lost(lost),
        Ok(current) => {
            let until = lease_end(now, lease, current.deadline);
            match &task.cancel {
                None => Renewal::Held { until },
                Some(cancel) => Renewal::CancelRequested {
                    until,
                    reason: cancel.reason.clone(),
                },
            }
        }
    }
}

/// What a holder is told of a task that is not there.
pub fn gone(holder: &Holder) -> LeaseLost {
    LeaseLost {
        task: holder.task,
        fence: holder.fence,
        why: Lost::Gone,
    }
}

/// The holder ends its attempt.
pub fn settle(
    task: &Task,
    holder: &Holder,
    how: &Ending,
    moment: &Moment<'_>,
) -> Result<(Box<Task>, TaskEvent)> {
    held(task, holder)?;
    let now = moment.now;
    let mut after = Box::new(written(task, moment));
    let cancelling = task.cancel.clone();
    let event = match (how, cancelling) {
        (Ending::Complete { result }, _) => {
            may_move(task, &Phase::Completed)?;
            after.result = result.clone();
            finish(&mut after, Status::Completed, None, now);
            TaskEvent::Completed
        }
        (Ending::Fail { error, retry, .. }, Some(cancel)) => {
            note(&mut after, failure_kind(*retry), error.clone(), now);
            finish(&mut after, Status::Cancelled, cancel.reason, now);
            TaskEvent::Cancelled
        }
        (
            Ending::Fail {
                error,
                retry,
                jitter,
            },
            None,
        ) => {
            blame(&mut after, failure_kind(*retry), error.clone(), now);
            after_failure(&mut after, *retry, *jitter, now);
            TaskEvent::Failed
        }
        (Ending::Snooze { .. }, Some(cancel)) => {
            finish(&mut after, Status::Cancelled, cancel.reason, now);
            TaskEvent::Cancelled
        }
        (Ending::Release { reason }, Some(cancel)) => {
            if let Some(reason) = reason {
                note(&mut after, FailureKind::Interrupted, reason.clone(), now);
            }
            finish(&mut after, Status::Cancelled, cancel.reason, now);
            TaskEvent::Cancelled
        }
        (Ending::Snooze { delay }, None) => {
            wait(&mut after, now.plus("delay", *delay)?, now);
            TaskEvent::Snoozed
        }
        (Ending::Release { reason }, None) => {
            if let Some(reason) = reason {
                note(&mut after, FailureKind::Interrupted, reason.clone(), now);
            }
            // Back to its old place in the line, also if the clock has gone back since.
            leave(&mut after);
            after.status = Status::Pending;
            TaskEvent::Released
        }
        (Ending::Cancel { reason }, cancel) => {
            let reason = reason.clone().or(cancel.and_then(|cancel| cancel.reason));
            finish(&mut after, Status::Cancelled, reason, now);
            TaskEvent::Cancelled
        }
    };
    after.settled = Some(Settled {
        fence: holder.fence,
        by: holder.worker.incarnation,
        verb: how.verb(),
        status: after.status,
        runnable_at: (!after.status.is_terminal()).then_some(after.runnable_at),
        worker: Some(holder.worker.name.clone()),
    });
    Ok((after, event))
}

/// The lease or the deadline of an attempt ran out.
pub fn expire(task: &Task, fence: Fence, jitter: Jitter, moment: &Moment<'_>) -> Verdict {
    let now = moment.now;
    let lease = match (task.status, &task.lease) {
        (Status::Claimed, Some(lease)) if task.fence == fence && lease.until <= now => lease,
        (Status::Claimed, _)
        | (
            Status::Scheduled
            | Status::Pending
            | Status::Completed
            | Status::Failed
            | Status::Cancelled,
            _,
        ) => return Verdict::Unchanged,
    };
    let (kind, message) = match lease.deadline {
        // A lease never ends after the deadline, so this tells which of them came first.
        Some(deadline) if deadline <= lease.until => (
            FailureKind::DeadlineExceeded,
            format!("attempt exceeded its deadline of {deadline}"),
        ),
        Some(_) | None => (
            FailureKind::LeaseExpired,
            format!("lease of {} ran out at {}", lease.worker, lease.until),
        ),
    };
    let mut after = Box::new(written(task, moment));
    match task.cancel.clone() {
        Some(cancel) => {
            note(&mut after, kind, message, now);
            finish(&mut after, Status::Cancelled, cancel.reason, now);
        }
        None => {
            blame(&mut after, kind, message, now);
            after_failure(&mut after, FailRetry::Policy, jitter, now);
        }
    }
    Verdict::Changed(after, TaskEvent::Expired)
}

/// A scheduled task is due.
pub fn promote(task: &Task, moment: &Moment<'_>) -> Verdict {
    match task.status {
        Status::Scheduled if task.waiting.is_none() && task.runnable_at <= moment.now => {
            let mut after = written(task, moment);
            after.status = Status::Pending;
            Verdict::Changed(Box::new(after), TaskEvent::Promoted)
        }
        Status::Scheduled
        | Status::Pending
        | Status::Claimed
        | Status::Completed
        | Status::Failed
        | Status::Cancelled => Verdict::Unchanged,
    }
}

/// The task `ended` has ended, for which this one may wait.
pub fn unblock(task: &Task, ended: TaskId, moment: &Moment<'_>) -> Verdict {
    match (task.status, &task.waiting) {
        (Status::Scheduled, Some(waiting)) if waiting.on == ended => {
            let mut after = written(task, moment);
            after.waiting = None;
            wait(&mut after, waiting.then_at.max(moment.now), moment.now);
            Verdict::Changed(Box::new(after), TaskEvent::Unblocked)
        }
        (Status::Scheduled, _)
        | (
            Status::Pending
            | Status::Claimed
            | Status::Completed
            | Status::Failed
            | Status::Cancelled,
            _,
        ) => Verdict::Unchanged,
    }
}

/// Somebody cancels the task, or asks its holder to stop.
pub fn cancel(task: &Task, reason: Option<&String>, moment: &Moment<'_>) -> Verdict {
    let mut after = Box::new(written(task, moment));
    match (task.status, &task.cancel) {
        (Status::Scheduled | Status::Pending, _) => {
            finish(&mut after, Status::Cancelled, reason.cloned(), moment.now);
            Verdict::Changed(after, TaskEvent::Cancelled)
        }
        (Status::Claimed, None) => {
            after.cancel = Some(CancelRequest {
                at: moment.now,
                reason: reason.cloned(),
            });
            Verdict::Changed(after, TaskEvent::CancelRequested)
        }
        (Status::Claimed, Some(_))
        | (Status::Completed | Status::Failed | Status::Cancelled, _) => Verdict::Unchanged,
    }
}

/// Somebody makes the task run again, or sooner.
pub fn retry(task: &Task, force: bool, delay: Duration, moment: &Moment<'_>) -> Result<Verdict> {
    let mut after = Box::new(written(task, moment));
    let at = moment.now.plus("delay", delay)?;
    match task.status {
        Status::Pending => return Ok(Verdict::Unchanged),
        Status::Scheduled => {
            if let Some(waiting) = &task.waiting {
                return Err(Conflict::Waiting {
                    task: task.id(),
                    on: waiting.on,
                }
                .into());
            }
        }
        Status::Claimed => {
            if task.cancel.is_some() {
                return Err(Conflict::Cancelling { task: task.id() }.into());
            }
            let message = "taken away by an operator's retry".to_owned();
            note(&mut after, FailureKind::Revoked, message, moment.now);
            after.fence = task.fence.next();
        }
        Status::Completed => {
            return Err(Conflict::Finished {
                task: task.id(),
                status: task.status,
            }
            .into());
        }
        Status::Failed | Status::Cancelled => {
            may_move(task, &Phase::Pending)?;
            let policy = &task.spec.retry;
            if !policy.allows(task.failures) {
                if !force {
                    return Err(Conflict::MaxAttemptsReached {
                        task: task.id(),
                        failures: task.failures,
                        cap: policy.max_attempts,
                    }
                    .into());
                }
                after.failures = policy.max_attempts.saturating_sub(1);
            }
            after.redrives = task.redrives.saturating_add(1);
            after.finished_at = None;
            after.reason = None;
            after.cancel = None;
        }
    }
    wait(&mut after, at, moment.now);
    Ok(Verdict::Changed(after, TaskEvent::Retried))
}

/// Somebody changes how urgent the task is.
pub fn prioritise(task: &Task, priority: Priority, moment: &Moment<'_>) -> Result<Verdict> {
    match task.status {
        Status::Scheduled | Status::Pending | Status::Claimed if task.priority == priority => {
            Ok(Verdict::Unchanged)
        }
        Status::Scheduled | Status::Pending | Status::Claimed => {
            let mut after = written(task, moment);
            after.priority = priority;
            Ok(Verdict::Changed(Box::new(after), TaskEvent::Amended))
        }
        Status::Completed | Status::Failed | Status::Cancelled => Err(Conflict::Finished {
            task: task.id(),
            status: task.status,
        }
        .into()),
    }
}

/// The holder changes what it says about the task.
pub fn amend(task: &Task, amend: &Amend, moment: &Moment<'_>) -> Result<Box<Task>> {
    held(task, &amend.holder)?;
    let mut after = Box::new(written(task, moment));
    // The stage that it is in already is no move: the answer to the first call may have been lost.
    if let Some(stage) = &amend.stage
        && amend.stage != task.stage
    {
        may_move(task, &Phase::Stage(stage.clone()))?;
        after.stage = Some(stage.clone());
    }
    if let Some(progress) = &amend.progress {
        after.progress = Some(progress.clone());
    }
    if let Some(checkpoint) = &amend.checkpoint {
        after.checkpoint = Some(checkpoint.clone());
    }
    for (name, value) in &amend.set {
        after.attributes.insert(name.clone(), value.clone());
    }
    for name in &amend.unset {
        after.attributes.remove(name);
    }
    let attributes = after.attributes.check(moment.limits);
    attributes.map_err(|invalid| Invalid::new("attributes", invalid.problem))?;
    Ok(after)
}

/// Whether the lifecycle of the task, if it has one, lets it go there.
fn may_move(task: &Task, to: &Phase) -> Result<()> {
    let (Some(lifecycle), Some(from)) = (&task.spec.lifecycle, Phase::of(task)) else {
        return Ok(());
    };
    if lifecycle.allows(&from, to) {
        return Ok(());
    }
    Err(Conflict::MoveNotAllowed {
        task: task.id(),
        allowed: lifecycle.allowed(&from),
        from,
        to: to.clone(),
    }
    .into())
}

/// Whether the task can be deleted.
pub fn delete(task: &Task) -> Result<()> {
    match task.status {
        Status::Completed | Status::Failed | Status::Cancelled => Ok(()),
        Status::Scheduled | Status::Pending | Status::Claimed => Err(Conflict::NotFinished {
            task: task.id(),
            status: task.status,
        }
        .into()),
    }
}

fn written(task: &Task, moment: &Moment<'_>) -> Task {
    let mut after = task.clone();
    after.modified_at = moment.now;
    after.revision = moment.revision;
    after
}

fn lease_end(now: Timestamp, lease: Duration, deadline: Option<Timestamp>) -> Timestamp {
    let end = now.saturating_plus(lease);
    deadline.map_or(end, |deadline| end.min(deadline))
}

fn failure_kind(retry: FailRetry) -> FailureKind {
    match retry {
        FailRetry::Policy | FailRetry::After(_) => FailureKind::Error,
        FailRetry::Fatal => FailureKind::Fatal,
    }
}

/// Counts the attempt that is ending as a failure, and keeps its error.
fn blame(task: &mut Task, kind: FailureKind, message: String, now: Timestamp) {
    task.failures = task.failures.saturating_add(1);
    note(task, kind, message, now);
}

/// Keeps the error of the attempt that is ending, without counting it.
fn note(task: &mut Task, kind: FailureKind, mut message: String, now: Timestamp) {
    message.truncate(message.floor_char_boundary(ERROR_BYTES_KEPT));
    let Some(worker) = task.lease.as_ref().map(|lease| lease.worker.clone()) else {
        return;
    };
    let error = AttemptError {
        fence: task.fence,
        worker,
        at: now,
        kind,
        message,
        stage: task.stage.clone(),
    };
    task.errors.push(error);
    let surplus = task.errors.len().saturating_sub(ERRORS_KEPT);
    task.errors.drain(..surplus);
}

/// Tries again if that is allowed, and has failed for good otherwise.
fn after_failure(task: &mut Task, retry: FailRetry, jitter: Jitter, now: Timestamp) {
    let policy = &task.spec.retry;
    let delay = match retry {
        FailRetry::Policy => Some(policy.delay(task.failures, jitter)),
        FailRetry::After(delay) => Some(delay),
        FailRetry::Fatal => None,
    };
    let at = delay.map(|delay| now.saturating_plus(delay));
    let last_chance = policy
        .total
        .map(|total| task.spec.created_at.saturating_plus(total));
    match at {
        Some(at) if policy.allows(task.failures) && last_chance.is_none_or(|last| at <= last) => {
            wait(task, at, now);
        }
        Some(_) | None => {
            let reason = task.errors.last().map(|error| error.message.clone());
            task.defeats = task.defeats.saturating_add(1);
            finish(task, Status::Failed, reason, now);
        }
    }
}

/// Takes the task out of its holder's hands.
fn leave(task: &mut Task) {
    task.lease = None;
    task.stage = None;
}

/// Puts the task into the line, runnable at this moment.
fn wait(task: &mut Task, at: Timestamp, now: Timestamp) {
    leave(task);
    task.runnable_at = at;
    task.status = if at <= now {
        Status::Pending
    } else {
        Status::Scheduled
    };
}

fn finish(task: &mut Task, status: Status, reason: Option<String>, now: Timestamp) {
    leave(task);
    task.status = status;
    task.reason = reason;
    task.cancel = None;
    if let Some(waiting) = task.waiting.take() {
        task.runnable_at = waiting.then_at;
    }
    // Nothing ends before it began, also if the clock has gone back since.
    let began = task.claimed_at.max(task.started_at);
    task.finished_at = Some(began.map_or(now, |began| now.max(began)));
}
