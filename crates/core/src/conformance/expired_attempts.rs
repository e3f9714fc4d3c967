//! Attempts that nobody ended: leases that ran out, and deadlines that passed.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::act::claim;
use crate::conformance::observe::{assert_only, attempt_error, events_since, here};
use crate::conformance::retries::later;
use crate::conformance::world::{LEASE, RETRY_DELAY, World, holder, steady_retry};
use crate::error::Result;
use crate::store::{Renew, Renewal};
use crate::task::{FailureKind, NewTask, Status};

cases!["expired_attempts":
    a_lease_that_runs_out_counts_as_a_failure,
    a_task_that_kills_its_workers_reaches_the_cap,
    an_attempt_past_its_deadline_is_ended_although_its_lease_is_renewed,
    a_lease_that_ran_out_before_the_deadline_is_told_apart_however_late_it_is_noticed,
];

async fn a_lease_that_runs_out_counts_as_a_failure(w: World) -> Result<()> {
    let (claimed, _) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE - Duration::from_millis(1));
    assert_eq!(w.sweep().await?.expired, 0);
    assert_eq!(w.task(claimed.id()).await?, claimed);
    w.advance(Duration::from_millis(1));
    let start = here(&w).await?;
    assert_eq!(w.sweep().await?.expired, 1);
    let happened = [(claimed.id(), TaskEvent::Expired)];
    assert_eq!(events_since(&w, start).await?, happened);
    let after = w.task(claimed.id()).await?;
    let message = after.errors[0].message.clone();
    assert!(!message.is_empty());
    assert_only(&w, &claimed, &after, |task| {
        task.status = Status::Scheduled;
        task.failures = 1;
        task.runnable_at = later(&w, RETRY_DELAY);
        task.lease = None;
        let kind = FailureKind::LeaseExpired;
        task.errors = vec![attempt_error(&w, &holder(&claimed), kind, &message)];
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
    let error = attempt_error(
        &w,
        &holder(&claimed),
        FailureKind::DeadlineExceeded,
        &message,
    );
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
