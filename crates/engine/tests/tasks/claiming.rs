//! Taking tasks.

use std::time::Duration;

use plimsoll_core::error::Conflict;
use plimsoll_core::task::{Priority, Status};
use plimsoll_core::{Error, Result, TaskId};

use crate::world::{LEASE, World, code, lane};

#[tokio::test]
async fn a_claim_by_id_answers_the_task_with_its_lease() -> Result<()> {
    let w = World::new();
    let id = w.submitted().await?;
    let worker = w.worker("w");
    let held = w.tasks.claim(id, &worker, LEASE).await?;
    assert_eq!(
        (held.task().status, held.task().attempts),
        (Status::Claimed, 1)
    );
    assert_eq!(held.holder().worker, worker);
    let lease = held.task().lease.clone().unwrap();
    assert_eq!(lease.until, w.now().saturating_plus(LEASE));
    Ok(())
}

#[tokio::test]
async fn claiming_again_by_the_same_worker_changes_nothing() -> Result<()> {
    let w = World::new();
    let id = w.submitted().await?;
    let worker = w.worker("w");
    let first = w.tasks.claim(id, &worker, LEASE).await?;
    let before = w.everything().await?;
    let second = w.tasks.claim(id, &worker, LEASE).await?;
    assert_eq!(second.task(), first.task());
    assert_eq!(w.everything().await?, before);
    Ok(())
}

#[tokio::test]
async fn why_a_task_cannot_be_taken_is_told() -> Result<()> {
    let w = World::new();
    let me = w.worker("me");
    let claim = |id| w.tasks.claim(id, &me, LEASE);
    let held = w.held().await?;
    let id = held.task().id();
    let Err(Error::Conflict(conflict)) = claim(id).await else {
        panic!("taken twice");
    };
    let holder = held.holder().worker.clone();
    assert!(matches!(*conflict, Conflict::AlreadyClaimed { holder: by, .. } if by == holder));
    held.complete("").await?;
    assert_eq!(code(claim(id).await), "task_completed");
    let failed = w.held().await?;
    failed.fail_fatal("no").await?;
    assert_eq!(code(claim(failed.task().id()).await), "task_failed");
    let cancelled = w.submitted().await?;
    w.tasks.cancel(cancelled, None).await?;
    assert_eq!(code(claim(cancelled).await), "task_cancelled");
    let later = w.task("later").after(Duration::from_secs(1));
    let later = w.tasks.submit(later).await?.id;
    assert_eq!(code(claim(later).await), "not_due");
    w.clock.advance(Duration::from_secs(1));
    assert_eq!(claim(later).await?.task().attempts, 1);
    assert_eq!(code(claim(TaskId::from_u128(7)).await), "task_not_found");
    let id = w.submitted().await?;
    let no_lease = w.tasks.claim(id, &me, Duration::ZERO).await;
    assert_eq!(code(no_lease), "invalid");
    Ok(())
}

#[tokio::test]
async fn the_next_are_taken_in_order_and_never_more_than_asked() -> Result<()> {
    let w = World::new();
    let worker = w.worker("w");
    let next = |limit| w.tasks.claim_next([lane()], limit, &worker, LEASE);
    assert_eq!(next(5).await?.len(), 0);
    let first = w.submitted().await?;
    let second = w.submitted().await?;
    let urgent = w.task("now").priority(Priority::HIGHEST);
    let urgent = w.tasks.submit(urgent).await?.id;
    let ids = |held: Vec<plimsoll_engine::tasks::Held>| -> Vec<TaskId> {
        held.iter().map(|held| held.task().id()).collect()
    };
    assert_eq!(ids(next(2).await?), [urgent, first]);
    assert_eq!(ids(next(2).await?), [second]);
    assert_eq!(
        code(w.tasks.claim_next([], 1, &worker, LEASE).await),
        "invalid"
    );
    Ok(())
}

#[tokio::test]
async fn a_worker_in_a_new_life_inherits_nothing() -> Result<()> {
    let w = World::new();
    let id = w.submitted().await?;
    w.tasks.claim(id, &w.worker("w"), LEASE).await?;
    let reborn = w.tasks.claim(id, &w.worker("w"), LEASE).await;
    assert_eq!(code(reborn), "already_claimed");
    Ok(())
}
