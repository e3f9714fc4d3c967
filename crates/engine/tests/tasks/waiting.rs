//! Waiting for one task to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::future::BoxFuture;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::store::{Compact, Store};
use plimsoll_core::task::Status;
use plimsoll_core::{IdempotencyKey, Result, TaskId};

use crate::world::{LEASE, World, code};

/// A future that waits, polled until it does nothing more by itself.
macro_rules! waits {
    ($w:ident, $future:expr) => {{
        let mut future = Box::pin($future);
        for _ in 0..5 {
            assert!(futures::poll!(&mut future).is_pending());
            $w.settle().await;
        }
        future
    }};
}

#[tokio::test]
async fn a_task_that_has_ended_before_is_answered_at_once() -> Result<()> {
    let w = World::new();
    for how in ["complete", "fail", "cancel"] {
        let held = w.held().await?;
        let status = match how {
            "complete" => held.complete("r").await?.status,
            "fail" => held.fail_fatal("e").await?.status,
            _ => held.cancel(None).await?.status,
        };
        let task = w.tasks.wait(held.task().id()).await?;
        assert_eq!(task.status, status);
        assert_eq!(task, w.stored(task.id()).await?);
    }
    Ok(())
}

#[tokio::test]
async fn a_task_that_ends_later_wakes_its_waiter_without_time_passing() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let waiter = waits!(w, w.tasks.wait(held.task().id()));
    held.complete("r").await?;
    assert_eq!(w.soon(waiter).await?.result, Some("r".into()));
    Ok(())
}

#[tokio::test]
async fn a_waiter_waits_through_retries_and_hears_the_end() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let id = held.task().id();
    let waiter = waits!(w, w.tasks.wait(id));
    held.retry_after(Duration::ZERO, "once").await?;
    let waiter = waits!(w, waiter);
    assert_eq!(
        w.spy.calls(Method::Tasks),
        1,
        "read when it ends, not before"
    );
    w.tasks.cancel(id, Some("enough".into())).await?;
    let task = w.soon(waiter).await?;
    assert_eq!(task.status, Status::Cancelled);
    assert_eq!(task.reason.as_deref(), Some("enough"));
    Ok(())
}

#[tokio::test]
async fn a_task_that_is_not_there_or_is_deleted_is_not_found() -> Result<()> {
    let w = World::new();
    let nobody = TaskId::from_u128(7);
    assert_eq!(code(w.tasks.wait(nobody).await), "task_not_found");
    let held = w.held().await?;
    let id = held.task().id();
    let waiter = waits!(w, w.tasks.wait(id));
    let other = w.other_client();
    other.hold(held.holder().clone()).complete("").await?;
    other.delete(id).await?;
    assert_eq!(code(w.soon(waiter).await), "task_not_found");
    Ok(())
}

#[tokio::test]
async fn submit_and_wait_attaches_to_the_task_that_has_the_key() -> Result<()> {
    let w = World::new();
    let key = IdempotencyKey::new("k")?;
    let held = w.hold(w.task("x").key(key.clone())).await?;
    let same = w.task("x").key(key.clone());
    let waiter = waits!(w, w.tasks.submit_and_wait(same));
    held.complete("r").await?;
    assert_eq!(w.soon(waiter).await?.id(), held.task().id());
    let finished = w.tasks.submit_and_wait(w.task("x").key(key)).await?;
    assert_eq!(finished.result, Some("r".into()));
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_away_for_a_while_is_waited_for() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    for method in [Method::Changes, Method::Tasks] {
        for _ in 0..20 {
            w.plan.next(method, Fault::ErrorBefore);
        }
    }
    let waiter = waits!(w, w.tasks.wait(held.task().id()));
    w.other_client()
        .hold(held.holder().clone())
        .complete("r")
        .await?;
    let task = w.drive(waiter).await?;
    assert_eq!(task.result, Some("r".into()));
    assert_eq!(w.plan.injected().values().sum::<u64>(), 40);
    Ok(())
}

async fn compact_history(w: &World) -> Result<u64> {
    let compact = Compact {
        history: Some(Duration::ZERO),
        limit: 1_000,
        ..Compact::default()
    };
    Ok(w.bare.compact(compact).await?.entries)
}

#[tokio::test]
async fn history_that_is_compacted_under_the_tail_loses_nobody() -> Result<()> {
    let w = World::new();
    let (ended, going_on) = (w.held().await?, w.held().await?);
    let first = waits!(w, w.tasks.wait(ended.task().id()));
    let second = waits!(w, w.tasks.wait(going_on.task().id()));
    // The tail cannot look while the end of the first goes into the history and out of it again.
    for _ in 0..3 {
        w.plan.next(Method::Changes, Fault::ErrorBefore);
    }
    ended.complete("r").await?;
    assert!(compact_history(&w).await? > 0);
    assert_eq!(w.drive(first).await?.result, Some("r".into()));
    assert_eq!(w.plan.injected()[&Method::Changes], 3);
    let second = waits!(w, second);
    going_on.complete("s").await?;
    assert_eq!(w.soon(second).await?.result, Some("s".into()));
    Ok(())
}

#[tokio::test]
async fn a_task_that_runs_again_by_the_time_somebody_waits_is_waited_for() -> Result<()> {
    let w = World::new();
    let failed = w.held().await?;
    failed.fail_fatal("e").await?;
    let id = failed.task().id();
    // While the read for the first waiter is on its way back, the task is made to run again, and
    // after that a second one begins to wait.
    let (first, late) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(None)));
    let (other, tasks, slot) = (w.other_client(), w.tasks.clone(), late.clone());
    w.spy.after(move |method| {
        let (other, tasks) = (other.clone(), tasks.clone());
        let (first, slot) = (first.clone(), slot.clone());
        Box::pin(async move {
            if method == Method::Tasks && first.swap(false, Ordering::Relaxed) {
                other.retry(id).await.unwrap();
                let mut wait = Box::pin(async move { tasks.wait(id).await });
                assert!(futures::poll!(&mut wait).is_pending());
                *slot.lock().unwrap() = Some(wait);
            }
        })
    });
    assert_eq!(w.tasks.wait(id).await?.status, Status::Failed);
    let late = late.lock().unwrap().take().unwrap();
    let late = waits!(w, late);
    let held = w.tasks.claim(id, &w.worker("w"), LEASE).await?;
    held.complete("r").await?;
    assert_eq!(w.soon(late).await?.status, Status::Completed);
    Ok(())
}

#[tokio::test]
async fn a_task_that_ends_right_before_or_after_it_is_read_is_not_missed() -> Result<()> {
    for after_the_read in [false, true] {
        let w = World::new();
        let held = w.held().await?;
        let (other, holder) = (w.other_client(), held.holder().clone());
        let hook = move |method| {
            let hold = other.hold(holder.clone());
            let complete = async move {
                if method == Method::Tasks {
                    hold.complete("r").await.unwrap();
                }
            };
            Box::pin(complete) as BoxFuture<'static, ()>
        };
        if after_the_read {
            w.spy.after(hook);
        } else {
            w.spy.before(hook);
        }
        let task = w.drive(w.tasks.wait(held.task().id())).await?;
        assert_eq!(task.result, Some("r".into()));
    }
    Ok(())
}

#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn a_waiter_is_told_that_the_store_was_closed() -> Result<()> {
    let w = World::new();
    let id = w.submitted().await?;
    let tasks = w.tasks.clone();
    let waiters = tokio::spawn(async move {
        let told = tasks.wait(id).await;
        // Also who comes just when the others are told.
        let other = TaskId::derive(&["other"]);
        (told, tasks.wait(other).await)
    });
    w.settle().await;
    w.tasks.close().await?;
    w.settle().await;
    assert!(waiters.is_finished());
    let (told, one_more) = waiters.await.unwrap();
    assert_eq!(code(told), "closed");
    assert_eq!(code(one_more), "closed");
    Ok(())
}

#[test]
fn a_waiter_survives_the_end_of_a_runtime_and_the_next_one_starts_anew() -> Result<()> {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let w = World::new();
    let (first, second) = (runtime(), runtime());
    let held = second.block_on(w.held())?;
    let id = held.task().id();
    let mut waiter = Box::pin(w.tasks.wait(id));
    first.block_on(async {
        assert_eq!(futures::poll!(&mut waiter), Poll::Pending);
        w.settle().await;
    });
    drop(first);
    assert_eq!(code(second.block_on(waiter)), "unavailable");
    second.block_on(held.complete("r"))?;
    assert_eq!(second.block_on(w.tasks.wait(id))?.result, Some("r".into()));
    Ok(())
}
