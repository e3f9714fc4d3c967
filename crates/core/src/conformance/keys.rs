//! Idempotency keys: which task a key stands for, for how long, and what a duplicate leads to.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::submits::{assert_only, attempt, created, events, here, retry};
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, conflict, fail, fail_with, holder, lane,
};
use crate::error::{Conflict, Error, Result};
use crate::names::IdempotencyKey;
use crate::store::{
    Commit, Ending, FailRetry, Outcome, Peek, Renew, Renewal, StoreExt, SubmitOutcome, Submitted,
    TaskByKey, Write,
};
use crate::task::{
    CancelRequest, Holder, KeyLifetime, Lane, NewTask, OnConflict, Status, Task, Waiting,
};

cases!["keys":
    a_duplicate_attaches_to_a_task_that_is_active_in_any_way,
    a_duplicate_with_another_payload_is_told_so,
    a_key_while_active_is_free_once_its_task_has_ended_in_any_way,
    a_key_for_ever_stands_for_a_finished_task_until_that_is_deleted,
    a_key_for_a_time_ends_at_that_time_after_submission,
    a_key_for_a_time_stands_longer_while_its_task_is_active,
    how_long_a_key_stands_is_up_to_its_holder,
    a_key_answers_the_task_it_was_last_given_to,
    deleting_a_task_takes_only_its_own_key_with_it,
    a_rejected_duplicate_is_told_who_holds_the_key,
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
    a_retry_is_refused_when_the_key_stands_for_another_task,
    a_retry_takes_back_a_key_that_is_free,
    keys_are_compared_byte_by_byte,
    a_key_is_one_for_all_lanes,
    a_key_of_another_namespace_is_another_key,
    submits_of_one_key_in_one_call_see_each_other,
];

const LIFETIMES: [KeyLifetime; 3] = [
    KeyLifetime::WhileActive,
    KeyLifetime::For(Duration::from_millis(1)),
    KeyLifetime::Forever,
];

const ENDED: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];

/// The ways in which a task can be active.
#[derive(Clone, Copy, Debug)]
enum Active {
    Scheduled,
    Pending,
    BackingOff,
    Snoozed,
    Claimed,
    Cancelling,
}

const WAITING: [Active; 4] = [
    Active::Scheduled,
    Active::Pending,
    Active::BackingOff,
    Active::Snoozed,
];

const ACTIVE: [Active; 6] = [
    Active::Scheduled,
    Active::Pending,
    Active::BackingOff,
    Active::Snoozed,
    Active::Claimed,
    Active::Cancelling,
];

fn keyed(w: &World, key: &str, lifetime: KeyLifetime, on_conflict: OnConflict) -> Result<NewTask> {
    let key = IdempotencyKey::new(key)?;
    Ok(w.new_task("work").key_with(key, lifetime, on_conflict))
}

fn attaching(w: &World, key: &str, lifetime: KeyLifetime) -> Result<NewTask> {
    keyed(w, key, lifetime, OnConflict::Attach)
}

fn replacing(w: &World, key: &str) -> Result<NewTask> {
    keyed(
        w,
        key,
        KeyLifetime::WhileActive,
        OnConflict::CancelAndReplace,
    )
}

/// Submits the task and makes it active in this way.
async fn active(w: &World, new: NewTask, how: Active) -> Result<Task> {
    let id = new.id;
    let minute = Duration::from_secs(60);
    match how {
        Active::Scheduled => w.submit(new.after(minute)).await,
        Active::Pending => w.submit(new).await,
        Active::Claimed => Ok(w.claimed(new).await?.0),
        Active::Cancelling => {
            w.claimed(new).await?;
            w.store.cancel(id, Some("enough".into())).await?;
            w.task(id).await
        }
        Active::BackingOff | Active::Snoozed => {
            let (_, held) = w.claimed(new).await?;
            let settled = match how {
                Active::Snoozed => Ending::Snooze { delay: minute },
                _ => fail("once"),
            };
            w.store.settle(held, settled).await?;
            w.task(id).await
        }
    }
}

/// Submits the task and ends it like this.
async fn ended(w: &World, new: NewTask, status: Status) -> Result<Task> {
    let (task, held) = w.claimed(new).await?;
    end(w, held, status).await?;
    w.task(task.id()).await
}

async fn end(w: &World, held: Holder, status: Status) -> Result<()> {
    let how = match status {
        Status::Completed => complete(),
        Status::Failed => fail_with("for good", FailRetry::Fatal),
        _ => Ending::Cancel { reason: None },
    };
    let task = held.task;
    w.store.settle(held, how).await?;
    assert_eq!(w.status(task).await?, status);
    Ok(())
}

/// Asserts that a duplicate is answered with the holder of the key, and changes nothing.
async fn assert_attaches(
    w: &World,
    duplicate: NewTask,
    holder: &Task,
    outcome: SubmitOutcome,
) -> Result<()> {
    let id = duplicate.id;
    let key = duplicate.key.as_ref().map(|request| request.key.clone());
    let start = here(w).await?;
    let existing = Submitted {
        id: holder.id(),
        outcome,
    };
    assert_eq!(w.store.submit(duplicate).await?, existing);
    assert_eq!(w.store.task(id).await?, None);
    assert_eq!(w.task(holder.id()).await?, *holder);
    if let Some(key) = key {
        assert_eq!(w.by_key(key.as_str()).await?.as_ref(), Some(holder));
    }
    assert_eq!(events(w, start).await?, vec![]);
    Ok(())
}

async fn assert_creates(w: &World, new: NewTask, key: &str) -> Result<Task> {
    let id = new.id;
    assert_eq!(w.store.submit(new).await?, created(id));
    let task = w.task(id).await?;
    assert_eq!(w.by_key(key).await?.as_ref(), Some(&task));
    Ok(task)
}

async fn a_duplicate_attaches_to_a_task_that_is_active_in_any_way(w: World) -> Result<()> {
    for how in ACTIVE {
        for (n, lifetime) in LIFETIMES.into_iter().enumerate() {
            let key = format!("{how:?} {n}");
            let task = active(&w, attaching(&w, &key, lifetime)?, how).await?;
            w.advance(Duration::from_secs(1));
            for lifetime in LIFETIMES {
                let again = attaching(&w, &key, lifetime)?;
                assert_attaches(&w, again, &task, SubmitOutcome::Existing).await?;
            }
        }
    }
    Ok(())
}

async fn a_duplicate_with_another_payload_is_told_so(w: World) -> Result<()> {
    for how in ACTIVE {
        let key = format!("{how:?}");
        let task = active(&w, attaching(&w, &key, KeyLifetime::WhileActive)?, how).await?;
        for payload in ["", "work ", "other"] {
            let other = NewTask {
                payload: payload.into(),
                ..attaching(&w, &key, KeyLifetime::Forever)?
            };
            assert_attaches(&w, other, &task, SubmitOutcome::ExistingOtherPayload).await?;
        }
    }
    Ok(())
}

async fn a_key_while_active_is_free_once_its_task_has_ended_in_any_way(w: World) -> Result<()> {
    for status in ENDED {
        let first = attaching(&w, "key", KeyLifetime::WhileActive)?;
        let first = ended(&w, first, status).await?;
        assert_eq!(w.by_key("key").await?.as_ref(), Some(&first));
        let second = attaching(&w, "key", KeyLifetime::WhileActive)?;
        let second = assert_creates(&w, second, "key").await?;
        assert_eq!(w.task(first.id()).await?, first);
        // Also one that nobody ever claimed.
        w.store.cancel(second.id(), None).await?;
    }
    let last = attaching(&w, "key", KeyLifetime::WhileActive)?;
    assert_creates(&w, last, "key").await?;
    Ok(())
}

async fn a_key_for_ever_stands_for_a_finished_task_until_that_is_deleted(w: World) -> Result<()> {
    for status in ENDED {
        let task = ended(&w, attaching(&w, "key", KeyLifetime::Forever)?, status).await?;
        w.advance(Duration::from_secs(366 * 24 * 60 * 60));
        w.sweep().await?;
        let finished = SubmitOutcome::ExistingFinished(status);
        let again = attaching(&w, "key", KeyLifetime::Forever)?;
        assert_attaches(&w, again, &task, finished).await?;
        let other = NewTask {
            payload: "other".into(),
            ..attaching(&w, "key", KeyLifetime::WhileActive)?
        };
        assert_attaches(&w, other, &task, finished).await?;
        w.store.write(Write::DeleteTask(task.id())).await?;
        assert_eq!(w.by_key("key").await?, None);
    }
    assert_creates(&w, attaching(&w, "key", KeyLifetime::Forever)?, "key").await?;
    Ok(())
}

async fn a_key_for_a_time_ends_at_that_time_after_submission(w: World) -> Result<()> {
    let hour = KeyLifetime::For(Duration::from_secs(3_600));
    for status in ENDED {
        let (task, held) = w.claimed(attaching(&w, "key", hour)?).await?;
        w.advance(Duration::from_secs(5));
        end(&w, held, status).await?;
        let task = w.task(task.id()).await?;
        w.advance(Duration::from_millis(3_594_999));
        let again = attaching(&w, "key", hour)?;
        assert_attaches(&w, again, &task, SubmitOutcome::ExistingFinished(status)).await?;
        w.advance(Duration::from_millis(1));
        assert_eq!(w.by_key("key").await?, Some(task));
        let next = assert_creates(&w, attaching(&w, "key", hour)?, "key").await?;
        w.store.cancel(next.id(), None).await?;
        w.store.write(Write::DeleteTask(next.id())).await?;
    }
    Ok(())
}

async fn a_key_for_a_time_stands_longer_while_its_task_is_active(w: World) -> Result<()> {
    let second = KeyLifetime::For(Duration::from_secs(1));
    let (task, held) = w.claimed(attaching(&w, "key", second)?).await?;
    w.advance(Duration::from_secs(10));
    let again = attaching(&w, "key", second)?;
    assert_attaches(&w, again, &task, SubmitOutcome::Existing).await?;
    end(&w, held, Status::Completed).await?;
    assert_creates(&w, attaching(&w, "key", second)?, "key").await?;
    Ok(())
}

async fn how_long_a_key_stands_is_up_to_its_holder(w: World) -> Result<()> {
    let short = attaching(&w, "key", KeyLifetime::WhileActive)?;
    ended(&w, short, Status::Completed).await?;
    let long = attaching(&w, "key", KeyLifetime::Forever)?;
    let long = assert_creates(&w, long, "key").await?;
    attempt(&w, long.id(), complete()).await?;
    let long = w.task(long.id()).await?;
    let short = attaching(&w, "key", KeyLifetime::WhileActive)?;
    let finished = SubmitOutcome::ExistingFinished(Status::Completed);
    assert_attaches(&w, short, &long, finished).await
}

async fn a_key_answers_the_task_it_was_last_given_to(w: World) -> Result<()> {
    assert_eq!(w.by_key("key").await?, None);
    let one = attaching(&w, "key", KeyLifetime::WhileActive)?;
    let one = assert_creates(&w, one, "key").await?;
    attempt(&w, one.id(), complete()).await?;
    assert_eq!(w.by_key("key").await?, Some(w.task(one.id()).await?));
    let two = attaching(&w, "key", KeyLifetime::WhileActive)?;
    let two = assert_creates(&w, two, "key").await?;
    attempt(&w, two.id(), complete()).await?;
    assert_eq!(w.by_key("key").await?, Some(w.task(two.id()).await?));
    let near = w.second().await?;
    let by = TaskByKey {
        key: IdempotencyKey::new("key")?,
    };
    assert_eq!(
        near.task_by_key(by).await?.map(|task| task.id()),
        Some(two.id())
    );
    Ok(())
}

async fn deleting_a_task_takes_only_its_own_key_with_it(w: World) -> Result<()> {
    let one = attaching(&w, "key", KeyLifetime::WhileActive)?;
    let one = ended(&w, one, Status::Completed).await?;
    let two = attaching(&w, "key", KeyLifetime::WhileActive)?;
    let two = assert_creates(&w, two, "key").await?;
    let deleted = w.store.write(Write::DeleteTask(one.id())).await?;
    assert_eq!(deleted, Outcome::Removed { existed: true });
    let again = attaching(&w, "key", KeyLifetime::WhileActive)?;
    assert_attaches(&w, again, &two, SubmitOutcome::Existing).await?;
    let task = two.id();
    let status = Status::Pending;
    let refused = conflict(w.store.write(Write::DeleteTask(task)).await);
    assert_eq!(refused, Conflict::NotFinished { task, status });
    assert_eq!(w.by_key("key").await?, Some(two));
    w.store.cancel(task, None).await?;
    w.store.write(Write::DeleteTask(task)).await?;
    assert_eq!(w.by_key("key").await?, None);
    Ok(())
}

async fn a_rejected_duplicate_is_told_who_holds_the_key(w: World) -> Result<()> {
    let mut holders = Vec::new();
    for how in ACTIVE {
        let new = attaching(&w, &format!("{how:?}"), KeyLifetime::WhileActive)?;
        holders.push((format!("{how:?}"), active(&w, new, how).await?));
    }
    for status in ENDED {
        let new = attaching(&w, status.as_str(), KeyLifetime::Forever)?;
        holders.push((status.to_string(), ended(&w, new, status).await?));
        let new = attaching(&w, "free", KeyLifetime::WhileActive)?;
        ended(&w, new, status).await?;
    }
    let start = here(&w).await?;
    for (key, holder) in holders {
        let new = keyed(&w, &key, KeyLifetime::WhileActive, OnConflict::Reject)?;
        let id = new.id;
        let taken = Conflict::KeyTaken {
            key: IdempotencyKey::new(&key)?,
            holder: holder.id(),
            status: holder.status,
        };
        assert_eq!(conflict(w.store.submit(new).await), taken);
        assert_eq!(w.store.task(id).await?, None);
        assert_eq!(w.by_key(&key).await?, Some(holder));
    }
    assert_eq!(events(&w, start).await?, vec![]);
    let new = keyed(&w, "free", KeyLifetime::Forever, OnConflict::Reject)?;
    assert_creates(&w, new, "free").await?;
    Ok(())
}

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
                assert_eq!(events(&w, start).await?, replaced);
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
    assert_eq!(events(&w, start).await?, happened);
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
    assert_eq!(conflict(retry(&w, task, true).await), waiting);
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
        assert_eq!(events(&w, start).await?, happened);
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
    assert_eq!(events(&w, start).await?, happened);
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
    assert_eq!(events(&w, start).await?, happened);
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
    assert_eq!(events(&w, start).await?, [(old.id(), TaskEvent::Completed)]);
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
    let answer = retry(&w, new.id, false).await;
    assert!(matches!(answer, Ok(_) | Err(Error::Conflict(_))));
    assert_only_one_runs(&w, held, new).await
}

async fn a_retry_is_refused_when_the_key_stands_for_another_task(w: World) -> Result<()> {
    let new = attaching(&w, "key", KeyLifetime::WhileActive)?;
    let old = ended(&w, new, Status::Failed).await?;
    let new = attaching(&w, "key", KeyLifetime::Forever)?;
    let new = assert_creates(&w, new, "key").await?;
    let start = here(&w).await?;
    let refused = |status| Conflict::KeyTaken {
        key: new.spec.key.clone().expect("it has a key").0,
        holder: new.id(),
        status,
    };
    let answer = conflict(retry(&w, old.id(), true).await);
    assert_eq!(answer, refused(Status::Pending));
    assert_eq!(w.task(old.id()).await?, old);
    assert_eq!(w.by_key("key").await?.as_ref(), Some(&new));
    assert_eq!(events(&w, start).await?, vec![]);
    attempt(&w, new.id(), complete()).await?;
    let answer = conflict(retry(&w, old.id(), true).await);
    assert_eq!(answer, refused(Status::Completed));
    w.store.write(Write::DeleteTask(new.id())).await?;
    retry(&w, old.id(), true).await?;
    assert_eq!(w.by_key("key").await?, Some(w.task(old.id()).await?));
    Ok(())
}

async fn a_retry_takes_back_a_key_that_is_free(w: World) -> Result<()> {
    for (n, lifetime) in LIFETIMES.into_iter().enumerate() {
        let key = format!("{n}");
        let old = ended(&w, attaching(&w, &key, lifetime)?, Status::Cancelled).await?;
        w.advance(Duration::from_secs(1));
        if lifetime != KeyLifetime::Forever {
            let next = attaching(&w, &key, KeyLifetime::WhileActive)?;
            let next = assert_creates(&w, next, &key).await?;
            attempt(&w, next.id(), complete()).await?;
        }
        retry(&w, old.id(), false).await?;
        let old = w.task(old.id()).await?;
        assert_eq!((old.status, old.redrives), (Status::Pending, 1));
        let again = attaching(&w, &key, KeyLifetime::WhileActive)?;
        assert_attaches(&w, again, &old, SubmitOutcome::Existing).await?;
    }
    Ok(())
}

async fn keys_are_compared_byte_by_byte(w: World) -> Result<()> {
    let long = "x".repeat(512);
    let keys = [
        "key",
        "Key",
        "key ",
        " key",
        "key\n",
        "ke",
        "k*",
        "k?y",
        "[k]ey",
        "%",
        "k_y",
        "\\",
        "k.e",
        "k:e",
        "k>e",
        "k/e",
        ">",
        "*",
        ".",
        "..",
        "k..e",
        "{key}",
        "'; DROP TABLE tasks; --",
        "\"",
        "$1",
        "${key}",
        "é",
        "e\u{301}",
        "\u{fffd}",
        "漢字",
        "0",
        "00",
        "null",
        "\t",
        &long,
        &long[1..],
    ];
    let mut tasks = Vec::new();
    for key in keys {
        let new = attaching(&w, key, KeyLifetime::WhileActive)?;
        tasks.push((key, assert_creates(&w, new, key).await?));
    }
    for (key, task) in tasks {
        assert_eq!(w.by_key(key).await?, Some(task));
    }
    Ok(())
}

async fn a_key_is_one_for_all_lanes(w: World) -> Result<()> {
    let new = attaching(&w, "key", KeyLifetime::WhileActive)?;
    let task = assert_creates(&w, new, "key").await?;
    let other = NewTask {
        lane: Lane::new("other queue", "other kind")?,
        ..attaching(&w, "key", KeyLifetime::WhileActive)?
    };
    assert_attaches(&w, other, &task, SubmitOutcome::Existing).await
}

async fn a_key_of_another_namespace_is_another_key(w: World) -> Result<()> {
    let other = w.elsewhere().await?;
    let new = attaching(&w, "key", KeyLifetime::Forever)?;
    let task = assert_creates(&w, new, "key").await?;
    let by = TaskByKey {
        key: IdempotencyKey::new("key")?,
    };
    assert_eq!(other.task_by_key(by.clone()).await?, None);
    let there = replacing(&w, "key")?;
    assert_eq!(other.submit(there.clone()).await?, created(there.id));
    assert_eq!(w.by_key("key").await?.as_ref(), Some(&task));
    other.cancel(there.id, None).await?;
    other.write(Write::DeleteTask(there.id)).await?;
    assert_eq!(other.task_by_key(by).await?, None);
    assert_eq!(w.by_key("key").await?, Some(task));
    Ok(())
}

async fn submits_of_one_key_in_one_call_see_each_other(w: World) -> Result<()> {
    let one = attaching(&w, "key", KeyLifetime::WhileActive)?;
    let two = attaching(&w, "key", KeyLifetime::WhileActive)?;
    let three = replacing(&w, "key")?;
    let submit = |new: &NewTask| Write::Submit(Box::new(new.clone()));
    let commits = vec![
        Commit::of(submit(&one)).write(submit(&two)),
        Commit::of(submit(&two)),
        Commit::of(submit(&three)),
        Commit::of(submit(&two)),
    ];
    let answers = w.store.commit(commits).await;
    let answers: Result<Vec<_>> = answers.into_iter().collect();
    let outcomes: Vec<Vec<Outcome>> = (answers?.into_iter())
        .map(|receipt| receipt.outcomes)
        .collect();
    let existing = |id| {
        let outcome = SubmitOutcome::Existing;
        Outcome::Submitted(Submitted { id, outcome })
    };
    let expected = vec![
        vec![Outcome::Submitted(created(one.id)), existing(one.id)],
        vec![existing(one.id)],
        vec![Outcome::Submitted(created(three.id))],
        vec![existing(three.id)],
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(w.status(one.id).await?, Status::Cancelled);
    assert_eq!(w.store.task(two.id).await?, None);
    assert_eq!(w.by_key("key").await?.map(|task| task.id()), Some(three.id));
    Ok(())
}
