//! Failures and retries: what counts toward the cap, when a task runs again, and what it keeps.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::submits::{assert_only, attempt, claim, events, here, retry};
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, conflict, fail, fail_with, holder, invalid, lost, name,
    steady_retry,
};
use crate::error::{Conflict, Lost, NotFound, Result};
use crate::ids::{Fence, Jitter};
use crate::limits::ERRORS_KEPT;
use crate::record::fields;
use crate::store::{
    Amend, Ending, Expire, FailRetry, Outcome, Renew, Renewal, Retry, StoreExt, Write,
};
use crate::task::{
    AttemptError, Backoff, FailureKind, NewTask, Progress, RetryPolicy, Settled, Status, Task, Verb,
};
use crate::time::Timestamp;

cases!["retries":
    a_failure_is_kept_and_the_task_tried_again_after_a_while,
    a_task_that_fails_as_often_as_it_may_has_failed_for_good,
    a_task_without_a_cap_is_tried_again_and_keeps_its_last_errors,
    waits_grow_by_the_factor_up_to_their_cap,
    jitter_shortens_the_wait_by_the_sample_given,
    a_handler_may_choose_the_wait_but_not_pass_the_cap,
    a_fatal_failure_is_not_tried_again,
    no_retry_is_due_later_than_the_total_time,
    a_lease_that_runs_out_counts_as_a_failure,
    a_task_that_kills_its_workers_reaches_the_cap,
    an_attempt_past_its_deadline_is_ended_although_its_lease_is_renewed,
    a_lease_that_ran_out_before_the_deadline_is_told_apart_however_late_it_is_noticed,
    what_is_snoozed_or_given_back_has_not_failed,
    every_claim_is_an_attempt_whatever_came_of_it,
    what_the_author_kept_survives_a_retry_and_what_the_attempt_showed_does_not,
    a_failed_task_below_its_cap_can_be_retried,
    a_retry_past_the_cap_must_be_forced_and_grants_one_attempt,
    a_cancelled_task_can_be_retried,
    a_retry_makes_a_scheduled_task_run_now,
    a_retry_of_a_pending_task_changes_nothing,
    a_completed_task_cannot_be_retried,
    a_retry_takes_a_claimed_task_away_from_its_holder,
    a_task_that_is_being_cancelled_cannot_be_retried,
    a_retry_may_be_delayed,
    a_retry_needs_a_commit_id_and_a_task,
];

fn later(w: &World, duration: Duration) -> Timestamp {
    w.now().saturating_plus(duration)
}

fn scheduled(at: Timestamp) -> Outcome {
    Outcome::Settled {
        status: Status::Scheduled,
        runnable_at: Some(at),
    }
}

fn failed() -> Outcome {
    Outcome::Settled {
        status: Status::Failed,
        runnable_at: None,
    }
}

fn completed() -> Outcome {
    Outcome::Settled {
        status: Status::Completed,
        runnable_at: None,
    }
}

fn retried(status: Status, task: &Task) -> Outcome {
    Outcome::Changed {
        status,
        revision: task.revision,
    }
}

/// What is kept of the attempt that ended just now.
fn error_of(w: &World, claimed: &Task, kind: FailureKind, message: &str) -> AttemptError {
    let held = holder(claimed);
    AttemptError {
        fence: held.fence,
        worker: held.worker,
        at: w.now(),
        kind,
        message: message.to_owned(),
    }
}

async fn a_failure_is_kept_and_the_task_tried_again_after_a_while(w: World) -> Result<()> {
    let (claimed, held) = w.claimed(w.new_task("work")).await?;
    w.advance(Duration::from_secs(1));
    let due_at = later(&w, RETRY_DELAY);
    let start = here(&w).await?;
    let outcome = w.store.settle(held, fail("disk full")).await?;
    assert_eq!(outcome, scheduled(due_at));
    let task = claimed.id();
    assert_eq!(events(&w, start).await?, [(task, TaskEvent::Failed)]);
    let after = w.task(task).await?;
    assert_only(&w, &claimed, &after, |task| {
        task.status = Status::Scheduled;
        task.failures = 1;
        task.runnable_at = due_at;
        task.lease = None;
        task.errors = vec![error_of(&w, &claimed, FailureKind::Error, "disk full")];
        task.settled = Some(Settled {
            by: holder(&claimed).worker.incarnation,
            fence: Fence::new(1),
            verb: Verb::Fail,
            status: Status::Scheduled,
            runnable_at: Some(due_at),
        });
    });
    w.advance(RETRY_DELAY - Duration::from_millis(1));
    w.sweep().await?;
    let refused = w.claim_ids(&w.worker("early")?, &[task]).await?.refused;
    assert_eq!(refused, [(task, Conflict::NotDue { task, due_at }.into())]);
    w.advance(Duration::from_millis(1));
    let again = claim(&w, task).await?;
    assert_eq!((again.fence, again.attempts), (Fence::new(2), 2));
    assert_eq!((again.failures, &again.errors), (1, &after.errors));
    Ok(())
}

async fn a_task_that_fails_as_often_as_it_may_has_failed_for_good(w: World) -> Result<()> {
    let id = w
        .submit(w.new_task("work").retry(steady_retry(3)))
        .await?
        .id();
    let mut errors = Vec::new();
    for message in ["one", "two"] {
        let claimed = claim(&w, id).await?;
        errors.push(error_of(&w, &claimed, FailureKind::Error, message));
        let outcome = w.store.settle(holder(&claimed), fail(message)).await?;
        assert_eq!(outcome, scheduled(later(&w, RETRY_DELAY)));
        w.advance(RETRY_DELAY);
    }
    let claimed = claim(&w, id).await?;
    w.advance(Duration::from_secs(1));
    errors.push(error_of(&w, &claimed, FailureKind::Error, "three"));
    let outcome = w.store.settle(holder(&claimed), fail("three")).await?;
    assert_eq!(outcome, failed());
    let after = w.task(id).await?;
    assert_only(&w, &claimed, &after, |task| {
        task.status = Status::Failed;
        task.failures = 3;
        task.defeats = 1;
        task.lease = None;
        task.errors = errors;
        task.reason = Some("three".into());
        task.finished_at = Some(w.now());
        task.settled = Some(Settled {
            by: holder(&claimed).worker.incarnation,
            fence: Fence::new(3),
            verb: Verb::Fail,
            status: Status::Failed,
            runnable_at: None,
        });
    });
    w.advance(RETRY_DELAY * 10);
    assert_eq!(w.sweep().await?.promoted, 0);
    let refused = w.claim_ids(&w.worker("late")?, &[id]).await?.refused;
    let finished = Conflict::Finished {
        task: id,
        status: Status::Failed,
    };
    assert_eq!(refused, [(id, finished.into())]);
    assert_eq!(w.task(id).await?, after);
    Ok(())
}

async fn a_task_without_a_cap_is_tried_again_and_keeps_its_last_errors(w: World) -> Result<()> {
    let id = w
        .submit(w.new_task("work").retry(steady_retry(0)))
        .await?
        .id();
    let mut errors = Vec::new();
    for n in 1..=30 {
        let claimed = claim(&w, id).await?;
        let message = format!("failure {n}");
        errors.push(error_of(&w, &claimed, FailureKind::Error, &message));
        let outcome = w.store.settle(holder(&claimed), fail(&message)).await?;
        assert_eq!(outcome, scheduled(later(&w, RETRY_DELAY)));
        let task = w.task(id).await?;
        assert_eq!((task.failures, task.attempts), (n, n));
        assert_eq!(task.errors, errors[errors.len().saturating_sub(20)..]);
        w.advance(RETRY_DELAY);
    }
    assert_eq!(w.task(id).await?.errors.len(), ERRORS_KEPT);
    Ok(())
}

async fn waits_grow_by_the_factor_up_to_their_cap(w: World) -> Result<()> {
    let policy = RetryPolicy {
        backoff: Backoff::Exponential {
            first: Duration::from_secs(2),
            factor: 1.5,
            cap: Duration::from_secs(8),
        },
        ..steady_retry(0)
    };
    let id = w.submit(w.new_task("work").retry(policy)).await?.id();
    for millis in [2_000, 3_000, 4_500, 6_750, 8_000, 8_000] {
        let wait = Duration::from_millis(millis);
        let outcome = attempt(&w, id, fail("again")).await?;
        assert_eq!(outcome, scheduled(later(&w, wait)));
        w.advance(wait);
    }
    Ok(())
}

async fn jitter_shortens_the_wait_by_the_sample_given(w: World) -> Result<()> {
    let policy = |jitter_percent| RetryPolicy {
        backoff: Backoff::Fixed(Duration::from_secs(100)),
        jitter_percent,
        ..steady_retry(0)
    };
    // The largest sample is a hair less than the whole, which is lost below a microsecond.
    for (percent, sample, seconds) in [
        (0, u32::MAX, 100),
        (50, 0, 100),
        (50, 1 << 31, 75),
        (50, u32::MAX, 50),
        (100, 1 << 30, 75),
    ] {
        let jitter = Jitter(sample);
        let due_at = later(&w, Duration::from_secs(seconds));
        let (_, held) = w.claimed(w.new_task("work").retry(policy(percent))).await?;
        let how = Ending::Fail {
            error: "again".into(),
            retry: FailRetry::Policy,
            jitter,
        };
        assert_eq!(w.store.settle(held, how).await?, scheduled(due_at));
        let (task, held) = w.claimed(w.new_task("work").retry(policy(percent))).await?;
        w.advance(LEASE);
        let expire = Expire {
            task: task.id(),
            fence: held.fence,
            jitter,
        };
        w.store.write(Write::Expire(expire)).await?;
        let due_at = later(&w, Duration::from_secs(seconds));
        assert_eq!(w.task(task.id()).await?.runnable_at, due_at);
    }
    Ok(())
}

async fn a_handler_may_choose_the_wait_but_not_pass_the_cap(w: World) -> Result<()> {
    let id = w
        .submit(w.new_task("work").retry(steady_retry(3)))
        .await?
        .id();
    let hour = Duration::from_secs(3_600);
    let asked = |wait| fail_with("busy", FailRetry::After(wait));
    assert_eq!(
        attempt(&w, id, asked(hour)).await?,
        scheduled(later(&w, hour))
    );
    w.advance(hour);
    let at_once = Outcome::Settled {
        status: Status::Pending,
        runnable_at: Some(w.now()),
    };
    assert_eq!(attempt(&w, id, asked(Duration::ZERO)).await?, at_once);
    assert_eq!(attempt(&w, id, asked(Duration::ZERO)).await?, failed());
    let task = w.task(id).await?;
    assert_eq!((task.failures, task.attempts), (3, 3));
    let kinds: Vec<FailureKind> = task.errors.iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [FailureKind::Error; 3]);
    Ok(())
}

async fn a_fatal_failure_is_not_tried_again(w: World) -> Result<()> {
    for cap in [0, 4] {
        let (claimed, held) = w
            .claimed(w.new_task("work").retry(steady_retry(cap)))
            .await?;
        let fatal = fail_with("no such file", FailRetry::Fatal);
        assert_eq!(w.store.settle(held, fatal).await?, failed());
        let task = w.task(claimed.id()).await?;
        assert_eq!((task.status, task.failures), (Status::Failed, 1));
        assert_eq!(task.reason.as_deref(), Some("no such file"));
        assert_eq!(task.finished_at, Some(w.now()));
        let error = error_of(&w, &claimed, FailureKind::Fatal, "no such file");
        assert_eq!(task.errors, [error]);
    }
    Ok(())
}

async fn no_retry_is_due_later_than_the_total_time(w: World) -> Result<()> {
    let policy = RetryPolicy {
        total: Some(Duration::from_secs(30)),
        ..steady_retry(0)
    };
    let new = || w.new_task("work").retry(policy.clone());
    let (late, late_held) = w.claimed(new()).await?;
    let id = w.submit(new()).await?.id();
    attempt(&w, id, fail("one")).await?;
    w.advance(Duration::from_secs(20));
    let last = later(&w, RETRY_DELAY);
    assert_eq!(attempt(&w, id, fail("two")).await?, scheduled(last));
    w.advance(Duration::from_millis(1));
    assert_eq!(w.store.settle(late_held, fail("late")).await?, failed());
    let late = w.task(late.id()).await?;
    assert_eq!((late.failures, late.reason.as_deref()), (1, Some("late")));
    w.advance(RETRY_DELAY);
    let soon = fail_with("three", FailRetry::After(Duration::from_millis(1)));
    assert_eq!(attempt(&w, id, soon).await?, failed());
    Ok(())
}

async fn a_lease_that_runs_out_counts_as_a_failure(w: World) -> Result<()> {
    let (claimed, _) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE - Duration::from_millis(1));
    assert_eq!(w.sweep().await?.expired, 0);
    assert_eq!(w.task(claimed.id()).await?, claimed);
    w.advance(Duration::from_millis(1));
    let start = here(&w).await?;
    assert_eq!(w.sweep().await?.expired, 1);
    let happened = [(claimed.id(), TaskEvent::Expired)];
    assert_eq!(events(&w, start).await?, happened);
    let after = w.task(claimed.id()).await?;
    let message = after.errors[0].message.clone();
    assert!(!message.is_empty());
    assert_only(&w, &claimed, &after, |task| {
        task.status = Status::Scheduled;
        task.failures = 1;
        task.runnable_at = later(&w, RETRY_DELAY);
        task.lease = None;
        let kind = FailureKind::LeaseExpired;
        task.errors = vec![error_of(&w, &claimed, kind, &message)];
    });
    Ok(())
}

async fn a_task_that_kills_its_workers_reaches_the_cap(w: World) -> Result<()> {
    let id = w
        .submit(w.new_task("poison").retry(steady_retry(3)))
        .await?
        .id();
    for n in 1..=3 {
        claim(&w, id).await?;
        w.advance(LEASE);
        assert_eq!(w.sweep().await?.expired, 1);
        assert_eq!(w.task(id).await?.failures, n);
        w.advance(RETRY_DELAY);
    }
    let task = w.task(id).await?;
    assert_eq!((task.status, task.attempts), (Status::Failed, 3));
    assert_eq!(task.finished_at, Some(task.modified_at));
    assert!(task.reason.is_some());
    let kinds: Vec<FailureKind> = task.errors.iter().map(|error| error.kind).collect();
    assert_eq!(kinds, [FailureKind::LeaseExpired; 3]);
    assert_eq!(w.sweep().await?.promoted, 0);
    Ok(())
}

async fn an_attempt_past_its_deadline_is_ended_although_its_lease_is_renewed(
    w: World,
) -> Result<()> {
    let timeout = LEASE * 2 + Duration::from_secs(5);
    let new = NewTask {
        attempt_timeout: Some(timeout),
        ..w.new_task("work")
    };
    let (claimed, held) = w.claimed(new).await?;
    let deadline = later(&w, timeout);
    for _ in 0..4 {
        w.advance(LEASE / 2);
        let until = later(&w, LEASE).min(deadline);
        let (holders, lease) = (vec![held.clone()], LEASE);
        let renewed = w.store.renew(Renew { holders, lease }).await?;
        assert_eq!(renewed, [Renewal::Held { until }]);
    }
    w.advance(Duration::from_millis(4_999));
    assert_eq!(w.sweep().await?.expired, 0);
    w.advance(Duration::from_millis(1));
    assert_eq!(w.sweep().await?.expired, 1);
    let task = w.task(claimed.id()).await?;
    assert_eq!((task.status, task.failures), (Status::Scheduled, 1));
    let message = task.errors[0].message.clone();
    let error = error_of(&w, &claimed, FailureKind::DeadlineExceeded, &message);
    assert_eq!(task.errors, [error]);
    w.advance(RETRY_DELAY);
    let again = claim(&w, claimed.id()).await?;
    let lease = again.lease.clone();
    let deadline = lease.and_then(|lease| lease.deadline);
    assert_eq!(deadline, Some(later(&w, timeout)));
    Ok(())
}

async fn a_lease_that_ran_out_before_the_deadline_is_told_apart_however_late_it_is_noticed(
    w: World,
) -> Result<()> {
    for noticed_after in [LEASE, LEASE * 10] {
        let new = NewTask {
            attempt_timeout: Some(LEASE * 2),
            ..w.new_task("work")
        };
        let (claimed, _) = w.claimed(new).await?;
        w.advance(noticed_after);
        assert_eq!(w.sweep().await?.expired, 1);
        let errors = w.task(claimed.id()).await?.errors.clone();
        let kinds: Vec<FailureKind> = errors.iter().map(|error| error.kind).collect();
        assert_eq!(
            kinds,
            [FailureKind::LeaseExpired],
            "after {noticed_after:?}"
        );
    }
    Ok(())
}

async fn what_is_snoozed_or_given_back_has_not_failed(w: World) -> Result<()> {
    let id = w
        .submit(w.new_task("work").retry(RetryPolicy::never()))
        .await?
        .id();
    let first = w.task(id).await?;
    let minute = Duration::from_secs(60);
    for _ in 0..3 {
        let outcome = attempt(&w, id, Ending::Snooze { delay: minute }).await?;
        assert_eq!(outcome, scheduled(later(&w, minute)));
        w.advance(minute);
    }
    let snoozed = w.task(id).await?;
    assert_eq!(
        (snoozed.failures, snoozed.errors.clone()),
        (0, first.errors.clone())
    );
    let pending = Outcome::Settled {
        status: Status::Pending,
        runnable_at: Some(w.now()),
    };
    w.advance(Duration::from_secs(1));
    let quietly = Ending::Release { reason: None };
    assert_eq!(attempt(&w, id, quietly).await?, pending);
    assert_eq!(w.task(id).await?.errors, vec![]);
    let claimed = claim(&w, id).await?;
    let reason = Some("the worker is shutting down".to_owned());
    let held = holder(&claimed);
    let outcome = w.store.settle(held, Ending::Release { reason }).await?;
    assert_eq!(outcome, pending);
    let task = w.task(id).await?;
    let kind = FailureKind::Interrupted;
    let error = error_of(&w, &claimed, kind, "the worker is shutting down");
    assert_eq!((task.failures, task.errors.clone()), (0, vec![error]));
    assert_eq!((task.status, task.attempts), (Status::Pending, 5));
    assert_eq!(attempt(&w, id, fail("the first failure")).await?, failed());
    Ok(())
}

async fn every_claim_is_an_attempt_whatever_came_of_it(w: World) -> Result<()> {
    let id = w.submit(w.new_task("work")).await?.id();
    let started_at = w.now();
    for (n, how) in [
        fail("failed"),
        Ending::Snooze { delay: RETRY_DELAY },
        Ending::Release { reason: None },
        complete(),
    ]
    .into_iter()
    .enumerate()
    {
        let claimed = claim(&w, id).await?;
        let count = n as u32 + 1;
        assert_eq!(claimed.attempts, count);
        assert_eq!(claimed.fence, Fence::new(u64::from(count)));
        assert_eq!(claimed.started_at, Some(started_at));
        assert_eq!(claimed.claimed_at, Some(w.now()));
        w.store.settle(holder(&claimed), how).await?;
        w.advance(RETRY_DELAY);
    }
    let task = w.task(id).await?;
    assert_eq!((task.attempts, task.failures), (4, 1));
    Ok(())
}

async fn what_the_author_kept_survives_a_retry_and_what_the_attempt_showed_does_not(
    w: World,
) -> Result<()> {
    let new = NewTask {
        first_stage: Some(name("validating")?),
        ..w.new_task("work")
    };
    let (claimed, held) = w.claimed(new).await?;
    assert_eq!(claimed.stage, Some(name("validating")?));
    let amend = Amend {
        stage: Some(name("processing")?),
        progress: Some(Progress {
            percent: Some(40),
            message: Some("two of five".into()),
            current_step: Some(2),
            step_count: Some(5),
        }),
        checkpoint: Some("at row 7".into()),
        set: fields([("params", "s3://bucket"), ("empty", "")])?,
        ..Amend::new(held.clone())
    };
    w.store.write(Write::Amend(Box::new(amend))).await?;
    let amended = w.task(claimed.id()).await?;
    assert_eq!(amended.stage, Some(name("processing")?));
    w.store.settle(held, fail("halfway")).await?;
    let waiting = w.task(claimed.id()).await?;
    assert_eq!(
        (&waiting.stage, &waiting.progress),
        (&None, &amended.progress)
    );
    w.advance(RETRY_DELAY);
    let kept = |task: &Task| (task.checkpoint.clone(), task.attributes.clone());
    let again = claim(&w, claimed.id()).await?;
    assert_eq!((&again.stage, &again.progress), (&claimed.stage, &None));
    assert_eq!(kept(&again), kept(&amended));
    let fatal = fail_with("enough", FailRetry::Fatal);
    w.store.settle(holder(&again), fatal).await?;
    retry(&w, claimed.id(), false).await?;
    let redriven = claim(&w, claimed.id()).await?;
    assert_eq!(
        (&redriven.stage, &redriven.progress),
        (&claimed.stage, &None)
    );
    assert_eq!(kept(&redriven), kept(&amended));
    Ok(())
}

async fn a_failed_task_below_its_cap_can_be_retried(w: World) -> Result<()> {
    let (claimed, held) = w.claimed(w.new_task("work").retry(steady_retry(2))).await?;
    let fatal = fail_with("no such file", FailRetry::Fatal);
    w.store.settle(held, fatal).await?;
    let before = w.task(claimed.id()).await?;
    w.advance(Duration::from_secs(1));
    let start = here(&w).await?;
    let outcome = retry(&w, before.id(), false).await?;
    let after = w.task(before.id()).await?;
    assert_eq!(outcome, retried(Status::Pending, &after));
    let happened = [(before.id(), TaskEvent::Retried)];
    assert_eq!(events(&w, start).await?, happened);
    assert_only(&w, &before, &after, |task| {
        task.status = Status::Pending;
        task.redrives = 1;
        task.runnable_at = w.now();
        task.finished_at = None;
        task.reason = None;
    });
    let again = claim(&w, before.id()).await?;
    assert_eq!((again.fence, again.attempts), (Fence::new(2), 2));
    assert_eq!(
        w.store.settle(holder(&again), fail("again")).await?,
        failed()
    );
    Ok(())
}

async fn a_retry_past_the_cap_must_be_forced_and_grants_one_attempt(w: World) -> Result<()> {
    let task = w
        .submit(w.new_task("work").retry(steady_retry(2)))
        .await?
        .id();
    attempt(&w, task, fail("one")).await?;
    w.advance(RETRY_DELAY);
    assert_eq!(attempt(&w, task, fail("two")).await?, failed());
    for redrives in 1..=2 {
        let before = w.task(task).await?;
        let start = here(&w).await?;
        let refused = Conflict::MaxAttemptsReached {
            task,
            failures: 2,
            cap: 2,
        };
        assert_eq!(conflict(retry(&w, task, false).await), refused);
        assert_eq!(w.task(task).await?, before);
        assert_eq!(events(&w, start).await?, vec![]);
        retry(&w, task, true).await?;
        let forced = w.task(task).await?;
        assert_eq!(
            (forced.status, forced.redrives),
            (Status::Pending, redrives)
        );
        assert_eq!((forced.failures, forced.attempts), (1, 1 + redrives));
        assert_eq!(forced.errors, before.errors);
        assert_eq!(attempt(&w, task, fail("again")).await?, failed());
        assert_eq!(w.task(task).await?.failures, 2);
    }
    retry(&w, task, true).await?;
    attempt(&w, task, complete()).await?;
    assert_eq!(w.status(task).await?, Status::Completed);
    Ok(())
}

async fn a_cancelled_task_can_be_retried(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("work")).await?.id();
    w.store.cancel(pending, Some("enough".into())).await?;
    let (claimed, held) = w.claimed(w.new_task("work")).await?;
    w.store.cancel(claimed.id(), Some("enough".into())).await?;
    w.store
        .settle(held, Ending::Cancel { reason: None })
        .await?;
    for id in [pending, claimed.id()] {
        let before = w.task(id).await?;
        assert_eq!(before.status, Status::Cancelled);
        w.advance(Duration::from_secs(1));
        let outcome = retry(&w, id, false).await?;
        let after = w.task(id).await?;
        assert_eq!(outcome, retried(Status::Pending, &after));
        assert_only(&w, &before, &after, |task| {
            task.status = Status::Pending;
            task.redrives = 1;
            task.runnable_at = w.now();
            task.finished_at = None;
            task.reason = None;
        });
        // Nobody asks this attempt to stop any more.
        let again = claim(&w, id).await?;
        assert_eq!(again.cancel, None);
        w.store.settle(holder(&again), complete()).await?;
    }
    Ok(())
}

async fn a_retry_makes_a_scheduled_task_run_now(w: World) -> Result<()> {
    let delayed = w.new_task("work").after(Duration::from_secs(60));
    let delayed = w.submit(delayed).await?.id();
    let (claimed, held) = w.claimed(w.new_task("work")).await?;
    w.store.settle(held, fail("once")).await?;
    for id in [delayed, claimed.id()] {
        let before = w.task(id).await?;
        assert_eq!(before.status, Status::Scheduled);
        w.advance(Duration::from_secs(1));
        let outcome = retry(&w, id, false).await?;
        let after = w.task(id).await?;
        assert_eq!(outcome, retried(Status::Pending, &after));
        // It had not ended: this is no redrive.
        assert_only(&w, &before, &after, |task| {
            task.status = Status::Pending;
            task.runnable_at = w.now();
        });
    }
    assert_eq!(w.claim(&w.worker("worker")?, 3).await?.len(), 2);
    Ok(())
}

async fn a_retry_of_a_pending_task_changes_nothing(w: World) -> Result<()> {
    let before = w.submit(w.new_task("work")).await?;
    let start = here(&w).await?;
    w.advance(Duration::from_secs(1));
    let already = Outcome::Already {
        status: Status::Pending,
    };
    assert_eq!(retry(&w, before.id(), false).await?, already);
    assert_eq!(retry(&w, before.id(), true).await?, already);
    assert_eq!(w.task(before.id()).await?, before);
    assert_eq!(events(&w, start).await?, vec![]);
    Ok(())
}

async fn a_completed_task_cannot_be_retried(w: World) -> Result<()> {
    let task = w.submit(w.new_task("work")).await?.id();
    attempt(&w, task, complete()).await?;
    let before = w.task(task).await?;
    let start = here(&w).await?;
    let status = Status::Completed;
    for force in [false, true] {
        let answer = conflict(retry(&w, task, force).await);
        assert_eq!(answer, Conflict::Finished { task, status });
    }
    assert_eq!(w.task(task).await?, before);
    assert_eq!(events(&w, start).await?, vec![]);
    Ok(())
}

async fn a_retry_takes_a_claimed_task_away_from_its_holder(w: World) -> Result<()> {
    let (claimed, stale) = w.claimed(w.new_task("work").retry(steady_retry(1))).await?;
    w.advance(Duration::from_secs(1));
    let outcome = retry(&w, claimed.id(), false).await?;
    let after = w.task(claimed.id()).await?;
    assert_eq!(outcome, retried(Status::Pending, &after));
    let message = after.errors[0].message.clone();
    assert_only(&w, &claimed, &after, |task| {
        task.status = Status::Pending;
        task.fence = Fence::new(2);
        task.runnable_at = w.now();
        task.lease = None;
        task.errors = vec![error_of(&w, &claimed, FailureKind::Revoked, &message)];
    });
    let status = Status::Pending;
    let why = lost(w.store.settle(stale.clone(), complete()).await);
    assert_eq!(why, Lost::NotClaimed { status });
    let (holders, lease) = (vec![stale.clone()], LEASE);
    let renewed = w.store.renew(Renew { holders, lease }).await?;
    assert!(matches!(&renewed[..], [Renewal::Lost(lost)] if lost.why == why));
    assert_eq!(w.task(claimed.id()).await?, after);

    // The same worker claims it again: its old fence is still of no use.
    let again = w.claim(&stale.worker, 1).await?;
    assert_eq!((again[0].fence, again[0].attempts), (Fence::new(3), 2));
    let fence = Fence::new(3);
    let why = lost(w.store.settle(stale, complete()).await);
    assert_eq!(why, Lost::Superseded { fence });
    assert_eq!(w.task(claimed.id()).await?, again[0]);
    assert_eq!(
        w.store.settle(holder(&again[0]), complete()).await?,
        completed()
    );
    Ok(())
}

async fn a_task_that_is_being_cancelled_cannot_be_retried(w: World) -> Result<()> {
    let (claimed, held) = w.claimed(w.new_task("work")).await?;
    let task = claimed.id();
    w.store.cancel(task, None).await?;
    let before = w.task(task).await?;
    let start = here(&w).await?;
    for force in [false, true] {
        let answer = conflict(retry(&w, task, force).await);
        assert_eq!(answer, Conflict::Cancelling { task });
    }
    assert_eq!(w.task(task).await?, before);
    assert_eq!(events(&w, start).await?, vec![]);
    assert_eq!(w.store.settle(held, complete()).await?, completed());
    Ok(())
}

async fn a_retry_may_be_delayed(w: World) -> Result<()> {
    let delay = Duration::from_secs(90);
    let cancelled = w.submit(w.new_task("cancelled")).await?.id();
    w.store.cancel(cancelled, None).await?;
    let scheduled = w.new_task("scheduled").after(Duration::from_secs(600));
    let scheduled = w.submit(scheduled).await?.id();
    let claimed = w.claimed(w.new_task("claimed")).await?.0.id();
    let ids = [cancelled, scheduled, claimed];
    for task in ids {
        let force = false;
        let write = Write::Retry(Retry { task, force, delay });
        let outcome = w.write_with_id(write).await?;
        let after = w.task(task).await?;
        assert_eq!(outcome, retried(Status::Scheduled, &after));
        assert_eq!(after.status, Status::Scheduled);
        assert_eq!(after.runnable_at, later(&w, delay));
        assert_eq!(after.lease, None);
    }
    w.advance(delay - Duration::from_millis(1));
    assert_eq!(w.sweep().await?.promoted, 0);
    w.advance(Duration::from_millis(1));
    assert_eq!(w.sweep().await?.promoted, 3);
    assert_eq!(w.claim(&w.worker("worker")?, 5).await?.len(), 3);
    Ok(())
}

async fn a_retry_needs_a_commit_id_and_a_task(w: World) -> Result<()> {
    let task = w.submit(w.new_task("work").after(RETRY_DELAY)).await?;
    let write = |task| {
        let (force, delay) = (false, Duration::ZERO);
        Write::Retry(Retry { task, force, delay })
    };
    let answer = invalid(w.store.write(write(task.id())).await);
    assert_eq!(answer.field, "commit.id");
    assert_eq!(w.task(task.id()).await?, task);
    let nobody = w.ids.task();
    let answer = w.write_with_id(write(nobody)).await;
    assert_eq!(answer, Err(NotFound::Task(nobody).into()));
    Ok(())
}
