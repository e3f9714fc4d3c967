//! Answers of the store that are late or lost: nothing is lost with them, and nothing done twice.

use bytes::Bytes;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::store::{Commit, Retry, Write};
use plimsoll_core::task::Status;
use plimsoll_core::{StoreExt, TaskId};
use plimsoll_engine::worker::{Context, State};

use crate::setup::{Bench, Gate, LEASE, Notes, Started, secs, settle_down, start};

#[tokio::test]
async fn an_answer_that_the_store_cannot_take_keeps_its_lease() {
    let bench = Bench::new();
    let id = bench.submit("k", "").await;
    let _sweeper = bench.start_sweeper();
    let gate = Gate::new();
    let wait = async |State(gate): State<Gate>| gate.wait().await;
    let worker = start(bench.worker().state(gate.clone()).handle("k", wait));
    settle_down().await;
    bench.away(&[Method::Exchange]);
    gate.open(1);
    bench.pass(LEASE * 3).await;
    bench.faults.calm();
    bench.pass(secs(6)).await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.attempts), (Status::Completed, 1));
    assert_eq!(worker.summary().started, 1);
}

#[tokio::test]
async fn an_answer_that_is_long_under_way_keeps_its_lease() {
    let bench = Bench::new();
    let id = bench.submit("k", "").await;
    let _sweeper = bench.start_sweeper();
    let gate = Gate::new();
    let wait = async |State(gate): State<Gate>| gate.wait().await;
    let _worker = start(bench.worker().state(gate.clone()).handle("k", wait));
    settle_down().await;
    (bench.faults).next(Method::Exchange, Fault::Delay(LEASE * 3));
    gate.open(1);
    bench.pass(LEASE * 3 + secs(1)).await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.attempts), (Status::Completed, 1));
}

#[tokio::test]
async fn a_claim_whose_answer_comes_late_is_renewed_before_its_tasks_are_started() {
    let bench = Bench::new();
    let starts = Notes::<bool>::new();
    let work = async |context: Context, State(starts): State<Notes<bool>>| {
        starts.add(context.still_mine());
    };
    let worker = start(bench.worker().state(starts.clone()).handle("k", work));
    settle_down().await;
    bench.calls.hold(Method::Exchange);
    let id = bench.submit("k", "").await;
    bench.pass(LEASE * 2).await;
    bench.calls.let_go(Method::Exchange);
    settle_down().await;
    assert_eq!(starts.all(), [true]);
    assert_eq!(bench.get(id).await.status, Status::Completed);
    assert_eq!(worker.summary().cut, 0);
}

#[tokio::test]
async fn a_claim_whose_tasks_were_taken_away_meanwhile_starts_nothing() {
    let bench = Bench::new();
    let starts = Notes::<()>::new();
    let work = async |_: Context, State(starts): State<Notes<()>>| starts.add(());
    let worker = start(bench.worker().state(starts.clone()).handle("k", work));
    settle_down().await;
    bench.calls.hold(Method::Exchange);
    let id = bench.submit("k", "").await;
    bench.pass(LEASE * 2).await;
    bench.sweep().await;
    bench.calls.let_go(Method::Exchange);
    settle_down().await;
    assert_eq!(starts.all(), []);
    assert_eq!(bench.get(id).await.status, Status::Scheduled);
    assert_eq!(worker.summary().started, 0);
}

#[tokio::test]
async fn a_claim_that_may_have_happened_is_repeated_until_it_is_answered() {
    let bench = Bench::new();
    let worker = start(bench.worker().handle("k", async || {}));
    settle_down().await;
    bench.faults.next(Method::Exchange, Fault::ErrorAfter);
    bench.faults.next(Method::Exchange, Fault::ErrorBefore);
    bench.faults.next(Method::Exchange, Fault::ErrorBefore);
    let id = bench.submit("k", "").await;
    bench.pass(secs(2)).await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.attempts), (Status::Completed, 1));
    assert_eq!(worker.summary().started, 1);
}

#[tokio::test]
async fn after_a_long_outage_tasks_are_started_and_not_cut() {
    let bench = Bench::new();
    let worker = start(bench.worker().handle("k", async || {}));
    settle_down().await;
    bench.away(&[Method::Exchange, Method::Renew]);
    let mut task = bench.task("k", "");
    task.attempt_timeout = Some(secs(20));
    let id = bench.add(task).await;
    bench.pass(LEASE * 4).await;
    bench.faults.calm();
    bench.pass(secs(6)).await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.attempts), (Status::Completed, 1));
    assert_eq!(worker.summary().cut, 0);
}

#[tokio::test]
async fn a_task_whose_time_is_over_when_its_claim_is_answered_is_not_started() {
    let bench = Bench::new();
    bench.calls.hold(Method::Exchange);
    bench.submit("k", "long").await;
    let short = bench.task("k", "short").attempt_timeout(secs(5));
    let short = bench.add(short).await;
    let starts = Notes::<(Bytes, u32)>::new();
    let work = async |context: Context, State(starts): State<Notes<(Bytes, u32)>>| {
        let payload = context.task().spec.payload.clone();
        starts.add((payload, context.attempt()));
    };
    let _worker = start(bench.worker().state(starts.clone()).handle("k", work));
    bench.pass(secs(6)).await;
    bench.calls.let_go(Method::Exchange);
    settle_down().await;
    // The short one is given back and claimed anew.
    assert_eq!(starts.all(), [("long".into(), 1), ("short".into(), 2)]);
    assert_eq!(bench.get(short).await.status, Status::Completed);
}

/// A worker whose handler has answered, but the store does not take it.
async fn owing(bench: &Bench) -> (TaskId, Started) {
    let id = bench.submit("k", "").await;
    let gate = Gate::new();
    let wait = async |State(gate): State<Gate>| gate.wait().await;
    let worker = start(bench.worker().state(gate.clone()).handle("k", wait));
    settle_down().await;
    bench.away(&[Method::Exchange]);
    gate.open(1);
    settle_down().await;
    (id, worker)
}

#[tokio::test]
async fn an_answer_for_a_task_that_was_taken_away_is_not_renewed_again_and_again() {
    let bench = Bench::new();
    let (id, _worker) = owing(&bench).await;
    let retry = Write::Retry(Retry {
        task: id,
        force: false,
        delay: secs(3_600),
    });
    let retry = Commit::of(retry).id(bench.engine.ids().commit());
    bench.store.commit_one(retry).await.unwrap();
    // By now a renewal has told.
    bench.pass(secs(11)).await;
    bench.calls.reset();
    bench.pass(LEASE).await;
    assert_eq!(bench.calls.of(Method::Renew), 0);
}

#[tokio::test]
async fn a_draining_worker_that_only_owes_answers_renews_nothing() {
    let bench = Bench::new();
    let (id, worker) = owing(&bench).await;
    worker.stopper.drain();
    bench.calls.reset();
    // It gives up when the lease is over, so that others can have the task then.
    bench.pass(LEASE + secs(1)).await;
    assert_eq!(bench.calls.of(Method::Renew), 0);
    assert_eq!(worker.end().await.unsettled, 1);
    bench.sweep().await;
    assert_eq!(bench.get(id).await.status, Status::Scheduled);
}
