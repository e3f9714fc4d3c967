//! Tasks: every event on every status, and what holds after any history of events.

use std::sync::Arc;

use plimsoll_core::change::TaskEvent;
use plimsoll_core::decide::submit;
use plimsoll_core::decide::task::{self, Verdict};
use plimsoll_core::error::{Conflict, Error, LeaseLost, Lost};
use plimsoll_core::ids::Jitter;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Amend, Ending, FailRetry, Renewal};
use plimsoll_core::task::{
    AttemptError, Backoff, CancelRequest, FailureKind, Holder, Lane, Lease, NewTask, Priority,
    Progress, RetryPolicy, Settled, Status, Task, TaskSpec, TaskState, Verb, Waiting,
};
use plimsoll_core::{Fence, Incarnation, Invalid, Result, Revision, TaskId, Timestamp};
use proptest::prelude::*;

mod clocks;
mod invariants;
mod settling;
mod table;
mod transitions;
mod walks;

use crate::{at, moment, moment_at, name, secs, worker};

const ID: TaskId = TaskId::from_u128(1);
const PREDECESSOR: TaskId = TaskId::from_u128(2);
const NOW: u64 = 1_000;
const CAP: u32 = 3;

/// A task of a kind, as the tables call it.
pub(crate) struct State {
    pub(crate) name: &'static str,
    /// What sets it apart from others of the same status; nothing for the usual one.
    pub(crate) when: &'static str,
    pub(crate) task: Task,
}

/// Each status, with everything that an event may depend on.
pub(crate) fn states() -> Vec<State> {
    let state = |name, when, task| State { name, when, task };
    let claimed = |edit: fn(&mut Task, &mut Lease)| {
        let mut task = in_status(Status::Claimed);
        let mut lease = task.lease.take().unwrap();
        edit(&mut task, &mut lease);
        task.lease = Some(lease);
        task
    };
    let at_cap = |status| with(in_status(status), |task| task.failures = CAP);
    vec![
        state("later", "", in_status(Status::Scheduled)),
        state(
            "due",
            "due",
            with(in_status(Status::Scheduled), |task| {
                task.runnable_at = at(NOW);
            }),
        ),
        state("waiting", "waiting for another task", waiting(at(NOW - 5))),
        state("pending", "", in_status(Status::Pending)),
        state("claimed", "", claimed(|_, _| {})),
        state(
            "stopping",
            "cancel requested",
            claimed(|task, _| task.cancel = Some(asked_to_stop())),
        ),
        state(
            "overdue",
            "lease over",
            claimed(|_, lease| lease.until = at(NOW)),
        ),
        state(
            "timeout",
            "deadline over",
            claimed(|_, lease| {
                lease.until = at(NOW);
                lease.deadline = Some(at(NOW));
            }),
        ),
        state(
            "stop+over",
            "cancel requested and lease over",
            claimed(|task, lease| {
                task.cancel = Some(asked_to_stop());
                lease.until = at(NOW);
            }),
        ),
        state(
            "last",
            "last attempt",
            claimed(|task, _| task.failures = CAP - 1),
        ),
        state(
            "last+over",
            "last attempt and lease over",
            claimed(|task, lease| {
                task.failures = CAP - 1;
                lease.until = at(NOW);
            }),
        ),
        state("completed", "", in_status(Status::Completed)),
        state("failed", "", in_status(Status::Failed)),
        state("fail@cap", "no attempt left", at_cap(Status::Failed)),
        state("cancelled", "", in_status(Status::Cancelled)),
        state("canc@cap", "no attempt left", at_cap(Status::Cancelled)),
    ]
}

fn spec() -> TaskSpec {
    let retry = RetryPolicy {
        max_attempts: CAP,
        backoff: Backoff::Fixed(secs(10)),
        jitter_percent: 0,
        total: None,
    };
    let mut new = NewTask::new(ID, Lane::new("media", "encode").unwrap(), "clip").retry(retry);
    new.first_stage = Some(name("reading"));
    let task = submit::create(&new, None, None, &moment(at(100))).unwrap();
    task.spec.as_ref().clone()
}

/// A task with this status and with something in every field that the status allows.
fn in_status(status: Status) -> Task {
    let terminal = status.is_terminal();
    let claimed = status == Status::Claimed;
    let state = TaskState {
        status,
        priority: Priority::default(),
        fence: Fence::new(2),
        attempts: 2,
        failures: 1,
        defeats: 1,
        redrives: 1,
        runnable_at: at(if status == Status::Scheduled {
            NOW + 50
        } else {
            800
        }),
        lease: claimed.then(|| Lease {
            worker: worker("me"),
            until: at(NOW + 30),
            deadline: None,
        }),
        cancel: None,
        settled: Some(Settled {
            fence: Fence::new(1),
            by: worker("me").incarnation,
            verb: Verb::Fail,
            status: Status::Pending,
            runnable_at: Some(at(800)),
            worker: Some(worker("me").name),
        }),
        waiting: None,
        successor: Some(TaskId::from_u128(9)),
        stage: claimed.then(|| name("writing")),
        progress: Some(Progress {
            percent: Some(40),
            ..Progress::default()
        }),
        checkpoint: Some("page 7".into()),
        attributes: fields([("colour", "red")]).unwrap(),
        errors: vec![error(1, FailureKind::Error, "first", 750)],
        result: (status == Status::Completed).then(|| "done".into()),
        reason: terminal.then(|| "because".to_owned()),
        started_at: Some(at(700)),
        claimed_at: Some(at(900)),
        finished_at: terminal.then(|| at(950)),
        modified_at: at(950),
        revision: Revision::new(40),
    };
    Task {
        spec: Arc::new(spec()),
        state,
    }
}

/// The task with something of it changed.
fn with(mut task: Task, edit: impl FnOnce(&mut Task)) -> Task {
    edit(&mut task);
    task
}

fn waiting(then_at: Timestamp) -> Task {
    with(in_status(Status::Scheduled), |task| {
        task.runnable_at = Timestamp::MAX;
        task.waiting = Some(Waiting {
            on: PREDECESSOR,
            then_at,
        });
    })
}

fn asked_to_stop() -> CancelRequest {
    CancelRequest {
        at: at(990),
        reason: Some("asked".into()),
    }
}

fn stopping() -> Task {
    with(in_status(Status::Claimed), |task| {
        task.cancel = Some(asked_to_stop());
    })
}

fn error(fence: u64, kind: FailureKind, message: &str, when: u64) -> AttemptError {
    AttemptError {
        fence: Fence::new(fence),
        worker: worker("me"),
        at: at(when),
        kind,
        message: message.into(),
        // The attempt at hand is in a stage, the one before was in none.
        stage: (fence > 1).then(|| name("writing")),
    }
}

/// Who shows up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum By {
    /// The worker that claimed last, with the current fence.
    Holder,
    /// Another worker with the current fence.
    Other,
    /// The worker that claimed last, with the fence before.
    Older,
}

impl By {
    fn holder(self, task: &Task) -> Holder {
        let (worker, fence) = match self {
            Self::Holder => (worker("me"), task.fence),
            Self::Other => (worker("other"), task.fence),
            Self::Older => (worker("me"), Fence::new(task.fence.get().saturating_sub(1))),
        };
        Holder {
            task: task.id(),
            worker,
            fence,
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Holder => "",
            Self::Other => "/other",
            Self::Older => "/older",
        }
    }
}

/// What can happen to a task.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Promote,
    Unblock,
    Claim(By),
    Renew(By),
    Settle(Ending, By),
    Expire(By),
    Cancel,
    Retry { force: bool, delay: u64 },
    Prioritise(u8),
    Amend(By),
    Delete,
}

pub(crate) fn endings() -> Vec<(&'static str, Ending)> {
    let fail = |retry| Ending::Fail {
        error: "broken".into(),
        retry,
        jitter: Jitter::default(),
    };
    let release = |reason: Option<&str>| Ending::Release {
        reason: reason.map(Into::into),
    };
    vec![
        ("complete", Ending::Complete { result: None }),
        ("fail", fail(FailRetry::Policy)),
        ("fail-after", fail(FailRetry::After(secs(0)))),
        ("fail-fatal", fail(FailRetry::Fatal)),
        ("snooze-0s", Ending::Snooze { delay: secs(0) }),
        ("snooze-60s", Ending::Snooze { delay: secs(60) }),
        ("release", release(None)),
        ("interrupt", release(Some("going down"))),
        ("call-off", Ending::Cancel { reason: None }),
    ]
}

/// Every event, as the tables call it.
pub(crate) fn events() -> Vec<(String, Event)> {
    let everybody = [By::Holder, By::Other, By::Older];
    let mut events: Vec<(String, Event)> = vec![
        ("promote".into(), Event::Promote),
        ("unblock".into(), Event::Unblock),
    ];
    for by in [By::Holder, By::Other] {
        events.push((format!("claim{}", by.suffix()), Event::Claim(by)));
    }
    for by in everybody {
        events.push((format!("renew{}", by.suffix()), Event::Renew(by)));
    }
    for by in everybody {
        let settles = endings()
            .into_iter()
            .map(|(name, how)| (format!("{name}{}", by.suffix()), Event::Settle(how, by)));
        events.extend(settles);
    }
    for by in everybody {
        events.push((format!("amend{}", by.suffix()), Event::Amend(by)));
    }
    let others = [
        ("expire", Event::Expire(By::Holder)),
        ("expire/older", Event::Expire(By::Older)),
        ("cancel", Event::Cancel),
        ("retry", retry(false, 0)),
        ("retry-60s", retry(false, 60)),
        ("force", retry(true, 0)),
        ("force-60s", retry(true, 60)),
        ("prioritise-5", Event::Prioritise(5)),
        ("prioritise-9", Event::Prioritise(9)),
        ("delete", Event::Delete),
    ];
    events.extend(others.map(|(name, event)| (name.into(), event)));
    events
}

fn retry(force: bool, delay: u64) -> Event {
    Event::Retry { force, delay }
}

/// What became of a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Changed(Box<Task>, TaskEvent),
    Unchanged,
    Renewed { stop: bool },
    Deleted,
    Refused(Error),
}

/// The task that this one waits for; any other if it waits for none.
pub(crate) fn waited_for(task: &Task) -> TaskId {
    let waiting = task.waiting.as_ref();
    waiting.map_or(TaskId::from_u128(0), |waiting| waiting.on)
}

pub(crate) fn outcome(before: &Task, event: &Event) -> Outcome {
    let m = moment(at(NOW));
    let settled = |result: Result<(Box<Task>, TaskEvent)>| match result {
        Ok((after, event)) => Outcome::Changed(after, event),
        Err(error) => Outcome::Refused(error),
    };
    let of = |result: Result<Verdict>| match result {
        Ok(Verdict::Changed(after, event)) => Outcome::Changed(after, event),
        Ok(Verdict::Unchanged) => Outcome::Unchanged,
        Err(error) => Outcome::Refused(error),
    };
    match event {
        Event::Promote => of(Ok(task::promote(before, &m))),
        Event::Unblock => of(Ok(task::unblock(before, waited_for(before), &m))),
        Event::Claim(by) => {
            let worker = by.holder(before).worker;
            of(task::claim(before, &worker, secs(30), &m))
        }
        Event::Renew(by) => match task::renew(Some(before), &by.holder(before), secs(30), m.now) {
            Renewal::Held { .. } => Outcome::Renewed { stop: false },
            Renewal::CancelRequested { .. } => Outcome::Renewed { stop: true },
            Renewal::Lost(lost) => Outcome::Refused(lost.into()),
        },
        Event::Settle(how, by) => settled(task::settle(before, &by.holder(before), how, &m)),
        Event::Expire(by) => {
            let fence = by.holder(before).fence;
            of(Ok(task::expire(before, fence, Jitter::default(), &m)))
        }
        Event::Cancel => of(Ok(task::cancel(before, None, &m))),
        Event::Retry { force, delay } => of(task::retry(before, *force, secs(*delay), &m)),
        Event::Prioritise(priority) => {
            let priority = Priority::new(*priority).unwrap();
            of(task::prioritise(before, priority, &m))
        }
        Event::Amend(by) => {
            let amended = task::amend(before, &Amend::new(by.holder(before)), &m);
            settled(amended.map(|after| (after, TaskEvent::Amended)))
        }
        Event::Delete => match task::delete(before) {
            Ok(()) => Outcome::Deleted,
            Err(error) => Outcome::Refused(error),
        },
    }
}
