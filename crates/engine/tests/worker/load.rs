//! How much a worker takes on: places, lanes, limits of kinds, and what it claims ahead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use plimsoll_core::decorate::Method;
use plimsoll_core::task::{Lane, Status};
use plimsoll_engine::worker::{Context, State};

use crate::setup::{Bench, Gate, Notes, millis, secs, settle_down, start};

async fn gated(State(gate): State<Gate>) {
    gate.wait().await;
}

/// Waits only for those that are told to.
async fn some_gated(payload: Bytes, State(gate): State<Gate>) {
    if payload == "slow" {
        gate.wait().await;
    }
}

#[tokio::test]
async fn no_more_handlers_run_than_there_are_places() {
    let bench = Bench::new();
    let gate = Gate::new();
    for _ in 0..10 {
        bench.submit("k", "").await;
    }
    let builder = bench.worker().concurrency(3).state(gate.clone());
    let worker = start(builder.handle("k", gated));
    settle_down().await;
    for done in 0..7 {
        assert_eq!(gate.arrived(), 3 + done);
        assert_eq!(worker.summary().running, 3);
        gate.open(1);
        settle_down().await;
    }
    gate.open(3);
    settle_down().await;
    assert_eq!(worker.summary().completed, 10);
}

#[tokio::test]
async fn a_kind_with_a_limit_keeps_it_and_never_waits_for_a_poll() {
    let bench = Bench::new();
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, peak) = (now.clone(), most.clone());
    let narrow = move || {
        let (now, most) = (counted.clone(), peak.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            settle_down().await;
            now.fetch_sub(1, Ordering::SeqCst);
        }
    };
    for _ in 0..8 {
        bench.submit("narrow", "").await;
    }
    let builder = bench.worker().concurrency(8).concurrency_of("narrow", 2);
    let worker = start(builder.handle("narrow", narrow).handle("wide", async || {}));
    for _ in 0..40 {
        settle_down().await;
    }
    assert_eq!(worker.summary().completed, 8, "no time has passed");
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_kind_at_its_limit_does_not_keep_others_waiting() {
    let bench = Bench::new();
    let gate = Gate::new();
    for _ in 0..5 {
        bench.submit("narrow", "").await;
    }
    let builder = bench.worker().concurrency(4).concurrency_of("narrow", 1);
    let builder = builder.state(gate.clone()).handle("narrow", gated);
    let worker = start(builder.handle("wide", async || {}));
    settle_down().await;
    for _ in 0..20 {
        bench.submit("wide", "").await;
    }
    settle_down().await;
    assert_eq!(worker.summary().completed, 20);
    assert_eq!((gate.arrived(), worker.summary().running), (1, 1));
}

#[tokio::test]
async fn more_lanes_than_one_claim_can_name_are_all_worked_on_within_one_poll() {
    let bench = Bench::without_hints();
    let kinds: Vec<String> = (0..150).map(|n| format!("k{n}")).collect();
    let mut builder = bench.worker().concurrency(4);
    for kind in &kinds {
        builder = builder.handle(kind, async || {});
    }
    let worker = start(builder);
    bench.pass(millis(500)).await;
    for kind in &kinds {
        bench.submit(kind, "").await;
    }
    bench.pass(millis(1_100)).await;
    assert_eq!(worker.summary().completed, 150);
    for more in 1..=3 {
        bench.submit("k149", "").await;
        bench.pass(millis(1_100)).await;
        assert_eq!(worker.summary().completed, 150 + more);
    }
}

#[tokio::test]
async fn kinds_and_queues_without_a_handler_here_are_never_claimed() {
    let bench = Bench::new();
    let mut elsewhere = bench.task("mine", "");
    elsewhere.lane = Lane::new("other", "mine").unwrap();
    let elsewhere = bench.add(elsewhere).await;
    let foreign = bench.submit("foreign", "").await;
    let mine = bench.submit("mine", "").await;
    let _worker = start(bench.worker().handle("mine", async || {}));
    bench.pass(secs(3)).await;
    assert_eq!(bench.get(mine).await.status, Status::Completed);
    for id in [foreign, elsewhere] {
        let task = bench.get(id).await;
        assert_eq!((task.status, task.attempts), (Status::Pending, 0));
    }
}

#[tokio::test]
async fn a_worker_with_slow_handlers_leaves_tasks_to_others() {
    let bench = Bench::new();
    let gate = Gate::new();
    for _ in 0..3 {
        bench.submit("k", "").await;
    }
    let slow = bench.worker().concurrency(1).state(gate.clone());
    let slow = start(slow.handle("k", gated));
    settle_down().await;
    let fast = start(bench.worker().concurrency(1).handle("k", async || {}));
    settle_down().await;
    assert_eq!((slow.summary().started, fast.summary().completed), (1, 2));
}

#[tokio::test]
async fn what_cannot_start_within_a_second_is_given_back_once_and_nothing_is_counted() {
    let bench = Bench::new();
    let gate = Gate::new();
    for _ in 0..40 {
        bench.submit("k", "fast").await;
    }
    let builder = bench.worker().concurrency(2).state(gate.clone());
    let worker = start(builder.handle("k", some_gated));
    settle_down().await;
    assert_eq!(worker.summary().completed, 40);
    let mut ahead = Vec::new();
    for payload in ["slow", "slow", "next", "next", "next"] {
        ahead.push(bench.submit("k", payload).await);
    }
    let ahead = ahead.split_off(2);
    settle_down().await;
    for id in &ahead {
        assert_eq!(
            bench.get(*id).await.status,
            Status::Claimed,
            "claimed ahead"
        );
    }
    bench.pass(millis(1_010)).await;
    for id in &ahead {
        let task = bench.get(*id).await;
        assert_eq!((task.status, task.failures), (Status::Pending, 0));
        assert_eq!(task.errors, []);
    }
    bench.pass_in(secs(60), millis(100)).await;
    for id in &ahead {
        assert_eq!(
            bench.get(*id).await.attempts,
            1,
            "not claimed again and again"
        );
    }
    assert_eq!(worker.summary().released, 3);
    let other = start(bench.worker().handle("k", async || {}));
    settle_down().await;
    assert_eq!(other.summary().completed, 3);
}

#[tokio::test]
async fn a_hundred_workers_do_every_task_once() {
    let bench = Bench::new();
    let done = Notes::<String>::new();
    let work = async |context: Context, State(done): State<Notes<String>>| {
        tokio::task::yield_now().await;
        done.add(context.task().id().to_string());
    };
    let workers: Vec<_> = (0..100)
        .map(|_| {
            start(
                bench
                    .worker()
                    .concurrency(4)
                    .state(done.clone())
                    .handle("k", work),
            )
        })
        .collect();
    for _ in 0..2_000 {
        bench.submit("k", "").await;
    }
    bench.pass(secs(2)).await;
    let mut times = BTreeMap::<String, u32>::new();
    for id in done.all() {
        *times.entry(id).or_default() += 1;
    }
    assert_eq!(times.len(), 2_000);
    assert!(times.values().all(|times| *times == 1));
    let completed: u64 = workers.iter().map(|one| one.summary().completed).sum();
    assert_eq!(completed, 2_000);
}

#[tokio::test]
async fn a_narrow_kind_does_not_hold_up_a_wide_one() {
    let bench = Bench::new();
    for _ in 0..60 {
        bench.submit("wide", "").await;
    }
    let gate = Gate::new();
    let builder = bench.worker().concurrency(100).state(gate.clone());
    let builder = builder.handle("wide", gated).handle("narrow", gated);
    let _worker = start(
        builder
            .concurrency_of("wide", 60)
            .concurrency_of("narrow", 1),
    );
    settle_down().await;
    assert_eq!(gate.arrived(), 60);
    let calls = bench.calls.of(Method::Exchange);
    assert!(calls <= 6, "{calls} calls");
}
