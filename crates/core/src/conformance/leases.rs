//! Leases, renewals and fences: only the current holder acts.

use std::time::Duration;

use crate::change::{Change, Entry, TaskEvent};
use crate::conformance::world::{LEASE, World, complete, fail, holder, lost, name};
use crate::error::{LeaseLost, Lost, Result};
use crate::ids::{Fence, TaskId};
use crate::log::{Level, NewLine};
use crate::names::Key;
use crate::record::fields;
use crate::store::{
    Amend, Commit, Due, Ending, Expire, Guard, Log, Logs, Outcome, Put, Renew, Renewal, Retry,
    Settle, StoreExt, Tasks, Write,
};
use crate::task::{FailureKind, Holder, Lease, NewTask, RetryPolicy, Status, Task, TaskState};

cases!["leases":
    a_renewal_prolongs_the_lease_from_now,
    a_shorter_renewal_ends_the_lease_sooner,
    a_renewal_never_outlasts_the_deadline,
    a_renewal_changes_the_end_of_the_lease_and_nothing_else,
    a_renewal_delivers_a_cancel_request_every_time,
    leases_renewed_in_one_call_are_answered_in_order_and_apart,
    an_overdue_lease_can_still_be_renewed,
    an_overdue_holder_can_still_settle,
    a_lease_is_expired_at_its_end_and_not_before,
    a_renewed_lease_survives_a_sweep_that_had_selected_it,
    an_expiry_of_an_earlier_claim_leaves_a_later_one_alone,
    a_missed_deadline_and_a_lease_that_ran_out_leave_different_errors,
    a_stale_holder_cannot_complete_what_another_worker_holds,
    a_holder_whose_lease_was_expired_can_do_nothing,
    a_holder_that_was_overtaken_by_another_worker_can_do_nothing,
    a_holder_that_claimed_again_can_do_nothing_with_its_first_fence,
    a_holder_can_do_nothing_once_its_task_has_failed_without_it,
    a_holder_of_a_deleted_or_unknown_task_can_do_nothing,
    a_holder_whose_task_was_taken_away_by_a_retry_can_do_nothing,
    a_holder_that_put_its_task_off_cannot_complete_it_after_another_claim,
    a_guard_lets_the_holder_of_the_current_claim_write,
];

/// What happened to a task so far, and what it was then.
pub(super) async fn events(w: &World, task: TaskId) -> Result<Vec<(TaskEvent, Status)>> {
    let history = w.history().await?;
    let changes = history.entries.into_iter().flat_map(|entry| entry.changes);
    let of_task = changes.filter_map(|change| match change {
        Change::Task(change) if change.id == task => Some((change.event, change.status)),
        Change::Task(_) | Change::Put(_) | Change::Removed { .. } | Change::Group { .. } => None,
    });
    Ok(of_task.collect())
}

/// These tasks and the whole history: what a call without effect leaves as it was.
pub(super) async fn seen(w: &World, tasks: &[TaskId]) -> Result<(Vec<Option<Task>>, Vec<Entry>)> {
    let ids = tasks.to_vec();
    let tasks = w.store.tasks(Tasks { ids }).await?;
    Ok((tasks, w.history().await?.entries))
}

fn renew(holders: &[&Holder], lease: Duration) -> Renew {
    Renew {
        holders: holders.iter().map(|holder| (*holder).clone()).collect(),
        lease,
    }
}

fn lease_of(task: &Task) -> Lease {
    match &task.lease {
        Some(lease) => lease.clone(),
        None => panic!("nobody holds {task:?}"),
    }
}

fn expire(task: &Task) -> Write {
    Write::Expire(Expire {
        task: task.id(),
        fence: task.fence,
        jitter: Default::default(),
    })
}

fn already(status: Status) -> Outcome {
    Outcome::Already { status }
}

async fn a_renewal_prolongs_the_lease_from_now(w: World) -> Result<()> {
    let (_, held) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE / 2);
    let renew = Renew {
        holders: vec![held],
        lease: Duration::from_secs(60),
    };
    let until = w.now().saturating_plus(Duration::from_secs(60));
    assert_eq!(w.store.renew(renew).await?, [Renewal::Held { until }]);
    Ok(())
}

async fn a_shorter_renewal_ends_the_lease_sooner(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let short = Duration::from_secs(1);
    let until = w.now().saturating_plus(short);
    let renewals = w.store.renew(renew(&[&held], short)).await?;
    assert_eq!(renewals, [Renewal::Held { until }]);
    w.advance(short);
    assert_eq!(w.sweep().await?.expired, 1);
    assert_eq!(w.status(task.id()).await?, Status::Scheduled);
    Ok(())
}

async fn a_renewal_never_outlasts_the_deadline(w: World) -> Result<()> {
    let timeout = LEASE + Duration::from_secs(5);
    let (task, held) = w
        .claimed(NewTask {
            attempt_timeout: Some(timeout),
            ..w.new_task("work")
        })
        .await?;
    let deadline = w.now().saturating_plus(timeout);
    // Before, at and after the moment from which a whole lease does not fit any more.
    for (wait, until) in [
        (4, w.now().saturating_plus(LEASE + Duration::from_secs(4))),
        (1, deadline),
        (20, deadline),
        (60, deadline),
    ] {
        w.advance(Duration::from_secs(wait));
        let renewals = w.store.renew(renew(&[&held], LEASE)).await?;
        assert_eq!(renewals, [Renewal::Held { until }]);
        let lease = lease_of(&w.task(task.id()).await?);
        assert_eq!((lease.until, lease.deadline), (until, Some(deadline)));
    }
    assert_eq!(w.sweep().await?.expired, 1);
    Ok(())
}

async fn a_renewal_changes_the_end_of_the_lease_and_nothing_else(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let (_, history) = seen(&w, &[task.id()]).await?;
    w.advance(LEASE / 2);
    w.store.renew(renew(&[&held], LEASE)).await?;
    let expected = Task {
        spec: task.spec.clone(),
        state: TaskState {
            lease: Some(Lease {
                until: w.now().saturating_plus(LEASE),
                ..lease_of(&task)
            }),
            ..task.state.clone()
        },
    };
    assert_eq!(
        seen(&w, &[task.id()]).await?,
        (vec![Some(expected)], history)
    );
    // The old end of the lease means nothing any more, the new one does.
    w.advance(LEASE - Duration::from_millis(1));
    assert_eq!(w.sweep().await?.expired, 0);
    w.advance(Duration::from_millis(1));
    assert_eq!(w.sweep().await?.expired, 1);
    Ok(())
}

async fn a_renewal_delivers_a_cancel_request_every_time(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let (_, untouched) = w.claimed(w.new_task("other")).await?;
    w.store.cancel(task.id(), Some("enough".to_owned())).await?;
    for _ in 0..2 {
        w.advance(Duration::from_secs(1));
        let until = w.now().saturating_plus(LEASE);
        let expected = [
            Renewal::CancelRequested {
                until,
                reason: Some("enough".to_owned()),
            },
            Renewal::Held { until },
        ];
        let renewals = w.store.renew(renew(&[&held, &untouched], LEASE)).await?;
        assert_eq!(renewals, expected);
        assert_eq!(lease_of(&w.task(task.id()).await?).until, until);
    }
    Ok(())
}

async fn leases_renewed_in_one_call_are_answered_in_order_and_apart(w: World) -> Result<()> {
    let mut tasks = Vec::new();
    for payload in ["first", "wrong worker", "idle", "ended", "gone", "again"] {
        tasks.push(w.claimed(w.new_task(payload)).await?);
    }
    let release = || Ending::Release { reason: None };
    let second = w.worker("second")?;
    for (turn, how) in [
        (1, release()),
        (2, release()),
        (3, complete()),
        (4, complete()),
        (5, release()),
    ] {
        w.store.settle(tasks[turn].1.clone(), how).await?;
    }
    w.claim_ids(&second, &[tasks[1].0.id()]).await?;
    w.store.write(Write::DeleteTask(tasks[4].0.id())).await?;
    w.claim_ids(&tasks[5].1.worker, &[tasks[5].0.id()]).await?;
    let last = w.claimed(w.new_task("last")).await?;
    let others: Vec<TaskId> = tasks[1..].iter().map(|(task, _)| task.id()).collect();
    let before = seen(&w, &others).await?;
    w.advance(Duration::from_secs(1));
    let until = w.now().saturating_plus(LEASE);
    let gone = |turn: usize, why: Lost| {
        Renewal::Lost(LeaseLost {
            task: tasks[turn].0.id(),
            fence: tasks[turn].0.fence,
            why,
        })
    };
    let (pending, completed) = (Status::Pending, Status::Completed);
    let expected = [
        Renewal::Held { until },
        gone(1, Lost::WrongWorker { holder: second }),
        gone(2, Lost::NotClaimed { status: pending }),
        gone(3, Lost::Finished { status: completed }),
        gone(4, Lost::Gone),
        gone(
            5,
            Lost::Superseded {
                fence: Fence::new(2),
            },
        ),
        Renewal::Held { until },
    ];
    let mut holders: Vec<&Holder> = tasks.iter().map(|(_, held)| held).collect();
    holders.push(&last.1);
    assert_eq!(w.store.renew(renew(&holders, LEASE)).await?, expected);
    assert_eq!(seen(&w, &others).await?, before);
    for (task, _) in [&tasks[0], &last] {
        assert_eq!(lease_of(&w.task(task.id()).await?).until, until);
    }
    Ok(())
}

async fn an_overdue_lease_can_still_be_renewed(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE * 2);
    let until = w.now().saturating_plus(LEASE);
    let renewals = w.store.renew(renew(&[&held], LEASE)).await?;
    assert_eq!(renewals, [Renewal::Held { until }]);
    assert_eq!(w.sweep().await?.expired, 0);
    assert_eq!(w.status(task.id()).await?, Status::Claimed);
    Ok(())
}

async fn an_overdue_holder_can_still_settle(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE * 2);
    let settled = w.store.settle(held, complete()).await?;
    assert_eq!(
        settled,
        Outcome::Settled {
            status: Status::Completed,
            runnable_at: None
        }
    );
    assert_eq!(w.sweep().await?.expired, 0);
    assert_eq!(
        w.store.write(expire(&task)).await?,
        already(Status::Completed)
    );
    let task = w.task(task.id()).await?;
    assert_eq!((task.status, task.failures), (Status::Completed, 0));
    Ok(())
}

async fn a_lease_is_expired_at_its_end_and_not_before(w: World) -> Result<()> {
    let (task, _) = w.claimed(w.new_task("work")).await?;
    let before = seen(&w, &[task.id()]).await?;
    w.advance(LEASE - Duration::from_millis(1));
    assert_eq!(
        w.store.write(expire(&task)).await?,
        already(Status::Claimed)
    );
    assert_eq!(seen(&w, &[task.id()]).await?, before);
    w.advance(Duration::from_millis(1));
    let outcome = w.store.write(expire(&task)).await?;
    let after = w.task(task.id()).await?;
    let (status, revision) = (Status::Scheduled, after.revision);
    assert_eq!(outcome, Outcome::Changed { status, revision });
    assert_eq!((after.lease.clone(), after.failures), (None, 1));
    let before = seen(&w, &[task.id()]).await?;
    assert_eq!(
        w.store.write(expire(&task)).await?,
        already(Status::Scheduled)
    );
    assert_eq!(seen(&w, &[task.id()]).await?, before);
    Ok(())
}

async fn a_renewed_lease_survives_a_sweep_that_had_selected_it(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE);
    let due = w.store.due(Due { limit: 10 }).await?;
    assert_eq!(due.expired, [(task.id(), task.fence)]);
    w.store.renew(renew(&[&held], LEASE)).await?;
    let before = seen(&w, &[task.id()]).await?;
    let receipt = w.store.commit_one(Commit::of(expire(&task))).await?;
    assert_eq!(receipt.outcomes, [already(Status::Claimed)]);
    assert_eq!(receipt.position, None);
    assert_eq!(seen(&w, &[task.id()]).await?, before);
    w.store.settle(held, complete()).await?;
    Ok(())
}

async fn an_expiry_of_an_earlier_claim_leaves_a_later_one_alone(w: World) -> Result<()> {
    let (first, held) = w.claimed(w.new_task("work")).await?;
    w.store
        .settle(held, Ending::Release { reason: None })
        .await?;
    w.claim_ids(&w.worker("second")?, &[first.id()]).await?;
    // The later claim is overdue as well: the fence alone tells them apart.
    w.advance(LEASE);
    let before = seen(&w, &[first.id()]).await?;
    assert_eq!(
        w.store.write(expire(&first)).await?,
        already(Status::Claimed)
    );
    assert_eq!(seen(&w, &[first.id()]).await?, before);
    Ok(())
}

async fn a_missed_deadline_and_a_lease_that_ran_out_leave_different_errors(w: World) -> Result<()> {
    let (silent, _) = w.claimed(w.new_task("silent")).await?;
    let (slow, slow_holder) = w
        .claimed(NewTask {
            attempt_timeout: Some(LEASE * 2),
            ..w.new_task("slow")
        })
        .await?;
    w.advance(LEASE);
    w.store.renew(renew(&[&slow_holder], LEASE)).await?;
    assert_eq!(w.sweep().await?.expired, 1);
    w.advance(LEASE - Duration::from_millis(1));
    w.store.renew(renew(&[&slow_holder], LEASE)).await?;
    assert_eq!(w.sweep().await?.expired, 0);
    w.advance(Duration::from_millis(1));
    assert_eq!(w.sweep().await?.expired, 1);
    for (task, kind, ended) in [
        (silent, FailureKind::LeaseExpired, LEASE),
        (slow, FailureKind::DeadlineExceeded, Duration::ZERO),
    ] {
        let after = w.task(task.id()).await?;
        assert_eq!((after.errors.len(), after.failures), (1, 1));
        let error = &after.errors[0];
        assert_eq!((error.kind, error.fence), (kind, task.fence));
        assert_eq!(error.worker, lease_of(&task).worker);
        assert_eq!(error.at, w.now().saturating_minus(ended));
    }
    Ok(())
}

async fn a_stale_holder_cannot_complete_what_another_worker_holds(w: World) -> Result<()> {
    let (task, stale) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE);
    w.sweep().await?;
    w.advance(Duration::from_secs(60));
    w.sweep().await?;
    let second = w.worker("second")?;
    let taken = w.claim(&second, 1).await?;
    assert_eq!(taken[0].id(), task.id());
    let before = w.task(task.id()).await?;
    let why = lost(w.store.settle(stale, complete()).await);
    assert_eq!(why, Lost::WrongWorker { holder: second });
    assert_eq!(w.task(task.id()).await?, before);
    w.store.settle(holder(&taken[0]), complete()).await?;
    assert_eq!(w.status(task.id()).await?, Status::Completed);
    Ok(())
}

/// Every verb of a stale holder is refused for this reason, with all that comes with it.
async fn assert_can_do_nothing(w: &World, stale: &Holder, why: Lost) -> Result<()> {
    let refusal = LeaseLost {
        task: stale.task,
        fence: stale.fence,
        why,
    };
    let key = Key::new("written by a stale holder")?;
    let put = Write::Put(Put::new(key.clone(), fields([("some", "thing")])?));
    let settle = |how: Ending| {
        let holder = stale.clone();
        Commit::of(put.clone()).write(Write::Settle(Settle { holder, how }))
    };
    let amend = Amend {
        stage: Some(name("late")?),
        ..Amend::new(stale.clone())
    };
    let log = Log {
        holder: stale.clone(),
        lines: vec![NewLine::new(w.ids.line(), Level::Error, "late")],
    };
    let delay = Duration::ZERO;
    let commits = [
        settle(complete()),
        settle(fail("late")),
        settle(Ending::Snooze { delay }),
        settle(Ending::Release { reason: None }),
        settle(Ending::Cancel { reason: None }),
        Commit::of(put.clone()).write(Write::Amend(Box::new(amend))),
        Commit::of(put.clone()).write(Write::Log(log)),
        Commit::of(put.clone()).guard(Guard::Held(stale.clone())),
    ];
    let lines = || {
        w.store.logs(Logs {
            task: stale.task,
            level: Level::Debug,
            cursor: None,
            limit: 10,
        })
    };
    let before = (seen(w, &[stale.task]).await?, lines().await?.lines);
    for commit in commits {
        let answer = w.store.commit_one(commit.clone()).await;
        assert_eq!(answer, Err(refusal.clone().into()), "{commit:?}");
    }
    let renewals = w.store.renew(renew(&[stale], LEASE * 2)).await?;
    assert_eq!(renewals, [Renewal::Lost(refusal)]);
    let after = (seen(w, &[stale.task]).await?, lines().await?.lines);
    assert_eq!(after, before);
    assert_eq!(w.store.record(&key).await?, None);
    Ok(())
}

async fn a_holder_whose_lease_was_expired_can_do_nothing(w: World) -> Result<()> {
    let (task, stale) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE);
    assert_eq!(w.sweep().await?.expired, 1);
    for status in [Status::Scheduled, Status::Pending] {
        assert_can_do_nothing(&w, &stale, Lost::NotClaimed { status }).await?;
        w.advance(LEASE);
        w.sweep().await?;
    }
    let expected = [
        (TaskEvent::Submitted, Status::Pending),
        (TaskEvent::Claimed, Status::Claimed),
        (TaskEvent::Expired, Status::Scheduled),
        (TaskEvent::Promoted, Status::Pending),
    ];
    assert_eq!(events(&w, task.id()).await?, expected);
    Ok(())
}

async fn a_holder_that_was_overtaken_by_another_worker_can_do_nothing(w: World) -> Result<()> {
    let (task, stale) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE);
    w.sweep().await?;
    w.advance(LEASE);
    w.sweep().await?;
    let second = w.worker("second")?;
    let taken = w.claim(&second, 1).await?.remove(0);
    assert_eq!(taken.id(), task.id());
    assert_can_do_nothing(&w, &stale, Lost::WrongWorker { holder: second }).await?;
    w.store.settle(holder(&taken), complete()).await?;
    Ok(())
}

async fn a_holder_that_claimed_again_can_do_nothing_with_its_first_fence(w: World) -> Result<()> {
    let (task, stale) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE);
    w.sweep().await?;
    w.advance(LEASE);
    w.sweep().await?;
    let again = w.claim(&stale.worker, 1).await?.remove(0);
    let fence = task.fence.next();
    assert_eq!((again.id(), again.fence), (task.id(), fence));
    assert_can_do_nothing(&w, &stale, Lost::Superseded { fence }).await?;
    // Nor with a fence that was not given yet.
    let early = Holder {
        fence: fence.next(),
        ..stale
    };
    assert_can_do_nothing(&w, &early, Lost::Superseded { fence }).await?;
    w.store.settle(holder(&again), complete()).await?;
    Ok(())
}

async fn a_holder_can_do_nothing_once_its_task_has_failed_without_it(w: World) -> Result<()> {
    let task = w.new_task("work").retry(RetryPolicy::never());
    let (_, stale) = w.claimed(task).await?;
    w.advance(LEASE);
    w.sweep().await?;
    let status = Status::Failed;
    assert_can_do_nothing(&w, &stale, Lost::Finished { status }).await
}

async fn a_holder_of_a_deleted_or_unknown_task_can_do_nothing(w: World) -> Result<()> {
    let (task, stale) = w.claimed(w.new_task("work")).await?;
    w.store.settle(stale.clone(), complete()).await?;
    w.store.write(Write::DeleteTask(task.id())).await?;
    assert_can_do_nothing(&w, &stale, Lost::Gone).await?;
    let unknown = Holder {
        task: w.ids.task(),
        ..stale
    };
    assert_can_do_nothing(&w, &unknown, Lost::Gone).await
}

async fn a_holder_whose_task_was_taken_away_by_a_retry_can_do_nothing(w: World) -> Result<()> {
    let (task, stale) = w.claimed(w.new_task("work")).await?;
    let retry = Retry {
        task: task.id(),
        force: false,
        delay: Duration::ZERO,
    };
    w.write_with_id(Write::Retry(retry)).await?;
    let status = Status::Pending;
    assert_can_do_nothing(&w, &stale, Lost::NotClaimed { status }).await?;
    let again = w.claim(&stale.worker, 1).await?.remove(0);
    let fence = again.fence;
    assert!(fence > task.fence);
    assert_can_do_nothing(&w, &stale, Lost::Superseded { fence }).await
}

async fn a_holder_that_put_its_task_off_cannot_complete_it_after_another_claim(
    w: World,
) -> Result<()> {
    let (task, first) = w.claimed(w.new_task("work")).await?;
    let delay = Duration::from_secs(5);
    w.store
        .settle(first.clone(), Ending::Snooze { delay })
        .await?;
    w.advance(delay);
    assert_eq!(w.sweep().await?.promoted, 1);
    let second = w.worker("second")?;
    let taken = w.claim(&second, 1).await?.remove(0);
    // A snooze is no failure: only the fence tells the two claims apart.
    assert_eq!((taken.id(), taken.failures), (task.id(), 0));
    let before = seen(&w, &[task.id()]).await?;
    let why = lost(w.store.settle(first, complete()).await);
    assert_eq!(why, Lost::WrongWorker { holder: second });
    assert_eq!(seen(&w, &[task.id()]).await?, before);
    w.store.settle(holder(&taken), complete()).await?;
    assert_eq!(w.status(task.id()).await?, Status::Completed);
    Ok(())
}

async fn a_guard_lets_the_holder_of_the_current_claim_write(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let key = Key::new("output")?;
    let put = Put::new(key.clone(), fields([("by", "the holder")])?);
    let commit = Commit::of(Write::Put(put.clone())).guard(Guard::Held(held));
    w.store.commit_one(commit).await?;
    let record = w.store.record(&key).await?;
    assert_eq!(record.map(|record| record.fields), Some(put.fields));
    assert_eq!(w.task(task.id()).await?, task);
    Ok(())
}
