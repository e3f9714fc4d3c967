//! One handler, one task, once.

use plimsoll_core::store::FailRetry;
use plimsoll_core::task::Status;
use plimsoll_engine::testing::Kit;
use plimsoll_engine::worker::{Answer, Completion, Context, Failure, Json};

use crate::setup::{HOUR, failure, submit, task};

#[tokio::test]
async fn only_the_task_at_hand_is_run_although_others_come_first() {
    let kit = Kit::new();
    let other = submit(
        &kit,
        task(&kit, "k", "other").priority(10.try_into().unwrap()),
    )
    .await;
    let worker = kit.worker("w").queue("q").handle("k", async || {});
    let task = kit.perform(worker, task(&kit, "k", "mine")).await;
    kit.assert_completed(task.id());
    assert_eq!(kit.assert_pending(other).attempts, 0);
}

#[tokio::test]
async fn one_attempt_is_made_whatever_it_comes_to() {
    let kit = Kit::new().moves_max(10);
    let worker = || kit.worker("w").queue("q");
    let released = worker().handle("k", async || Answer::Release);
    let task_ = kit.perform(released, task(&kit, "k", "")).await;
    assert_eq!((task_.status, task_.attempts), (Status::Pending, 1));
    kit.tasks().cancel(task_.id(), None).await.unwrap();

    let retried = worker().handle("k", async || Failure {
        message: "busy".into(),
        retry: FailRetry::After(std::time::Duration::ZERO),
    });
    let task_ = kit.perform(retried, task(&kit, "k", "")).await;
    assert_eq!((task_.attempts, task_.failures), (1, 1));
}

#[tokio::test]
async fn follow_up_tasks_are_left_to_be_looked_at() {
    let kit = Kit::new();
    let order = async |context: Context, Json(number): Json<u32>| {
        let ship = context.engine().tasks().json("q", "order", &(number + 1));
        Ok::<_, plimsoll_core::Error>(Completion::new().submit(ship?))
    };
    let worker = kit.worker("w").queue("q").handle("order", order);
    kit.perform(worker, task(&kit, "order", "7")).await;
    let follow_up = kit.assert_submitted("q", "order").with(&8).times(1);
    assert_eq!(follow_up.tasks()[0].status, Status::Pending);
}

#[tokio::test]
async fn errors_and_panics_are_told() {
    let kit = Kit::new();
    let worker = |says: &'static str| {
        kit.worker("w").queue("q").handle("k", move || async move {
            assert!(says != "panic", "what now");
            Err::<(), _>(says)
        })
    };
    let failed = kit.perform(worker("oh"), task(&kit, "k", "")).await;
    assert_eq!(kit.assert_retrying(failed.id(), "oh").failures, 1);
    let panicked = kit.perform(worker("panic"), task(&kit, "k", "")).await;
    kit.assert_retrying(panicked.id(), "panicked: what now");
}

#[tokio::test]
async fn a_task_that_cannot_be_run_fails_the_test_and_says_why() {
    let kit = Kit::new();
    let worker = || kit.worker("w").queue("q").handle("k", async || {});
    let unknown = failure(kit.perform(worker(), task(&kit, "other", ""))).await;
    assert_eq!(
        unknown,
        "the task was not run: the worker has no handler for q/other"
    );
    let early = failure(kit.perform(worker(), task(&kit, "k", "").after(HOUR))).await;
    assert!(early.starts_with("the task was not run: task "), "{early}");
    assert!(early.contains("is due at 2030-01-01T01:00:00"), "{early}");
    let nothing = failure(kit.perform(kit.worker("w"), task(&kit, "k", ""))).await;
    assert!(
        nothing.starts_with("the worker cannot be built: queue"),
        "{nothing}"
    );
}

#[tokio::test]
async fn several_are_performed_beside_each_other() {
    let kit = Kit::new();
    let worker = || kit.worker("w").queue("q").handle("k", async || {});
    let other = submit(&kit, task(&kit, "k", "other")).await;
    let (a, b) = tokio::join!(
        kit.perform(worker(), task(&kit, "k", "a")),
        kit.perform(worker(), task(&kit, "k", "b"))
    );
    kit.assert_completed(a.id());
    kit.assert_completed(b.id());
    kit.assert_pending(other);
}

#[tokio::test]
async fn a_handler_that_waits_for_the_clock_gets_its_time() {
    let kit = Kit::new();
    let slow = async |context: Context| context.engine().clock().sleep(HOUR).await;
    let worker = kit.worker("w").queue("q").handle("k", slow);
    let done = kit.perform(worker, task(&kit, "k", "")).await;
    let took = done.finished_at.unwrap().since(done.started_at.unwrap());
    assert_eq!(took, HOUR);
}

/// What waits for the world outside must not be hurried by a clock that only tests know.
#[tokio::test]
async fn time_stands_still_while_a_handler_waits_for_something_else() {
    let kit = Kit::new();
    let (go, gone) = tokio::sync::oneshot::channel();
    let gone = std::sync::Arc::new(std::sync::Mutex::new(Some(gone)));
    let outside = move || {
        let gone = gone.lock().unwrap().take().unwrap();
        async move { gone.await.map_err(|_| "never heard") }
    };
    let worker = kit.worker("w").queue("q").handle("k", outside);
    let task = task(&kit, "k", "").attempt_timeout(crate::setup::SECOND);
    let elsewhere = std::thread::Builder::new();
    #[allow(clippy::disallowed_methods)]
    let elsewhere = elsewhere.spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        go.send(()).unwrap();
    });
    let done = kit.perform(worker, task).await;
    elsewhere.unwrap().join().unwrap();
    kit.assert_completed(done.id());
    assert_eq!(done.finished_at, done.started_at);
}
