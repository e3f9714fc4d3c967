//! What operators do to tasks.

use std::time::Duration;

use plimsoll_core::task::{FailureKind, Priority, Status};
use plimsoll_core::{IdempotencyKey, Result, TaskId};
use plimsoll_engine::tasks::Effect;

use crate::world::{LEASE, World, code, lane};

#[tokio::test]
async fn cancel_in_every_status_says_what_it_did() -> Result<()> {
    let w = World::new();
    let cancel = |id| w.tasks.cancel(id, None);
    let later = w.task("later").after(LEASE);
    let scheduled = w.tasks.submit(later).await?.id;
    let ended = Effect::Changed(Status::Cancelled);
    assert_eq!(cancel(scheduled).await?, ended);
    assert_eq!(cancel(w.submitted().await?).await?, ended);
    let held = w.held().await?;
    let id = held.task().id();
    assert_eq!(cancel(id).await?, Effect::Changed(Status::Claimed));
    assert_eq!(cancel(id).await?, Effect::Already(Status::Claimed));
    held.cancel(None).await?;
    assert_eq!(cancel(id).await?, Effect::Already(Status::Cancelled));
    let completed = w.held().await?;
    completed.complete("").await?;
    let answer = cancel(completed.task().id()).await?;
    assert_eq!(answer, Effect::Already(Status::Completed));
    assert_eq!(answer.status(), Status::Completed);
    assert_eq!(code(cancel(TaskId::from_u128(7)).await), "task_not_found");
    Ok(())
}

#[tokio::test]
async fn a_task_is_cancelled_by_its_key() -> Result<()> {
    let w = World::new();
    let key = IdempotencyKey::new("k")?;
    assert_eq!(
        code(w.tasks.cancel_by_key(&key, None).await),
        "task_not_found"
    );
    let id = w.tasks.submit(w.task("a").key(key.clone())).await?.id;
    let effect = w.tasks.cancel_by_key(&key, Some("typo".into())).await?;
    assert_eq!(effect, Effect::Changed(Status::Cancelled));
    assert_eq!(w.stored(id).await?.reason.as_deref(), Some("typo"));
    Ok(())
}

#[tokio::test]
async fn retry_in_every_status() -> Result<()> {
    let w = World::new();
    let retry = |id| w.tasks.retry(id);
    let later = w.task("later").after(LEASE);
    let scheduled = w.tasks.submit(later).await?.id;
    let runs = Effect::Changed(Status::Pending);
    assert_eq!(retry(scheduled).await?, runs);
    assert_eq!(retry(scheduled).await?, Effect::Already(Status::Pending));
    w.tasks.cancel(scheduled, None).await?;
    assert_eq!(retry(scheduled).await?, runs);
    let completed = w.held().await?;
    completed.complete("").await?;
    assert_eq!(code(retry(completed.task().id()).await), "task_completed");
    let fatal = w.held().await?;
    fatal.fail_fatal("no").await?;
    let id = fatal.task().id();
    let delayed = w.tasks.retry_with(id, false, LEASE).await?;
    assert_eq!(delayed, Effect::Changed(Status::Scheduled));
    let at = w.stored(id).await?.runnable_at;
    assert_eq!(at, w.now().saturating_plus(LEASE));
    assert_eq!(code(retry(TaskId::from_u128(7)).await), "task_not_found");
    Ok(())
}

#[tokio::test]
async fn retry_past_the_cap_needs_force() -> Result<()> {
    let w = World::new();
    let held = w.hold(w.task("once").max_attempts(1)).await?;
    let id = held.task().id();
    held.fail("no").await?;
    assert_eq!(code(w.tasks.retry(id).await), "max_attempts_reached");
    let forced = w.tasks.retry_with(id, true, Duration::ZERO).await?;
    assert_eq!(forced, Effect::Changed(Status::Pending));
    let held = w.tasks.claim(id, &w.worker("w"), LEASE).await?;
    assert_eq!(held.fail("again").await?.status, Status::Failed);
    Ok(())
}

#[tokio::test]
async fn retry_of_a_claimed_task_revokes_it() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let id = held.task().id();
    let effect = w.tasks.retry(id).await?;
    assert_eq!(effect, Effect::Changed(Status::Pending));
    assert_eq!(code(held.complete("").await), "not_claimed");
    let task = w.stored(id).await?;
    assert_eq!(
        (task.failures, task.errors[0].kind),
        (0, FailureKind::Revoked)
    );
    let again = w.tasks.claim(id, &w.worker("w2"), LEASE).await?;
    assert!(again.holder().fence > held.holder().fence);
    w.tasks.cancel(id, None).await?;
    assert_eq!(code(w.tasks.retry(id).await), "cancelling");
    Ok(())
}

#[tokio::test]
async fn priority_decides_what_is_claimed_next_until_the_task_has_ended() -> Result<()> {
    let w = World::new();
    let (_, second) = (w.submitted().await?, w.submitted().await?);
    let urgent = Priority::HIGHEST;
    let effect = w.tasks.prioritise(second, urgent).await?;
    assert_eq!(effect, Effect::Changed(Status::Pending));
    let again = w.tasks.prioritise(second, urgent).await?;
    assert_eq!(again, Effect::Already(Status::Pending));
    let next = w.tasks.peek([lane()], 1).await?;
    assert_eq!(next[0].id(), second);
    w.tasks.cancel(second, None).await?;
    let ended = w.tasks.prioritise(second, Priority::LOWEST).await;
    assert_eq!(code(ended), "task_cancelled");
    Ok(())
}

#[tokio::test]
async fn only_a_task_that_has_ended_is_deleted_and_its_key_with_it() -> Result<()> {
    let w = World::new();
    let key = IdempotencyKey::new("k")?;
    let held = w.hold(w.task("a").key(key.clone())).await?;
    let id = held.task().id();
    assert_eq!(code(w.tasks.delete(id).await), "not_finished");
    held.complete("").await?;
    assert_eq!(w.tasks.get_by_key(&key).await?.id(), id, "found when ended");
    w.tasks.delete(id).await?;
    assert_eq!(w.tasks.find(id).await?, None);
    assert_eq!(w.tasks.find_by_key(&key).await?, None);
    assert_eq!(code(w.tasks.delete(id).await), "task_not_found");
    Ok(())
}
