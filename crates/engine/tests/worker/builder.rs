//! What is wrong with a worker is found when it is built.

use std::time::Duration;

use plimsoll_core::limits::{DURATION_MAX, LEASE_MAX};
use plimsoll_engine::Worker;
use plimsoll_engine::worker::{Settings, State, WorkerBuilder};

use crate::setup::{Bench, millis, secs};

fn refused(builder: WorkerBuilder) -> String {
    match builder.build() {
        Ok(worker) => panic!("{worker:?} was built"),
        Err(invalid) => invalid.to_string(),
    }
}

#[tokio::test]
async fn names_handlers_and_state_are_checked() {
    let bench = Bench::new();
    let builder = || Worker::builder(bench.engine.clone(), "w");
    let nothing = async || {};
    let stateful = async |_: State<String>| {};
    let good = || bench.worker().handle("k", nothing);
    let cases: Vec<(WorkerBuilder, &str)> = vec![
        (
            builder().handle("k", nothing),
            "queue: is missing: name a queue to work on",
        ),
        (
            builder().queue("").handle("k", nothing),
            "queue: must not be empty",
        ),
        (good().queue("q"), "queue: names q twice"),
        (
            bench.worker(),
            "handler: is missing: give a handler for at least one kind",
        ),
        (
            bench.worker().handle("", nothing),
            "kind: must not be empty",
        ),
        (good().handle("k", nothing), "kind: names k twice"),
        (
            Worker::builder(bench.engine.clone(), "")
                .queue("q")
                .handle("k", nothing),
            "worker: must not be empty",
        ),
        (
            bench.worker().handle("k", stateful),
            "handler k.state: is missing: a handler asks for alloc::string::String",
        ),
        (
            good().concurrency_of("x", 1),
            "concurrency_of: is missing: no handler for x",
        ),
        (
            good().backoff("x", |_, _| None),
            "backoff: is missing: no handler for x",
        ),
    ];
    for (builder, expected) in cases {
        assert_eq!(refused(builder), expected);
    }
    assert!(good().build().is_ok());
    let with_state = bench.worker().state(String::new()).handle("k", stateful);
    assert!(with_state.build().is_ok());
}

#[tokio::test]
async fn numbers_and_durations_are_checked() {
    let bench = Bench::new();
    let good = || bench.worker().handle("k", async || {});
    let with = |change: fn(&mut Settings)| good().settings(change);
    let cases: Vec<(WorkerBuilder, &str)> = vec![
        (good().concurrency(0), "concurrency: 0 is not between 1"),
        (
            good().concurrency_of("k", 0),
            "concurrency_of: 0 is not between 1",
        ),
        (
            with(|s| s.lease = millis(99)),
            "lease: 99ms is not between 100ms",
        ),
        (
            with(|s| s.lease = LEASE_MAX + secs(1)),
            "lease: 604801s is not between",
        ),
        (
            with(|s| s.poll = Duration::ZERO),
            "poll: 0ns is not between 1ms",
        ),
        (
            with(|s| s.poll = DURATION_MAX + secs(1)),
            "poll: 3153600001s",
        ),
        (with(|s| s.cancel_grace = Duration::MAX), "cancel_grace: "),
        (with(|s| s.drain_soft = Duration::MAX), "drain_soft: "),
        (with(|s| s.drain_hard = Duration::MAX), "drain_hard: "),
        (
            with(|s| s.heartbeat = Duration::ZERO),
            "heartbeat: 0ns is not between 1ms and 3600s",
        ),
        (
            with(|s| s.stale_after = secs(9)),
            "stale_after: 9s is not between 10s and 43200s",
        ),
        (good().version("v".repeat(129)), "version: 129 bytes"),
    ];
    for (builder, expected) in cases {
        let said = refused(builder);
        assert!(said.starts_with(expected), "{said}");
    }
}

#[tokio::test]
async fn the_extremes_that_are_allowed_work() {
    for extreme in [
        (|s: &mut Settings| s.concurrency = usize::MAX) as fn(&mut Settings),
        |s| s.prefetch_max = usize::MAX,
        |s| s.prefetch_max = 0,
        |s| s.lease = millis(100),
        |s| s.lease = LEASE_MAX,
        |s| s.poll = DURATION_MAX,
        |s| {
            (s.cancel_grace, s.drain_soft, s.drain_hard) =
                (DURATION_MAX, DURATION_MAX, DURATION_MAX)
        },
    ] {
        let bench = Bench::new();
        for _ in 0..3 {
            bench.submit("k", "").await;
        }
        let worker = bench.worker_with(extreme).handle("k", async || {});
        let worker = worker.build().unwrap();
        worker.stopper();
        let summary = worker.run_until_empty().await.unwrap();
        assert_eq!(summary.completed, 3);
    }
}
