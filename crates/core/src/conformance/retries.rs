//! Failures: what counts toward the cap, and what a task keeps from attempt to attempt.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::act::{attempt, claim, retry_now};
use crate::conformance::observe::{assert_only, attempt_error, events_since, here, settled};
use crate::conformance::world::{
    RETRY_DELAY, World, complete, fail, fail_with, holder, name, steady_retry,
};
use crate::error::{Conflict, Result};
use crate::ids::Fence;
use crate::limits::ERRORS_KEPT;
use crate::record::fields;
use crate::store::{Amend, Ending, FailRetry, Outcome, StoreExt, Write};
use crate::task::{FailureKind, NewTask, Progress, RetryPolicy, Settled, Status, Task, Verb};
use crate::time::Timestamp;

cases!["retries":
    a_failure_is_kept_and_the_task_tried_again_after_a_while,
    a_task_that_fails_as_often_as_it_may_has_failed_for_good,
    a_task_without_a_cap_is_tried_again_and_keeps_its_last_errors,
    a_fatal_failure_is_not_tried_again,
    what_is_snoozed_or_given_back_has_not_failed,
    every_claim_is_an_attempt_whatever_came_of_it,
    what_the_author_kept_survives_a_retry_and_what_the_attempt_showed_does_not,
];

pub(super) fn later(w: &World, duration: Duration) -> Timestamp {
    w.now().saturating_plus(duration)
}

async fn a_failure_is_kept_and_the_task_tried_again_after_a_while(w: World) -> Result<()> {
    let (claimed, held) = w.claimed(w.new_task("work")).await?;
    w.advance(Duration::from_secs(1));
    let due_at = later(&w, RETRY_DELAY);
    let start = here(&w).await?;
    let outcome = w.store.settle(held, fail("disk full")).await?;
    assert_eq!(outcome, settled(Status::Scheduled, Some(due_at)));
    let task = claimed.id();
    assert_eq!(events_since(&w, start).await?, [(task, TaskEvent::Failed)]);
    let after = w.task(task).await?;
    assert_only(&w, &claimed, &after, |task| {
        task.status = Status::Scheduled;
        task.failures = 1;
        task.runnable_at = due_at;
        task.lease = None;
        task.errors = vec![attempt_error(
            &w,
            &holder(&claimed),
            FailureKind::Error,
            "disk full",
        )];
        task.settled = Some(Settled {
            by: holder(&claimed).worker.incarnation,
            fence: Fence::new(1),
            verb: Verb::Fail,
            status: Status::Scheduled,
            runnable_at: Some(due_at),
            worker: Some(holder(&claimed).worker.name),
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
        errors.push(attempt_error(
            &w,
            &holder(&claimed),
            FailureKind::Error,
            message,
        ));
        let outcome = w.store.settle(holder(&claimed), fail(message)).await?;
        assert_eq!(
            outcome,
            settled(Status::Scheduled, Some(later(&w, RETRY_DELAY)))
        );
        w.advance(RETRY_DELAY);
    }
    let claimed = claim(&w, id).await?;
    w.advance(Duration::from_secs(1));
    errors.push(attempt_error(
        &w,
        &holder(&claimed),
        FailureKind::Error,
        "three",
    ));
    let outcome = w.store.settle(holder(&claimed), fail("three")).await?;
    assert_eq!(outcome, settled(Status::Failed, None));
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
            worker: Some(holder(&claimed).worker.name),
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
        errors.push(attempt_error(
            &w,
            &holder(&claimed),
            FailureKind::Error,
            &message,
        ));
        let outcome = w.store.settle(holder(&claimed), fail(&message)).await?;
        assert_eq!(
            outcome,
            settled(Status::Scheduled, Some(later(&w, RETRY_DELAY)))
        );
        let task = w.task(id).await?;
        assert_eq!((task.failures, task.attempts), (n, n));
        assert_eq!(task.errors, errors[errors.len().saturating_sub(20)..]);
        w.advance(RETRY_DELAY);
    }
    assert_eq!(w.task(id).await?.errors.len(), ERRORS_KEPT);
    Ok(())
}

async fn a_fatal_failure_is_not_tried_again(w: World) -> Result<()> {
    for cap in [0, 4] {
        let (claimed, held) = w
            .claimed(w.new_task("work").retry(steady_retry(cap)))
            .await?;
        let fatal = fail_with("no such file", FailRetry::Fatal);
        assert_eq!(
            w.store.settle(held, fatal).await?,
            settled(Status::Failed, None)
        );
        let task = w.task(claimed.id()).await?;
        assert_eq!((task.status, task.failures), (Status::Failed, 1));
        assert_eq!(task.reason.as_deref(), Some("no such file"));
        assert_eq!(task.finished_at, Some(w.now()));
        let error = attempt_error(&w, &holder(&claimed), FailureKind::Fatal, "no such file");
        assert_eq!(task.errors, [error]);
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
        assert_eq!(outcome, settled(Status::Scheduled, Some(later(&w, minute))));
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
    let error = attempt_error(&w, &holder(&claimed), kind, "the worker is shutting down");
    assert_eq!((task.failures, task.errors.clone()), (0, vec![error]));
    assert_eq!((task.status, task.attempts), (Status::Pending, 5));
    assert_eq!(
        attempt(&w, id, fail("the first failure")).await?,
        settled(Status::Failed, None)
    );
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
    retry_now(&w, claimed.id(), false).await?;
    let redriven = claim(&w, claimed.id()).await?;
    assert_eq!(
        (&redriven.stage, &redriven.progress),
        (&claimed.stage, &None)
    );
    assert_eq!(kept(&redriven), kept(&amended));
    Ok(())
}
