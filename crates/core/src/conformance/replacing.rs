//! Replacing the task that holds a key: two tasks of one key never run at once.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::act::{attempt, retry_now};
use crate::conformance::keys::{
    Active, ENDED, LIFETIMES, active, assert_attaches, assert_creates, attaching, end, ended,
    keyed, replacing,
};
use crate::conformance::observe::{assert_only, events_since, here};
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, conflict, fail, holder, lane,
};
use crate::error::{Conflict, Error, Result};
use crate::ids::TaskId;
use crate::names::IdempotencyKey;
use crate::store::{Ending, Peek, Renew, Renewal, StoreExt, SubmitOutcome};
use crate::task::{CancelRequest, Holder, KeyLifetime, NewTask, OnConflict, Status, Waiting};

cases!["replacing":
    a_key_is_not_free_while_the_task_that_was_to_be_replaced_still_runs,
    a_retried_replacement_waits_again_for_the_task_that_still_runs,
    a_task_that_nobody_has_claimed_is_replaced_at_once,
    a_claimed_task_is_not_replaced_as_a_pending_one,
    a_finished_task_is_answered_and_not_replaced,
    a_replacement_of_a_claimed_task_waits_for_it_to_end,
    a_replacement_is_runnable_in_the_commit_that_ends_the_replaced_task,
    a_replacement_is_runnable_once_the_lease_of_the_replaced_task_has_run_out,
    a_second_replacement_takes_over_the_wait_of_the_first,
    a_task_that_is_being_cancelled_can_still_be_replaced,
    a_replacement_keeps_its_own_delay,
    a_replacement_that_still_waits_is_cancelled_at_once,
    a_key_is_not_run_twice_when_a_waiting_replacement_is_cancelled,
    a_cancelled_replacement_does_not_run_again_beside_the_replaced_task,
];

/// A task that is held although it is to be replaced, and the replacement, which was cancelled.
async fn cancelled_replacement(w: &World, key: &IdempotencyKey) -> Result<(Holder, TaskId)> {
    let keyed = |on_conflict| {
        (w.new_task("work")).key_with(key.clone(), KeyLifetime::WhileActive, on_conflict)
    };
    let (_, held) = w.claimed(keyed(OnConflict::Attach)).await?;
    let replacement = w.submit(keyed(OnConflict::CancelAndReplace)).await?;
    w.store.cancel(replacement.id(), None).await?;
    Ok((held, replacement.id()))
}

async fn a_key_is_not_free_while_the_task_that_was_to_be_replaced_still_runs(
    w: World,
) -> Result<()> {
    let key = IdempotencyKey::new("key")?;
    let (held, _) = cancelled_replacement(&w, &key).await?;
    let third = w.new_task("work").key(key);
    w.store.submit(third).await?;
    let second = w.worker("second")?;
    assert_eq!(w.claim(&second, 10).await?, [], "two run under one key");
    assert_eq!(w.status(held.task).await?, Status::Claimed);
    Ok(())
}

async fn a_retried_replacement_waits_again_for_the_task_that_still_runs(w: World) -> Result<()> {
    let key = IdempotencyKey::new("key")?;
    let (held, replacement) = cancelled_replacement(&w, &key).await?;
    match retry_now(&w, replacement, false).await {
        Ok(_) | Err(Error::Conflict(_)) => {}
        Err(error) => return Err(error),
    }
    let second = w.worker("second")?;
    assert_eq!(w.claim(&second, 10).await?, [], "two run under one key");
    assert_eq!(w.status(held.task).await?, Status::Claimed);
    Ok(())
}

const WAITING: [Active; 4] = [
    Active::Scheduled,
    Active::Pending,
    Active::BackingOff,
    Active::Snoozed,
];

async fn a_task_that_nobody_has_claimed_is_replaced_at_once(w: World) -> Result<()> {
    for policy in [OnConflict::ReplacePending, OnConflict::CancelAndReplace] {
        for how in WAITING {
            for lifetime in LIFETIMES {
                let old = active(&w, attaching(&w, "key", lifetime)?, how).await?;
                w.advance(Duration::from_secs(1));
                let start = here(&w).await?;
                let new = keyed(&w, "key", KeyLifetime::WhileActive, policy)?;
                let new = assert_creates(&w, new, "key").await?;
                let replaced = [
                    (old.id(), TaskEvent::Cancelled),
                    (new.id(), TaskEvent::Submitted),
                ];
                assert_eq!(events_since(&w, start).await?, replaced);
                assert_eq!(w.history_from(start).await?.entries.len(), 1);
                assert_only(&w, &old, &w.task(old.id()).await?, |task| {
                    task.status = Status::Cancelled;
                    task.reason = Some(format!("replaced by task {}", new.id()));
                    task.finished_at = Some(w.now());
                });
                assert_eq!((new.status, new.waiting.clone()), (Status::Pending, None));
                attempt(&w, new.spec.id, complete()).await?;
            }
        }
    }
    Ok(())
}

async fn a_claimed_task_is_not_replaced_as_a_pending_one(w: World) -> Result<()> {
    for how in [Active::Claimed, Active::Cancelling] {
        let key = format!("{how:?}");
        let task = active(&w, attaching(&w, &key, KeyLifetime::WhileActive)?, how).await?;
        let new = || {
            keyed(
                &w,
                &key,
                KeyLifetime::WhileActive,
                OnConflict::ReplacePending,
            )
        };
        assert_attaches(&w, new()?, &task, SubmitOutcome::Existing).await?;
        let other = NewTask {
            payload: "other".into(),
            ..new()?
        };
        assert_attaches(&w, other, &task, SubmitOutcome::ExistingOtherPayload).await?;
    }
    Ok(())
}

async fn a_finished_task_is_answered_and_not_replaced(w: World) -> Result<()> {
    for status in ENDED {
        let key = status.as_str();
        let task = ended(&w, attaching(&w, key, KeyLifetime::Forever)?, status).await?;
        for policy in [OnConflict::ReplacePending, OnConflict::CancelAndReplace] {
            let new = keyed(&w, key, KeyLifetime::WhileActive, policy)?;
            let finished = SubmitOutcome::ExistingFinished(status);
            assert_attaches(&w, new, &task, finished).await?;
        }
    }
    Ok(())
}

async fn a_replacement_of_a_claimed_task_waits_for_it_to_end(w: World) -> Result<()> {
    let (old, held) = w
        .claimed(attaching(&w, "key", KeyLifetime::Forever)?)
        .await?;
    w.advance(Duration::from_secs(1));
    let start = here(&w).await?;
    let new = assert_creates(&w, replacing(&w, "key")?, "key").await?;
    let reason = Some(format!("replaced by task {}", new.id()));
    let happened = [
        (old.id(), TaskEvent::CancelRequested),
        (new.id(), TaskEvent::Submitted),
    ];
    assert_eq!(events_since(&w, start).await?, happened);
    assert_only(&w, &old, &w.task(old.id()).await?, |task| {
        let at = w.now();
        let reason = reason.clone();
        task.cancel = Some(CancelRequest { at, reason });
        task.successor = Some(new.id());
    });
    let waiting = Waiting {
        on: old.id(),
        then_at: w.now(),
    };
    assert_eq!(new.status, Status::Scheduled);
    assert_eq!(new.waiting, Some(waiting));

    let renew = Renew {
        holders: vec![held],
        lease: Duration::from_secs(86_400),
    };
    let until = w.now().saturating_plus(renew.lease);
    let asked = Renewal::CancelRequested { until, reason };
    assert_eq!(w.store.renew(renew).await?, [asked]);
    w.advance(Duration::from_secs(80_000));
    let swept = w.sweep().await?;
    assert_eq!((swept.promoted, swept.next), (0, Some(until)));
    let worker = w.worker("second")?;
    let next = w.store.claim(w.next(&worker, 5)).await?;
    assert_eq!((next.tasks, next.next_due), (vec![], None));
    let (lanes, limit) = (vec![lane()], 5);
    assert_eq!(w.store.peek(Peek { lanes, limit }).await?, vec![]);
    let (task, on) = (new.id(), old.id());
    let waiting = Conflict::Waiting { task, on };
    let refused = w.claim_ids(&worker, &[task]).await?.refused;
    assert_eq!(refused, [(task, Error::from(waiting.clone()))]);
    assert_eq!(conflict(retry_now(&w, task, true).await), waiting);
    let again = attaching(&w, "key", KeyLifetime::WhileActive)?;
    assert_attaches(&w, again, &new, SubmitOutcome::Existing).await
}

async fn a_replacement_is_runnable_in_the_commit_that_ends_the_replaced_task(
    w: World,
) -> Result<()> {
    let delay = Duration::from_secs(60);
    let cancelled = (Status::Cancelled, TaskEvent::Cancelled);
    for (how, (status, event)) in [
        (complete(), (Status::Completed, TaskEvent::Completed)),
        (fail("late"), cancelled),
        (Ending::Cancel { reason: None }, cancelled),
        (Ending::Release { reason: None }, cancelled),
        (Ending::Snooze { delay }, cancelled),
    ] {
        let (old, held) = w.claimed(replacing(&w, "key")?).await?;
        let new = assert_creates(&w, replacing(&w, "key")?, "key").await?;
        w.advance(Duration::from_secs(1));
        let start = here(&w).await?;
        w.store.settle(held, how).await?;
        assert_eq!(w.status(old.id()).await?, status);
        let happened = [(old.id(), event), (new.id(), TaskEvent::Unblocked)];
        assert_eq!(events_since(&w, start).await?, happened);
        assert_eq!(w.history_from(start).await?.entries.len(), 1);
        assert_only(&w, &new, &w.task(new.id()).await?, |task| {
            task.status = Status::Pending;
            task.waiting = None;
            task.runnable_at = w.now();
        });
        let claimed = w.claim(&w.worker("second")?, 2).await?;
        assert_eq!(claimed.len(), 1);
        end(&w, holder(&claimed[0]), Status::Completed).await?;
    }
    Ok(())
}

async fn a_replacement_is_runnable_once_the_lease_of_the_replaced_task_has_run_out(
    w: World,
) -> Result<()> {
    let (old, _) = w.claimed(replacing(&w, "key")?).await?;
    let new = assert_creates(&w, replacing(&w, "key")?, "key").await?;
    w.advance(LEASE - Duration::from_millis(1));
    assert_eq!(w.sweep().await?.expired, 0);
    assert_eq!(w.task(new.id()).await?, new);
    w.advance(Duration::from_millis(1));
    let start = here(&w).await?;
    assert_eq!(w.sweep().await?.expired, 1);
    let happened = [
        (old.id(), TaskEvent::Expired),
        (new.id(), TaskEvent::Unblocked),
    ];
    assert_eq!(events_since(&w, start).await?, happened);
    assert_eq!(w.status(old.id()).await?, Status::Cancelled);
    let claimed = w.claim(&w.worker("second")?, 2).await?;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].id(), new.id());
    Ok(())
}

async fn a_second_replacement_takes_over_the_wait_of_the_first(w: World) -> Result<()> {
    for policy in [OnConflict::ReplacePending, OnConflict::CancelAndReplace] {
        let (one, held) = w.claimed(replacing(&w, "key")?).await?;
        let two = assert_creates(&w, replacing(&w, "key")?, "key").await?;
        let two_at = w.now();
        let flagged = w.task(one.id()).await?;
        w.advance(Duration::from_secs(1));
        let new = keyed(&w, "key", KeyLifetime::WhileActive, policy)?;
        let three = assert_creates(&w, new, "key").await?;
        let waiting = Waiting {
            on: one.id(),
            then_at: w.now(),
        };
        assert_eq!(three.status, Status::Scheduled);
        assert_eq!(three.waiting, Some(waiting));
        let second = w.task(two.id()).await?;
        assert_only(&w, &two, &second, |task| {
            task.status = Status::Cancelled;
            task.waiting = None;
            task.runnable_at = two_at;
            task.reason = Some(format!("replaced by task {}", three.id()));
            task.finished_at = Some(w.now());
        });
        // It was asked to stop for the first replacement, and is not asked again.
        let first = w.task(one.id()).await?;
        assert_eq!(first.successor, Some(three.id()));
        assert_eq!(first.cancel, flagged.cancel);
        end(&w, held, Status::Cancelled).await?;
        assert_eq!(w.task(two.id()).await?, second);
        assert_eq!(w.status(three.id()).await?, Status::Pending);
        attempt(&w, three.id(), complete()).await?;
    }
    Ok(())
}

async fn a_task_that_is_being_cancelled_can_still_be_replaced(w: World) -> Result<()> {
    let (old, held) = w.claimed(replacing(&w, "key")?).await?;
    w.store.cancel(old.id(), Some("enough".into())).await?;
    let flagged = w.task(old.id()).await?;
    w.advance(Duration::from_secs(1));
    let start = here(&w).await?;
    let new = assert_creates(&w, replacing(&w, "key")?, "key").await?;
    let happened = [
        (old.id(), TaskEvent::Amended),
        (new.id(), TaskEvent::Submitted),
    ];
    assert_eq!(events_since(&w, start).await?, happened);
    assert_only(&w, &flagged, &w.task(old.id()).await?, |task| {
        task.successor = Some(new.id());
    });
    assert_eq!(
        new.waiting.as_ref().map(|waiting| waiting.on),
        Some(old.id())
    );
    w.store.settle(held, fail("late")).await?;
    let old = w.task(old.id()).await?;
    assert_eq!(
        (old.status, old.reason.clone()),
        (Status::Cancelled, Some("enough".into()))
    );
    assert_eq!(w.status(new.id()).await?, Status::Pending);
    Ok(())
}

async fn a_replacement_keeps_its_own_delay(w: World) -> Result<()> {
    let (_, held) = w.claimed(replacing(&w, "early")?).await?;
    let new = replacing(&w, "early")?.after(RETRY_DELAY);
    let new = assert_creates(&w, new, "early").await?;
    let due_at = w.now().saturating_plus(RETRY_DELAY);
    w.advance(RETRY_DELAY / 2);
    end(&w, held, Status::Completed).await?;
    assert_only(&w, &new, &w.task(new.id()).await?, |task| {
        task.waiting = None;
        task.runnable_at = due_at;
    });
    let task = new.id();
    let refused = w.claim_ids(&w.worker("second")?, &[task]).await?.refused;
    assert_eq!(refused, [(task, Conflict::NotDue { task, due_at }.into())]);
    w.advance(RETRY_DELAY / 2);
    assert_eq!(w.sweep().await?.promoted, 1);
    assert_eq!(w.status(task).await?, Status::Pending);

    let (_, held) = w.claimed(replacing(&w, "late")?).await?;
    let new = replacing(&w, "late")?.after(RETRY_DELAY);
    let new = assert_creates(&w, new, "late").await?;
    w.advance(RETRY_DELAY);
    assert_eq!(w.sweep().await?.promoted, 0);
    end(&w, held, Status::Completed).await?;
    assert_eq!(w.status(new.id()).await?, Status::Pending);
    Ok(())
}

async fn a_replacement_that_still_waits_is_cancelled_at_once(w: World) -> Result<()> {
    let (old, held) = w.claimed(replacing(&w, "key")?).await?;
    let new = assert_creates(&w, replacing(&w, "key")?, "key").await?;
    let before = w.task(old.id()).await?;
    let submitted_at = w.now();
    w.advance(Duration::from_secs(1));
    w.store.cancel(new.id(), Some("enough".into())).await?;
    let cancelled = w.task(new.id()).await?;
    assert_only(&w, &new, &cancelled, |task| {
        task.status = Status::Cancelled;
        task.waiting = None;
        task.runnable_at = submitted_at;
        task.reason = Some("enough".into());
        task.finished_at = Some(w.now());
    });
    assert_eq!(w.task(old.id()).await?, before);
    let start = here(&w).await?;
    w.store.settle(held, complete()).await?;
    assert_eq!(
        events_since(&w, start).await?,
        [(old.id(), TaskEvent::Completed)]
    );
    assert_eq!(w.task(new.id()).await?, cancelled);
    Ok(())
}

/// Two tasks of one key must never run at once: whatever became of the tasks in between, one that
/// was replaced while claimed keeps later ones from running until it has ended.
async fn assert_only_one_runs(w: &World, replaced: Holder, next: NewTask) -> Result<()> {
    let submitted = w.store.submit(next).await?.id;
    let second = w.worker("second")?;
    let taken = w.claim_ids(&second, &[submitted]).await?.tasks;
    assert_eq!(taken, vec![], "{replaced:?} still runs");
    assert_eq!(w.claim(&second, 5).await?, vec![]);
    end(w, replaced, Status::Cancelled).await
}

async fn a_key_is_not_run_twice_when_a_waiting_replacement_is_cancelled(w: World) -> Result<()> {
    let (_, held) = w.claimed(replacing(&w, "key")?).await?;
    let new = assert_creates(&w, replacing(&w, "key")?, "key").await?;
    w.store.cancel(new.id(), None).await?;
    let next = attaching(&w, "key", KeyLifetime::WhileActive)?;
    assert_only_one_runs(&w, held, next).await
}

async fn a_cancelled_replacement_does_not_run_again_beside_the_replaced_task(
    w: World,
) -> Result<()> {
    let (_, held) = w.claimed(replacing(&w, "key")?).await?;
    let new = replacing(&w, "key")?;
    assert_creates(&w, new.clone(), "key").await?;
    w.store.cancel(new.id, None).await?;
    // Whether it is refused or waits again: it must not run yet.
    let answer = retry_now(&w, new.id, false).await;
    assert!(matches!(answer, Ok(_) | Err(Error::Conflict(_))));
    assert_only_one_runs(&w, held, new).await
}
