//! Workers beside the test: cancelled handlers, deadlines, dead workers, drains.

use std::time::Duration;

use plimsoll_core::task::FailureKind;
use plimsoll_engine::testing::Kit;
use plimsoll_engine::worker::{Answer, Cause, Context, WorkerBuilder};

use crate::setup::{HOUR, SECOND, submit, task};

/// A worker whose handler goes on until it is asked to stop, and says why.
fn obedient(kit: &Kit) -> WorkerBuilder {
    let handler = async |context: Context| match context.cancellation().await {
        Cause::Cancelled { reason } => Answer::Cancel(reason),
        cause => Answer::Fail(format!("{cause:?}").into()),
    };
    kit.worker("w").queue("q").handle("k", handler)
}

fn deaf(kit: &Kit, name: &str) -> WorkerBuilder {
    let worker = kit.worker(name).queue("q");
    worker.handle("k", std::future::pending::<()>)
}

#[tokio::test]
async fn a_started_worker_is_not_idle_while_its_handler_can_go_on() {
    let kit = Kit::new();
    let id = submit(&kit, task(&kit, "k", "")).await;
    let busy = async || {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    };
    let worker = kit.worker("w").queue("q").handle("k", busy);
    let _worker = kit.start(worker).await;
    kit.assert_completed(id);
}

#[tokio::test]
async fn a_handler_is_cancelled_at_once() {
    let kit = Kit::new();
    let id = submit(&kit, task(&kit, "k", "")).await;
    let worker = kit.start(obedient(&kit)).await;
    kit.assert_claimed(id);
    kit.tasks().cancel(id, Some("typo".into())).await.unwrap();
    kit.idle().await;
    assert_eq!(kit.assert_cancelled(id).reason.as_deref(), Some("typo"));
    assert_eq!(worker.stop().await.cancelled, 1);
}

#[tokio::test]
async fn a_deaf_handler_is_dropped_when_its_grace_ends() {
    let kit = Kit::new();
    let id = submit(&kit, task(&kit, "k", "")).await;
    let grace = deaf(&kit, "w").settings(|settings| settings.cancel_grace = 10 * SECOND);
    let worker = kit.start(grace).await;
    kit.tasks().cancel(id, None).await.unwrap();
    kit.pass(9 * SECOND).await;
    kit.assert_claimed(id);
    kit.pass(SECOND).await;
    kit.assert_cancelled(id);
    assert_eq!(worker.summary().cut, 1);
}

#[tokio::test]
async fn leases_are_renewed_for_hours_and_a_deadline_ends_the_attempt() {
    let kit = Kit::new();
    let id = submit(&kit, task(&kit, "k", "").attempt_timeout(2 * HOUR)).await;
    let _worker = kit.start(deaf(&kit, "w")).await;
    kit.pass(2 * HOUR - SECOND).await;
    assert_eq!(kit.assert_claimed(id).attempts, 1);
    kit.pass(SECOND).await;
    let error = &kit.assert_scheduled(id).errors[0];
    assert_eq!(error.kind, FailureKind::DeadlineExceeded);
}

#[tokio::test]
async fn another_worker_takes_over_when_the_lease_of_a_dead_one_has_ended() {
    let kit = Kit::new();
    let id = submit(&kit, task(&kit, "k", "")).await;
    let dead = kit.start(deaf(&kit, "dead")).await;
    kit.pass(HOUR).await;
    dead.crash();
    let heir = || kit.worker("heir").queue("q").handle("k", async || {});
    kit.pass(Duration::from_secs(19)).await;
    assert_eq!(kit.drain(heir()).await.started, 0);
    kit.assert_claimed(id);
    kit.drain_all(heir()).await;
    let task = kit.assert_completed(id);
    assert_eq!((task.attempts, task.failures), (2, 1));
    assert_eq!(task.errors[0].kind, FailureKind::LeaseExpired);
    assert_eq!(task.errors[0].worker.name.as_str(), "dead");
}

#[tokio::test]
async fn a_drain_asks_handlers_to_stop_and_drops_them_in_the_end() {
    let kit = Kit::new();
    let id = submit(&kit, task(&kit, "k", "")).await;
    let worker = kit.start(obedient(&kit)).await;
    assert_eq!(worker.stop().await.cut, 0);
    // A handler that was asked to stop has not failed.
    assert_eq!(kit.assert_pending(id).failures, 0);
    let worker = kit.start(deaf(&kit, "w")).await;
    let summary = worker.stop().await;
    assert_eq!((summary.cut, summary.released), (1, 1));
    assert_eq!(kit.assert_pending(id).failures, 0);
}
