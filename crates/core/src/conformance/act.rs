//! What several modules do on the way to what they show: attempts, retries, groups, and commits
//! that others stand in the way of.

use crate::conformance::world::{LEASE, World, holder};
use crate::conformance::writes::{open, retry};
use crate::error::{Conflict, Error, Result};
use crate::group::NewGroup;
use crate::ids::TaskId;
use crate::store::{Commit, Ending, Outcome, Receipt, Store, StoreExt};
use crate::task::{Holder, NewTask, Task};

/// Claims a task that is due, once everything else that is due has been decided.
pub(super) async fn claim(w: &World, id: TaskId) -> Result<Task> {
    w.sweep().await?;
    claim_as_it_is(w, id).await
}

async fn claim_as_it_is(w: &World, id: TaskId) -> Result<Task> {
    let claimed = w.claim_ids(&w.worker("worker")?, &[id]).await?;
    assert_eq!(claimed.refused, vec![]);
    Ok(claimed.tasks[0].clone())
}

/// Claims a task like [`claim`], and ends the attempt.
pub(super) async fn attempt(w: &World, id: TaskId, how: Ending) -> Result<Outcome> {
    w.sweep().await?;
    end(w, id, how).await
}

/// Claims a task and ends the attempt, without a sweep before.
pub(super) async fn end(w: &World, id: TaskId, how: Ending) -> Result<Outcome> {
    let claimed = claim_as_it_is(w, id).await?;
    w.store.settle(holder(&claimed), how).await
}

/// Submits a task, claims it and ends the attempt.
pub(super) async fn run(w: &World, task: NewTask, how: Ending) -> Result<TaskId> {
    let (task, held) = w.claimed(task).await?;
    w.store.settle(held, how).await?;
    Ok(task.id())
}

/// Retries a task now.
pub(super) async fn retry_now(w: &World, task: TaskId, force: bool) -> Result<Outcome> {
    w.write_with_id(retry(task, force)).await
}

/// A holder whose lease ran out, and the one who claimed its task since.
pub(super) async fn overtaken(w: &World) -> Result<(Holder, Holder)> {
    let (_, stale) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE);
    w.sweep().await?;
    w.advance(LEASE * 2);
    w.sweep().await?;
    let second = w.worker("second")?;
    let held = holder(&w.claim(&second, 1).await?[0]);
    assert_eq!((held.task, &held.worker), (stale.task, &second));
    Ok((stale, held))
}

pub(super) async fn open_group(w: &World, new: NewGroup) -> Result<Outcome> {
    w.store.write(open(new)).await
}

/// Makes a commit, again and again while the store gives up against others: nothing was written.
pub(super) async fn insist(store: &dyn Store, commit: Commit) -> Result<Receipt> {
    for _ in 0..10_000 {
        match store.commit_one(commit.clone()).await {
            Err(Error::Conflict(conflict)) if matches!(*conflict, Conflict::Contended { .. }) => {
                tokio::task::yield_now().await;
            }
            answer => return answer,
        }
    }
    panic!("the store never stops giving up on {commit:?}");
}
