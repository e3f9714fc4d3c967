//! Idempotency keys: which submits share one, and what a duplicate is told.

use std::time::Duration;

use crate::conformance::observe::{created, events_since, here};
use crate::conformance::world::{World, complete, conflict, fail, fail_with};
use crate::error::{Conflict, Result};
use crate::names::IdempotencyKey;
use crate::store::{
    Commit, Ending, FailRetry, Outcome, Receipt, StoreExt, SubmitOutcome, Submitted, TaskByKey,
    Write,
};
use crate::task::{Holder, KeyLifetime, Lane, NewTask, OnConflict, Status, Task};

cases!["keys":
    a_duplicate_attaches_to_a_task_that_is_active_in_any_way,
    a_duplicate_with_another_payload_is_told_so,
    a_rejected_duplicate_is_told_who_holds_the_key,
    keys_are_compared_byte_by_byte,
    a_key_is_one_for_all_lanes,
    a_key_of_another_namespace_is_another_key,
    submits_of_one_key_in_one_call_see_each_other,
    of_many_keys_in_one_call_those_that_are_taken_answer_their_task,
];

pub(super) const LIFETIMES: [KeyLifetime; 3] = [
    KeyLifetime::WhileActive,
    KeyLifetime::For(Duration::from_millis(1)),
    KeyLifetime::Forever,
];

pub(super) const ENDED: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];

/// The ways in which a task can be active.
#[derive(Clone, Copy, Debug)]
pub(super) enum Active {
    Scheduled,
    Pending,
    BackingOff,
    Snoozed,
    Claimed,
    Cancelling,
}

const ACTIVE: [Active; 6] = [
    Active::Scheduled,
    Active::Pending,
    Active::BackingOff,
    Active::Snoozed,
    Active::Claimed,
    Active::Cancelling,
];

pub(super) fn keyed(
    w: &World,
    key: &str,
    lifetime: KeyLifetime,
    on_conflict: OnConflict,
) -> Result<NewTask> {
    let key = IdempotencyKey::new(key)?;
    Ok(w.new_task("work").key_with(key, lifetime, on_conflict))
}

pub(super) fn attaching(w: &World, key: &str, lifetime: KeyLifetime) -> Result<NewTask> {
    keyed(w, key, lifetime, OnConflict::Attach)
}

pub(super) fn replacing(w: &World, key: &str) -> Result<NewTask> {
    keyed(
        w,
        key,
        KeyLifetime::WhileActive,
        OnConflict::CancelAndReplace,
    )
}

/// Submits the task and makes it active in this way.
pub(super) async fn active(w: &World, new: NewTask, how: Active) -> Result<Task> {
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
pub(super) async fn ended(w: &World, new: NewTask, status: Status) -> Result<Task> {
    let (task, held) = w.claimed(new).await?;
    end(w, held, status).await?;
    w.task(task.id()).await
}

pub(super) async fn end(w: &World, held: Holder, status: Status) -> Result<()> {
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
pub(super) async fn assert_attaches(
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
    assert_eq!(events_since(w, start).await?, vec![]);
    Ok(())
}

pub(super) async fn assert_creates(w: &World, new: NewTask, key: &str) -> Result<Task> {
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
    assert_eq!(events_since(&w, start).await?, vec![]);
    let new = keyed(&w, "free", KeyLifetime::Forever, OnConflict::Reject)?;
    assert_creates(&w, new, "free").await?;
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

/// What submits of one call were answered.
async fn submitted(w: &World, tasks: &[NewTask]) -> Result<Vec<Submitted>> {
    let submit = |new: &NewTask| Commit::of(Write::Submit(Box::new(new.clone())));
    let answers = w.store.commit(tasks.iter().map(submit).collect()).await;
    let outcome = |answer: Result<Receipt>| match answer?.outcomes.remove(0) {
        Outcome::Submitted(submitted) => Ok(submitted),
        other => panic!("a submit answered {other:?}"),
    };
    answers.into_iter().map(outcome).collect()
}

/// Submits tasks under new keys, until a store that looks more carefully where keys were taken has no reason to any more.
pub(super) async fn keys_are_free(w: &World) -> Result<()> {
    for _ in 0..80 {
        let key = w.ids.task().to_string();
        w.store
            .submit(attaching(w, &key, KeyLifetime::Forever)?)
            .await?;
    }
    Ok(())
}

async fn of_many_keys_in_one_call_those_that_are_taken_answer_their_task(w: World) -> Result<()> {
    const TASKS: usize = 300;
    let many = |round: &str| {
        let new = |n| attaching(&w, &format!("{round} {n:03}"), KeyLifetime::Forever);
        (0..TASKS).map(new).collect::<Result<Vec<_>>>()
    };
    let holder = w
        .submit(attaching(&w, "held", KeyLifetime::Forever)?)
        .await?;
    let existing = |id| Submitted {
        id,
        outcome: SubmitOutcome::Existing,
    };
    for place in [0, TASKS / 2, TASKS - 1] {
        keys_are_free(&w).await?;
        let mut tasks = many(&format!("{place} taken"))?;
        tasks[place] = attaching(&w, "held", KeyLifetime::Forever)?;
        let mut expected: Vec<_> = tasks.iter().map(|new| created(new.id)).collect();
        expected[place] = existing(holder.id());
        assert_eq!(submitted(&w, &tasks).await?, expected);
        // Another one with the key of the first.
        let mut tasks = many(&format!("{place} twice"))?;
        tasks[TASKS - 1].key = tasks[0].key.clone();
        let mut expected: Vec<_> = tasks.iter().map(|new| created(new.id)).collect();
        expected[TASKS - 1] = existing(tasks[0].id);
        keys_are_free(&w).await?;
        assert_eq!(submitted(&w, &tasks).await?, expected);
        // Each of them again, which is answered the same, and others with their keys.
        keys_are_free(&w).await?;
        assert_eq!(submitted(&w, &tasks).await?, expected);
        keys_are_free(&w).await?;
        for new in &mut tasks {
            new.id = w.ids.task();
        }
        let others: Vec<_> = expected.iter().map(|first| existing(first.id)).collect();
        assert_eq!(submitted(&w, &tasks).await?, others);
        for new in &tasks {
            assert_eq!(w.store.task(new.id).await?, None);
        }
    }
    Ok(())
}
