//! Cancelling: exactly one terminal status, whoever comes first.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::observe::{already, events_of, seen};
use crate::conformance::world::{LEASE, World, complete, fail, fail_with, lost};
use crate::conformance::writes::cancel;
use crate::error::{Conflict, Lost, NotFound, Result};
use crate::names::IdempotencyKey;
use crate::store::{Commit, Ending, FailRetry, Outcome, Renew, Renewal, StoreExt, Write};
use crate::task::{
    CancelRequest, Holder, KeyLifetime, NewTask, OnConflict, Status, Task, TaskState,
};

cases!["cancel":
    a_task_that_nobody_holds_is_cancelled_at_once,
    a_claimed_task_is_asked_to_stop,
    a_second_request_changes_nothing,
    a_finished_task_stays_as_it_is,
    an_unknown_task_cannot_be_cancelled,
    a_cancelled_task_is_never_claimed_or_promoted,
    cancelling_and_completing_leave_one_terminal_status_whoever_is_first,
    a_task_that_waits_for_another_is_cancelled_alone,
    a_batch_of_cancels_answers_each_one,
];

/// A claimed task that was asked to stop, for this reason.
pub(super) async fn cancelling(w: &World, task: NewTask, reason: &str) -> Result<(Task, Holder)> {
    let (task, held) = w.claimed(task).await?;
    w.store.write(cancel(task.id(), reason)).await?;
    w.advance(Duration::from_secs(1));
    Ok((w.task(task.id()).await?, held))
}

/// One task that ended in each of the three ways, and how it ended.
pub(super) async fn finished(w: &World) -> Result<Vec<(Task, Status)>> {
    let reason = Some("first".to_owned());
    let mut ended = Vec::new();
    for (how, status) in [
        (complete(), Status::Completed),
        (fail_with("broken", FailRetry::Fatal), Status::Failed),
        (Ending::Cancel { reason }, Status::Cancelled),
    ] {
        let (task, held) = w.claimed(w.new_task("ended")).await?;
        w.store.settle(held, how).await?;
        ended.push((w.task(task.id()).await?, status));
    }
    Ok(ended)
}

async fn a_task_that_nobody_holds_is_cancelled_at_once(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("pending")).await?.id();
    let delayed = w.submit(w.new_task("delayed").after(LEASE)).await?.id();
    let mut all = vec![pending, delayed];
    for how in [
        fail("broken"),
        Ending::Snooze { delay: LEASE },
        Ending::Release { reason: None },
    ] {
        let (task, held) = w.claimed(w.new_task("once claimed")).await?;
        w.store.settle(held, how).await?;
        all.push(task.id());
    }
    w.advance(Duration::from_secs(1));
    for id in all {
        let before = w.task(id).await?;
        let mut history = events_of(&w, id).await?;
        let outcome = w.store.write(cancel(id, "enough")).await?;
        let after = w.task(id).await?;
        let (status, revision) = (Status::Cancelled, after.revision);
        assert_eq!(outcome, Outcome::Changed { status, revision });
        assert!(revision > before.revision);
        let expected = Task {
            spec: before.spec.clone(),
            state: TaskState {
                status,
                reason: Some("enough".to_owned()),
                finished_at: Some(w.now()),
                modified_at: w.now(),
                revision,
                ..before.state.clone()
            },
        };
        assert_eq!(after, expected);
        history.push((TaskEvent::Cancelled, status));
        assert_eq!(events_of(&w, id).await?, history);
    }
    Ok(())
}

async fn a_claimed_task_is_asked_to_stop(w: World) -> Result<()> {
    for reason in [Some("enough".to_owned()), None] {
        let (before, held) = w.claimed(w.new_task("work")).await?;
        w.advance(Duration::from_secs(1));
        let outcome = w.store.cancel(before.id(), reason.clone()).await?;
        let after = w.task(before.id()).await?;
        let (status, revision) = (Status::Claimed, after.revision);
        assert_eq!(outcome, Outcome::Changed { status, revision });
        assert!(revision > before.revision);
        let expected = Task {
            spec: before.spec.clone(),
            state: TaskState {
                cancel: Some(CancelRequest {
                    at: w.now(),
                    reason: reason.clone(),
                }),
                modified_at: w.now(),
                revision,
                ..before.state.clone()
            },
        };
        assert_eq!(after, expected);
        let history = events_of(&w, after.id()).await?;
        assert_eq!(history[2..], [(TaskEvent::CancelRequested, status)]);
        let renew = Renew {
            holders: vec![held],
            lease: LEASE,
        };
        let until = w.now().saturating_plus(LEASE);
        let asked = Renewal::CancelRequested { until, reason };
        assert_eq!(w.store.renew(renew).await?, [asked]);
    }
    Ok(())
}

async fn a_second_request_changes_nothing(w: World) -> Result<()> {
    let (task, held) = cancelling(&w, w.new_task("work"), "first").await?;
    let before = seen(&w, &[task.id()]).await?;
    let again = Commit::of(cancel(task.id(), "second"));
    let receipt = w.store.commit_one(again).await?;
    assert_eq!(receipt.outcomes, [already(Status::Claimed)]);
    assert_eq!(receipt.position, None);
    assert_eq!(seen(&w, &[task.id()]).await?, before);
    let confirm = Ending::Cancel { reason: None };
    w.store.settle(held, confirm).await?;
    let reason = w.task(task.id()).await?.reason.clone();
    assert_eq!(reason, Some("first".to_owned()));
    Ok(())
}

async fn a_finished_task_stays_as_it_is(w: World) -> Result<()> {
    for (task, status) in finished(&w).await? {
        w.advance(Duration::from_secs(1));
        assert_eq!(task.status, status);
        let before = seen(&w, &[task.id()]).await?;
        let commit = Commit::of(cancel(task.id(), "too late"));
        let receipt = w.store.commit_one(commit).await?;
        assert_eq!(receipt.outcomes, [already(status)]);
        assert_eq!(receipt.position, None);
        assert_eq!(seen(&w, &[task.id()]).await?, before);
    }
    Ok(())
}

async fn an_unknown_task_cannot_be_cancelled(w: World) -> Result<()> {
    let known = w.submit(w.new_task("work")).await?;
    let unknown = w.ids.task();
    let commit = Commit::of(cancel(known.id(), "both")).write(cancel(unknown, "both"));
    let answer = w.store.commit_one(commit).await;
    assert_eq!(answer, Err(NotFound::Task(unknown).into()));
    assert_eq!(w.task(known.id()).await?, known);
    Ok(())
}

async fn a_cancelled_task_is_never_claimed_or_promoted(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("pending")).await?.id();
    let delayed = w.submit(w.new_task("delayed").after(LEASE)).await?.id();
    for id in [pending, delayed] {
        w.store.write(cancel(id, "enough")).await?;
    }
    let before = seen(&w, &[pending, delayed]).await?;
    w.advance(LEASE);
    let swept = w.sweep().await?;
    assert_eq!((swept.promoted, swept.next), (0, None));
    let status = Status::Cancelled;
    let promote = w.store.write(Write::Promote(delayed)).await?;
    assert_eq!(promote, already(status));
    let worker = w.worker("worker")?;
    let next = w.store.claim(w.next(&worker, 2)).await?;
    assert_eq!((next.tasks, next.next_due), (Vec::new(), None));
    let mut by_id = w.claim_ids(&worker, &[pending, delayed]).await?;
    by_id.refused.sort_by_key(|(task, _)| *task);
    assert_eq!(by_id.tasks, []);
    let refusals =
        [pending, delayed].map(|task| (task, Conflict::Finished { task, status }.into()));
    assert_eq!(by_id.refused, refusals);
    assert_eq!(seen(&w, &[pending, delayed]).await?, before);
    Ok(())
}

async fn cancelling_and_completing_leave_one_terminal_status_whoever_is_first(
    w: World,
) -> Result<()> {
    let (completed, first) = w.claimed(w.new_task("completed first")).await?;
    w.store.settle(first, complete()).await?;
    let outcome = w.store.write(cancel(completed.id(), "late")).await?;
    assert_eq!(outcome, already(Status::Completed));

    let (asked, second) = cancelling(&w, w.new_task("asked first"), "early").await?;
    w.store.settle(second, complete()).await?;
    let outcome = w.store.write(cancel(asked.id(), "again")).await?;
    assert_eq!(outcome, already(Status::Completed));

    let (confirmed, third) = cancelling(&w, w.new_task("confirmed first"), "early").await?;
    let confirm = Ending::Cancel { reason: None };
    w.store.settle(third.clone(), confirm).await?;
    let status = Status::Cancelled;
    let why = lost(w.store.settle(third, complete()).await);
    assert_eq!(why, Lost::Finished { status });

    for (task, status) in [
        (completed, Status::Completed),
        (asked, Status::Completed),
        (confirmed, Status::Cancelled),
    ] {
        assert_eq!(w.status(task.id()).await?, status);
        let mut history = events_of(&w, task.id()).await?;
        history.retain(|(_, status)| status.is_terminal());
        assert_eq!(history.len(), 1, "{history:?}");
        assert_eq!(history[0].1, status);
    }
    Ok(())
}

async fn a_task_that_waits_for_another_is_cancelled_alone(w: World) -> Result<()> {
    let keyed = || -> Result<NewTask> {
        let key = IdempotencyKey::new("key")?;
        let (lifetime, policy) = (KeyLifetime::WhileActive, OnConflict::CancelAndReplace);
        Ok(w.new_task("work").key_with(key, lifetime, policy))
    };
    let (running, held) = w.claimed(keyed()?).await?;
    let waiting = w.submit(keyed()?).await?;
    assert_eq!(waiting.status, Status::Scheduled);
    let before = w.task(running.id()).await?;
    w.store.write(cancel(waiting.id(), "not this one")).await?;
    assert_eq!(w.task(running.id()).await?, before);
    let cancelled = w.task(waiting.id()).await?;
    assert_eq!(cancelled.status, Status::Cancelled);
    assert_eq!(cancelled.waiting, None);
    w.store.settle(held, complete()).await?;
    assert_eq!(w.status(running.id()).await?, Status::Completed);
    assert_eq!(w.task(waiting.id()).await?, cancelled);
    Ok(())
}

async fn a_batch_of_cancels_answers_each_one(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("pending")).await?.id();
    let (claimed, _) = w.claimed(w.new_task("claimed")).await?;
    let unknown = w.ids.task();
    let commits = [pending, unknown, claimed.id(), pending]
        .map(|id| Commit::of(cancel(id, "all")))
        .to_vec();
    let answers = w.store.commit(commits).await;
    let outcomes: Vec<Result<Vec<Outcome>>> = (answers.into_iter())
        .map(|answer| answer.map(|receipt| receipt.outcomes))
        .collect();
    let mut changed = Vec::new();
    for (id, status) in [
        (pending, Status::Cancelled),
        (claimed.id(), Status::Claimed),
    ] {
        let revision = w.task(id).await?.revision;
        changed.push(Ok(vec![Outcome::Changed { status, revision }]));
    }
    let expected = [
        changed[0].clone(),
        Err(NotFound::Task(unknown).into()),
        changed[1].clone(),
        Ok(vec![already(Status::Cancelled)]),
    ];
    assert_eq!(outcomes, expected);
    Ok(())
}
