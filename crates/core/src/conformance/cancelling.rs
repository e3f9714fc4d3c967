//! What becomes of a claimed task that was asked to stop.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::cancel::cancelling;
use crate::conformance::observe::{events_of, settled};
use crate::conformance::world::{LEASE, World, complete, fail_with, holder, lost};
use crate::conformance::writes::settle;
use crate::error::{Lost, Result};
use crate::store::{Commit, Ending, FailRetry, StoreExt};
use crate::task::{FailureKind, NewTask, RetryPolicy, Settled, Status, Task, TaskState, Verb};

cases!["cancelling":
    a_success_while_cancelling_wins,
    a_failure_while_cancelling_ends_cancelled,
    a_snooze_or_release_while_cancelling_ends_cancelled,
    a_holder_confirms_with_its_own_reason_or_that_of_the_request,
    a_lease_that_runs_out_while_cancelling_ends_cancelled,
    an_overdue_holder_may_still_succeed_while_cancelling,
];

async fn a_success_while_cancelling_wins(w: World) -> Result<()> {
    let (before, held) = cancelling(&w, w.new_task("work"), "enough").await?;
    let how = Ending::Complete {
        result: Some("done".into()),
    };
    let outcome = w.store.settle(held, how).await?;
    assert_eq!(outcome, settled(Status::Completed, None));
    let after = w.task(before.id()).await?;
    let expected = Task {
        spec: before.spec.clone(),
        state: TaskState {
            status: Status::Completed,
            lease: None,
            cancel: None,
            settled: Some(Settled {
                fence: before.fence,
                by: holder(&before).worker.incarnation,
                verb: Verb::Complete,
                status: Status::Completed,
                runnable_at: None,
                worker: Some(holder(&before).worker.name),
            }),
            result: Some("done".into()),
            finished_at: Some(w.now()),
            modified_at: w.now(),
            revision: after.revision,
            ..before.state.clone()
        },
    };
    assert_eq!(after, expected);
    let history = events_of(&w, after.id()).await?;
    assert_eq!(
        history[2..],
        [
            (TaskEvent::CancelRequested, Status::Claimed),
            (TaskEvent::Completed, Status::Completed)
        ]
    );
    Ok(())
}

async fn a_failure_while_cancelling_ends_cancelled(w: World) -> Result<()> {
    for (retry, policy) in [
        (FailRetry::Policy, RetryPolicy::default()),
        (FailRetry::After(LEASE), RetryPolicy::default()),
        (FailRetry::Fatal, RetryPolicy::default()),
        (FailRetry::Policy, RetryPolicy::never()),
    ] {
        let on_failure = w.new_task("clean up");
        let clean_up = on_failure.id;
        let new = NewTask {
            on_failure: Some(Box::new(on_failure)),
            ..w.new_task("work").retry(policy)
        };
        let (task, held) = cancelling(&w, new, "enough").await?;
        let how = fail_with("stopped halfway", retry);
        let outcome = w.store.settle(held, how).await?;
        assert_eq!(outcome, settled(Status::Cancelled, None), "{retry:?}");
        let after = w.task(task.id()).await?;
        assert_eq!(after.status, Status::Cancelled);
        assert_eq!(after.reason, Some("enough".to_owned()));
        assert_eq!(after.errors.len(), 1);
        assert_eq!(after.errors[0].message, "stopped halfway");
        let history = events_of(&w, task.id()).await?;
        assert_eq!(history[3..], [(TaskEvent::Cancelled, Status::Cancelled)]);
        assert_eq!(w.store.task(clean_up).await?, None);
    }
    Ok(())
}

async fn a_snooze_or_release_while_cancelling_ends_cancelled(w: World) -> Result<()> {
    for how in [
        Ending::Snooze { delay: LEASE },
        Ending::Snooze {
            delay: Duration::ZERO,
        },
        Ending::Release { reason: None },
        Ending::Release {
            reason: Some("shutdown".to_owned()),
        },
    ] {
        let (task, held) = cancelling(&w, w.new_task("work"), "enough").await?;
        let commit = Commit::of(settle(&held, how.clone()));
        let receipt = w.store.commit_one(commit.clone()).await?;
        assert_eq!(
            receipt.outcomes,
            [settled(Status::Cancelled, None)],
            "{how:?}"
        );
        let after = w.task(task.id()).await?;
        assert_eq!((after.status, after.failures), (Status::Cancelled, 0));
        assert_eq!(after.reason, Some("enough".to_owned()));
        assert_eq!((after.lease.clone(), after.cancel.clone()), (None, None));
        assert_eq!(after.finished_at, Some(w.now()));
        let history = events_of(&w, task.id()).await?;
        assert_eq!(history[3..], [(TaskEvent::Cancelled, Status::Cancelled)]);
        let again = w.store.commit_one(commit).await?;
        assert_eq!((again.outcomes, again.repeated), (receipt.outcomes, true));
    }
    Ok(())
}

async fn a_holder_confirms_with_its_own_reason_or_that_of_the_request(w: World) -> Result<()> {
    for (own, kept) in [(None, "enough"), (Some("rolled back"), "rolled back")] {
        let (task, held) = cancelling(&w, w.new_task("work"), "enough").await?;
        let reason = own.map(str::to_owned);
        let outcome = w.store.settle(held, Ending::Cancel { reason }).await?;
        assert_eq!(outcome, settled(Status::Cancelled, None));
        let after = w.task(task.id()).await?;
        assert_eq!((after.status, after.failures), (Status::Cancelled, 0));
        assert_eq!(after.reason, Some(kept.to_owned()));
        assert_eq!((after.lease.clone(), after.cancel.clone()), (None, None));
        let history = events_of(&w, task.id()).await?;
        assert_eq!(history[3..], [(TaskEvent::Cancelled, Status::Cancelled)]);
    }
    Ok(())
}

async fn a_lease_that_runs_out_while_cancelling_ends_cancelled(w: World) -> Result<()> {
    for policy in [RetryPolicy::default(), RetryPolicy::never()] {
        let new = w.new_task("work").retry(policy);
        let (task, held) = cancelling(&w, new, "enough").await?;
        w.advance(LEASE);
        assert_eq!(w.status(task.id()).await?, Status::Claimed);
        assert_eq!(w.sweep().await?.expired, 1);
        let after = w.task(task.id()).await?;
        assert_eq!(after.status, Status::Cancelled);
        assert_eq!(after.reason, Some("enough".to_owned()));
        assert_eq!((after.lease.clone(), after.cancel.clone()), (None, None));
        assert_eq!(after.finished_at, Some(w.now()));
        let kinds: Vec<FailureKind> = after.errors.iter().map(|error| error.kind).collect();
        assert_eq!(kinds, [FailureKind::LeaseExpired]);
        let history = events_of(&w, task.id()).await?;
        assert_eq!(history[3..], [(TaskEvent::Expired, Status::Cancelled)]);
        let status = Status::Cancelled;
        let why = lost(w.store.settle(held, complete()).await);
        assert_eq!(why, Lost::Finished { status });
        assert_eq!(w.task(task.id()).await?, after);
    }
    Ok(())
}

async fn an_overdue_holder_may_still_succeed_while_cancelling(w: World) -> Result<()> {
    let (task, held) = cancelling(&w, w.new_task("work"), "enough").await?;
    w.advance(LEASE);
    w.store.settle(held, complete()).await?;
    assert_eq!(w.sweep().await?.expired, 0);
    let after = w.task(task.id()).await?;
    assert_eq!(
        (after.status, after.reason.clone()),
        (Status::Completed, None)
    );
    Ok(())
}
