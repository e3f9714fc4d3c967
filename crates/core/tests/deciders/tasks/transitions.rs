//! What each transition changes. Whole tasks are compared, so nothing else may change.

use plimsoll_core::Limits;
use plimsoll_core::decide::Moment;

use super::*;

/// The task as a change at `NOW` must leave it.
pub(super) fn after(before: &Task, edit: impl FnOnce(&mut Task)) -> Task {
    with(before.clone(), |task| {
        task.modified_at = at(NOW);
        task.revision = moment(at(NOW)).revision;
        edit(task);
    })
}

/// Asserts that the event makes this of the task.
#[track_caller]
pub(super) fn assert_becomes(
    before: &Task,
    event: &Event,
    kind: TaskEvent,
    edit: impl FnOnce(&mut Task),
) {
    let expected = Outcome::Changed(Box::new(after(before, edit)), kind);
    assert_eq!(outcome(before, event), expected, "{event:?}");
}

pub(super) fn settle(how: Ending) -> Event {
    Event::Settle(how, By::Holder)
}

pub(super) fn fail(retry: FailRetry) -> Event {
    settle(Ending::Fail {
        error: "broken".into(),
        retry,
        jitter: Jitter(u32::MAX),
    })
}

pub(super) fn left(task: &mut Task) {
    task.lease = None;
    task.stage = None;
}

pub(super) fn settled(task: &mut Task, verb: Verb) {
    let runnable_at = (!task.status.is_terminal()).then_some(task.runnable_at);
    task.settled = Some(Settled {
        fence: Fence::new(2),
        by: worker("me").incarnation,
        verb,
        status: task.status,
        runnable_at,
        worker: Some(worker("me").name),
    });
}

pub(super) fn ended(task: &mut Task, status: Status, reason: Option<&str>) {
    left(task);
    task.status = status;
    task.reason = reason.map(Into::into);
    task.cancel = None;
    if let Some(waiting) = task.waiting.take() {
        task.runnable_at = waiting.then_at;
    }
    task.finished_at = Some(at(NOW));
}

pub(super) fn in_line(task: &mut Task, status: Status, runnable_at: u64) {
    left(task);
    task.status = status;
    task.runnable_at = at(runnable_at);
}

pub(super) fn blamed(task: &mut Task, kind: FailureKind, message: &str) {
    task.errors.push(error(2, kind, message, NOW));
}

pub(super) fn with_spec(mut task: Task, edit: impl FnOnce(&mut TaskSpec)) -> Task {
    edit(Arc::make_mut(&mut task.spec));
    task
}

#[test]
fn a_promoted_task_keeps_its_moment() {
    let before = with(in_status(Status::Scheduled), |task| {
        task.runnable_at = at(NOW - 7);
    });
    assert_becomes(&before, &Event::Promote, TaskEvent::Promoted, |task| {
        task.status = Status::Pending;
    });
}

#[test]
fn an_unblocked_task_is_runnable_when_it_wanted_but_not_before_now() {
    let wanted_before = waiting(at(NOW - 5));
    assert_becomes(
        &wanted_before,
        &Event::Unblock,
        TaskEvent::Unblocked,
        |task| {
            task.waiting = None;
            in_line(task, Status::Pending, NOW);
        },
    );
    let wanted_later = waiting(at(NOW + 5));
    assert_becomes(
        &wanted_later,
        &Event::Unblock,
        TaskEvent::Unblocked,
        |task| {
            task.waiting = None;
            in_line(task, Status::Scheduled, NOW + 5);
        },
    );
}

#[test]
fn a_claim_begins_an_attempt_and_forgets_how_far_the_last_one_was() {
    for status in [Status::Pending, Status::Scheduled] {
        let before = with(in_status(status), |task| task.runnable_at = at(800));
        assert_becomes(
            &before,
            &Event::Claim(By::Other),
            TaskEvent::Claimed,
            |task| {
                task.status = Status::Claimed;
                task.fence = Fence::new(3);
                task.attempts = 3;
                task.stage = Some(name("reading"));
                task.progress = None;
                task.claimed_at = Some(at(NOW));
                task.lease = Some(Lease {
                    worker: worker("other"),
                    until: at(NOW + 30),
                    deadline: None,
                });
            },
        );
    }
}

#[test]
fn the_first_claim_says_when_the_task_started() {
    let before = with(in_status(Status::Pending), |task| {
        task.started_at = None;
        task.claimed_at = None;
    });
    let Outcome::Changed(claimed, _) = outcome(&before, &Event::Claim(By::Holder)) else {
        panic!("not claimed");
    };
    assert_eq!(claimed.started_at, Some(at(NOW)));
    assert_eq!(claimed.claimed_at, Some(at(NOW)));
}

#[test]
fn a_lease_ends_no_later_than_the_deadline_of_its_attempt() {
    for (timeout, until) in [(20, NOW + 20), (30, NOW + 30), (40, NOW + 30)] {
        let before = with_spec(in_status(Status::Pending), |spec| {
            spec.attempt_timeout = Some(secs(timeout));
        });
        let Outcome::Changed(claimed, _) = outcome(&before, &Event::Claim(By::Holder)) else {
            panic!("not claimed");
        };
        let lease = claimed.lease.clone().unwrap();
        assert_eq!(lease.deadline, Some(at(NOW + timeout)));
        assert_eq!(lease.until, at(until));
        let later = at(NOW + 15);
        let renewed = task::renew(Some(&claimed), &claimed.holder().unwrap(), secs(30), later);
        let until = at(NOW + timeout.min(45));
        assert_eq!(renewed, Renewal::Held { until });
    }
}

#[test]
fn a_renewal_delivers_the_cancel_request() {
    let before = stopping();
    let renewed = task::renew(Some(&before), &before.holder().unwrap(), secs(9), at(NOW));
    let expected = Renewal::CancelRequested {
        until: at(NOW + 9),
        reason: Some("asked".into()),
    };
    assert_eq!(renewed, expected);
}

#[test]
fn a_cancelled_task_that_nobody_holds_ends_at_once() {
    let reason = "no longer needed".to_owned();
    for before in [
        in_status(Status::Scheduled),
        in_status(Status::Pending),
        waiting(at(NOW - 5)),
        waiting(at(NOW + 5)),
    ] {
        let verdict = task::cancel(&before, Some(&reason), &moment(at(NOW)));
        let expected = after(&before, |task| {
            ended(task, Status::Cancelled, Some("no longer needed"));
        });
        assert_eq!(
            verdict,
            Verdict::Changed(Box::new(expected), TaskEvent::Cancelled)
        );
    }
}

#[test]
fn a_cancelled_task_that_is_held_is_flagged_and_keeps_its_holder() {
    let before = in_status(Status::Claimed);
    assert_becomes(
        &before,
        &Event::Cancel,
        TaskEvent::CancelRequested,
        |task| {
            task.cancel = Some(CancelRequest {
                at: at(NOW),
                reason: None,
            });
        },
    );
}

#[test]
fn a_retry_brings_a_waiting_task_forward_and_counts_nothing() {
    let before = in_status(Status::Scheduled);
    for (delay, status) in [(0, Status::Pending), (60, Status::Scheduled)] {
        assert_becomes(&before, &retry(false, delay), TaskEvent::Retried, |task| {
            in_line(task, status, NOW + delay);
        });
    }
}

#[test]
fn a_retry_takes_a_claimed_task_away_and_moves_the_fence_on() {
    let before = in_status(Status::Claimed);
    for force in [false, true] {
        assert_becomes(&before, &retry(force, 0), TaskEvent::Retried, |task| {
            blamed(
                task,
                FailureKind::Revoked,
                "taken away by an operator's retry",
            );
            task.fence = Fence::new(3);
            in_line(task, Status::Pending, NOW);
        });
    }
}

#[test]
fn a_retry_revives_a_task_that_failed_or_was_cancelled() {
    for status in [Status::Failed, Status::Cancelled] {
        for force in [false, true] {
            let before = in_status(status);
            assert_becomes(&before, &retry(force, 60), TaskEvent::Retried, |task| {
                in_line(task, Status::Scheduled, NOW + 60);
                task.redrives = 2;
                task.finished_at = None;
                task.reason = None;
            });
        }
    }
}

#[test]
fn a_forced_retry_grants_exactly_one_more_attempt() {
    for status in [Status::Failed, Status::Cancelled] {
        let before = with(in_status(status), |task| task.failures = CAP);
        assert_becomes(&before, &retry(true, 0), TaskEvent::Retried, |task| {
            in_line(task, Status::Pending, NOW);
            task.failures = CAP - 1;
            task.redrives = 2;
            task.finished_at = None;
            task.reason = None;
        });
    }
}

#[test]
fn another_priority_is_all_that_changes() {
    for status in [Status::Scheduled, Status::Pending, Status::Claimed] {
        assert_becomes(
            &in_status(status),
            &Event::Prioritise(9),
            TaskEvent::Amended,
            |task| {
                task.priority = Priority::new(9).unwrap();
            },
        );
    }
}

#[test]
fn an_amendment_changes_what_it_names() {
    let before = in_status(Status::Claimed);
    let progress = Progress {
        percent: Some(90),
        message: Some("almost".into()),
        ..Progress::default()
    };
    let amend = Amend {
        stage: Some(name("uploading")),
        progress: Some(progress.clone()),
        checkpoint: Some("page 8".into()),
        set: fields([("shape", "round")]).unwrap(),
        unset: vec![name("colour"), name("absent")],
        ..Amend::new(By::Holder.holder(&before))
    };
    let expected = after(&before, |task| {
        task.stage = Some(name("uploading"));
        task.progress = Some(progress);
        task.checkpoint = Some("page 8".into());
        task.attributes = fields([("shape", "round")]).unwrap();
    });
    assert_eq!(
        task::amend(&before, &amend, &moment(at(NOW))),
        Ok(Box::new(expected))
    );
    assert_becomes(
        &before,
        &Event::Amend(By::Holder),
        TaskEvent::Amended,
        |_| {},
    );
}

#[test]
fn attributes_that_would_exceed_a_limit_are_refused() {
    let before = in_status(Status::Claimed);
    let amend = Amend {
        set: fields([("shape", "round")]).unwrap(),
        ..Amend::new(By::Holder.holder(&before))
    };
    let limits = Limits {
        fields_max: 1,
        ..Default::default()
    };
    let m = Moment {
        limits: &limits,
        ..moment(at(NOW))
    };
    let refused = task::amend(&before, &amend, &m).unwrap_err();
    let Error::Invalid(Invalid { field, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(field, "attributes");
}
