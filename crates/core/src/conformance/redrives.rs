//! Retries by request: which tasks run again, when, and what it takes.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::act::{attempt, claim, retry_now};
use crate::conformance::observe::{assert_only, attempt_error, events_since, here, settled};
use crate::conformance::retries::later;
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, conflict, fail, fail_with, holder, invalid, lost,
    steady_retry,
};
use crate::error::{Conflict, Lost, NotFound, Result};
use crate::ids::{Fence, TaskId};
use crate::store::{Ending, FailRetry, Outcome, Renew, Renewal, Retry, StoreExt, Write};
use crate::task::{FailureKind, Status, Task};

cases!["redrives":
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

fn retried(status: Status, task: &Task) -> Outcome {
    Outcome::Changed {
        status,
        revision: task.revision,
    }
}

/// Retries a task that has this status, a second later: the task before and after.
async fn retry_from(w: &World, id: TaskId, status: Status) -> Result<(Task, Task)> {
    let before = w.task(id).await?;
    assert_eq!(before.status, status);
    w.advance(Duration::from_secs(1));
    let outcome = retry_now(w, id, false).await?;
    let after = w.task(id).await?;
    assert_eq!(outcome, retried(Status::Pending, &after));
    Ok((before, after))
}

async fn a_failed_task_below_its_cap_can_be_retried(w: World) -> Result<()> {
    let (claimed, held) = w.claimed(w.new_task("work").retry(steady_retry(2))).await?;
    let fatal = fail_with("no such file", FailRetry::Fatal);
    w.store.settle(held, fatal).await?;
    let before = w.task(claimed.id()).await?;
    w.advance(Duration::from_secs(1));
    let start = here(&w).await?;
    let outcome = retry_now(&w, before.id(), false).await?;
    let after = w.task(before.id()).await?;
    assert_eq!(outcome, retried(Status::Pending, &after));
    let happened = [(before.id(), TaskEvent::Retried)];
    assert_eq!(events_since(&w, start).await?, happened);
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
        settled(Status::Failed, None)
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
    assert_eq!(
        attempt(&w, task, fail("two")).await?,
        settled(Status::Failed, None)
    );
    for redrives in 1..=2 {
        let before = w.task(task).await?;
        let start = here(&w).await?;
        let refused = Conflict::MaxAttemptsReached {
            task,
            failures: 2,
            cap: 2,
        };
        assert_eq!(conflict(retry_now(&w, task, false).await), refused);
        assert_eq!(w.task(task).await?, before);
        assert_eq!(events_since(&w, start).await?, vec![]);
        retry_now(&w, task, true).await?;
        let forced = w.task(task).await?;
        assert_eq!(
            (forced.status, forced.redrives),
            (Status::Pending, redrives)
        );
        assert_eq!((forced.failures, forced.attempts), (1, 1 + redrives));
        assert_eq!(forced.errors, before.errors);
        assert_eq!(
            attempt(&w, task, fail("again")).await?,
            settled(Status::Failed, None)
        );
        assert_eq!(w.task(task).await?.failures, 2);
    }
    retry_now(&w, task, true).await?;
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
        let (before, after) = retry_from(&w, id, Status::Cancelled).await?;
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
        let (before, after) = retry_from(&w, id, Status::Scheduled).await?;
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
    assert_eq!(retry_now(&w, before.id(), false).await?, already);
    assert_eq!(retry_now(&w, before.id(), true).await?, already);
    assert_eq!(w.task(before.id()).await?, before);
    assert_eq!(events_since(&w, start).await?, vec![]);
    Ok(())
}

async fn a_completed_task_cannot_be_retried(w: World) -> Result<()> {
    let task = w.submit(w.new_task("work")).await?.id();
    attempt(&w, task, complete()).await?;
    let before = w.task(task).await?;
    let start = here(&w).await?;
    let status = Status::Completed;
    for force in [false, true] {
        let answer = conflict(retry_now(&w, task, force).await);
        assert_eq!(answer, Conflict::Finished { task, status });
    }
    assert_eq!(w.task(task).await?, before);
    assert_eq!(events_since(&w, start).await?, vec![]);
    Ok(())
}

async fn a_retry_takes_a_claimed_task_away_from_its_holder(w: World) -> Result<()> {
    let (claimed, stale) = w.claimed(w.new_task("work").retry(steady_retry(1))).await?;
    w.advance(Duration::from_secs(1));
    let outcome = retry_now(&w, claimed.id(), false).await?;
    let after = w.task(claimed.id()).await?;
    assert_eq!(outcome, retried(Status::Pending, &after));
    let message = after.errors[0].message.clone();
    assert_only(&w, &claimed, &after, |task| {
        task.status = Status::Pending;
        task.fence = Fence::new(2);
        task.runnable_at = w.now();
        task.lease = None;
        task.errors = vec![attempt_error(
            &w,
            &holder(&claimed),
            FailureKind::Revoked,
            &message,
        )];
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
        settled(Status::Completed, None)
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
        let answer = conflict(retry_now(&w, task, force).await);
        assert_eq!(answer, Conflict::Cancelling { task });
    }
    assert_eq!(w.task(task).await?, before);
    assert_eq!(events_since(&w, start).await?, vec![]);
    assert_eq!(
        w.store.settle(held, complete()).await?,
        settled(Status::Completed, None)
    );
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
