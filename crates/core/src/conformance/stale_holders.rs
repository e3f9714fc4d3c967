//! Fences: only the current holder of a task acts.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::act::{overtaken, retry_now};
use crate::conformance::leases::renew;
use crate::conformance::observe::{events_of, lines, seen};
use crate::conformance::world::{LEASE, World, complete, fail, holder, lost, name};
use crate::conformance::writes::log;
use crate::error::{LeaseLost, Lost, Result};
use crate::log::{Level, NewLine};
use crate::names::Key;
use crate::record::fields;
use crate::store::{Amend, Commit, Ending, Guard, Put, Renewal, Settle, StoreExt, Write};
use crate::task::{Holder, RetryPolicy, Status};

cases!["stale_holders":
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

async fn a_stale_holder_cannot_complete_what_another_worker_holds(w: World) -> Result<()> {
    let (stale, held) = overtaken(&w).await?;
    let task = stale.task;
    let before = w.task(task).await?;
    let why = lost(w.store.settle(stale, complete()).await);
    let holder = held.worker.clone();
    assert_eq!(why, Lost::WrongWorker { holder });
    assert_eq!(w.task(task).await?, before);
    w.store.settle(held, complete()).await?;
    assert_eq!(w.status(task).await?, Status::Completed);
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
    let late = [NewLine::new(w.ids.line(), Level::Error, "late")];
    let delay = Duration::ZERO;
    let commits = [
        settle(complete()),
        settle(fail("late")),
        settle(Ending::Snooze { delay }),
        settle(Ending::Release { reason: None }),
        settle(Ending::Cancel { reason: None }),
        Commit::of(put.clone()).write(Write::Amend(Box::new(amend))),
        Commit::of(put.clone()).write(log(stale, &late)),
        Commit::of(put.clone()).guard(Guard::Held(stale.clone())),
    ];
    let before = (seen(w, &[stale.task]).await?, lines(w, stale.task).await?);
    for commit in commits {
        let answer = w.store.commit_one(commit.clone()).await;
        assert_eq!(answer, Err(refusal.clone().into()), "{commit:?}");
    }
    let renewals = w.store.renew(renew(&[stale], LEASE * 2)).await?;
    assert_eq!(renewals, [Renewal::Lost(refusal)]);
    let after = (seen(w, &[stale.task]).await?, lines(w, stale.task).await?);
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
    assert_eq!(events_of(&w, task.id()).await?, expected);
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
    retry_now(&w, task.id(), false).await?;
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
