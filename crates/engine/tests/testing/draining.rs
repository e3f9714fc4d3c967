//! Until nothing is left to do, now or ever.

use std::time::Duration;

use plimsoll_core::clock::Clock;
use plimsoll_core::task::{Backoff, RetryPolicy};
use plimsoll_engine::testing::Kit;
use plimsoll_engine::worker::{Answer, Completion, Context, Json};

use crate::setup::{HOUR, SECOND, failure, submit, task};

#[tokio::test]
async fn a_drain_does_what_is_runnable_and_what_becomes_so_by_it() {
    let kit = Kit::new();
    let count = async |context: Context, Json(left): Json<u32>| {
        let next = context.engine().tasks().json("q", "count", &(left - 1));
        match left {
            1 => Ok(Completion::new()),
            _ => next.map(|next| Completion::new().submit(next)),
        }
    };
    submit(&kit, task(&kit, "count", "200")).await;
    let later = submit(&kit, task(&kit, "count", "1").after(SECOND)).await;
    let before = kit.clock().now();
    let worker = kit.worker("w").queue("q").handle("count", count);
    assert_eq!(kit.drain(worker).await.completed, 200);
    assert_eq!(kit.clock().now(), before);
    kit.assert_due_in(later, SECOND);
}

#[tokio::test]
async fn draining_all_waits_for_retries_snoozes_and_delays() {
    let kit = Kit::new();
    let third = async |context: Context| match context.attempt() {
        1 => Answer::Fail("not yet".into()),
        2 => Answer::Snooze(HOUR),
        _ => Answer::Complete(Completion::bytes("3")),
    };
    let month = 24 * 30 * HOUR;
    let fixed = RetryPolicy {
        backoff: Backoff::Fixed(10 * SECOND),
        jitter_percent: 0,
        ..RetryPolicy::default()
    };
    let delayed = task(&kit, "third", "").after(month).retry(fixed);
    let id = submit(&kit, delayed).await;
    let worker = kit.worker("w").queue("q").handle("third", third);
    let summary = kit.drain_all(worker).await;
    assert_eq!((summary.started, summary.completed), (3, 1));
    let task = kit.assert_completed_with(id, &3);
    let took = task.finished_at.unwrap().since(task.spec.created_at);
    assert_eq!(took, month + 10 * SECOND + HOUR);
}

#[tokio::test]
async fn draining_all_leaves_what_the_worker_has_no_handler_for() {
    let kit = Kit::new();
    let foreign = submit(&kit, task(&kit, "foreign", "").after(HOUR)).await;
    let mine = submit(&kit, task(&kit, "mine", "").after(2 * HOUR)).await;
    let worker = kit.worker("w").queue("q").handle("mine", async || {});
    assert_eq!(kit.drain_all(worker).await.started, 1);
    kit.assert_completed(mine);
    kit.assert_pending(foreign);
}

#[tokio::test]
async fn what_never_ends_fails_the_test_and_is_named() {
    let kit = Kit::new().moves_max(25);
    let endless = task(&kit, "k", "{\"to\":\"ada\"}").max_attempts(0);
    let id = submit(&kit, endless).await;
    let worker = kit.worker("w").queue("q");
    let worker = worker.handle("k", async || Err::<(), _>("no route"));
    let said = failure(kit.drain_all(worker)).await;
    let begin = format!(
        "time was moved 25 times and tasks are still waiting:\n  q/k {id}: scheduled, payload {{\"to\":\"ada\"}}, due in "
    );
    assert!(said.starts_with(&begin), "{said}");
    assert!(said.ends_with("26 failures, the last: no route"), "{said}");
}

#[tokio::test]
async fn what_never_comes_to_rest_fails_the_test_and_is_named() {
    let kit = Kit::new().moves_max(10);
    let id = submit(&kit, task(&kit, "k", "")).await;
    let worker = kit.worker("w").queue("q");
    let worker = worker.handle("k", async || Answer::Release);
    let said = failure(kit.drain(worker)).await;
    let begin = format!("nothing comes to rest and tasks are still waiting:\n  q/k {id}: ");
    assert!(said.starts_with(&begin), "{said}");
}

#[tokio::test]
async fn a_handler_may_wait_for_a_task_that_has_to_be_retried() {
    let kit = Kit::new();
    let parent = async |context: Context| {
        let tasks = context.engine().tasks();
        let child = tasks.submit_and_wait(tasks.task("q", "child", "")?).await?;
        Ok::<_, plimsoll_core::Error>(Json(child.attempts))
    };
    let child = async |context: Context| match context.attempt() {
        1 => Err("not yet"),
        _ => Ok(()),
    };
    let worker = kit.worker("w").queue("q");
    let worker = worker.handle("parent", parent).handle("child", child);
    let id = submit(&kit, task(&kit, "parent", "")).await;
    kit.drain(worker).await;
    kit.assert_completed_with(id, &2);
}

#[tokio::test]
async fn two_runs_are_the_same() {
    let run = async || {
        let kit = Kit::seeded(7);
        for _ in 0..20 {
            submit(&kit, task(&kit, "k", "")).await;
        }
        let worker = kit.worker("w").queue("q").concurrency(3);
        let worker = worker.handle("k", async || Err::<(), _>("no route"));
        kit.drain_all(worker).await;
        let ends = kit
            .all()
            .into_iter()
            .map(|task| (task.id(), task.finished_at));
        ends.collect::<Vec<_>>()
    };
    let (one, other) = (run().await, run().await);
    assert_eq!(one.len(), 20);
    assert_eq!(one, other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_works_on_many_threads_and_idling_says_that_it_does_not() {
    let kit = Kit::new();
    for _ in 0..50 {
        submit(&kit, task(&kit, "k", "")).await;
    }
    let once = async |context: Context| match context.attempt() {
        1 => Err("not yet"),
        _ => Ok(()),
    };
    let worker = kit.worker("w").queue("q").handle("k", once);
    let summary = kit.drain_all(worker).await;
    assert_eq!((summary.retried, summary.completed), (50, 50));
    let said = failure(kit.pass(Duration::ZERO)).await;
    assert!(said.contains("a runtime of one thread"), "{said}");
}
