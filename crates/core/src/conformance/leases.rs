//! Leases: how they are renewed, and when they run out.

use std::time::Duration;

use crate::conformance::observe::{already, seen};
use crate::conformance::world::{LEASE, World, complete};
use crate::conformance::writes::expire;
use crate::error::{LeaseLost, Lost, Result};
use crate::ids::{Fence, TaskId};
use crate::store::{Commit, Due, Ending, Outcome, Renew, Renewal, StoreExt, Write};
use crate::task::{FailureKind, Holder, Lease, NewTask, Status, Task, TaskState};

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
];

pub(super) fn renew(holders: &[&Holder], lease: Duration) -> Renew {
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
        w.store.write(expire(task.id(), task.fence)).await?,
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
        w.store.write(expire(task.id(), task.fence)).await?,
        already(Status::Claimed)
    );
    assert_eq!(seen(&w, &[task.id()]).await?, before);
    w.advance(Duration::from_millis(1));
    let outcome = w.store.write(expire(task.id(), task.fence)).await?;
    let after = w.task(task.id()).await?;
    let (status, revision) = (Status::Scheduled, after.revision);
    assert_eq!(outcome, Outcome::Changed { status, revision });
    assert_eq!((after.lease.clone(), after.failures), (None, 1));
    let before = seen(&w, &[task.id()]).await?;
    assert_eq!(
        w.store.write(expire(task.id(), task.fence)).await?,
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
    let receipt = w
        .store
        .commit_one(Commit::of(expire(task.id(), task.fence)))
        .await?;
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
        w.store.write(expire(first.id(), first.fence)).await?,
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
