//! How long one attempt may take.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::TaskId;
use plimsoll_core::clock::Clock;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::task::{FailureKind, Status, Task};
use plimsoll_engine::worker::{Cause, Completion, Context, State};

use crate::setup::{Bench, LEASE, Notes, millis, secs, settle_down, start};

type Heard = Notes<(Cause, Duration)>;

async fn submit(bench: &Bench, timeout: Duration) -> TaskId {
    let mut task = bench.task("k", "");
    task.attempt_timeout = Some(timeout);
    bench.add(task).await
}

fn kinds(task: &Task) -> Vec<FailureKind> {
    task.errors.iter().map(|error| error.kind).collect()
}

/// Writes down what it hears, and never ends.
async fn deaf(context: Context, State(heard): State<Heard>) {
    let cause = context.cancellation().await;
    heard.add((cause, context.engine().clock().monotonic()));
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_handler_is_asked_and_then_dropped_and_that_is_no_lost_lease() {
    let bench = Bench::new();
    let heard = Heard::new();
    let id = submit(&bench, secs(20)).await;
    let worker = start(bench.worker().state(heard.clone()).handle("k", deaf));
    bench.pass(millis(18_900)).await;
    assert_eq!(heard.all(), []);
    bench.pass(millis(200)).await;
    assert_eq!(heard.all(), [(Cause::Deadline, secs(19))]);
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    bench.pass(secs(1)).await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Scheduled, 1));
    assert_eq!(kinds(&task), [FailureKind::DeadlineExceeded]);
    assert_eq!((worker.summary().cut, worker.summary().retried), (1, 1));
}

#[tokio::test]
async fn a_dead_worker_leaves_another_error() {
    let bench = Bench::new();
    let id = submit(&bench, LEASE * 2).await;
    assert_eq!(bench.claim_elsewhere("k", 1).await.len(), 1);
    bench.clock.advance(LEASE);
    bench.sweep().await;
    assert_eq!(kinds(&bench.get(id).await), [FailureKind::LeaseExpired]);
}

#[tokio::test]
async fn an_answer_in_time_counts_although_it_was_asked_to_stop() {
    let bench = Bench::new();
    let id = submit(&bench, secs(20)).await;
    let heed = async |context: Context| {
        assert_eq!(context.cancellation().await, Cause::Deadline);
        Completion::bytes("just in time")
    };
    let _worker = start(bench.worker().handle("k", heed));
    bench.pass(secs(20)).await;
    let task = bench.get(id).await;
    assert_eq!(task.result, Some(Bytes::from("just in time")));
}

#[tokio::test]
async fn a_long_attempt_is_renewed_up_to_its_deadline() {
    let bench = Bench::new();
    let heard = Heard::new();
    let id = submit(&bench, LEASE * 4).await;
    let _sweeper = bench.start_sweeper();
    let _worker = start(bench.worker().state(heard.clone()).handle("k", deaf));
    bench.pass(LEASE * 4 + millis(50)).await;
    assert_eq!(heard.all(), [(Cause::Deadline, LEASE * 4 - secs(1))]);
    assert_eq!(kinds(&bench.get(id).await), [FailureKind::DeadlineExceeded]);
}

#[tokio::test]
async fn the_store_is_told_when_it_must_agree_and_not_before() {
    let bench = Bench::new();
    let heard = Heard::new();
    bench.faults.next(Method::Exchange, Fault::Delay(secs(2)));
    let id = submit(&bench, secs(5)).await;
    let worker = start(bench.worker().state(heard.clone()).handle("k", deaf));
    bench.pass(millis(5_100)).await;
    assert_eq!(
        worker.summary().cut,
        1,
        "five seconds after it was asked for"
    );
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    bench.calls.reset();
    bench.pass(secs(2)).await;
    assert_eq!(kinds(&bench.get(id).await), [FailureKind::DeadlineExceeded]);
    // The second one looks for what the first one has scheduled.
    assert_eq!(bench.calls.of(Method::Exchange), 2, "told once");
}

#[tokio::test]
async fn a_deadline_that_passes_during_a_drain_is_still_a_deadline() {
    let bench = Bench::new();
    let heard = Heard::new();
    let id = submit(&bench, secs(20)).await;
    let settings = |settings: &mut plimsoll_engine::worker::Settings| settings.drain_soft = secs(1);
    let worker = start(
        bench
            .worker_with(settings)
            .state(heard.clone())
            .handle("k", deaf),
    );
    settle_down().await;
    worker.stopper.drain();
    bench.pass(secs(21)).await;
    assert_eq!(heard.all(), [(Cause::Draining, secs(1))]);
    assert_eq!(kinds(&bench.get(id).await), [FailureKind::DeadlineExceeded]);
    assert_eq!(worker.end().await.interrupted, 0);
}

#[tokio::test]
async fn a_store_whose_clock_is_behind_is_told_again() {
    let bench = Bench::new();
    let id = submit(&bench, secs(5)).await;
    let worker = start(bench.worker().state(Heard::new()).handle("k", deaf));
    bench.pass(secs(4)).await;
    let behind = bench.clock.now().saturating_minus(secs(1));
    bench.clock.jump_to(behind);
    bench.pass(millis(1_500)).await;
    assert_eq!(worker.summary().cut, 1);
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    bench.pass(millis(700)).await;
    assert_eq!(kinds(&bench.get(id).await), [FailureKind::DeadlineExceeded]);
}
