//! Answers that the store will not take: the task fails with a helpful error, the worker goes on.

use bytes::Bytes;
use plimsoll_core::store::{Ending, Settle, Write};
use plimsoll_core::task::{FailureKind, Holder, Status, Task};
use plimsoll_core::{Error, Fence, Key};
use plimsoll_engine::worker::{Answer, Completion, Context, Failure};

use crate::setup::{Bench, millis, settle_down, start};

/// What becomes of a task whose handler answers this, while another one is done.
async fn answered(
    answer: impl Fn(&Bench, &Context) -> Answer + Clone + Send + Sync + 'static,
) -> Task {
    let bench = std::sync::Arc::new(Bench::new());
    let shared = bench.clone();
    let odd = move |context: Context| {
        let answer = answer(&shared, &context);
        async move { answer }
    };
    let id = bench.submit("odd", "").await;
    let other = bench.submit("even", "").await;
    let builder = bench.worker().handle("odd", odd);
    let worker = start(builder.handle("even", async || {}));
    settle_down().await;
    assert_eq!(bench.get(other).await.status, Status::Completed);
    assert_eq!(worker.summary().refused, 0);
    let task = bench.get(id).await;
    assert_ne!(task.status, Status::Claimed);
    worker.stopper.drain();
    worker.end().await;
    task
}

fn last_error(task: &Task) -> (FailureKind, &str) {
    let error = task.errors.last().unwrap();
    (error.kind, &error.message)
}

#[tokio::test]
async fn a_result_that_is_too_large_fails_the_task_for_good() {
    let large =
        |_: &Bench, _: &Context| Answer::Complete(Completion::bytes(Bytes::from(vec![0; 300_000])));
    let task = answered(large).await;
    assert_eq!(task.status, Status::Failed);
    let (kind, message) = last_error(&task);
    assert_eq!(kind, FailureKind::Fatal);
    assert!(message.contains("the answer was refused"), "{message}");
    assert!(
        message.contains("300000 bytes, at most 262144"),
        "{message}"
    );
}

#[tokio::test]
async fn a_follow_up_that_is_wrong_fails_the_task_for_good() {
    let wrong = |bench: &Bench, _: &Context| {
        let mut next = bench.task("next", "");
        next.payload = Bytes::from(vec![0; 300_000]);
        Answer::Complete(Completion::new().submit(next))
    };
    let task = answered(wrong).await;
    assert_eq!(task.status, Status::Failed);
    assert!(last_error(&task).1.contains("payload"), "{:?}", task.errors);
}

#[tokio::test]
async fn a_completion_that_writes_records_of_the_engine_fails_the_task_for_good() {
    let ruins = |_: &Bench, _: &Context| {
        let lock = Key::new("plimsoll.locks.nightly").unwrap();
        Answer::Complete(Completion::new().write(Write::Delete(lock)))
    };
    let task = answered(ruins).await;
    assert_eq!(task.status, Status::Failed);
    let message = last_error(&task).1;
    assert!(message.contains("belongs to the engine"), "{message}");
}

#[tokio::test]
async fn a_write_that_conflicts_is_a_failure_like_others() {
    let conflict = |bench: &Bench, context: &Context| {
        // The id of this very task, for something else.
        let mut next = bench.task("next", "");
        next.id = context.task().id();
        Answer::Complete(Completion::new().submit(next))
    };
    let task = answered(conflict).await;
    assert_eq!((task.status, task.failures), (Status::Scheduled, 1));
    let (kind, message) = last_error(&task);
    assert_eq!(kind, FailureKind::Error);
    assert!(message.contains("is taken by another task"), "{message}");
    assert_eq!(task.result, None);
}

#[tokio::test]
async fn a_settle_of_a_foreign_task_fails_this_one_and_does_not_leave_it_claimed() {
    let foreign = |bench: &Bench, context: &Context| {
        let other = Holder {
            task: bench.engine.ids().task(),
            worker: context.holder().worker.clone(),
            fence: Fence::default().next(),
        };
        let write = Write::Settle(Settle {
            holder: other,
            how: Ending::Release { reason: None },
        });
        Answer::Complete(Completion::new().write(write))
    };
    let task = answered(foreign).await;
    assert_eq!((task.status, task.failures), (Status::Scheduled, 1));
    assert!(last_error(&task).1.contains("refused"), "{:?}", task.errors);
}

#[tokio::test]
async fn an_error_is_kept_whatever_it_says_and_tried_again() {
    let long = |_: &Bench, _: &Context| Answer::Fail(Failure::new("ä".repeat(100_000)));
    let task = answered(long).await;
    assert_eq!((task.status, task.failures), (Status::Scheduled, 1));
    assert!(last_error(&task).1.starts_with("ää"));
    let nul = |_: &Bench, _: &Context| Answer::Fail(Failure::new("a\0b"));
    let task = answered(nul).await;
    assert_eq!(task.status, Status::Scheduled);
    assert_eq!(last_error(&task), (FailureKind::Error, "a\u{fffd}b"));
}

#[tokio::test]
async fn a_worker_whose_store_was_closed_says_so() {
    let bench = Bench::new();
    let worker = start(bench.worker().handle("k", async || {}));
    settle_down().await;
    bench.store.close().await.unwrap();
    bench.pass(millis(10_100)).await;
    assert!(worker.work.is_finished());
    assert_eq!(worker.work.await.unwrap(), Err(Error::Closed));
}
