//! What handlers answer, and what becomes of the task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::store::FailRetry;
use plimsoll_core::task::Status;
use plimsoll_engine::worker::{Answer, Completion, Context, Failure, Json, State};

use crate::setup::Bench;

#[tokio::test]
async fn a_handler_takes_what_it_asks_for_and_its_answer_is_the_result() {
    let bench = Bench::new();
    let add =
        async |Json((a, b)): Json<(u32, u32)>, State(factor): State<u32>, context: Context| {
            assert_eq!(context.attempt(), 1);
            Ok::<_, Failure>(Json((a + b) * *factor))
        };
    let id = bench.submit("add", "[2, 3]").await;
    let worker = bench
        .worker()
        .state(10_u32)
        .handle("add", add)
        .build()
        .unwrap();
    let summary = worker.run_until_empty().await.unwrap();
    assert_eq!((summary.started, summary.completed), (1, 1));
    let task = bench.get(id).await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(task.result, Some(Bytes::from("50")));
}

#[tokio::test]
async fn each_answer_settles_the_task_its_own_way() {
    let bench = Bench::new();
    let minute = Duration::from_secs(60);
    let answer = move |payload: Bytes| async move {
        match &payload[..] {
            b"done" => Answer::Complete(Completion::bytes("result")),
            b"failed" => Answer::Fail(Failure::new("oh")),
            b"fatal" => Answer::Fail(Failure::fatal("no")),
            b"later" => Answer::Fail(Failure::retry_after(minute, "busy")),
            b"snoozed" => Answer::Snooze(minute),
            b"cancelled" => Answer::Cancel(Some("stale".into())),
            b"panic" => panic!("what now"),
            _ => Answer::Complete(Completion::new()),
        }
    };
    let mut ids = Vec::new();
    let payloads = [
        "done",
        "failed",
        "fatal",
        "later",
        "snoozed",
        "cancelled",
        "panic",
    ];
    for payload in payloads {
        ids.push(bench.submit("k", payload).await);
    }
    let worker = bench.worker().handle("k", answer).build().unwrap();
    let summary = worker.run_until_empty().await.unwrap();
    assert_eq!(summary.started, 7);
    let now = bench.engine.store().ping().await.unwrap();
    let mut seen = Vec::new();
    for id in ids {
        let task = bench.get(id).await;
        let error = task
            .errors
            .last()
            .map_or("", |error| error.message.as_str())
            .to_owned();
        let after = task.runnable_at.since(now).as_secs();
        seen.push((task.status, error, task.failures, after));
    }
    let policy = |after: u64| (8..=10).contains(&after);
    assert_eq!(seen[0], (Status::Completed, String::new(), 0, 0));
    assert!(
        seen[1].0 == Status::Scheduled && seen[1].1 == "oh" && policy(seen[1].3),
        "{seen:?}"
    );
    assert_eq!(seen[2], (Status::Failed, "no".into(), 1, 0));
    assert_eq!(seen[3], (Status::Scheduled, "busy".into(), 1, 60));
    assert_eq!(seen[4], (Status::Scheduled, String::new(), 0, 60));
    assert_eq!(seen[5], (Status::Cancelled, String::new(), 0, 0));
    assert!(
        seen[6].0 == Status::Scheduled && seen[6].1 == "panicked: what now",
        "{seen:?}"
    );
    assert_eq!(
        (summary.completed, summary.failed, summary.cancelled),
        (1, 1, 1)
    );
    assert_eq!(summary.retried, 4);
}

#[tokio::test]
async fn a_backoff_function_decides_when_and_the_policy_how_often() {
    let bench = Bench::new();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let fail = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Err::<(), _>("no luck") }
    };
    let id = bench.submit("k", "").await;
    for _ in 0..4 {
        let worker = bench
            .worker()
            .sweeps(true)
            .handle("k", fail.clone())
            .backoff("k", |task, failure| {
                assert_eq!(failure.retry, FailRetry::Policy);
                Some(Duration::from_secs(u64::from(task.failures)))
            })
            .build()
            .unwrap();
        worker.run_until_empty().await.unwrap();
        let task = bench.get(id).await;
        let now = bench.engine.store().ping().await.unwrap();
        let expected = u64::from(task.failures - 1);
        if task.status == Status::Scheduled {
            assert_eq!(task.runnable_at.since(now).as_secs(), expected);
        }
        bench.clock.advance(Duration::from_secs(expected));
    }
    let task = bench.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Failed, 4));
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_result_that_could_not_be_read_again_fails_for_good() {
    let bench = Bench::new();
    let id = bench.submit("divide", "x").await;
    let divide = async |_: Bytes| Ok::<_, Failure>(Json(vec![1.0 / 0.0]));
    let worker = bench.worker().handle("divide", divide).build().unwrap();
    worker.run_until_empty().await.unwrap();
    let task = bench.get(id).await;
    assert_eq!((task.status, &task.result), (Status::Failed, &None));
    let message = &task.errors.last().unwrap().message;
    let expected = "the result is not a value that JSON can hold: a number must be finite";
    assert_eq!(message, expected);
}
