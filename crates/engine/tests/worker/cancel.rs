//! Cancel requests: handlers hear of them, and what becomes of the task.

use bytes::Bytes;
use plimsoll_core::decorate::Method;
use plimsoll_core::task::Status;
use plimsoll_engine::worker::{Cause, Completion, Context, Failure, State};

use crate::setup::{Bench, Gate, Notes, millis, secs, settle_down, start};

fn enough() -> Cause {
    Cause::Cancelled {
        reason: Some("enough".into()),
    }
}

/// Writes down what it hears, and gives up.
async fn heed(context: Context, State(notes): State<Notes<Cause>>) -> Result<(), Failure> {
    let cause = context.cancellation().await;
    assert_eq!(context.cancelled(), Some(cause.clone()));
    assert!(context.still_mine(), "cancelled, but not lost");
    notes.add(cause);
    Err(Failure::new("gave up"))
}

#[tokio::test]
async fn a_handler_hears_of_a_cancel_at_once_and_its_error_becomes_cancelled() {
    let bench = Bench::new();
    let notes = Notes::<Cause>::new();
    let id = bench.submit("k", "").await;
    let worker = start(bench.worker().state(notes.clone()).handle("k", heed));
    settle_down().await;
    bench.cancel(id).await;
    settle_down().await;
    assert_eq!(notes.all(), [enough()], "no time has passed");
    let task = bench.get(id).await;
    assert_eq!(task.status, Status::Cancelled);
    assert_eq!((task.reason.as_deref(), task.failures), (Some("enough"), 0));
    assert_eq!(worker.summary().cancelled, 1);
}

#[tokio::test]
async fn without_hints_the_next_renewal_tells() {
    let bench = Bench::without_hints();
    let notes = Notes::<Cause>::new();
    let id = bench.submit("k", "").await;
    let _worker = start(bench.worker().state(notes.clone()).handle("k", heed));
    bench.pass(secs(1)).await;
    bench.cancel(id).await;
    bench.pass(millis(8_900)).await;
    assert_eq!(notes.all(), [], "renewed after a third of the lease");
    bench.pass(millis(200)).await;
    assert_eq!(notes.all(), [enough()]);
    assert_eq!(bench.get(id).await.status, Status::Cancelled);
}

#[tokio::test]
async fn a_success_after_the_request_wins() {
    let bench = Bench::new();
    let id = bench.submit("k", "").await;
    let finish = async |context: Context| {
        context.cancellation().await;
        Completion::bytes("done all the same")
    };
    let worker = start(bench.worker().handle("k", finish));
    settle_down().await;
    bench.cancel(id).await;
    settle_down().await;
    let task = bench.get(id).await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(task.result, Some(Bytes::from("done all the same")));
    assert_eq!(worker.summary().completed, 1);
}

#[tokio::test]
async fn a_handler_that_ignores_the_request_is_dropped_after_its_grace() {
    let bench = Bench::new();
    let gate = Gate::new();
    let deaf = gate.clone();
    let ignore = move || {
        let gate = deaf.clone();
        async move { gate.wait().await }
    };
    let id = bench.submit("k", "").await;
    let grace = |settings: &mut plimsoll_engine::worker::Settings| settings.cancel_grace = secs(25);
    let worker = start(bench.worker_with(grace).handle("k", ignore));
    settle_down().await;
    bench.cancel(id).await;
    bench.pass(millis(24_900)).await;
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    bench.pass(millis(200)).await;
    let task = bench.get(id).await;
    assert_eq!(task.status, Status::Cancelled);
    assert_eq!(task.reason.as_deref(), Some("enough"));
    let summary = worker.summary();
    assert_eq!(
        (summary.cut, summary.interrupted, summary.running),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn a_task_that_is_claimed_but_not_started_is_cancelled_without_a_start() {
    let bench = Bench::new();
    let gate = Gate::new();
    let held = gate.clone();
    let work = move |payload: Bytes| {
        let gate = held.clone();
        async move {
            if payload == "slow" {
                gate.wait().await;
            }
        }
    };
    for _ in 0..20 {
        bench.submit("k", "fast").await;
    }
    let worker = start(bench.worker().concurrency(1).handle("k", work));
    settle_down().await;
    bench.submit("k", "slow").await;
    let unstarted = bench.submit("k", "next").await;
    settle_down().await;
    assert_eq!(bench.get(unstarted).await.status, Status::Claimed);
    let started = worker.summary().started;
    bench.cancel(unstarted).await;
    settle_down().await;
    assert_eq!(bench.get(unstarted).await.status, Status::Cancelled);
    assert_eq!(gate.arrived(), 1);
    assert_eq!(worker.summary().started, started);
}

#[tokio::test]
async fn a_request_that_comes_while_a_renewal_is_under_way_is_not_forgotten() {
    let bench = Bench::new();
    let notes = Notes::<Cause>::new();
    let id = bench.submit("k", "").await;
    let _worker = start(bench.worker().state(notes.clone()).handle("k", heed));
    bench.calls.hold(Method::Renew);
    bench.pass(secs(10)).await;
    assert_eq!(bench.calls.of(Method::Renew), 1);
    bench.cancel(id).await;
    settle_down().await;
    bench.calls.let_go(Method::Renew);
    settle_down().await;
    assert_eq!(notes.all(), [enough()]);
}

#[tokio::test]
async fn a_request_that_overtakes_the_answer_of_the_claim_is_not_forgotten() {
    let bench = Bench::new();
    let notes = Notes::<Cause>::new();
    let _worker = start(bench.worker().state(notes.clone()).handle("k", heed));
    settle_down().await;
    bench.calls.hold(Method::Exchange);
    let id = bench.submit("k", "").await;
    settle_down().await;
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    bench.cancel(id).await;
    settle_down().await;
    bench.calls.let_go(Method::Exchange);
    settle_down().await;
    assert_eq!(bench.get(id).await.status, Status::Cancelled);
}

#[tokio::test]
async fn a_request_is_heard_at_once_although_other_calls_fail() {
    let bench = Bench::new();
    let notes = Notes::<Cause>::new();
    let id = bench.submit("k", "").await;
    let _worker = start(bench.worker().state(notes.clone()).handle("k", heed));
    settle_down().await;
    bench.away(&[Method::Exchange]);
    bench.submit("k", "").await;
    bench.pass(secs(5)).await;
    bench.cancel(id).await;
    settle_down().await;
    assert_eq!(notes.all(), [enough()]);
}
