//! Answers of the store that are late or lost: nothing is lost with them, and nothing done twice.

use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::task::Status;
use plimsoll_engine::worker::{Context, State};

use crate::setup::{Bench, Gate, LEASE, Notes, secs, settle_down, start};

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
