//! Failure tasks: submitted once, when the task that carries one has failed for good.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::act::{attempt, claim, retry_now};
use crate::conformance::observe::{events_since, here};
use crate::conformance::submits::as_submitted;
use crate::conformance::world::{LEASE, RETRY_DELAY, World, complete, fail, holder, steady_retry};
use crate::error::Result;
use crate::ids::TaskId;
use crate::store::{Ending, StoreExt};
use crate::task::{NewTask, Status};

cases!["failure_tasks":
    a_failure_task_is_submitted_once_and_only_when_the_task_has_failed_for_good,
    a_failure_task_is_submitted_when_the_last_lease_runs_out,
    each_redrive_that_fails_submits_a_failure_task_of_its_own,
    a_task_that_completes_or_is_cancelled_submits_no_failure_task,
    a_failure_task_leaves_a_task_alone_that_has_its_id,
];

fn with_failure_task(w: &World, max_attempts: u32) -> (NewTask, NewTask) {
    let failure = w.new_task("it failed").after(Duration::from_secs(5));
    let new = NewTask {
        on_failure: Some(Box::new(failure.clone())),
        ..w.new_task("work").retry(steady_retry(max_attempts))
    };
    (new, failure)
}

/// The failure task as it must be when its task has failed just now.
async fn assert_fired(w: &World, failure: &NewTask, id: TaskId) -> Result<()> {
    let task = w.task(id).await?;
    let new = NewTask {
        id,
        ..failure.clone()
    };
    let mut expected = as_submitted(&new, w.now(), task.revision);
    expected.status = Status::Scheduled;
    expected.runnable_at = w.now().saturating_plus(Duration::from_secs(5));
    assert_eq!(task, expected);
    Ok(())
}

async fn a_failure_task_is_submitted_once_and_only_when_the_task_has_failed_for_good(
    w: World,
) -> Result<()> {
    let (new, failure) = with_failure_task(&w, 2);
    w.submit(new.clone()).await?;
    attempt(&w, new.id, fail("first")).await?;
    assert_eq!(w.store.task(failure.id).await?, None);
    w.advance(RETRY_DELAY);
    let held = holder(&claim(&w, new.id).await?);
    let start = here(&w).await?;
    w.store.settle(held.clone(), fail("second")).await?;
    let both = [
        (new.id, TaskEvent::Failed),
        (failure.id, TaskEvent::Submitted),
    ];
    assert_eq!(events_since(&w, start).await?, both);
    assert_eq!(w.history_from(start).await?.entries.len(), 1);
    assert_fired(&w, &failure, failure.id).await?;
    w.store.settle(held, fail("second")).await?;
    assert_eq!(events_since(&w, start).await?, both);
    Ok(())
}

async fn a_failure_task_is_submitted_when_the_last_lease_runs_out(w: World) -> Result<()> {
    let (new, failure) = with_failure_task(&w, 1);
    w.claimed(new.clone()).await?;
    w.advance(LEASE);
    assert_eq!(w.sweep().await?.expired, 1);
    assert_eq!(w.status(new.id).await?, Status::Failed);
    assert_fired(&w, &failure, failure.id).await
}

async fn each_redrive_that_fails_submits_a_failure_task_of_its_own(w: World) -> Result<()> {
    let (new, failure) = with_failure_task(&w, 1);
    w.submit(new.clone()).await?;
    attempt(&w, new.id, fail("first")).await?;
    assert_fired(&w, &failure, failure.id).await?;
    let first = w.task(failure.id).await?;
    for redrive in 1..3 {
        w.advance(Duration::from_secs(1));
        let start = here(&w).await?;
        retry_now(&w, new.id, true).await?;
        assert_eq!(
            events_since(&w, start).await?,
            [(new.id, TaskEvent::Retried)]
        );
        let nth = failure.id.nth(redrive);
        assert_eq!(w.store.task(nth).await?, None);
        attempt(&w, new.id, fail("again")).await?;
        assert_fired(&w, &failure, nth).await?;
        assert_eq!(w.task(failure.id).await?, first);
    }
    Ok(())
}

async fn a_task_that_completes_or_is_cancelled_submits_no_failure_task(w: World) -> Result<()> {
    let cancel = |reason: &str| Ending::Cancel {
        reason: Some(reason.into()),
    };
    let mut failures = Vec::new();
    for how in 0..4 {
        let (new, failure) = with_failure_task(&w, 1);
        failures.push(failure.id);
        w.submit(new.clone()).await?;
        match how {
            0 => attempt(&w, new.id, complete()).await?,
            1 => attempt(&w, new.id, cancel("enough")).await?,
            2 => w.store.cancel(new.id, None).await?,
            _ => {
                let held = holder(&claim(&w, new.id).await?);
                w.store.cancel(new.id, None).await?;
                w.store.settle(held, fail("a failure too late")).await?
            }
        };
        assert!(w.status(new.id).await?.is_terminal());
    }
    for id in failures {
        assert_eq!(w.store.task(id).await?, None);
    }
    Ok(())
}

async fn a_failure_task_leaves_a_task_alone_that_has_its_id(w: World) -> Result<()> {
    let (new, failure) = with_failure_task(&w, 1);
    w.submit(new.clone()).await?;
    let other = NewTask {
        payload: "something else".into(),
        ..failure.clone()
    };
    let other = w.submit(other).await?;
    attempt(&w, new.id, fail("once")).await?;
    assert_eq!(w.status(new.id).await?, Status::Failed);
    assert_eq!(w.task(failure.id).await?, other);
    Ok(())
}
