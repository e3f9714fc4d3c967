//! The sequences of the tasks document, in its order.

use std::time::Duration;

use futures::TryStreamExt;
use plimsoll_core::store::SubmitOutcome;
use plimsoll_core::task::Status;
use plimsoll_core::{IdempotencyKey, Result, StoreExt};

use crate::world::{LEASE, World, code, lane};

#[tokio::test]
async fn basic_task_processing() -> Result<()> {
    let w = World::new();
    let key = IdempotencyKey::new("order-123-process")?;
    let task = w
        .tasks
        .task("q", "k", r#"{"order_id": "123"}"#)?
        .key(key)
        .max_attempts(3);
    let id = w.tasks.submit(task).await?.id;
    let pending = w.tasks.list_status(lane(), Status::Pending);
    let worker = w.worker("worker-1");
    for task in pending.try_collect::<Vec<_>>().await? {
        let held = w.tasks.claim(task.id(), &worker, LEASE).await?;
        held.complete("processed").await?;
    }
    let task = w.tasks.get(id).await?;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(task.result, Some("processed".into()));
    Ok(())
}

#[tokio::test]
async fn idempotent_submission() -> Result<()> {
    let w = World::new();
    let email = || -> Result<_> {
        let key = IdempotencyKey::new("email-456-send")?;
        Ok(w.task("email data").key(key))
    };
    let one = w.tasks.submit(email()?).await?;
    let two = w.tasks.submit(email()?).await?;
    assert_eq!(one.id, two.id);
    assert_eq!(two.outcome, SubmitOutcome::Existing);
    let pending = w.tasks.list_status(lane(), Status::Pending);
    assert_eq!(pending.try_collect::<Vec<_>>().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn retry_flow() -> Result<()> {
    let w = World::new();
    let id = w.submitted().await?;
    let first = w.tasks.claim(id, &w.worker("worker-a"), LEASE).await?;
    assert_eq!(first.task().attempts, 1);
    let back = first.fail("work failed").await?;
    assert_eq!(back.status, Status::Scheduled, "it waits for its retry");
    w.clock.advance(Duration::from_secs(10));
    w.bare.sweep(10, &w.ids).await?;
    let second = w.tasks.claim(id, &w.worker("worker-b"), LEASE).await?;
    assert_eq!(second.task().attempts, 2);
    assert_eq!(second.complete("ok").await?.status, Status::Completed);
    assert_eq!(code(w.tasks.retry(id).await), "task_completed");
    Ok(())
}

#[tokio::test]
async fn failing_until_no_attempt_is_left() -> Result<()> {
    let w = World::new();
    let id = w.tasks.submit(w.task("work").max_attempts(3)).await?.id;
    for attempt in 1..=3 {
        let held = w.tasks.claim(id, &w.worker("w"), LEASE).await?;
        assert_eq!(held.task().attempts, attempt);
        let status = held.retry_after(Duration::ZERO, "no").await?.status;
        let last = attempt == 3;
        assert_eq!(status == Status::Failed, last, "attempt {attempt}");
    }
    let task = w.tasks.get(id).await?;
    assert_eq!((task.failures, task.errors.len()), (3, 3));
    assert_eq!(code(w.tasks.retry(id).await), "max_attempts_reached");
    Ok(())
}

#[tokio::test]
async fn claim_conflicts() -> Result<()> {
    let w = World::new();
    let id = w.submitted().await?;
    let (a, b) = (w.worker("worker-a"), w.worker("worker-b"));
    let held = w.tasks.claim(id, &a, LEASE).await?;
    assert_eq!(code(w.tasks.claim(id, &b, LEASE).await), "already_claimed");
    let again = w.tasks.claim(id, &a, LEASE).await?;
    assert_eq!(again.holder(), held.holder());
    assert_eq!(again.task().attempts, 1, "a claim again is no attempt");
    Ok(())
}

#[tokio::test]
async fn checking_status_by_id_and_by_key() -> Result<()> {
    let w = World::new();
    let key = IdempotencyKey::new("order-123-process")?;
    assert_eq!(code(w.tasks.get_by_key(&key).await), "task_not_found");
    let held = w.hold(w.task("x").key(key.clone())).await?;
    held.complete("result").await?;
    let by_id = w.tasks.get(held.task().id()).await?;
    assert_eq!(by_id, w.tasks.get_by_key(&key).await?);
    assert_eq!(by_id.result, Some("result".into()));
    Ok(())
}

#[tokio::test]
async fn cleanup_of_old_tasks() -> Result<()> {
    let w = World::new();
    let day = Duration::from_secs(24 * 60 * 60);
    let old = w.held().await?;
    old.complete("").await?;
    w.clock.advance(day + Duration::from_secs(1));
    let young = w.held().await?;
    young.complete("").await?;
    let mut completed = w.tasks.list_status(lane(), Status::Completed);
    while let Some(task) = completed.try_next().await? {
        if w.now().since(task.finished_at.unwrap()) > day {
            w.tasks.delete(task.id()).await?;
        }
    }
    assert_eq!(w.tasks.find(old.task().id()).await?, None);
    assert!(w.tasks.find(young.task().id()).await?.is_some());
    Ok(())
}

#[tokio::test]
async fn an_empty_payload_is_legal_and_a_double_completion_is_one() -> Result<()> {
    let w = World::new();
    let held = w.hold(w.task("")).await?;
    let first = held.complete("r").await?;
    let before = w.everything().await?;
    assert_eq!(held.complete("r").await?, first);
    assert_eq!(w.everything().await?, before);
    Ok(())
}
