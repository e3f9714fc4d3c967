//! Tasks with lifecycles: handlers move them along, and no other way.

use plimsoll_core::lifecycle::Lifecycle;
use plimsoll_core::log::Level;
use plimsoll_core::store::Logs;
use plimsoll_core::task::{FailureKind, Status};
use plimsoll_core::{Name, StoreExt};
use plimsoll_engine::records::Swap;
use plimsoll_engine::worker::{Completion, Context, Failure, Worker};

use crate::setup::{Bench, settle_down, start};

fn stages() -> Lifecycle {
    Lifecycle::row(["reading", "writing"]).unwrap()
}

async fn through(context: Context) -> Result<(), Failure> {
    context.stage(Name::new("writing")?).await?;
    // As after a lost answer.
    context.stage(Name::new("writing")?).await?;
    Ok(())
}

#[tokio::test]
async fn a_handler_moves_its_task_through_the_stages_and_completes_it() {
    let bench = Bench::new();
    let id = bench.add(bench.task("k", "").lifecycle(stages())).await;
    let _worker = start(bench.worker().handle("k", through));
    settle_down().await;
    assert_eq!(bench.get(id).await.status, Status::Completed);
}

#[tokio::test]
async fn success_in_the_wrong_stage_fails_the_task_for_good() {
    let bench = Bench::new();
    let id = bench.add(bench.task("k", "").lifecycle(stages())).await;
    let worker = start(bench.worker().handle("k", async || {}));
    settle_down().await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Failed, 1));
    let error = task.errors.last().unwrap();
    assert_eq!(error.kind, FailureKind::Fatal);
    assert_eq!(error.stage, Some(Name::new("reading").unwrap()));
    assert_eq!(
        error.message,
        format!(
            "the answer was refused: task {id} cannot go from reading to completed; \
             allowed: writing, failed, cancelled"
        )
    );
    assert_eq!(worker.summary().refused, 0);
}

#[tokio::test]
async fn an_illegal_move_is_an_error_that_the_handler_can_answer_with() {
    let bench = Bench::new();
    let id = bench.add(bench.task("k", "").lifecycle(stages())).await;
    let astray = async |context: Context| {
        let error = context.stage(Name::new("dreaming")?).await.unwrap_err();
        assert_eq!(error.code(), "move_not_allowed");
        Err::<(), Failure>(Failure::fatal(error.to_string()))
    };
    let _worker = start(bench.worker().handle("k", astray));
    settle_down().await;
    let task = bench.get(id).await;
    assert_eq!(task.status, Status::Failed);
    assert!(
        task.reason
            .as_ref()
            .unwrap()
            .contains("from reading to dreaming")
    );
}

#[tokio::test]
async fn every_way_to_submit_a_task_gives_it_the_lifecycle_of_its_kind() {
    let bench = Bench::new();
    let engine = bench.engine.clone().lifecycle("staged", stages()).unwrap();
    let tasks = engine.tasks();
    let staged = || tasks.task("q", "staged", "").unwrap();
    let (alone, many, nested, followed) = (staged(), staged(), staged(), staged());
    let beside = staged();
    let own = Lifecycle::row(["own"]).unwrap();
    let exempt = staged().lifecycle(own.clone());
    let first_only = staged().first_stage(Name::new("x").unwrap());
    let plain = tasks.task("q", "plain", "").unwrap();
    for task in [&alone, &exempt, &first_only, &plain] {
        tasks.submit(task.clone()).await.unwrap();
    }
    let failing = tasks
        .task("q", "failing", "")
        .unwrap()
        .on_failure(nested.clone());
    tasks.submit_all([many.clone(), failing]).await;
    let swap = Swap::new("record").set("x", 1).submit(beside.clone());
    engine.records().swap(swap).await.unwrap();
    let follow = followed.clone();
    let opens = tasks.task("q", "opens", "").unwrap();
    tasks.submit(opens).await.unwrap();
    let worker = Worker::builder(engine, "w").queue("q").sweeps(false);
    let _worker = start(
        worker
            .handle("failing", async || Err::<(), _>(Failure::fatal("no")))
            .handle("opens", move || {
                let done = Completion::new().submit(follow.clone());
                async move { done }
            }),
    );
    settle_down().await;
    for (task, lifecycle) in [
        (&alone, Some(stages())),
        (&many, Some(stages())),
        (&nested, Some(stages())),
        (&followed, Some(stages())),
        (&beside, Some(stages())),
        (&exempt, Some(own)),
        (&first_only, None),
        (&plain, None),
    ] {
        let found = bench.store.task(task.id).await.unwrap().unwrap();
        assert_eq!(found.spec.lifecycle, lifecycle, "{task:?}");
    }
}

#[tokio::test]
async fn a_task_without_the_lifecycle_of_its_kind_is_told_of_once_an_attempt() {
    let bench = Bench::new();
    let engine = bench.engine.clone().lifecycle("k", stages()).unwrap();
    // Submitted by somebody who knows nothing of it.
    let bare = bench.add(bench.task("k", "")).await;
    let staged = bench.add(bench.task("k", "").lifecycle(stages())).await;
    let worker = Worker::builder(engine.clone(), "w")
        .queue("q")
        .sweeps(false);
    let _worker = start(worker.handle("k", through));
    settle_down().await;
    for (id, expected) in [(bare, 1), (staged, 0)] {
        assert_eq!(bench.get(id).await.status, Status::Completed);
        let tasks = engine.tasks();
        let page = tasks.logs(Logs {
            task: id,
            level: Level::Warn,
            cursor: None,
            limit: 10,
        });
        assert_eq!(page.await.unwrap().lines.len(), expected);
    }
}
