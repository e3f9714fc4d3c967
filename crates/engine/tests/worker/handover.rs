//! Claims of idle workers, which go with the next task that this process submits.

use futures::FutureExt;
use plimsoll_core::Result;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::store::Submitted;
use plimsoll_core::task::Status;
use plimsoll_engine::Tasks;
use tokio::task::JoinHandle;

use crate::setup::{Bench, Gate, LEASE, Started, millis, secs, settle_down, spawn, start};

/// A worker that has found nothing, whose handler waits at the gate.
async fn idle(bench: &Bench, gate: &Gate) -> Started {
    let gate = gate.clone();
    let worker = bench.worker_with(|settings| settings.poll = secs(1_000));
    let started = start(worker.handle("k", move || {
        let gate = gate.clone();
        async move { gate.wait().await }
    }));
    bench.pass(secs(1)).await;
    bench.calls.reset();
    started
}

/// How many commits, exchanges and claims there were.
fn calls(bench: &Bench) -> [usize; 3] {
    [Method::Commit, Method::Exchange, Method::Claim].map(|method| bench.calls.of(method))
}

fn tasks(bench: &Bench) -> Tasks {
    Tasks::new(bench.engine.clone())
}

/// Somebody who submits a task and carries a claim with it, and has no answer yet.
async fn carrier(bench: &Bench) -> JoinHandle<Result<Submitted>> {
    bench.calls.hold(Method::Exchange);
    let (tasks, task) = (tasks(bench), bench.task("k", ""));
    let submitter = spawn(async move { tasks.submit(task).await });
    settle_down().await;
    assert_eq!(calls(bench), [0, 1, 0]);
    submitter
}

#[tokio::test]
async fn a_task_for_an_idle_worker_takes_one_call_until_its_handler_begins() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let worker = idle(&bench, &gate).await;
    let id = tasks(&bench).submit(bench.task("k", "")).await.unwrap().id;
    assert_eq!(calls(&bench), [0, 1, 0]);
    settle_down().await;
    assert_eq!(gate.arrived(), 1);
    gate.open(1);
    bench.pass(millis(10)).await;
    assert_eq!(bench.get(id).await.status, Status::Completed);
    // And again.
    tasks(&bench).submit(bench.task("k", "")).await.unwrap();
    settle_down().await;
    assert_eq!(gate.arrived(), 2);
    gate.open(1);
    bench.pass(millis(10)).await;
    worker.stopper.drain();
    assert_eq!(worker.end().await.completed, 2);
}

#[tokio::test]
async fn what_nobody_waits_for_carries_no_claim() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let _worker = idle(&bench, &gate).await;
    tasks(&bench).submit(bench.task("other", "")).await.unwrap();
    let later = bench.task("k", "").after(secs(5));
    tasks(&bench).submit(later).await.unwrap();
    assert_eq!(calls(&bench)[0], 2);
    assert_eq!(gate.arrived(), 0);
}

#[tokio::test]
async fn two_workers_get_a_task_each() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let _workers = [idle(&bench, &gate).await, idle(&bench, &gate).await];
    for _ in 0..2 {
        tasks(&bench).submit(bench.task("k", "")).await.unwrap();
    }
    assert_eq!(calls(&bench), [0, 2, 0]);
    settle_down().await;
    assert_eq!(gate.arrived(), 2);
}

#[tokio::test]
async fn the_lease_counts_from_when_the_claim_was_sent() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let worker = idle(&bench, &gate).await;
    // Longer than a lease.
    bench.pass_in(2 * LEASE, secs(1)).await;
    let id = tasks(&bench).submit(bench.task("k", "")).await.unwrap().id;
    bench.pass(secs(1)).await;
    assert_eq!(gate.arrived(), 1);
    // It is as good as new.
    assert_eq!(bench.calls.of(Method::Renew), 0);
    assert_eq!(worker.summary().cut, 0);
    gate.open(1);
    bench.pass(millis(10)).await;
    assert_eq!(bench.get(id).await.status, Status::Completed);
}

#[tokio::test]
async fn what_is_heard_late_is_not_trusted_for_longer() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let _worker = idle(&bench, &gate).await;
    bench.calls.hold(Method::Renew);
    let _submitter = carrier(&bench).await;
    bench.pass_in(LEASE, secs(1)).await;
    bench.calls.let_go(Method::Exchange);
    bench.pass(millis(10)).await;
    assert_eq!(gate.arrived(), 0);
}

#[tokio::test]
async fn what_was_carried_for_a_worker_that_is_gone_comes_back_at_once() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let worker = idle(&bench, &gate).await;
    let submitter = carrier(&bench).await;
    worker.work.abort();
    settle_down().await;
    bench.calls.let_go(Method::Exchange);
    let id = submitter.await.unwrap().unwrap().id;
    settle_down().await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
}

#[tokio::test]
async fn a_worker_whose_handlers_run_leaves_no_claim() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let _worker = idle(&bench, &gate).await;
    for _ in 0..2 {
        tasks(&bench).submit(bench.task("k", "")).await.unwrap();
        settle_down().await;
    }
    assert_eq!(calls(&bench), [1, 1, 0]);
}

#[tokio::test]
async fn a_full_claim_is_followed_by_another() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let waits = gate.clone();
    let worker = bench.worker_with(|settings| {
        settings.poll = secs(1_000);
        settings.concurrency = 1;
        settings.prefetch_max = 0;
    });
    let _worker = start(worker.handle("k", move || {
        let gate = waits.clone();
        async move { gate.wait().await }
    }));
    bench.pass(secs(1)).await;
    // Nobody hints at the first.
    bench.submit("k", "").await;
    tasks(&bench).submit(bench.task("k", "")).await.unwrap();
    settle_down().await;
    assert_eq!(gate.arrived(), 1);
    gate.open(1);
    bench.pass(millis(10)).await;
    assert_eq!(gate.arrived(), 2);
}

#[tokio::test]
async fn a_submitter_that_goes_away_takes_nothing_with_it() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let _worker = idle(&bench, &gate).await;
    let submitter = carrier(&bench).await;
    submitter.abort();
    settle_down().await;
    assert_eq!(gate.arrived(), 0);
    bench.calls.let_go(Method::Exchange);
    settle_down().await;
    assert_eq!(gate.arrived(), 1);
}

#[tokio::test]
async fn an_answer_that_is_lost_is_asked_for_again_by_both() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let worker = idle(&bench, &gate).await;
    bench.faults.next(Method::Exchange, Fault::ErrorAfter);
    let (tasks, task) = (tasks(&bench), bench.task("k", ""));
    let submitter = spawn(async move { tasks.submit(task).await });
    bench.pass(secs(2)).await;
    let id = submitter.await.unwrap().unwrap().id;
    assert_eq!(gate.arrived(), 1);
    gate.open(1);
    bench.pass(millis(10)).await;
    let done = bench.get(id).await;
    assert_eq!((done.status, done.attempts), (Status::Completed, 1));
    worker.stopper.drain();
    assert_eq!(worker.end().await.completed, 1);
}

#[tokio::test]
async fn a_worker_that_drains_calls_its_claim_back() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let worker = idle(&bench, &gate).await;
    worker.stopper.drain();
    worker.end().await;
    let id = tasks(&bench).submit(bench.task("k", "")).await.unwrap().id;
    assert_eq!(calls(&bench), [1, 0, 0]);
    assert_eq!(bench.get(id).await.status, Status::Pending);
}

#[tokio::test]
async fn what_comes_while_a_worker_drains_is_given_back() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let worker = idle(&bench, &gate).await;
    let submitter = carrier(&bench).await;
    worker.stopper.drain();
    settle_down().await;
    assert!(!worker.work.is_finished());
    bench.calls.let_go(Method::Exchange);
    let summary = worker.end().await;
    assert_eq!(summary.started, 0);
    let id = submitter.await.unwrap().unwrap().id;
    assert_eq!(bench.get(id).await.status, Status::Pending);
}

#[tokio::test]
async fn a_worker_that_is_gone_has_left_nothing() {
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let worker = idle(&bench, &gate).await;
    worker.work.abort();
    settle_down().await;
    tasks(&bench).submit(bench.task("k", "")).await.unwrap();
    assert_eq!(calls(&bench), [1, 0, 0]);
}

#[test]
fn who_submits_outside_a_runtime_carries_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let (bench, gate) = (Bench::without_hints(), Gate::new());
    let _worker = runtime.block_on(idle(&bench, &gate));
    let tasks = tasks(&bench);
    let submitted = tasks.submit(bench.task("k", "")).now_or_never();
    assert!(submitted.unwrap().is_ok());
    assert_eq!(calls(&bench), [1, 0, 0]);
}
