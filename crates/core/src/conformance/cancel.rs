//! Cancelling and deleting: exactly one terminal status, whoever comes first.

use std::time::Duration;

use crate::change::{Change, TaskChange, TaskEvent};
use crate::conformance::leases::{events, seen};
use crate::conformance::world::{
    LEASE, World, complete, conflict, fail, fail_with, holder, lane, lost,
};
use crate::error::{Conflict, Lost, NotFound, Result};
use crate::ids::TaskId;
use crate::log::{Level, NewLine};
use crate::names::IdempotencyKey;
use crate::store::{
    Cancel, Commit, Counts, Ending, FailRetry, List, Log, Logs, Outcome, Renew, Renewal, Selector,
    Settle, StoreExt, SubmitOutcome, Write,
};
use crate::task::{
    CancelRequest, FailureKind, Holder, KeyLifetime, NewTask, OnConflict, RetryPolicy, Settled,
    Status, Task, TaskState, Verb,
};

cases!["cancel":
    a_task_that_nobody_holds_is_cancelled_at_once,
    a_claimed_task_is_asked_to_stop,
    a_second_request_changes_nothing,
    a_finished_task_stays_as_it_is,
    an_unknown_task_cannot_be_cancelled,
    a_success_while_cancelling_wins,
    a_failure_while_cancelling_ends_cancelled,
    a_snooze_or_release_while_cancelling_ends_cancelled,
    a_holder_confirms_with_its_own_reason_or_that_of_the_request,
    a_lease_that_runs_out_while_cancelling_ends_cancelled,
    an_overdue_holder_may_still_succeed_while_cancelling,
    a_cancelled_task_is_never_claimed_or_promoted,
    cancelling_and_completing_leave_one_terminal_status_whoever_is_first,
    a_task_that_waits_for_another_is_cancelled_alone,
    a_batch_of_cancels_answers_each_one,
    only_a_finished_task_can_be_deleted,
    a_deleted_task_goes_with_its_key_and_its_log,
    deleting_what_is_not_there_says_so,
];

fn cancel(task: TaskId, reason: &str) -> Write {
    Write::Cancel(Cancel {
        task,
        reason: Some(reason.to_owned()),
    })
}

fn already(status: Status) -> Outcome {
    Outcome::Already { status }
}

fn settled(status: Status) -> Outcome {
    Outcome::Settled {
        status,
        runnable_at: None,
    }
}

/// A claimed task that was asked to stop, for this reason.
async fn cancelling(w: &World, task: NewTask, reason: &str) -> Result<(Task, Holder)> {
    let (task, held) = w.claimed(task).await?;
    w.store.write(cancel(task.id(), reason)).await?;
    w.advance(Duration::from_secs(1));
    Ok((w.task(task.id()).await?, held))
}

/// One task that ended in each of the three ways, and how it ended.
async fn finished(w: &World) -> Result<Vec<(Task, Status)>> {
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
        let mut history = events(&w, id).await?;
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
        assert_eq!(events(&w, id).await?, history);
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
        let history = events(&w, after.id()).await?;
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

async fn a_success_while_cancelling_wins(w: World) -> Result<()> {
    let (before, held) = cancelling(&w, w.new_task("work"), "enough").await?;
    let how = Ending::Complete {
        result: Some("done".into()),
    };
    let outcome = w.store.settle(held, how).await?;
    assert_eq!(outcome, settled(Status::Completed));
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
            }),
            result: Some("done".into()),
            finished_at: Some(w.now()),
            modified_at: w.now(),
            revision: after.revision,
            ..before.state.clone()
        },
    };
    assert_eq!(after, expected);
    let history = events(&w, after.id()).await?;
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
        assert_eq!(outcome, settled(Status::Cancelled), "{retry:?}");
        let after = w.task(task.id()).await?;
        assert_eq!(after.status, Status::Cancelled);
        assert_eq!(after.reason, Some("enough".to_owned()));
        assert_eq!(after.errors.len(), 1);
        assert_eq!(after.errors[0].message, "stopped halfway");
        let history = events(&w, task.id()).await?;
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
        let commit = Commit::of(Write::Settle(Settle {
            holder: held,
            how: how.clone(),
        }));
        let receipt = w.store.commit_one(commit.clone()).await?;
        assert_eq!(receipt.outcomes, [settled(Status::Cancelled)], "{how:?}");
        let after = w.task(task.id()).await?;
        assert_eq!((after.status, after.failures), (Status::Cancelled, 0));
        assert_eq!(after.reason, Some("enough".to_owned()));
        assert_eq!((after.lease.clone(), after.cancel.clone()), (None, None));
        assert_eq!(after.finished_at, Some(w.now()));
        let history = events(&w, task.id()).await?;
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
        assert_eq!(outcome, settled(Status::Cancelled));
        let after = w.task(task.id()).await?;
        assert_eq!((after.status, after.failures), (Status::Cancelled, 0));
        assert_eq!(after.reason, Some(kept.to_owned()));
        assert_eq!((after.lease.clone(), after.cancel.clone()), (None, None));
        let history = events(&w, task.id()).await?;
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
        let history = events(&w, task.id()).await?;
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
        let mut history = events(&w, task.id()).await?;
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

async fn only_a_finished_task_can_be_deleted(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("pending")).await?;
    let delayed = w.submit(w.new_task("delayed").after(LEASE)).await?;
    let (claimed, _) = w.claimed(w.new_task("claimed")).await?;
    let (asked, _) = cancelling(&w, w.new_task("asked to stop"), "enough").await?;
    for before in [pending, delayed, claimed, asked] {
        let (task, status) = (before.id(), before.status);
        let answer = w.store.write(Write::DeleteTask(task)).await;
        assert_eq!(conflict(answer), Conflict::NotFinished { task, status });
        assert_eq!(w.task(task).await?, before);
    }
    for (task, _) in finished(&w).await? {
        let outcome = w.store.write(Write::DeleteTask(task.id())).await?;
        assert_eq!(outcome, Outcome::Removed { existed: true });
        assert_eq!(w.store.task(task.id()).await?, None);
        let change = Change::Task(TaskChange::new(&task, TaskEvent::Deleted));
        let history = w.history().await?.entries;
        let changes = history.iter().flat_map(|entry| &entry.changes);
        assert_eq!(changes.filter(|one| **one == change).count(), 1);
    }
    Ok(())
}

async fn a_deleted_task_goes_with_its_key_and_its_log(w: World) -> Result<()> {
    let key = IdempotencyKey::new("key")?;
    let (task, held) = w.claimed(w.new_task("work").key(key.clone())).await?;
    let line = NewLine::new(w.ids.line(), Level::Info, "started");
    let lines = vec![line.clone()];
    let log = Log {
        holder: held.clone(),
        lines,
    };
    w.store.write(Write::Log(log.clone())).await?;
    w.store.settle(held, complete()).await?;
    w.store.write(Write::DeleteTask(task.id())).await?;
    assert_eq!(w.by_key("key").await?, None);
    let logs = || Logs {
        task: task.id(),
        level: Level::Debug,
        cursor: None,
        limit: 10,
    };
    assert_eq!(w.store.logs(logs()).await?.lines, []);
    let list = List::new(Selector::Lane(lane(), Status::Completed), 10);
    assert_eq!(w.store.list(list).await?.rows, []);
    assert_eq!(w.store.counts(Counts::default()).await?, []);

    let successor = w.store.submit(w.new_task("other").key(key)).await?;
    assert_eq!(successor.outcome, SubmitOutcome::Created);
    // The id is free again, too, and what the old log held does not keep new lines out.
    let same_id = NewTask {
        id: task.id(),
        ..w.new_task("again")
    };
    let again = w.submit(same_id).await?;
    assert!(again.revision > task.revision);
    assert_eq!((again.attempts, again.status), (0, Status::Pending));
    let claimed = w.claim_ids(&w.worker("next")?, &[task.id()]).await?;
    let log = Log {
        holder: holder(&claimed.tasks[0]),
        ..log
    };
    w.store.write(Write::Log(log)).await?;
    let lines = w.store.logs(logs()).await?.lines;
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].line, line);
    Ok(())
}

async fn deleting_what_is_not_there_says_so(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    w.store.settle(held, complete()).await?;
    w.store.write(Write::DeleteTask(task.id())).await?;
    let before = seen(&w, &[task.id()]).await?;
    for id in [task.id(), w.ids.task()] {
        let delete = Commit::of(Write::DeleteTask(id));
        let receipt = w.store.commit_one(delete).await?;
        assert_eq!(receipt.outcomes, [Outcome::Removed { existed: false }]);
        assert_eq!(receipt.position, None);
    }
    assert_eq!(seen(&w, &[task.id()]).await?, before);
    let answer = w.store.write(cancel(task.id(), "late")).await;
    assert_eq!(answer, Err(NotFound::Task(task.id()).into()));
    Ok(())
}
