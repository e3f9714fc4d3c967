//! Claims that go beside many answers, where the store writes several things at once.

use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::task::Status;

use crate::setup::{Bench, Gate, Started, secs, settle_down, start};

const MANY: usize = 300;

/// A worker with many handlers, which all wait at the gate.
async fn gated(bench: &Bench, gate: &Gate) -> Started {
    for _ in 0..MANY {
        bench.submit("k", "").await;
    }
    let handler = {
        let gate = gate.clone();
        move || {
            let gate = gate.clone();
            async move { gate.wait().await }
        }
    };
    let worker = bench.worker_with(|settings| {
        settings.concurrency = MANY;
        settings.prefetch_max = 0;
    });
    let worker = start(worker.handle("k", handler));
    while gate.arrived() < MANY {
        settle_down().await;
    }
    worker
}

/// How many handlers have begun while the store has answers of others, and gives none.
async fn begun(bench: &Bench) -> usize {
    let gate = Gate::new();
    let worker = gated(bench, &gate).await;
    bench.calls.hold(Method::Exchange);
    gate.open(MANY);
    settle_down().await;
    for _ in 0..5 {
        bench.submit("k", "").await;
    }
    settle_down().await;
    let begun = gate.arrived();
    bench.calls.let_go(Method::Exchange);
    gate.open(5);
    settle_down().await;
    worker.stopper.drain();
    assert_eq!(worker.end().await.completed, MANY as u64 + 5);
    begun
}

#[tokio::test]
async fn where_the_store_writes_several_things_at_once_claims_do_not_wait_for_answers() {
    assert_eq!(begun(&Bench::concurrent()).await, MANY + 5);
}

#[tokio::test]
async fn elsewhere_they_go_with_the_next_answers() {
    assert_eq!(begun(&Bench::new()).await, MANY);
}

#[tokio::test]
async fn a_claim_beside_answers_whose_answer_is_lost_is_repeated_as_it_was() {
    let bench = Bench::concurrent();
    bench.faults.next(Method::Claim, Fault::ErrorAfter);
    let gate = Gate::new();
    let worker = gated(&bench, &gate).await;
    gate.open(MANY);
    let extra = [bench.submit("k", "").await, bench.submit("k", "").await];
    bench.pass(secs(1)).await;
    assert_eq!(bench.calls.of(Method::Claim), 1);
    assert_eq!(gate.arrived(), MANY + 2);
    gate.open(2);
    bench.pass(secs(1)).await;
    for id in extra {
        let task = bench.get(id).await;
        assert_eq!((task.status, task.attempts), (Status::Completed, 1));
    }
    worker.stopper.drain();
    assert_eq!(worker.end().await.completed, MANY as u64 + 2);
}
