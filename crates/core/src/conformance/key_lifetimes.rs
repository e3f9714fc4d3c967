//! The lifetime of a key: which task it stands for, for how long, and when it is free again.

use std::time::Duration;

use crate::conformance::act::{attempt, retry_now};
use crate::conformance::keys::{
    ENDED, LIFETIMES, assert_attaches, assert_creates, attaching, end, ended,
};
use crate::conformance::observe::{events_since, here};
use crate::conformance::world::{World, complete, conflict};
use crate::error::{Conflict, Result};
use crate::names::IdempotencyKey;
use crate::store::{Outcome, StoreExt, SubmitOutcome, TaskByKey, Write};
use crate::task::{KeyLifetime, NewTask, Status};

cases!["key_lifetimes":
    a_key_while_active_is_free_once_its_task_has_ended_in_any_way,
    a_key_for_ever_stands_for_a_finished_task_until_that_is_deleted,
    a_key_for_a_time_ends_at_that_time_after_submission,
    a_key_for_a_time_stands_longer_while_its_task_is_active,
    how_long_a_key_stands_is_up_to_its_holder,
    a_key_answers_the_task_it_was_last_given_to,
    deleting_a_task_takes_only_its_own_key_with_it,
    a_retry_is_refused_when_the_key_stands_for_another_task,
    a_retry_takes_back_a_key_that_is_free,
];

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
    let answer = conflict(retry_now(&w, old.id(), true).await);
    assert_eq!(answer, refused(Status::Pending));
    assert_eq!(w.task(old.id()).await?, old);
    assert_eq!(w.by_key("key").await?.as_ref(), Some(&new));
    assert_eq!(events_since(&w, start).await?, vec![]);
    attempt(&w, new.id(), complete()).await?;
    let answer = conflict(retry_now(&w, old.id(), true).await);
    assert_eq!(answer, refused(Status::Completed));
    w.store.write(Write::DeleteTask(new.id())).await?;
    retry_now(&w, old.id(), true).await?;
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
        retry_now(&w, old.id(), false).await?;
        let old = w.task(old.id()).await?;
        assert_eq!((old.status, old.redrives), (Status::Pending, 1));
        let again = attaching(&w, &key, KeyLifetime::WhileActive)?;
        assert_attaches(&w, again, &old, SubmitOutcome::Existing).await?;
    }
    Ok(())
}
