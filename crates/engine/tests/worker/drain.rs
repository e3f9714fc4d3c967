//! The end of a worker: quiet, wait, release what is unstarted, signal, cut. Nothing stays claimed.

use bytes::Bytes;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::task::{FailureKind, Status};
use plimsoll_engine::worker::{Cause, Context, Failure, Settings, State};

use crate::setup::{Bench, Gate, LEASE, Notes, millis, secs, settle_down, start};

fn deadlines(settings: &mut Settings) {
    settings.drain_soft = secs(10);
    settings.drain_hard = secs(5);
}

async fn gated(payload: Bytes, State(gate): State<Gate>) {
    if payload != "fast" {
        gate.wait().await;
    }
}

#[tokio::test]
async fn a_draining_worker_claims_nothing_and_waits_for_its_handlers() {
    let bench = Bench::new();
    let gate = Gate::new();
    let running = bench.submit("k", "").await;
    let worker = start(bench.worker().state(gate.clone()).handle("k", gated));
    settle_down().await;
    worker.stopper.drain();
    settle_down().await;
    let late = bench.submit("k", "").await;
    bench.pass(secs(60)).await;
    assert!(!worker.work.is_finished());
    assert_eq!(bench.get(late).await.attempts, 0);
    gate.open(1);
    let summary = worker.end().await;
    assert_eq!(
        (summary.completed, summary.cut, summary.released),
        (1, 0, 0)
    );
    assert_eq!(bench.get(running).await.status, Status::Completed);
}

#[tokio::test]
async fn what_is_unstarted_is_runnable_at_once_and_nothing_is_counted() {
    let bench = Bench::new();
    let gate = Gate::new();
    for _ in 0..20 {
        bench.submit("k", "fast").await;
    }
    let builder = bench.worker().concurrency(1).state(gate.clone());
    let worker = start(builder.handle("k", gated));
    settle_down().await;
    bench.submit("k", "slow").await;
    let unstarted = bench.submit("k", "next").await;
    settle_down().await;
    assert_eq!(bench.get(unstarted).await.status, Status::Claimed);
    worker.stopper.drain();
    settle_down().await;
    let task = bench.get(unstarted).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
    assert_eq!(task.errors, []);
    assert_eq!(worker.summary().released, 1);
    gate.open(1);
    assert_eq!(worker.end().await.completed, 21);
}

#[tokio::test]
async fn at_the_soft_deadline_handlers_are_asked_and_their_error_is_no_failure() {
    let bench = Bench::new();
    let heard = Notes::<Cause>::new();
    let heed = async |context: Context, State(heard): State<Notes<Cause>>| {
        heard.add(context.cancellation().await);
        Err::<(), _>(Failure::new("half way"))
    };
    let id = bench.submit("k", "").await;
    let builder = bench.worker_with(deadlines).state(heard.clone());
    let worker = start(builder.handle("k", heed));
    settle_down().await;
    worker.stopper.drain();
    bench.pass(millis(9_900)).await;
    assert_eq!(heard.all(), []);
    bench.pass(millis(200)).await;
    assert_eq!(heard.all(), [Cause::Draining]);
    let summary = worker.end().await;
    assert_eq!((summary.released, summary.cut), (1, 0));
    let task = bench.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
    assert_eq!(task.errors[0].message, "interrupted: half way");
    assert_eq!(task.errors[0].kind, FailureKind::Interrupted);
}

#[tokio::test]
async fn an_error_of_a_draining_handler_is_no_failure_whatever_its_kinds_backoff() {
    let bench = Bench::new();
    let heed = async |context: Context| {
        context.cancellation().await;
        Err::<(), _>(Failure::new("half way"))
    };
    let id = bench.submit("k", "").await;
    let builder = bench.worker_with(deadlines).handle("k", heed);
    let worker = start(builder.backoff("k", |_, _| Some(secs(1))));
    settle_down().await;
    worker.stopper.drain();
    bench.pass(millis(10_100)).await;
    assert_eq!(worker.end().await.released, 1);
    let task = bench.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
}

#[tokio::test]
async fn at_the_hard_deadline_handlers_are_dropped_and_their_tasks_released() {
    let bench = Bench::new();
    let id = bench.submit("k", "").await;
    let builder = bench.worker_with(deadlines).state(Gate::new());
    let worker = start(builder.handle("k", gated));
    settle_down().await;
    worker.stopper.drain();
    bench.pass(millis(14_900)).await;
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    bench.pass(millis(200)).await;
    let summary = worker.end().await;
    assert_eq!(
        (summary.cut, summary.interrupted, summary.released),
        (1, 1, 1)
    );
    assert_eq!((summary.running, summary.unsettled), (0, 0));
    let task = bench.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
    assert_eq!(task.errors[0].message, "interrupted");
}

#[tokio::test]
async fn a_claim_under_way_is_waited_for_and_given_back() {
    let bench = Bench::new();
    let worker = start(bench.worker().handle("k", async || {}));
    settle_down().await;
    bench.calls.hold(Method::Exchange);
    let id = bench.submit("k", "").await;
    settle_down().await;
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    worker.stopper.drain();
    bench.pass(secs(1)).await;
    assert!(!worker.work.is_finished());
    bench.calls.let_go(Method::Exchange);
    assert_eq!(worker.end().await.started, 0);
    assert_eq!(bench.get(id).await.status, Status::Pending);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_given_back_too() {
    let bench = Bench::new();
    let worker = start(bench.worker().handle("k", async || {}));
    settle_down().await;
    bench.faults.next(Method::Exchange, Fault::ErrorAfter);
    bench.faults.next(Method::Exchange, Fault::ErrorBefore);
    let id = bench.submit("k", "").await;
    settle_down().await;
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    worker.stopper.drain();
    bench.pass(secs(2)).await;
    assert_eq!(worker.end().await.started, 0);
    assert_eq!(bench.get(id).await.status, Status::Pending);
}

#[tokio::test]
async fn a_claim_that_never_happened_is_not_made_after_all() {
    let bench = Bench::new();
    let worker = start(bench.worker().handle("k", async || {}));
    settle_down().await;
    bench.faults.next(Method::Exchange, Fault::ErrorBefore);
    let id = bench.submit("k", "").await;
    settle_down().await;
    worker.stopper.drain();
    worker.end().await;
    assert_eq!(bench.get(id).await.attempts, 0);
}

#[tokio::test]
async fn a_worker_whose_store_is_away_ends_at_last_and_says_what_it_owes() {
    let bench = Bench::new();
    let gate = Gate::new();
    bench.submit("k", "").await;
    let worker = start(bench.worker().state(gate.clone()).handle("k", gated));
    settle_down().await;
    bench.away(&[Method::Exchange, Method::Renew]);
    gate.open(1);
    settle_down().await;
    worker.stopper.drain();
    bench.pass(LEASE - millis(100)).await;
    assert!(!worker.work.is_finished());
    bench.pass(millis(200)).await;
    let summary = worker.end().await;
    assert_eq!((summary.unsettled, summary.completed), (1, 0));
}

#[tokio::test]
async fn a_drain_goes_on_when_the_store_comes_back() {
    let bench = Bench::new();
    let gate = Gate::new();
    let id = bench.submit("k", "").await;
    let worker = start(bench.worker().state(gate.clone()).handle("k", gated));
    settle_down().await;
    bench.away(&[Method::Exchange, Method::Renew]);
    gate.open(1);
    settle_down().await;
    worker.stopper.drain();
    bench.pass(secs(20)).await;
    bench.faults.calm();
    bench.pass(secs(5)).await;
    assert_eq!(worker.end().await.completed, 1);
    assert_eq!(bench.get(id).await.status, Status::Completed);
}

#[tokio::test]
async fn now_drops_all_handlers_at_once_also_during_a_drain() {
    for drain_first in [false, true] {
        let bench = Bench::new();
        let id = bench.submit("k", "").await;
        let worker = start(bench.worker().state(Gate::new()).handle("k", gated));
        settle_down().await;
        if drain_first {
            worker.stopper.drain();
            bench.pass(secs(1)).await;
            assert!(!worker.work.is_finished());
        }
        worker.stopper.now();
        let summary = worker.end().await;
        assert_eq!((summary.cut, summary.interrupted), (1, 1));
        assert_eq!(bench.get(id).await.status, Status::Pending);
    }
}
