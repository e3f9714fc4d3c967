//! What each ending of an attempt changes. Whole tasks are compared, so nothing else may change.

use super::transitions::{
    assert_becomes, blamed, ended, fail, in_line, settle, settled, with_spec,
};
use super::*;

#[test]
fn a_completed_task_has_its_result_also_when_it_was_asked_to_stop() {
    let how = settle(Ending::Complete {
        result: Some("42".into()),
    });
    for before in [in_status(Status::Claimed), stopping()] {
        assert_becomes(&before, &how, TaskEvent::Completed, |task| {
            ended(task, Status::Completed, None);
            task.result = Some("42".into());
            settled(task, Verb::Complete);
        });
    }
}

#[test]
fn a_failure_waits_as_the_policy_or_the_handler_says() {
    for (retry, status, runnable_at) in [
        (FailRetry::Policy, Status::Scheduled, NOW + 10),
        (FailRetry::After(secs(3)), Status::Scheduled, NOW + 3),
        (FailRetry::After(secs(0)), Status::Pending, NOW),
    ] {
        let before = in_status(Status::Claimed);
        assert_becomes(&before, &fail(retry), TaskEvent::Failed, |task| {
            task.failures = 2;
            blamed(task, FailureKind::Error, "broken");
            in_line(task, status, runnable_at);
            settled(task, Verb::Fail);
        });
    }
}

#[test]
fn the_wait_after_a_failure_is_that_of_this_failure_less_its_jitter() {
    let before = with_spec(in_status(Status::Claimed), |spec| {
        spec.retry.backoff = Backoff::Exponential {
            first: secs(10),
            factor: 2.0,
            cap: secs(300),
        };
        spec.retry.jitter_percent = 50;
    });
    let failed = |sample| {
        let how = Ending::Fail {
            error: "broken".into(),
            retry: FailRetry::Policy,
            jitter: Jitter(sample),
        };
        match outcome(&before, &settle(how)) {
            Outcome::Changed(after, _) => after.runnable_at,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        failed(0),
        at(NOW + 20),
        "the second failure waits twice as long"
    );
    assert_eq!(failed(1 << 31), at(NOW + 15), "half of half is taken off");
}

#[test]
fn a_task_has_failed_for_good_when_it_is_fatal_or_nothing_is_left() {
    let claimed = in_status(Status::Claimed);
    let last = with(claimed.clone(), |task| task.failures = CAP - 1);
    let total = |seconds| {
        with_spec(claimed.clone(), |spec| {
            spec.retry.total = Some(secs(seconds));
        })
    };
    for (before, retry, kind) in [
        (&claimed, FailRetry::Fatal, FailureKind::Fatal),
        (&last, FailRetry::Policy, FailureKind::Error),
        (&last, FailRetry::After(secs(0)), FailureKind::Error),
        (&total(NOW + 9 - 100), FailRetry::Policy, FailureKind::Error),
    ] {
        assert_becomes(before, &fail(retry), TaskEvent::Failed, |task| {
            task.failures += 1;
            task.defeats = 2;
            blamed(task, kind, "broken");
            ended(task, Status::Failed, Some("broken"));
            settled(task, Verb::Fail);
        });
    }
    let just_in_time = total(NOW + 10 - 100);
    let Outcome::Changed(after, _) = outcome(&just_in_time, &fail(FailRetry::Policy)) else {
        panic!("not changed");
    };
    assert_eq!(after.status, Status::Scheduled);
}

#[test]
fn without_a_cap_a_task_fails_as_often_as_it_likes() {
    let before = with_spec(
        with(in_status(Status::Claimed), |task| {
            task.failures = u32::MAX - 1;
        }),
        |spec| spec.retry.max_attempts = 0,
    );
    assert_becomes(
        &before,
        &fail(FailRetry::Policy),
        TaskEvent::Failed,
        |task| {
            task.failures = u32::MAX;
            blamed(task, FailureKind::Error, "broken");
            in_line(task, Status::Scheduled, NOW + 10);
            settled(task, Verb::Fail);
        },
    );
}

#[test]
fn a_snooze_counts_nothing() {
    for (delay, status) in [(0, Status::Pending), (60, Status::Scheduled)] {
        let how = settle(Ending::Snooze { delay: secs(delay) });
        assert_becomes(
            &in_status(Status::Claimed),
            &how,
            TaskEvent::Snoozed,
            |task| {
                in_line(task, status, NOW + delay);
                settled(task, Verb::Snooze);
            },
        );
    }
}

#[test]
fn a_released_task_is_back_in_its_old_place_and_counts_nothing() {
    for (reason, runnable_at) in [(None, 800), (Some("going down"), 800), (None, NOW + 500)] {
        // The last one was claimed before the clock went back.
        let before = with(in_status(Status::Claimed), |task| {
            task.runnable_at = at(runnable_at);
        });
        let how = settle(Ending::Release {
            reason: reason.map(Into::into),
        });
        assert_becomes(&before, &how, TaskEvent::Released, |task| {
            if let Some(reason) = reason {
                blamed(task, FailureKind::Interrupted, reason);
            }
            in_line(task, Status::Pending, runnable_at);
            settled(task, Verb::Release);
        });
    }
}

#[test]
fn a_holder_calls_off_for_its_own_reason_or_the_one_it_was_given() {
    for (before, own, reason) in [
        (in_status(Status::Claimed), None, None),
        (in_status(Status::Claimed), Some("own"), Some("own")),
        (stopping(), None, Some("asked")),
        (stopping(), Some("own"), Some("own")),
    ] {
        let how = settle(Ending::Cancel {
            reason: own.map(Into::into),
        });
        assert_becomes(&before, &how, TaskEvent::Cancelled, |task| {
            ended(task, Status::Cancelled, reason);
            settled(task, Verb::Cancel);
        });
    }
}

#[test]
fn every_ending_but_success_of_a_task_asked_to_stop_is_its_cancellation_and_counts_nothing() {
    let release = |reason: Option<&str>| Ending::Release {
        reason: reason.map(Into::into),
    };
    let broken = |retry| Ending::Fail {
        error: "broken".into(),
        retry,
        jitter: Jitter(u32::MAX),
    };
    for (how, kept) in [
        (Ending::Snooze { delay: secs(0) }, None),
        (Ending::Snooze { delay: secs(60) }, None),
        (release(None), None),
        (
            release(Some("going down")),
            Some((FailureKind::Interrupted, "going down")),
        ),
        (
            broken(FailRetry::Policy),
            Some((FailureKind::Error, "broken")),
        ),
        (
            broken(FailRetry::After(secs(3))),
            Some((FailureKind::Error, "broken")),
        ),
        (
            broken(FailRetry::Fatal),
            Some((FailureKind::Fatal, "broken")),
        ),
    ] {
        let last = with(stopping(), |task| task.failures = CAP - 1);
        for before in [stopping(), last] {
            let (verb, event) = (how.verb(), settle(how.clone()));
            assert_becomes(&before, &event, TaskEvent::Cancelled, |task| {
                if let Some((kind, message)) = kept {
                    blamed(task, kind, message);
                }
                ended(task, Status::Cancelled, Some("asked"));
                settled(task, verb);
            });
        }
    }
}

#[test]
fn an_expired_attempt_says_what_ran_out_and_counts_unless_it_was_asked_to_stop() {
    let lease = |until, deadline: Option<u64>| {
        with(in_status(Status::Claimed), |task| {
            task.lease = Some(Lease {
                worker: worker("me"),
                until: at(until),
                deadline: deadline.map(at),
            });
        })
    };
    let ran_out = format!("lease of {} ran out at {}", worker("me"), at(990));
    let exceeded = format!("attempt exceeded its deadline of {}", at(990));
    for (before, kind, message) in [
        (lease(990, None), FailureKind::LeaseExpired, &ran_out),
        (
            lease(990, Some(NOW + 1)),
            FailureKind::LeaseExpired,
            &ran_out,
        ),
        // Both are over, but the lease was first: the worker had gone by then.
        (lease(990, Some(991)), FailureKind::LeaseExpired, &ran_out),
        (
            lease(990, Some(990)),
            FailureKind::DeadlineExceeded,
            &exceeded,
        ),
    ] {
        let expire = Event::Expire(By::Holder);
        assert_becomes(&before, &expire, TaskEvent::Expired, |task| {
            task.failures = 2;
            blamed(task, kind, message);
            in_line(task, Status::Scheduled, NOW + 10);
        });
        let last = with(before.clone(), |task| task.failures = CAP - 1);
        assert_becomes(&last, &expire, TaskEvent::Expired, |task| {
            task.failures = CAP;
            task.defeats = 2;
            blamed(task, kind, message);
            ended(task, Status::Failed, Some(message));
        });
        let stopping = with(before, |task| task.cancel = Some(asked_to_stop()));
        assert_becomes(&stopping, &expire, TaskEvent::Expired, |task| {
            blamed(task, kind, message);
            ended(task, Status::Cancelled, Some("asked"));
        });
    }
}

#[test]
fn only_the_errors_of_the_last_attempts_are_kept() {
    let mut before = in_status(Status::Claimed);
    before.errors = (0..20)
        .map(|n| error(1, FailureKind::Error, &n.to_string(), 700))
        .collect();
    let Outcome::Changed(failed, _) = outcome(&before, &fail(FailRetry::Policy)) else {
        panic!("not changed");
    };
    let messages: Vec<&str> = failed.errors.iter().map(|e| e.message.as_str()).collect();
    let mut expected: Vec<String> = (1..20).map(|n: u32| n.to_string()).collect();
    expected.push("broken".into());
    assert_eq!(messages, expected);
}

#[test]
fn only_the_beginning_of_a_long_error_is_kept_and_no_character_is_cut_in_two() {
    let kept = 4 * 1024;
    for (error, expected) in [
        ("e".repeat(kept), "e".repeat(kept)),
        ("e".repeat(kept + 1), "e".repeat(kept)),
        ("é".repeat(kept), "é".repeat(kept / 2)),
        (
            "e".to_owned() + &"é".repeat(kept),
            "e".to_owned() + &"é".repeat(kept / 2 - 1),
        ),
    ] {
        let fatal = Ending::Fail {
            error: error.clone(),
            retry: FailRetry::Fatal,
            jitter: Jitter::default(),
        };
        let interrupted = Ending::Release {
            reason: Some(error),
        };
        for how in [fatal, interrupted] {
            let verb = how.verb();
            let Outcome::Changed(after, _) = outcome(&in_status(Status::Claimed), &settle(how))
            else {
                panic!("not changed");
            };
            let last = after.errors.last().map(|error| &error.message);
            assert_eq!(last, Some(&expected), "{verb:?}");
            let reason = (verb == Verb::Fail).then_some(&expected);
            assert_eq!(after.reason.as_ref(), reason, "{verb:?}");
        }
    }
}
